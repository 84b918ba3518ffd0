"""What a fault does, as far as a verdict depends on it.

The fault declares it, the record of a crash test keeps it, and the judge reads nothing else of a fault.
"""

from errno import EIO, ETIMEDOUT

from pydantic import BaseModel, ConfigDict

from raidproof.core.blame import Blame
from raidproof.disk.cache import CutPolicy
from raidproof.storage.stack import StackSpec


class FaultEffects(BaseModel):
    """Each field excuses something, or makes something to be expected; its default excuses nothing.

    A record of before a field was there is read with the field's default.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    server_memory_lost: bool = False
    """The server's memory is lost: an async export excuses losses, and what survives shows that a stack is safe."""
    client_memory_lost: bool = False
    """The memory of the client that the fault strikes is lost: what it did last, it could not tell."""
    caches: CutPolicy | None = None
    """What the volatile caches of the server's disks keep; None: they keep their power, so everything."""
    nfsd_restarted: bool = False
    """Another instance of nfsd answers afterwards: its write verifier is another one, its reply cache is empty."""
    server_away: bool = False
    """The server does not answer for a while: the clients' kernels may say that tasks wait for it."""
    lease_lost: bool = False
    """A client's lease ends while the client holds locks: what it does under a lock fails with EIO."""
    errors: frozenset[int] = frozenset()
    """Errors (errno) of which clients may be told from the beginning of the fault on."""
    kernel_messages: tuple[str, ...] = ()
    """Patterns (regular expressions) of the alarming lines that kernels say because of it."""
    member_missing: bool = False
    """The array may go on without a member from its beginning on."""
    unreadable_blocks: bool = False
    """A drive gives errors while an array is rebuilt from it: md must list the blocks that it cannot read."""
    content_changed: bool = False
    """A member holds other bytes than were written: a scrub must find stripes that differ, and repair them."""
    explanation: Blame | None = None
    """Whose fault a loss is, where the fault itself explains one."""


def errors_of_soft_mounts(stack: StackSpec) -> frozenset[int]:
    """Return what clients may be told that cannot reach the server: only soft mounts give up (nfs(5))."""
    return frozenset() if stack.mount.recovery == "hard" else frozenset({EIO, ETIMEDOUT})
