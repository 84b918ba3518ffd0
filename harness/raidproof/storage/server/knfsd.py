"""Linux's own NFS server, nfsd: its request, its commands, and its state."""

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Literal

from pydantic import Field

from raidproof.core.errors import RigError
from raidproof.core.layer import Machine, Value, found_in, read_files, require_effective, try_all, whole_number
from raidproof.core.units import MIB, Size
from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.storage.filesystem import DIRECTORY
from raidproof.storage.server.server import NFS_PORT, Outage, Server, ServerSpec, ServerState

_NFSD = "/proc/fs/nfsd"
_LOCKD_GRACE = "/proc/fs/lockd/nlm_end_grace"
GRACE_ENDED = f"{_NFSD}/v4_end_grace"
"""Reading it gives Y once the grace period is over; writing Y ends the grace period."""
_GRACE_ENDS_S = 10.0
_THREADS = f"{_NFSD}/threads"
DAEMONS = ("nfsdcld", "rpc.mountd")
"""Daemons that nfsd queries: for the records of its clients, and for exports."""
_DEATH_DEADLINE_S = 15.0
_KILL = 1 << 9 - 1
_ETAB = "/var/lib/nfs/etab"
_LEASES = "/proc/sys/fs/leases-enable"
_FILES = (
    _ETAB,
    _LEASES,
    *(
        f"{_NFSD}/{name}"
        for name in ("exports", "threads", "nfsv4leasetime", "nfsv4gracetime", "versions", "max_block_size")
    ),
)
_TRACKING = re.compile(r"NFSD: (?:Using (.+) client tracking operations|(Unable to initialize client recovery.*))")


class ExportSpec(ServerSpec):
    """An export of the kernel's nfsd, with the options of exports(5)."""

    type: Literal["knfsd"] = "knfsd"
    wdelay: bool = True
    subtree_check: bool = False
    threads: int = Field(default=8, ge=1, le=1024)
    max_block_size: Size = MIB
    """The maximum bytes of one READ or WRITE.

    Nfsd's default is 1/4096 of the memory, at most this: a small test machine would clamp rsize and wsize where a
    deployed server does not.
    """

    def server(self, machine: Machine, path: str = DIRECTORY) -> "Export":
        """Return the export on a machine."""
        return Export(self, machine, path)

    def options(self) -> tuple[str, ...]:
        """The options of exports(5), without defaults left out."""
        return (
            "rw",
            "sync" if self.sync else "async",
            "wdelay" if self.wdelay else "no_wdelay",
            "subtree_check" if self.subtree_check else "no_subtree_check",
            "root_squash" if self.root_squash else "no_root_squash",
            *([f"fsid={self.fsid}"] if self.fsid is not None else []),
        )


class ExportState(ServerState):
    """The effective state of an export and its nfsd; ``options`` are those of the export table that exportfs keeps."""

    kernel_options: tuple[str, ...] | None
    """The options that the kernel applies; None until the first client has accessed the export."""
    threads: int
    tracking: str
    """How nfsd stores client records, on which reclaims after a crash depend: ``nfsdcld``, ``legacy``, ..."""


def export_command(spec: ExportSpec, path: str = DIRECTORY) -> list[str]:
    """Return the command that adds the export to the table."""
    return ["exportfs", "-o", ",".join(spec.options()), f"{spec.network}:{path}"]


def unexport_command(spec: ExportSpec, path: str = DIRECTORY) -> list[str]:
    """Return the command that removes the export from the table."""
    return ["exportfs", "-u", f"{spec.network}:{path}"]


def nfsd_command(spec: ExportSpec) -> list[str]:
    """Return the command that starts the server's threads."""
    return [
        "rpc.nfsd",
        *(["-p", str(spec.port)] if spec.port != NFS_PORT else []),
        *(["-G", str(spec.grace_s)] if spec.grace_s is not None else []),
        *(["-L", str(spec.lease_s)] if spec.lease_s is not None else []),
        str(spec.threads),
    ]


def parse_tracking(kernel_log: str) -> str:
    """Return how nfsd stores its client records, from the kernel log.

    Raises:
        RigError: nfsd cannot store them, or logged nothing about it.
    """
    said = _TRACKING.findall(kernel_log)
    if not said:
        raise RigError("nfsd did not say how it keeps its client records")
    using, unable = said[-1]
    if unable:
        raise RigError(f"nfsd keeps no client records, so every start waits out its grace period: {unable}")
    return str(using)


def parse_export(spec: ExportSpec, path: str, content: Mapping[str, str], kernel_log: str) -> ExportState:
    """Parse the export table, nfsd's own files and the kernel log.

    Raises:
        RigError: the path is not exported to the network, or a value is missing.
    """

    def word(name: str) -> str:
        try:
            return content[f"{_NFSD}/{name}"]
        except KeyError:
            raise RigError(f"nfsd's {name} could not be read") from None

    options = _options(content.get(_ETAB, ""), path, str(spec.network))
    if options is None:
        raise RigError(f"{path} is not exported to {spec.network}: {content.get(_ETAB, 'no table')}")
    return ExportState(
        path=path,
        network=str(spec.network),
        options=options,
        kernel_options=_options(word("exports"), path, str(spec.network)),
        threads=whole_number(word("threads"), "nfsd threads"),
        lease_s=whole_number(word("nfsv4leasetime"), "lease"),
        grace_s=whole_number(word("nfsv4gracetime"), "grace"),
        versions=tuple(version[1:] for version in word("versions").split() if version.startswith("+")),
        delegations={"0": False, "1": True}.get(content.get(_LEASES, "")),
        max_block_size=whole_number(word("max_block_size"), "max_block_size"),
        tracking=parse_tracking(kernel_log),
    )


def _options(table: str, path: str, network: str) -> tuple[str, ...] | None:
    entry = re.search(rf"^{re.escape(path)}\s+{re.escape(network)}\(([^()]*)\)", table, re.MULTILINE)
    return tuple(entry.group(1).split(",")) if entry else None


def _effective_options(state: ExportState) -> set[str]:
    """Return the options in effect: the kernel's, once it has them."""
    return _in_full(state.kernel_options or state.options)


def _in_full(options: Iterable[str]) -> set[str]:
    """Add the option that the kernel leaves out: it lists `no_subtree_check`, but not its opposite."""
    told = set(options)
    return told if "no_subtree_check" in told else {*told, "subtree_check"}


def ignores_kill(status: str) -> bool:
    """Return whether a kernel thread ignores SIGKILL, by its /proc/PID/status: nfsd's do since Linux 6.6."""
    return bool(int(found_in(r"^SigIgn:\s+([0-9a-f]+)$", status, "ignored signals"), 16) & _KILL)


class Export(Server):
    """The export of one directory of one machine."""

    def __init__(self, spec: ExportSpec, machine: Machine, path: str = DIRECTORY) -> None:
        self.spec = spec
        self.machine = machine
        self.path = path

    def activate(self) -> ExportState:
        """Start the servers and export the directory, then verify that all is as requested.

        Raises:
            NotEffective: it is not.
            RigError: nfsd stores no client records.
        """
        self.machine.put(f"{int(self.spec.delegations)}\n", _LEASES)
        # Before rpc.nfsd: without nfsdcld, nfsd waits for it, gives up, and stores no client records.
        self.machine.succeed(["nfsdcld"])
        if self.spec.root_squash:
            self.machine.succeed(["chmod", "1777", self.path])
        self.machine.succeed(export_command(self.spec, self.path))
        # Also before rpc.nfsd: without rpc.mountd, nfsd drops requests because it cannot look up exports, and a
        # waiting client repeats a request only after a minute (timeo, nfs(5)).
        self.machine.succeed(["rpc.mountd"])
        self._start_nfsd()
        return self.require_effective()

    def restart(self) -> ExportState:
        """Stop nfsd's threads and start them again: clients keep their mounts and reclaim open files and locks."""
        self._stop_nfsd()
        self._start_nfsd()
        return self.require_effective()

    def halt(self) -> Outage:
        """Stop nfsd's threads."""
        self._stop_nfsd()
        at_ns = now_ns()
        return Outage(at_ns, f"{self._threads()} nfsd threads")

    def kill(self) -> Outage:
        """Kill the daemons by SIGKILL, and nfsd's threads too where the kernel allows that.

        Raises:
            RigError: there were no threads.
        """
        if not (before := self._threads()):
            raise RigError(f"{self.machine.name}: no nfsd threads that could be killed")
        thread = self.machine.succeed(["pgrep", "--exact", "nfsd"]).split()[0]
        deaf = ignores_kill(self.machine.get(f"/proc/{thread}/status"))
        for daemon in DAEMONS:
            self.machine.succeed(["pkill", "-KILL", "--exact", daemon])
        if deaf:
            self._stop_nfsd()
        else:
            self.machine.succeed(["pkill", "-KILL", "--exact", "nfsd"])
        at_ns = now_ns()
        wait_until(lambda: not self._threads(), Deadline.after(_DEATH_DEADLINE_S), "the end of nfsd's threads", 0.05)
        how = "stopped, because this kernel's nfsd threads ignore signals" if deaf else "killed"
        return Outage(at_ns, f"{' and '.join(DAEMONS)} killed, {before} nfsd threads {how}")

    def revive(self) -> ExportState:
        """Start daemons and threads, in the order of an export."""
        for daemon in DAEMONS:
            self.machine.succeed([daemon])
        return self.restart()

    def end_lockd_grace(self) -> None:
        """End the grace period of lockd, in which only NFSv3 clients reclaim; without them it only delays others.

        nfsd ends its own grace period when all clients have reclaimed, but NFSv4 locks then wait for lockd's
        (lock_in_grace in the kernel's fs/nfs_common/grace.c).
        """
        self.machine.put("Y\n", _LOCKD_GRACE)

    def end_grace(self) -> None:
        """End nfsd's grace period before any client mounts the export, when no client has state to reclaim.

        Without this call nfsd waits for clients of an earlier export that are still in its recovery database. NFSv4.0
        clients stay there, because an unmount does not remove them, so the next export would wait for its whole grace
        period.

        Raises:
            DeadlineExceeded: the grace period does not end.
        """
        if self.grace_ended():
            return
        # The write is refused (EBUSY) if the period ended meanwhile; otherwise another kernel thread ends it.
        self.machine.put_all({GRACE_ENDED: "Y\n"})
        wait_until(self.grace_ended, Deadline.after(_GRACE_ENDS_S), "nfsd to end its grace period", 0.1)

    def grace_ended(self) -> bool:
        """Return whether nfsd's grace period is over."""
        return self.machine.get(GRACE_ENDED).strip().upper().startswith("Y")

    def deactivate(self) -> None:
        """Stop exporting, and stop the servers; every step is tried even if another failed.

        Raises:
            ExceptionGroup: the failures.
        """
        # nfsd holds files open until its threads are gone and its caches flushed.
        commands = (
            unexport_command(self.spec, self.path),
            ["rpc.nfsd", "0"],
            ["exportfs", "-f"],
            ["pkill", "--exact", "rpc.mountd"],
            ["pkill", "--exact", "nfsdcld"],
        )
        try_all(
            [partial(self.machine.succeed, command) for command in commands],
            f"{self.path} is still exported, or its servers run",
        )

    def state(self) -> ExportState:
        """Read the effective state of the export."""
        content = read_files(self.machine, _FILES)
        return parse_export(self.spec, self.path, content, self.machine.succeed(["dmesg", "--notime"]))

    def applied(self) -> tuple[str, ...]:
        """Return the options in effect now, including defaults; empty if the directory is not exported."""
        content = read_files(self.machine, (_ETAB, f"{_NFSD}/exports"))
        # The kernel has the export cached as long as clients access it.
        tables = (content.get(f"{_NFSD}/exports", ""), content.get(_ETAB, ""))
        found = (_options(table, self.path, str(self.spec.network)) for table in tables)
        return next((tuple(sorted(_in_full(options))) for options in found if options), ())

    def require_effective(self) -> ExportState:
        """Return the state, if it is as requested.

        Raises:
            NotEffective: it is not.
        """
        state = self.state()
        asked: dict[str, Value] = {
            "options": tuple(sorted(self.spec.options())),
            "threads": self.spec.threads,
            "lease_s": self.spec.lease_s,
            "grace_s": self.spec.grace_s,
            "max_block_size": self.spec.max_block_size,
            "delegations": self.spec.delegations,
        }
        found: dict[str, Value] = {
            "options": tuple(sorted(set(self.spec.options()) & _effective_options(state))),
            "threads": state.threads,
            "lease_s": state.lease_s,
            "grace_s": state.grace_s,
            "max_block_size": state.max_block_size,
            "delegations": state.delegations,
        }
        require_effective(f"export of {self.path}", asked, found)
        return state

    def _threads(self) -> int:
        return whole_number(self.machine.get(_THREADS).strip(), "nfsd threads")

    def _stop_nfsd(self) -> None:
        self.machine.succeed(["rpc.nfsd", "0"])

    def _start_nfsd(self) -> None:
        # The value can be set only while no thread runs.
        self.machine.put(f"{self.spec.max_block_size}\n", f"{_NFSD}/max_block_size")
        self.machine.succeed(nfsd_command(self.spec))
