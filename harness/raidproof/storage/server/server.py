"""The interface of every NFS server: a request that registers its kind, the server of a machine, and its state."""

from abc import ABC, abstractmethod
from ipaddress import IPv4Network
from typing import Annotated, Any, NamedTuple

from pydantic import Field, model_validator

from raidproof.core.errors import RequestError, RequirementMissing
from raidproof.core.layer import Machine, Spec, State, power_of_two
from raidproof.core.registry import OneOf, Registry
from raidproof.core.topology import SUBNET
from raidproof.core.units import KIB, MIB, Size, format_size
from raidproof.storage.filesystem import DIRECTORY

USUAL_LEASE_S = 90
"""The kernel's default for the lease and for the grace period, in seconds."""
NFS_PORT = 2049
"""Default port of a server, which an NFSv4 client also assumes."""
DEFAULT = "knfsd"

SERVERS: Registry[type["ServerSpec"]] = Registry("server", "raidproof.storage.server", "raidproof.servers")
"""Every kind of server by name."""


class ServerState(State):
    """The effective state of a server and its export."""

    path: str
    network: str
    options: tuple[str, ...]
    lease_s: int
    grace_s: int
    versions: tuple[str, ...]
    delegations: bool | None
    """None if the server does not report it."""
    max_block_size: int


class Outage(NamedTuple):
    """A server that has stopped serving."""

    at_ns: int
    """The instant (CLOCK_MONOTONIC of the harness) after the last command that stopped it."""
    proof: str


class Server(ABC):
    """An NFS server on one machine that exports one directory."""

    path: str

    @abstractmethod
    def activate(self) -> ServerState:
        """Start the server and export the directory, then verify that all is as requested.

        Raises:
            NotEffective: it is not.
        """

    @abstractmethod
    def restart(self) -> ServerState:
        """Stop serving and start again: clients keep their mounts and reclaim their open files and locks."""

    @abstractmethod
    def end_grace(self) -> None:
        """End the grace period of an export that no client has mounted, so that nothing can be reclaimed.

        Raises:
            DeadlineExceeded: the grace period does not end.
        """

    def halt(self) -> Outage:
        """Stop serving, and keep all else; `restart` serves again.

        Raises:
            RequirementMissing: this server cannot be halted.
        """
        raise RequirementMissing(f"{type(self).__name__} has no command that stops it and leaves its export")

    def kill(self) -> Outage:
        """Kill all programs of the service as a crash would; `revive` starts them.

        Raises:
            RequirementMissing: this server cannot be killed.
            RigError: it did not run.
        """
        raise RequirementMissing(f"{type(self).__name__} has no command that kills it")

    def revive(self) -> ServerState:
        """Start a killed server; clients keep their mounts and reclaim their open files and locks."""
        return self.restart()

    def grace_ended(self) -> bool:
        """Return whether the grace period is over.

        Raises:
            RequirementMissing: this server does not report it.
        """
        raise RequirementMissing(f"{type(self).__name__} does not report the end of its grace period")

    def end_lockd_grace(self) -> None:
        """End the grace period of NFSv3 locks, if the server has a separate one."""
        return

    @abstractmethod
    def deactivate(self) -> None:
        """Stop exporting and stop the server; every step is tried even if another failed.

        Raises:
            ExceptionGroup: the failures.
        """

    @abstractmethod
    def applied(self) -> tuple[str, ...]:
        """Return the export options in effect now, including defaults; empty if the directory is not exported."""

    @abstractmethod
    def require_effective(self) -> ServerState:
        """Return the state, if it is as requested.

        Raises:
            NotEffective: it is not.
        """


class ServerSpec(Spec):
    """A requested server. A subclass with a default for ``type`` registers itself.

    Without ``sync`` the server answers before its disks have the data, which violates the protocol. Lease and grace
    are in seconds; None keeps the server's default.
    """

    type: str
    sync: bool = True
    root_squash: bool = False
    fsid: int | None = Field(default=None, ge=0, lt=2**32)
    """0 makes the export the root of the server's NFSv4 name space."""
    network: IPv4Network = IPv4Network(f"{SUBNET}.0/24")
    """Network of the clients that may mount the export."""
    port: int = Field(default=NFS_PORT, ge=1, le=65535)
    lease_s: int | None = None
    grace_s: int | None = None
    delegations: bool = True
    """Whether the server may grant delegations to NFSv4 clients. Under a write delegation `close` promises nothing."""
    max_block_size: Size = MIB
    """Maximum bytes of one READ or WRITE."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Register the kind."""
        SERVERS.add(cls.model_fields["type"].default, cls)

    @model_validator(mode="after")
    def _possible(self) -> "ServerSpec":
        for name, seconds in (("lease_s", self.lease_s), ("grace_s", self.grace_s)):
            if seconds is not None and not 10 <= seconds <= 3600:
                raise RequestError(f"{name} {seconds}: a server takes 10 to 3600 seconds")
        if not 8 * KIB <= self.max_block_size <= MIB or not power_of_two(self.max_block_size):
            raise RequestError(
                f"max_block_size {format_size(self.max_block_size)} is not a power of two from 8KiB to 1MiB"
            )
        return self

    @abstractmethod
    def server(self, machine: Machine, path: str = DIRECTORY) -> Server:
        """Return the server on a machine that exports a directory; start nothing."""

    @abstractmethod
    def options(self) -> tuple[str, ...]:
        """The options of the export, including defaults."""

    def caveats(self) -> tuple[str, ...]:
        """Return why a crash test of this export means something else than on a deployed server."""
        return tuple(
            f"{name} is {seconds} s, not {USUAL_LEASE_S}: {meaning}"
            for name, seconds, meaning in (
                ("lease", self.lease_s, "a client that is silent for that long loses its opens and locks"),
                ("grace", self.grace_s, "opens wait that long after a restart, and reclaims must come in that time"),
            )
            if seconds not in {None, USUAL_LEASE_S}
        )


AnyServer = Annotated[ServerSpec, OneOf(SERVERS, default=DEFAULT)]
"""A field that holds a request for a server of any kind; without ``type`` it is the kernel's."""
