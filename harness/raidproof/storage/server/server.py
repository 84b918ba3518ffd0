"""What every NFS server has to offer: a request that registers its kind, the server of a machine, and its state."""

from abc import ABC, abstractmethod
from ipaddress import IPv4Network
from typing import Annotated, Any

from pydantic import Field, model_validator

from raidproof.core.errors import RequestError
from raidproof.core.layer import Machine, Spec, State, power_of_two
from raidproof.core.registry import OneOf, Registry
from raidproof.core.topology import SUBNET
from raidproof.core.units import KIB, MIB, Size, format_size
from raidproof.storage.filesystem import DIRECTORY

USUAL_LEASE_S = 90
"""The kernel's default for the lease and for the grace period."""
NFS_PORT = 2049
"""Where a server listens, and where an NFSv4 client looks for it, unless told otherwise."""
DEFAULT = "knfsd"

SERVERS: Registry[type["ServerSpec"]] = Registry("server", "raidproof.storage.server", "raidproof.servers")
"""Every kind of server by name."""


class ServerState(State):
    """A server and its export, as found."""

    path: str
    network: str
    options: tuple[str, ...]
    lease_s: int
    grace_s: int
    versions: tuple[str, ...]
    delegations: bool | None
    """None where the server does not say."""
    max_block_size: int


class Server(ABC):
    """An NFS server on one machine that exports one directory."""

    path: str

    @abstractmethod
    def activate(self) -> ServerState:
        """Start the server and export the directory, then check that all is as requested.

        Raises:
            NotEffective: it is not.
        """

    @abstractmethod
    def restart(self) -> ServerState:
        """Stop serving and start again: clients keep their mounts and reclaim what they had open."""

    @abstractmethod
    def end_grace(self) -> None:
        """End the grace period of an export that no client has mounted: nothing of it can be reclaimed.

        Raises:
            DeadlineExceeded: it goes on.
        """

    def end_lockd_grace(self) -> None:
        """End the grace period of NFSv3 locks, where the server has one of its own."""
        return

    @abstractmethod
    def deactivate(self) -> None:
        """Stop exporting and stop the server; every step is tried even if another failed.

        Raises:
            ExceptionGroup: what failed.
        """

    @abstractmethod
    def applied(self) -> tuple[str, ...]:
        """Return the export options in effect now, none left out; none at all if it is not exported."""

    @abstractmethod
    def require_effective(self) -> ServerState:
        """Return its state, if that is what was requested.

        Raises:
            NotEffective: it is not.
        """


class ServerSpec(Spec):
    """A server that is requested. A subclass with a default for ``type`` registers itself.

    Without ``sync`` the server answers before its disks have the data, which breaks the protocol's promise. Lease and
    grace are in seconds; None leaves the server's default.
    """

    type: str
    sync: bool = True
    root_squash: bool = False
    fsid: int | None = Field(default=None, ge=0, lt=2**32)
    """0 makes it the root of the server's NFSv4 name space."""
    network: IPv4Network = IPv4Network(f"{SUBNET}.0/24")
    """Which clients may mount it."""
    port: int = Field(default=NFS_PORT, ge=1, le=65535)
    lease_s: int | None = None
    grace_s: int | None = None
    delegations: bool = True
    """Whether NFSv4 clients may be given delegations. Under a write delegation `close` promises nothing."""
    max_block_size: Size = MIB
    """The most that one READ or WRITE may carry."""

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
        """Return the server on a machine that exports a directory; nothing has begun yet."""

    @abstractmethod
    def options(self) -> tuple[str, ...]:
        """The options of the export, none left to a default."""

    def caveats(self) -> tuple[str, ...]:
        """What makes a crash test of this export mean something else than that of a deployed server."""
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
