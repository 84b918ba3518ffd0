"""The interface of every kind of NFS server: its request, the server on a machine, and its effective state."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from ipaddress import IPv4Network
from types import ModuleType
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import BeforeValidator, Field, model_validator

from raidproof.core.errors import RequestError, RequirementMissing
from raidproof.core.layer import Machine, Spec, State, power_of_two
from raidproof.core.registry import OneOf, Registry, register_default
from raidproof.core.topology import SUBNET
from raidproof.core.units import KIB, MIB, Size, format_size
from raidproof.storage.filesystem import DIRECTORY
from raidproof.storage.server.export_options import ANONYMOUS, read_fsid

USUAL_LEASE_S = 90
"""The kernel's default for the lease and for the grace period, in seconds."""
NFS_PORT = 2049
"""The port on which servers listen, and to which NFSv4 clients connect, if no other port is requested."""
DEFAULT = "knfsd"
SHORTEST_S = 10
"""The shortest lease and grace period in seconds that can be requested: the least that nfsd accepts."""
_NEVER = r"(?!)"

SERVERS: Registry[type["ServerSpec"]] = Registry("server", "raidproof.storage.server", "raidproof.servers")
"""The requests of all kinds of NFS server, by the name of the kind."""


class ServerState(State):
    """The effective state of a server and its export."""

    path: str
    """The exported directory."""
    network: str
    """The network of the clients that may mount the export."""
    options: tuple[str, ...]
    """The export options in effect."""
    lease_s: int
    """Lease time of NFSv4 clients in seconds."""
    grace_s: int
    """Length of the grace period in seconds."""
    versions: tuple[str, ...]
    """The NFS versions that the server serves: ``3``, ``4``, ``4.1``, ..."""
    delegations: bool | None
    """Whether the server may grant delegations; None if the server does not report it."""
    max_block_size: int
    """Maximum bytes of one READ or WRITE."""


class ServerLine(NamedTuple):
    """A line of a configuration file of a deployed server."""

    file: str
    text: str


def open_command(path: str) -> list[str]:
    """Return the command by which each user may create files in an exported directory, also the anonymous user."""
    return ["chmod", "1777", path]


class Outage(NamedTuple):
    """The report that an NFS server has stopped or was killed."""

    at_ns: int
    """The instant in ns (CLOCK_MONOTONIC of the harness) after the last command that stopped the server."""
    proof: str
    """The evidence that the server stopped, as a sentence."""


class StateService(NamedTuple):
    """How the agent of a checker (`raidproof.guest.check_agent`) serves the file system of each crash state."""

    module: ModuleType
    """A module of `raidproof.guest` whose ``SERVICE`` has the methods of `raidproof.guest.check_agent.StateServer`."""
    arguments: Mapping[str, Any]
    """The arguments of ``SERVICE``, as JSON has them."""


class Server(ABC):
    """An NFS server on one machine that exports one directory."""

    path: str
    client_records: str = "/var/lib/nfs"
    """A path on the file system with the records of NFSv4 clients, on which reclaims after a crash depend."""
    scope: str | None = None
    """The server scope that the server reports (RFC 8881, 2.10.4); None: the default of the server's program."""

    @abstractmethod
    def activate(self) -> ServerState:
        """Start the server, export the directory, and verify that the effective state is as requested.

        Raises:
            NotEffective: an effective value differs from the requested one.
        """

    @abstractmethod
    def restart(self) -> ServerState:
        """Stop the server and start it again: clients keep their mounts and reclaim their open files and locks."""

    @abstractmethod
    def end_grace(self) -> None:
        """End the grace period of an export that no client has mounted: no client has state to reclaim.

        Raises:
            DeadlineExceeded: the grace period does not end.
        """

    def halt(self) -> Outage:
        """Stop the server, and keep its export configured; `restart` starts the server again.

        Raises:
            RequirementMissing: this kind of server has no command that stops it and keeps its export.
        """
        raise RequirementMissing(f"{type(self).__name__} has no command that stops the server and keeps its export")

    def kill(self) -> Outage:
        """Kill all programs of the server, as a crash would; `revive` starts them again.

        Raises:
            RequirementMissing: this kind of server has no command that kills it.
            RigError: the server was not running.
        """
        raise RequirementMissing(f"{type(self).__name__} has no command that kills the server")

    def revive(self) -> ServerState:
        """Start a killed server again; clients keep their mounts and reclaim their open files and locks."""
        return self.restart()

    def grace_ended(self) -> bool:
        """Return whether the grace period of the server has ended.

        Raises:
            RequirementMissing: this kind of server does not report the end of its grace period.
        """
        raise RequirementMissing(f"{type(self).__name__} does not report the end of its grace period")

    def end_lockd_grace(self) -> None:
        """End the grace period of lockd, which manages NFSv3 locks, if the server has a separate one."""
        return

    def serve_states(self) -> StateService:
        """Prepare a checker's machine, on which no state is mounted, and return how each state is served.

        Raises:
            NotEffective: the effective export differs from the requested export.
            RequirementMissing: states cannot be read through this kind of server (`ServerSpec.scans`).
            RigError: a command failed.
        """
        raise RequirementMissing(f"{type(self).__name__} cannot serve one crash state after the other")

    @abstractmethod
    def deactivate(self) -> None:
        """Remove the export and stop the server. Every step runs, even if an earlier step fails.

        Raises:
            ExceptionGroup: the errors of the steps that failed.
        """

    @abstractmethod
    def applied(self) -> tuple[str, ...]:
        """Return the export options now in effect, including defaults; empty if the directory is not exported."""

    @abstractmethod
    def require_effective(self) -> ServerState:
        """Verify that the effective state of the server and its export is as requested, and return it.

        Raises:
            NotEffective: an effective value differs from the requested one.
        """


class ServerSpec(Spec):
    """The requested NFS server and its export. A subclass with a default for ``type`` is registered in `SERVERS`."""

    axes: ClassVar[Mapping[str, str]] = {}
    """The fields of this kind that a plan may vary, each with a description."""
    takes_over: ClassVar[bool] = False
    """Whether the server has a scope and a place of its client records that a pair of servers shares."""
    has_async: ClassVar[bool] = True
    """Whether the server can reply before its disks have the data (``sync=False``)."""
    scans: ClassVar[bool] = False
    """Whether a checker of crash states can read each state through this server: `Server.serve_states` is defined."""
    sees_local_changes: ClassVar[bool] = True
    """Whether clients see at once what programs of the server change in the exported file system."""
    operations: ClassVar[frozenset[str]] = frozenset({"clone"})
    """The optional operations of the ledger that the server supports: ``clone``."""
    versions: ClassVar[frozenset[str]] = frozenset({"3", "4.0", "4.1", "4.2"})
    """The NFS versions that the server serves."""
    usual_lease_s: ClassVar[int] = USUAL_LEASE_S
    """The server's default for the lease in seconds."""
    usual_grace_s: ClassVar[int] = USUAL_LEASE_S
    """The server's default for the grace period in seconds."""
    longest_lease_s: ClassVar[int] = 3600
    longest_grace_s: ClassVar[int] = 3600
    errors: ClassVar[str] = _NEVER
    """A regular expression for the errors of a server that logs to the kernel's messages."""

    type: str
    """The name of the kind of server: ``knfsd``, ``ganesha``."""
    sync: bool = True
    """Whether the server replies only after its disks have the data; a reply before that violates the protocol."""
    root_squash: bool = True
    """Whether the server maps requests from root to the anonymous user, the default of exports(5)."""
    fsid: Annotated[str | None, BeforeValidator(read_fsid)] = None
    """The identity of the file system in file handles: a number or a UUID (exports(5)).

    0, which is also ``root``, makes the export the root for NFSv4 clients.
    """
    network: IPv4Network = IPv4Network(f"{SUBNET}.0/24")
    """Network of the clients that may mount the export."""
    port: int = Field(default=NFS_PORT, ge=1, le=65535)
    """TCP port on which the server listens for NFS requests."""
    lease_s: int | None = None
    """Lease time of NFSv4 clients in seconds; None sets the default of the server's program (`usual_lease_s`)."""
    grace_s: int | None = None
    """Length of the grace period in seconds; None sets the default of the server's program (`usual_grace_s`)."""
    delegations: bool = True
    """Whether the server may grant delegations to NFSv4 clients. Under a write delegation `close` promises nothing."""
    max_block_size: Size = MIB
    """Maximum bytes of one READ or WRITE."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Register a subclass under the default of its field ``type``.

        Raises:
            TypeError: an axis of the subclass is not the name of a field.
        """
        register_default(SERVERS, cls, axes=cls.axes)

    @model_validator(mode="after")
    def _possible(self) -> "ServerSpec":
        for name, seconds, most in (
            ("lease_s", self.lease_s, self.longest_lease_s),
            ("grace_s", self.grace_s, self.longest_grace_s),
        ):
            if seconds is not None and not SHORTEST_S <= seconds <= most:
                raise RequestError(
                    f"{name} {seconds} s is not from {SHORTEST_S} to {most} s, the range that the server accepts"
                )
        if not self.sync and not self.has_async:
            raise RequestError(f"an export of {self.type} is always sync: this server has no option async")
        if not 8 * KIB <= self.max_block_size <= MIB or not power_of_two(self.max_block_size):
            raise RequestError(
                f"max_block_size {format_size(self.max_block_size)} is not a power of two from 8KiB to 1MiB"
            )
        return self

    @abstractmethod
    def server(self, machine: Machine, path: str = DIRECTORY) -> Server:
        """Return the object that controls the server on a machine and exports a directory; do not start the server."""

    @abstractmethod
    def options(self) -> tuple[str, ...]:
        """Return the requested export options, including defaults."""

    @property
    def lease_to_set_s(self) -> int:
        """The requested lease in seconds, or the server's default."""
        return self.usual_lease_s if self.lease_s is None else self.lease_s

    @property
    def grace_to_set_s(self) -> int:
        """The requested length of the grace period in seconds, or the server's default."""
        return self.usual_grace_s if self.grace_s is None else self.grace_s

    def owner_of(self, uid: int) -> int:
        """Return the user as whom the server carries out the requests of a user of a client, by number."""
        return ANONYMOUS if self.root_squash and uid == 0 else uid

    @property
    def squashes_root(self) -> bool:
        """Whether requests from root on a client have not the rights of root on the server."""
        return self.owner_of(0) != 0

    @property
    def stable_writes(self) -> bool:
        """Whether the server commits each WRITE before it replies, so that clients send no COMMIT."""
        return False

    def lines(self, path: str, network: str) -> tuple[ServerLine, ...]:  # noqa: ARG002
        """Return the lines of configuration files that give a deployed server the requested export of a directory.

        ``network``: the clients, as in the line. Without lines, this kind of server has no known file.
        """
        return ()

    def caveats(self) -> tuple[str, ...]:
        """Return sentences: why a crash test of this export may end differently on a deployed server."""
        return tuple(
            f"{name} is {seconds} s, not the default {usual} s: {meaning}"
            for name, seconds, usual, meaning in (
                (
                    *("lease time", self.lease_s, self.usual_lease_s),
                    "a client that renews no lease for this time loses its opens and locks",
                ),
                (
                    *("grace period", self.grace_s, self.usual_grace_s),
                    "after a restart, clients must reclaim in this time; new opens wait",
                ),
            )
            if seconds not in {None, usual}
        )


AnyServer = Annotated[ServerSpec, OneOf(SERVERS, default=DEFAULT)]
"""The type of a field with a request for any kind of NFS server; without ``type``, the kernel's nfsd."""
