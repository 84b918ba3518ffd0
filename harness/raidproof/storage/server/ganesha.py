"""NFS-Ganesha, an NFS server in user space, with FSAL VFS: requested export, configuration, and effective state."""

import json
import re
from collections.abc import Mapping
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from raidproof.core.errors import RequestError, RequirementMissing, RigError
from raidproof.core.layer import Machine, Value, require_effective, try_all
from raidproof.core.units import KIB
from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.guest import nfs_attributes, server_process
from raidproof.storage.filesystem import DIRECTORY
from raidproof.storage.server.server import (
    Outage,
    Server,
    ServerLine,
    ServerSpec,
    ServerState,
    StateService,
    open_command,
)

PROGRAM = "ganesha.nfsd"
CONFIG = "/run/raidproof/ganesha.conf"
PID = "/run/raidproof/ganesha.pid"
LOG = "/run/raidproof/ganesha.log"
_KERNEL_LOG = (
    'FACILITY { name = KERNEL; destination = "/dev/kmsg"; max_level = CRIT; headers = all; enable = active; }'
)
"""The setting by which Ganesha also writes its errors to the kernel's messages.

These are on the machine's console, whose log survives a power cut and is judged.
"""
RECORDS = "/var/lib/nfs/raidproof-ganesha"
"""The directory with the records of NFSv4 clients, on which reclaims after a crash depend. Ganesha creates it."""
_START_DEADLINE_S = 30.0
_END_DEADLINE_S = 30.0
# Ganesha adds the headers of the RPC message to the data of a READ or WRITE.
_HEADERS = 64 * KIB
_LINE = re.compile(r"nfs-ganesha-(\d+)\[[^\]]*\] \S+ :([^:]+) :([A-Z_]+) :(.*)")
_STARTING = " :MAIN :EVENT :nfs-ganesha Starting: "
_READY = "NFS SERVER INITIALIZED"
_NO_GRACE = "NFS Server Now NOT IN GRACE"
_GRACE = re.compile(r"NFS Server Now (IN|NOT IN) GRACE(?:, duration (\d+))?")
_EXPORT = re.compile(
    r"Export 1 created at pseudo \((?P<pseudo>[^)]*)\) with path \((?P<path>[^)]*)\) .*"
    r"perms \(options=(?P<options>[0-9a-f]+)/[0-9a-f]+ (?P<squash>\w+) *,"
)
_CLIENT = re.compile(r"NETWORK_CLIENT: (\S+) \(options=[0-9a-f]+/[0-9a-f]+ +, ([RWrw-]{4}),")
# Bits of the options in the log: src/include/nfs_exports.h of Ganesha.
_COMMIT, _READ_DELEGATION, _WRITE_DELEGATION = 0x400, 0x10000000, 0x20000000


class GaneshaSpec(ServerSpec):
    """An export of NFS-Ganesha, with the options of ganesha-export-config(8) and ganesha-core-config(8)."""

    axes: ClassVar[Mapping[str, str]] = {
        "recovery_backend": "how Ganesha stores the records of NFSv4 clients: fs, fs_ng (ganesha-core-config(8))",
        "nfs_commit": "whether Ganesha writes all data to disk before it replies to WRITE (ganesha-export-config(8))",
    }
    has_async: ClassVar[bool] = False
    scans: ClassVar[bool] = True
    # Its cache of attributes and directories (MDCACHE) is valid for 60 s.
    sees_local_changes: ClassVar[bool] = False
    operations: ClassVar[frozenset[str]] = frozenset()
    versions: ClassVar[frozenset[str]] = frozenset({"4.0", "4.1", "4.2"})
    usual_lease_s: ClassVar[int] = 60
    longest_lease_s: ClassVar[int] = 180
    longest_grace_s: ClassVar[int] = 270
    # Without a bus, the component DBUS logs errors, although nothing depends on it.
    errors: ClassVar[str] = r"nfs-ganesha-\d+\[[^\]]*\] \S+ :(?!DBUS :)[^:]+ :(?:CRIT|MAJ|FATAL) :"

    type: Literal["ganesha"] = "ganesha"
    recovery_backend: Literal["fs", "fs_ng"] = "fs"
    """How Ganesha stores the records of NFSv4 clients."""
    nfs_commit: bool = False
    """Whether Ganesha handles each WRITE as stable, whatever the client requests (NFS_Commit)."""
    threads: int = Field(default=16, ge=2, le=1024)
    """Greatest number of threads that execute requests (RPC_Ioq_ThrdMax). Ganesha's default is 200."""
    cache_entries: int = Field(default=10000, ge=1)
    """Number of cached inodes from which Ganesha reuses entries (Entries_HWMark). Ganesha's default is 100000."""

    @model_validator(mode="after")
    def _has(self) -> Self:
        if self.fsid is not None:
            raise RequestError("raidproof sets no fsid for NFS-Ganesha, which takes it from the file system's UUID")
        return self

    def server(self, machine: Machine, path: str = DIRECTORY) -> "Ganesha":
        """Return the object that controls Ganesha on a machine and exports a directory; do not start Ganesha."""
        return Ganesha(self, machine, path)

    def options(self) -> tuple[str, ...]:
        """Return the requested export options in the notation of Ganesha's configuration, including defaults."""
        return options_of(
            squash="root_squash" if self.root_squash else "no_root_squash",
            access="RW",
            commit=self.nfs_commit,
            delegations="RW" if self.delegations else "none",
        )

    @property
    def stable_writes(self) -> bool:
        """Whether Ganesha commits each WRITE before it replies."""
        return self.nfs_commit

    def lines(self, path: str, network: str) -> tuple[ServerLine, ...]:
        """Return the lines of /etc/ganesha/ganesha.conf."""
        lines = configuration(self, path, network, deployed=True).splitlines()
        return tuple(ServerLine("/etc/ganesha/ganesha.conf", line) for line in lines)


class GaneshaState(ServerState):
    """The effective state of Ganesha and its export: its log since its start, and its attributes by NFS."""

    version: str
    """Ganesha's version."""
    tracking: str
    """How Ganesha stores client records, as configured: ``fs``, ``fs_ng``."""


class Logged(NamedTuple):
    """What Ganesha has logged since its last start."""

    version: str
    ready: bool
    """Whether Ganesha accepts requests."""
    in_grace: bool
    grace_s: int | None
    """Length of the grace period in seconds; None before it begins."""
    path: str | None
    """The exported directory; None before the export was created."""
    network: str | None
    options: tuple[str, ...]
    rejected: tuple[str, ...]
    """The messages about the configuration file: parameters that Ganesha did not accept."""


def options_of(*, squash: str, access: str, commit: bool, delegations: str) -> tuple[str, ...]:
    """Return export options in the notation of Ganesha's configuration."""
    return (
        f"Access_Type={access}",
        f"Squash={squash}",
        f"NFS_Commit={str(commit).lower()}",
        f"Delegations={delegations}",
    )


def configuration(spec: GaneshaSpec, path: str, network: str, *, deployed: bool = False) -> str:
    """Return Ganesha's configuration file, with the exported ``path`` and the ``network`` of its clients.

    ``deployed``: without the settings that only a test machine needs, those about root, memory and the log.
    """
    access, *options = spec.options()
    limits = dict.fromkeys(("MaxRPCSendBufferSize", "MaxRPCRecvBufferSize"), spec.max_block_size + _HEADERS)
    core: dict[str, object] = {"NFS_Port": spec.port, "Protocols": 4, "Enable_NLM": "false", "Enable_RQUOTA": "false"}
    core |= {"Enable_UDP": "false", "Clustered": "false", "RPC_Ioq_ThrdMax": spec.threads, **limits}
    times = {"Lease_Lifetime": spec.lease_s, "Grace_Period": spec.grace_s}
    v4: dict[str, object] = {name: seconds for name, seconds in times.items() if seconds is not None}
    v4 |= {"Delegations": str(spec.delegations).lower(), "RecoveryBackend": spec.recovery_backend}
    v4 |= {"RecoveryRoot": RECORDS, "Only_Numeric_Owners": "true"}
    export: dict[str, object] = {"Export_Id": 1, "Path": path, "Pseudo": path, "Protocols": 4, "Transports": "TCP"}
    export |= {"SecType": "sys", "MaxRead": spec.max_block_size, "MaxWrite": spec.max_block_size}
    export |= dict(option.split("=") for option in options)
    if deployed:
        del export["Squash"], v4["RecoveryRoot"], v4["Only_Numeric_Owners"]
    client = f"CLIENT {{ Clients = {network}; {access.replace('=', ' = ')}; }}"
    blocks = [
        _block("NFS_CORE_PARAM", core),
        _block("NFSV4", v4),
        _block("EXPORT", export, client, "FSAL { Name = VFS; }"),
    ]
    if not deployed:
        blocks += [
            _block("MDCACHE", {"Entries_HWMark": spec.cache_entries}),
            _block("NFS_KRB5", {"Active_krb5": "false"}),
            _block("DIRECTORY_SERVICES", {"Idmapping_Active": "false"}),
            _block("LOG", {}, "COMPONENTS { CONFIG = INFO; EXPORT = INFO; }", _KERNEL_LOG),
        ]
    return "".join(blocks)


def _block(name: str, settings: dict[str, object], *inner: str) -> str:
    lines = [f"{key} = {value};" for key, value in settings.items()]
    return "".join([f"{name} {{\n", *(f"    {line}\n" for line in (*lines, *inner)), "}\n"])


def start_command() -> list[str]:
    """Return the command that starts Ganesha; it ends before Ganesha accepts requests."""
    return [PROGRAM, "-f", CONFIG, "-p", PID, "-L", LOG]


def parse_log(messages: str) -> Logged:
    """Return what Ganesha has logged since its last start; ``messages`` is the content of its log file.

    Raises:
        RigError: the log does not contain a start of Ganesha.
    """
    _, found, after = messages.rpartition(_STARTING)
    if not found:
        raise RigError(f"{LOG} has no start of {PROGRAM}")
    version, _, rest = after.partition("\n")
    text = [line.group(4) for line in map(_LINE.search, rest.splitlines()) if line]
    graces = [grace for grace in map(_GRACE.search, text) if grace]
    lengths = [int(grace[2]) for grace in graces if grace[2]]
    created = [one for one in map(_EXPORT.search, text) if one]
    clients = [one for one in map(_CLIENT.search, text) if one]
    options: tuple[str, ...] = ()
    if created and clients:
        bits = int(created[-1]["options"], 16)
        reads, writes = bits & _READ_DELEGATION, bits & _WRITE_DELEGATION
        options = options_of(
            squash=created[-1]["squash"],
            access={"RWrw": "RW", "R-r-": "RO"}.get(clients[-1][2], clients[-1][2]),
            commit=bool(bits & _COMMIT),
            delegations=f"{'R' if reads else ''}{'W' if writes else ''}" or "none",
        )
    return Logged(
        version=version.removeprefix("Ganesha Version ").strip(),
        ready=any(_READY in line for line in text),
        in_grace=bool(graces) and graces[-1][1] == "IN",
        grace_s=lengths[-1] if lengths else None,
        path=created[-1]["path"] if created else None,
        network=clients[-1][1] if clients else None,
        options=options,
        rejected=tuple(line for line in text if line.startswith("Config File (")),
    )


def state_of(spec: GaneshaSpec, path: str, logged: Logged, attributes: str) -> GaneshaState:
    """Return the effective state; ``attributes`` is the output of `raidproof.guest.nfs_attributes`.

    Raises:
        RigError: the directory is not exported, or the configuration file has a parameter that Ganesha did not accept.
    """
    if logged.rejected:
        raise RigError(f"NFS-Ganesha {logged.version} did not accept its configuration: {'; '.join(logged.rejected)}")
    if logged.path is None or logged.network is None or logged.grace_s is None:
        raise RigError(f"NFS-Ganesha {logged.version} logged no export of {path}, or no grace period")
    found = json.loads(attributes)
    return GaneshaState(
        path=logged.path,
        network=str(ip_network(logged.network)),
        options=logged.options,
        lease_s=found["lease_s"],
        grace_s=logged.grace_s,
        versions=tuple(f"4.{minor}" for minor in found["versions"]),
        delegations="Delegations=none" not in logged.options,
        max_block_size=min(found["max_read"], found["max_write"]),
        version=logged.version,
        tracking=spec.recovery_backend,
    )


class Ganesha(Server):
    """NFS-Ganesha on one machine, with one exported directory."""

    client_records = RECORDS

    def __init__(self, spec: GaneshaSpec, machine: Machine, path: str = DIRECTORY) -> None:
        self.spec = spec
        self.machine = machine
        self.path = path

    def activate(self) -> GaneshaState:
        """Write the configuration, start Ganesha, and verify that the effective state is as requested.

        Raises:
            NotEffective: an effective value differs from the requested one.
            RequirementMissing: the machine has no program ganesha.nfsd.
            RigError: Ganesha ended, or refused its configuration.
        """
        if not self.machine.run(["which", PROGRAM]).ok:
            raise RequirementMissing(
                f"{self.machine.name} has no program {PROGRAM}",
                remedy="add the packages nfs-ganesha and nfs-ganesha-vfs to the recipe of the image",
            )
        if self.spec.squashes_root:
            self.machine.succeed(open_command(self.path))
        self.machine.succeed(["mkdir", "--parents", str(Path(CONFIG).parent), RECORDS])
        self.machine.put(configuration(self.spec, self.path, str(self.spec.network)), CONFIG)
        self._start()
        return self.require_effective()

    def restart(self) -> GaneshaState:
        """Stop Ganesha and start it again: clients keep their mounts and reclaim open files and locks."""
        self._stop()
        self._start()
        return self.require_effective()

    def halt(self) -> Outage:
        """Stop Ganesha by SIGTERM."""
        return self._end("TERM", "stopped")

    def kill(self) -> Outage:
        """Send SIGKILL to Ganesha.

        Raises:
            RigError: Ganesha was not running.
        """
        return self._end("KILL", "killed")

    def end_grace(self) -> None:
        """Start Ganesha without client records if it is in its grace period. No client may have mounted the export.

        Without client records, Ganesha ends its grace period at its start.

        Raises:
            DeadlineExceeded: the grace period does not end within 30 seconds.
        """
        if self.grace_ended():
            return
        self._stop()
        self.machine.succeed(["rm", "--recursive", "--force", RECORDS])
        self.machine.succeed(["mkdir", "--parents", RECORDS])
        self._start()
        wait_until(self.grace_ended, Deadline.after(_START_DEADLINE_S), f"{PROGRAM} to end its grace period", 0.1)

    def grace_ended(self) -> bool:
        """Return whether Ganesha accepts requests, and its grace period has ended."""
        logged = self._logged()
        return logged.ready and not logged.in_grace

    def serve_states(self) -> StateService:
        """Verify the export without a mounted state, and stop Ganesha; the agent starts Ganesha for each state.

        Raises:
            NotEffective: an effective value differs from the requested one.
            RequirementMissing: the machine has no program ganesha.nfsd.
            RigError: Ganesha ended, or refused its configuration.
        """
        self.activate()
        self._stop()
        arguments = {"start": [*start_command(), "-F"], "log": LOG, "ready": [_READY, _NO_GRACE], "records": RECORDS}
        return StateService(server_process, arguments)

    def deactivate(self) -> None:
        """Stop Ganesha, and remove its configuration. Every step runs, even if an earlier step fails.

        Raises:
            ExceptionGroup: the errors of the steps that failed.
        """
        try_all(
            (self._stop, partial(self.machine.succeed, ["rm", "--force", CONFIG, PID])),
            f"{self.machine.name}: {PROGRAM} still runs",
        )

    def applied(self) -> tuple[str, ...]:
        """Return the export options now in effect, as Ganesha logged them; empty if Ganesha does not run."""
        return self._logged().options if self._runs() else ()

    def state(self) -> GaneshaState:
        """Read the effective state of Ganesha and its export. Raises as `state_of`."""
        source = Path(nfs_attributes.__file__).read_text()
        command = ["python3", "-", self.machine.address, str(self.spec.port), self.path]
        attributes = self.machine.succeed(command, stdin=source)
        return state_of(self.spec, self.path, self._logged(), attributes)

    def require_effective(self) -> GaneshaState:
        """Verify that the effective state of Ganesha and its export is as requested, and return it.

        Raises:
            NotEffective: an effective value differs from the requested one.
        """
        state = self.state()
        requested: dict[str, Value] = {
            "path": self.path,
            "network": str(self.spec.network),
            "options": tuple(sorted(self.spec.options())),
            "versions": tuple(sorted(self.spec.versions)),
            "lease_s": self.spec.lease_s,
            "grace_s": self.spec.grace_s,
            "max_block_size": self.spec.max_block_size,
        }
        found: dict[str, Value] = {
            "path": state.path,
            "network": state.network,
            "options": tuple(sorted(state.options)),
            "versions": tuple(sorted(state.versions)),
            "lease_s": state.lease_s,
            "grace_s": state.grace_s,
            "max_block_size": state.max_block_size,
        }
        require_effective(f"{self.machine.name}: Ganesha's export of {self.path}", requested, found)
        return state

    def _logged(self) -> Logged:
        return parse_log(self.machine.get(LOG))

    def _runs(self) -> bool:
        return self.machine.run(["pgrep", "--exact", PROGRAM]).ok

    def _start(self) -> None:
        self.machine.succeed(start_command())
        wait_until(self._started, Deadline.after(_START_DEADLINE_S), f"{PROGRAM} to accept requests", 0.05)

    def _started(self) -> bool:
        logged = self._logged()
        if not logged.ready and not self._runs():
            raise RigError(f"{self.machine.name}: {PROGRAM} ended at its start; its log is {LOG}")
        return logged.ready

    def _stop(self) -> None:
        if self.machine.run(["pkill", "-TERM", "--exact", PROGRAM]).ok:
            self._wait_end()

    def _end(self, signal: str, how: str) -> Outage:
        if not self.machine.run(["pkill", f"-{signal}", "--exact", PROGRAM]).ok:
            raise RigError(f"{self.machine.name}: {PROGRAM} cannot be {how}: it was not running")
        at_ns = now_ns()
        self._wait_end()
        return Outage(at_ns, f"{PROGRAM} {how}")

    def _wait_end(self) -> None:
        wait_until(lambda: not self._runs(), Deadline.after(_END_DEADLINE_S), f"{PROGRAM} to end", 0.05)
