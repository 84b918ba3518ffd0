"""The NFS server of the Linux kernel, nfsd: requested export, commands, and effective state."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.layer import Machine, Value, found_in, read_files, require_effective, try_all, whole_number
from raidproof.core.units import MIB, Size
from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.guest import nfsd_threads
from raidproof.storage.filesystem import DIRECTORY
from raidproof.storage.server.export_options import ANONYMOUS, in_effect, read_others
from raidproof.storage.server.server import (
    NFS_PORT,
    Outage,
    Server,
    ServerLine,
    ServerSpec,
    ServerState,
    StateService,
    open_command,
)

_NFSD = "/proc/fs/nfsd"
_LOCKD_GRACE = "/proc/fs/lockd/nlm_end_grace"
GRACE_ENDED = f"{_NFSD}/v4_end_grace"
"""The file that contains Y once nfsd's grace period has ended. A write of Y ends the grace period."""
_GRACE_ENDS_S = 10.0
_THREADS = f"{_NFSD}/threads"
DAEMONS = ("nfsdcld", "rpc.mountd")
"""The daemons that nfsd queries: nfsdcld for the records of NFSv4 clients, rpc.mountd for exports."""
_DEATH_DEADLINE_S = 15.0
# The bit of SIGKILL in the signal masks of proc(5).
_KILL = 1 << 9 - 1
_ETAB = "/var/lib/nfs/etab"
EXPORTS = "/etc/exports"
"""The file with the exports that ``exportfs -a`` adds (exports(5)); raidproof adds its export without this file."""
_LEASES = "/proc/sys/fs/leases-enable"
DEBUGFS = "/sys/kernel/debug"
"""The mount point of debugfs, which is mounted only if a request needs it."""
_SPLICE = f"{DEBUGFS}/nfsd/disable-splice-read"
_IO_FILES = {name: f"{DEBUGFS}/nfsd/{name}" for name in ("io_cache_read", "io_cache_write")}
IO_MODES = ("buffered", "dontcache", "direct")
"""nfsd's I/O modes, each at the index that is its number in the files of debugfs (nfsd-io-modes.rst of the kernel)."""
IoMode = Literal["buffered", "dontcache", "direct"]
_FILES = (
    _ETAB,
    _LEASES,
    *_IO_FILES.values(),
    *(
        f"{_NFSD}/{name}"
        for name in ("exports", "threads", "nfsv4leasetime", "nfsv4gracetime", "versions", "max_block_size")
    ),
)
_TRACKING = re.compile(r"NFSD: (?:Using (.+) client tracking operations|(Unable to initialize client recovery.*))")


_UNIT = "/etc/systemd/system/nfs-server.service.d/io-modes.conf, section [Service]"


class ExportSpec(ServerSpec):
    """An export of the kernel's nfsd, with the options of exports(5)."""

    axes: ClassVar[Mapping[str, str]] = {
        "io_cache_read": "how nfsd reads files: buffered, dontcache, direct; a kernel from 6.18 on with debugfs",
        "io_cache_write": "how nfsd writes files: buffered, dontcache, direct; a kernel from 6.18 on with debugfs",
        "subtree_check": "whether nfsd checks that each file is in the exported directory (exports(5))",
        "all_squash": "whether nfsd maps all users to the anonymous user (exports(5))",
        "anonuid": "number of the anonymous user (exports(5))",
        "anongid": "number of the anonymous group (exports(5))",
        "insecure": "whether clients may send requests from ports from 1024 on (exports(5))",
        "export_options": 'other options of exports(5), as they stand, for example "crossmnt,mountpoint"',
    }
    scans: ClassVar[bool] = True
    takes_over: ClassVar[bool] = True

    type: Literal["knfsd"] = "knfsd"
    wdelay: bool = True
    """Whether nfsd waits briefly for another write before it commits one to disk (exports(5))."""
    subtree_check: bool = False
    """Whether nfsd checks that each file is in the exported directory (exports(5))."""
    all_squash: bool = False
    """Whether nfsd maps all users of clients to the anonymous user (exports(5))."""
    anonuid: int | None = Field(default=None, ge=0, lt=2**32)
    """Number of the anonymous user (exports(5)); None keeps the default, 65534."""
    anongid: int | None = Field(default=None, ge=0, lt=2**32)
    """Number of the anonymous group (exports(5)); None keeps the default, 65534."""
    insecure: bool = False
    """Whether clients may send requests from ports from 1024 on, which need no privilege (exports(5))."""
    sec: Literal["sys", "krb5", "krb5i", "krb5p"] | None = None
    """The only security of requests that nfsd accepts (exports(5)). None: that of the mounts."""
    xprtsec: Literal["none", "tls", "mtls"] | None = None
    """The only security of the transport that nfsd accepts (exports(5)).

    None: that of the mounts if they have TLS, else all."""
    export_options: Annotated[tuple[str, ...], BeforeValidator(read_others)] = ()
    """Options of exports(5) that have no field of their own, as a list or as text: ``"crossmnt,mountpoint"``."""
    threads: int = Field(default=8, ge=1, le=1024)
    """Number of nfsd threads."""
    max_block_size: Size = MIB
    """Maximum bytes of one READ or WRITE.

    nfsd's default is 1/4096 of the memory, up to 1 MiB. With this default, a test machine with little memory would
    clamp rsize and wsize, and a deployed server would not.
    """
    io_cache_read: IoMode | None = None
    """How nfsd reads files, for all exports: by the page cache, by the page cache without keeping pages, or by direct
    I/O. None keeps the kernel's default, buffered."""
    io_cache_write: IoMode | None = None
    """How nfsd writes files, as ``io_cache_read``."""

    def server(self, machine: Machine, path: str = DIRECTORY) -> "Export":
        """Return the object that controls nfsd on a machine and exports a directory; do not start nfsd."""
        return Export(self, machine, path)

    def options(self) -> tuple[str, ...]:
        """Return the requested options of exports(5), including defaults."""
        return (
            "rw",
            "sync" if self.sync else "async",
            "wdelay" if self.wdelay else "no_wdelay",
            "subtree_check" if self.subtree_check else "no_subtree_check",
            "root_squash" if self.root_squash else "no_root_squash",
            *([f"fsid={self.fsid}"] if self.fsid is not None else []),
            *(["all_squash"] if self.all_squash else []),
            *([f"anonuid={self.anonuid}"] if self.anonuid is not None else []),
            *([f"anongid={self.anongid}"] if self.anongid is not None else []),
            *(["insecure"] if self.insecure else []),
            *([f"sec={self.sec}"] if self.sec is not None else []),
            *([f"xprtsec={self.xprtsec}"] if self.xprtsec is not None else []),
            *self.export_options,
        )

    def owner_of(self, uid: int) -> int:
        """Return the user as whom nfsd carries out the requests of a user of a client."""
        anonymous = ANONYMOUS if self.anonuid is None else self.anonuid
        return anonymous if self.all_squash or (self.root_squash and uid == 0) else uid

    def lines(self, path: str, network: str) -> tuple[ServerLine, ...]:
        """Return the lines of /etc/exports, /etc/nfs.conf and of the kernel setting for delegations."""
        return (
            ServerLine(EXPORTS, exports_line(self, path, network)),
            *(ServerLine("/etc/nfs.conf, section [nfsd]", text) for text in nfs_conf(self)),
            *([] if self.delegations else [ServerLine("/etc/sysctl.d/90-nfs.conf", "fs.leases-enable = 0")]),
            *(
                ServerLine(_UNIT, f"ExecStartPost=/bin/sh -c 'echo {number} > {file}'")
                for file, number in self.io_modes.items()
            ),
        )

    @property
    def io_modes(self) -> dict[str, int]:
        """The number of each requested I/O mode, by the file in debugfs."""
        requested = {"io_cache_read": self.io_cache_read, "io_cache_write": self.io_cache_write}
        return {_IO_FILES[name]: IO_MODES.index(mode) for name, mode in requested.items() if mode is not None}


class ExportState(ServerState):
    """The effective state of nfsd and its export; ``options`` are from exportfs's export table, /var/lib/nfs/etab."""

    kernel_options: tuple[str, ...] | None
    """The options in /proc/fs/nfsd/exports; None until the first client has accessed the export."""
    threads: int
    """Number of nfsd threads."""
    tracking: str
    """How nfsd stores client records, on which reclaims after a crash depend: ``nfsdcld``, ``legacy``, ..."""
    io_cache_read: str | None = None
    """How nfsd reads files, from debugfs; None: debugfs is not mounted, or the kernel has only one way."""
    io_cache_write: str | None = None
    """How nfsd writes files, as ``io_cache_read``."""


def export_command(spec: ExportSpec, path: str = DIRECTORY) -> list[str]:
    """Return the command that adds the export to the export table."""
    return ["exportfs", "-o", ",".join(spec.options()), f"{spec.network}:{path}"]


def exports_line(spec: ExportSpec, path: str, network: str) -> str:
    """Return the line of /etc/exports with the options of `export_command`, except no_root_squash.

    That option gives clients the rights of root and has no effect on speed or durability, so the line leaves it out.
    """
    options = [option for option in spec.options() if option != "no_root_squash"]
    return f"{path} {network}({','.join(options)})"


def nfs_conf(spec: ExportSpec) -> tuple[str, ...]:
    """Return the lines of the section [nfsd] of /etc/nfs.conf that correspond to `nfsd_command` (nfs.conf(5))."""
    requested = {
        "threads": spec.threads,
        "port": spec.port if spec.port != NFS_PORT else None,
        "grace-time": spec.grace_s,
        "lease-time": spec.lease_s,
    }
    return tuple(f"{name}={value}" for name, value in requested.items() if value is not None)


def unexport_command(spec: ExportSpec, path: str = DIRECTORY) -> list[str]:
    """Return the command that removes the export from the export table."""
    return ["exportfs", "-u", f"{spec.network}:{path}"]


def nfsd_command(spec: ExportSpec, scope: str | None = None) -> list[str]:
    """Return the command that starts nfsd's threads; ``scope``: the server scope, None for the host name.

    It sets grace period and lease always: the kernel keeps those of an earlier start.
    """
    return [
        "rpc.nfsd",
        *(["-p", str(spec.port)] if spec.port != NFS_PORT else []),
        *("-G", str(spec.grace_to_set_s)),
        *("-L", str(spec.lease_to_set_s)),
        *(["-S", scope] if scope is not None else []),
        str(spec.threads),
    ]


def parse_tracking(kernel_log: str) -> str:
    """Return how nfsd stores its client records, as nfsd logged when it started.

    Raises:
        RigError: nfsd stores no client records, or logged nothing about them.
    """
    logged = _TRACKING.findall(kernel_log)
    if not logged:
        raise RigError("the kernel log has no line of nfsd about how it stores client records")
    using, unable = logged[-1]
    if unable:
        raise RigError(
            f"nfsd stores no client records, so no client could reclaim its state after a restart: {unable}",
            remedy="see whether nfsdcld runs on the server",
        )
    return str(using)


def parse_export(spec: ExportSpec, path: str, content: Mapping[str, str], kernel_log: str) -> ExportState:
    """Parse the effective state of an export; ``content`` is the text of the export table and nfsd's files by path.

    Raises:
        RigError: the path is not exported to the network, a file is missing, or nfsd stores no client records.
    """

    def word(name: str) -> str:
        try:
            return content[f"{_NFSD}/{name}"]
        except KeyError:
            raise RigError(f"{_NFSD}/{name} could not be read") from None

    options = _options(content.get(_ETAB, ""), path, str(spec.network))
    if options is None:
        raise RigError(f"{path} is not exported to {spec.network}; {_ETAB}: {content.get(_ETAB, 'cannot be read')}")
    return ExportState(
        path=path,
        network=str(spec.network),
        options=options,
        kernel_options=_options(word("exports"), path, str(spec.network)),
        threads=whole_number(word("threads"), "nfsd threads"),
        lease_s=whole_number(word("nfsv4leasetime"), "nfsv4leasetime"),
        grace_s=whole_number(word("nfsv4gracetime"), "nfsv4gracetime"),
        versions=tuple(version[1:] for version in word("versions").split() if version.startswith("+")),
        delegations={"0": False, "1": True}.get(content.get(_LEASES, "")),
        max_block_size=whole_number(word("max_block_size"), "max_block_size"),
        tracking=parse_tracking(kernel_log),
        **{name: mode_of(content[path]) for name, path in _IO_FILES.items() if path in content},
    )


def mode_of(text: str) -> str:
    """Return the name of an I/O mode, from the text of its file in debugfs; the text if its mode has no name here."""
    return {str(number): mode for number, mode in enumerate(IO_MODES)}.get(text.strip(), text.strip())


def _options(table: str, path: str, network: str) -> tuple[str, ...] | None:
    entry = re.search(rf"^{re.escape(path)}\s+{re.escape(network)}\(([^()]*)\)", table, re.MULTILINE)
    return tuple(entry.group(1).split(",")) if entry else None


def ignores_kill(status: str) -> bool:
    """Return whether a kernel thread ignores SIGKILL, from the text of its /proc/PID/status.

    nfsd's threads ignore SIGKILL since Linux 6.6.
    """
    return bool(int(found_in(r"^SigIgn:\s+([0-9a-f]+)$", status, "SigIgn of an nfsd thread"), 16) & _KILL)


class Export(Server):
    """nfsd on one machine, with one exported directory."""

    def __init__(self, spec: ExportSpec, machine: Machine, path: str = DIRECTORY) -> None:
        self.spec = spec
        self.machine = machine
        self.path = path

    def activate(self) -> ExportState:
        """Start nfsd's daemons (`DAEMONS`) and nfsd, export the directory, and verify that the state is as requested.

        Raises:
            NotEffective: an effective value differs from the requested one.
            RequirementMissing: the kernel has no such I/O mode.
            RigError: nfsd stores no client records.
        """
        self.machine.put(f"{int(self.spec.delegations)}\n", _LEASES)
        self._set_io_modes()
        # Before rpc.nfsd: without nfsdcld, nfsd waits for it, gives up, and stores no client records.
        self._start_tracking()
        if self.spec.squashes_root:
            self.machine.succeed(open_command(self.path))
        self.machine.succeed(export_command(self.spec, self.path))
        # Also before rpc.nfsd: without rpc.mountd, nfsd cannot look up exports and drops requests, and a waiting
        # client repeats a request only after a minute (timeo, nfs(5)).
        self.machine.succeed(["rpc.mountd"])
        self._start_nfsd()
        return self.require_effective()

    def restart(self) -> ExportState:
        """Stop nfsd's threads and start them again: clients keep their mounts and reclaim open files and locks."""
        self._stop_nfsd()
        self._start_nfsd()
        return self.require_effective()

    def halt(self) -> Outage:
        """Stop nfsd's threads; nfsdcld and rpc.mountd keep running."""
        self._stop_nfsd()
        at_ns = now_ns()
        return Outage(at_ns, f"{self._threads()} nfsd threads")

    def kill(self) -> Outage:
        """Send SIGKILL to nfsdcld, rpc.mountd and nfsd's threads. Threads that ignore SIGKILL are stopped instead.

        Raises:
            RigError: nfsd had no threads.
        """
        if not (before := self._threads()):
            raise RigError(f"{self.machine.name}: nfsd cannot be killed: no nfsd threads were running")
        thread = self.machine.succeed(["pgrep", "--exact", "nfsd"]).split()[0]
        unkillable = ignores_kill(self.machine.get(f"/proc/{thread}/status"))
        for daemon in DAEMONS:
            self.machine.succeed(["pkill", "-KILL", "--exact", daemon])
        if unkillable:
            self._stop_nfsd()
        else:
            self.machine.succeed(["pkill", "-KILL", "--exact", "nfsd"])
        at_ns = now_ns()
        wait_until(lambda: not self._threads(), Deadline.after(_DEATH_DEADLINE_S), "nfsd's threads to end", 0.05)
        how = "stopped, because this kernel's nfsd threads ignore signals" if unkillable else "killed"
        return Outage(at_ns, f"{' and '.join(DAEMONS)} killed, {before} nfsd threads {how}")

    def revive(self) -> ExportState:
        """Start nfsdcld and rpc.mountd, then nfsd's threads."""
        self._start_tracking()
        self.machine.succeed(["rpc.mountd"])
        return self.restart()

    def serve_states(self) -> StateService:
        """Start nfsd, and end its grace period at once; the agent ends the threads after each state.

        Raises:
            NotEffective: the effective export differs from the requested export.
            RigError: a command failed, or nfsd stores no client records.
        """
        # zpool export, which ends a state of ZFS, runs exportfs -ra: it removes exports that are not in this file.
        self.machine.put(f"{self.path} {self.spec.network}({','.join(self.spec.options())})\n", EXPORTS)
        self.activate()
        self.end_grace()
        return StateService(nfsd_threads, {})

    def end_lockd_grace(self) -> None:
        """End lockd's grace period, in which only NFSv3 clients reclaim locks.

        nfsd ends its own grace period when all NFSv4 clients have reclaimed their state. Without this call, new NFSv4
        locks would then wait for the end of lockd's grace period (lock_in_grace in the kernel's
        fs/nfs_common/grace.c).
        """
        self.machine.put("Y\n", _LOCKD_GRACE)

    def end_grace(self) -> None:
        """End nfsd's grace period. To be called before any client mounts the export: no client has state to reclaim.

        Without this call, nfsd waits for the clients of earlier exports that are in its recovery database. An NFSv4.0
        client stays in the database after its unmount, so the next export would wait for its whole grace period.

        Raises:
            DeadlineExceeded: the grace period does not end within 10 seconds.
        """
        if self.grace_ended():
            return
        # The kernel refuses the write (EBUSY) if the period has just ended. Otherwise a kernel thread ends it later.
        self.machine.put_all({GRACE_ENDED: "Y\n"})
        wait_until(self.grace_ended, Deadline.after(_GRACE_ENDS_S), "nfsd to end its grace period", 0.1)

    def grace_ended(self) -> bool:
        """Return whether nfsd's grace period has ended."""
        return self.machine.get(GRACE_ENDED).strip().upper().startswith("Y")

    def deactivate(self) -> None:
        """Remove the export, and stop nfsd, nfsdcld and rpc.mountd. Every step runs, even if an earlier step fails.

        Raises:
            ExceptionGroup: the errors of the steps that failed.
        """
        # nfsd keeps files open until its threads have ended and exportfs -f has flushed its caches.
        commands = (
            unexport_command(self.spec, self.path),
            ["rpc.nfsd", "0"],
            ["exportfs", "-f"],
            ["pkill", "--exact", "rpc.mountd"],
            ["pkill", "--exact", "nfsdcld"],
        )
        # With its records on the exported file system, nfsdcld must have ended before the file system is unmounted.
        last = [self._reset_io_modes, *([self._wait_untracked] if self._own_records else [])]
        try_all(
            [*(partial(self.machine.succeed, command) for command in commands), *last],
            f"{self.machine.name}: {self.path} is still exported, or nfsd or its daemons still run",
        )

    def state(self) -> ExportState:
        """Read the effective state of nfsd and its export. Raises as `parse_export`."""
        content = read_files(self.machine, _FILES)
        return parse_export(self.spec, self.path, content, self.machine.succeed(["dmesg", "--notime"]))

    def applied(self) -> tuple[str, ...]:
        """Return the export options now in effect, including defaults; empty if the directory is not exported."""
        content = read_files(self.machine, (_ETAB, f"{_NFSD}/exports"))
        tables = (content.get(_ETAB, ""), content.get(f"{_NFSD}/exports", ""))
        etab, kernel = (_options(table, self.path, str(self.spec.network)) for table in tables)
        # The kernel lists an export only while clients access it; the options in its list have precedence.
        return tuple(sorted(in_effect(etab or (), kernel))) if etab or kernel else ()

    def require_effective(self) -> ExportState:
        """Verify that the effective state of nfsd and its export is as requested, and return it.

        Raises:
            NotEffective: an effective value differs from the requested one.
        """
        state = self.state()
        requested: dict[str, Value] = {
            "options": tuple(sorted(self.spec.options())),
            "threads": self.spec.threads,
            "lease_s": self.spec.lease_to_set_s,
            "grace_s": self.spec.grace_to_set_s,
            "max_block_size": self.spec.max_block_size,
            "delegations": self.spec.delegations,
            "io_cache_read": self.spec.io_cache_read,
            "io_cache_write": self.spec.io_cache_write,
        }
        found: dict[str, Value] = {
            "options": tuple(sorted(set(self.spec.options()) & in_effect(state.options, state.kernel_options))),
            "threads": state.threads,
            "lease_s": state.lease_s,
            "grace_s": state.grace_s,
            "max_block_size": state.max_block_size,
            "delegations": state.delegations,
            "io_cache_read": state.io_cache_read,
            "io_cache_write": state.io_cache_write,
        }
        require_effective(f"{self.machine.name}: export of {self.path}", requested, found)
        return state

    def _set_io_modes(self) -> None:
        """Write the requested I/O modes, which hold for all exports until the module is loaded again."""
        if not (modes := self.spec.io_modes):
            return
        if not self.machine.exists(_SPLICE):
            self.machine.run(["mount", "--types", "debugfs", "debugfs", DEBUGFS])
        for path, number in modes.items():
            if not self.machine.exists(path):
                raise RequirementMissing(
                    f"{self.machine.name}: the kernel's nfsd has no I/O modes: {path} does not exist",
                    remedy="boot a kernel from 6.18 on that has debugfs (docs/kernels.md, I/O modes of nfsd)",
                )
            if failed := self.machine.put_all({path: f"{number}\n"}):
                raise RequirementMissing(
                    f"{self.machine.name}: the kernel refuses {IO_MODES[number]} in {path}: {failed[path]}",
                    remedy="boot a newer kernel: Linux 6.18 has no direct writes, 6.19 has",
                )

    def _reset_io_modes(self) -> None:
        """Set the I/O modes to the kernel's default, if this export set them."""
        if self.spec.io_modes:
            # A mode other than buffered disables splice; enabling splice sets reads to buffered (fs/nfsd/debugfs.c).
            for path in (_SPLICE, _IO_FILES["io_cache_write"]):
                self.machine.put("0\n", path)

    def _threads(self) -> int:
        return whole_number(self.machine.get(_THREADS).strip(), "nfsd threads")

    def _stop_nfsd(self) -> None:
        self.machine.succeed(["rpc.nfsd", "0"])

    def _start_nfsd(self) -> None:
        # The kernel accepts a new value only while no nfsd thread runs.
        self.machine.put(f"{self.spec.max_block_size}\n", f"{_NFSD}/max_block_size")
        self.machine.succeed(nfsd_command(self.spec, self.scope))

    @property
    def _own_records(self) -> bool:
        """Whether the client records are in a place of their own."""
        return self.client_records != Server.client_records

    def _start_tracking(self) -> None:
        where = []
        if self._own_records:
            self.machine.succeed(["mkdir", "--parents", "--mode=0700", self.client_records])
            where = ["--storagedir", self.client_records]
        self.machine.succeed(["nfsdcld", *where])

    def _wait_untracked(self) -> None:
        def ended() -> bool:
            return not self.machine.run(["pgrep", "--exact", "nfsdcld"]).ok

        wait_until(ended, Deadline.after(_DEATH_DEADLINE_S), "nfsdcld to end", 0.05)
