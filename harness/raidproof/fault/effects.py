"""The effects of a fault, as far as verdicts depend on them.

A fault declares its effects, the record of a crash test stores them, and verdicts depend on no other field of a fault.
"""

from errno import EIO, ETIMEDOUT

from pydantic import BaseModel, ConfigDict

from raidproof.core.blame import Blame
from raidproof.disk.cache import CutPolicy
from raidproof.storage.stack import StackSpec


class FaultEffects(BaseModel):
    """Each field excuses failures or requires observations; the default excuses nothing.

    A record that was written before a field existed is read with the field's default.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    server_memory_lost: bool = False
    """The server's memory is lost: an async export excuses losses, and the test shows whether the stack is safe."""
    client_memory_lost: bool = False
    """The memory of the target client is lost: the acknowledgements that it received last may be unrecorded."""
    caches: CutPolicy | None = None
    """What the volatile caches of the server's disks keep; None: the disks stay powered, so that they keep all."""
    nfsd_restarted: bool = False
    """Another instance of nfsd answers afterwards, with a new write verifier and an empty reply cache."""
    server_away: bool = False
    """The server does not answer for a while: the clients' kernels may log hung tasks."""
    lease_lost: bool = False
    """The lease of a client ends while it holds locks: its operations under a lock fail with EIO."""
    errors: frozenset[int] = frozenset()
    """Errors (errno) that clients may get from the beginning of the fault on."""
    kernel_messages: tuple[str, ...] = ()
    """Patterns (regular expressions) of alarming kernel log lines that the fault causes."""
    member_missing: bool = False
    """The array may be degraded from the beginning of the fault on."""
    unreadable_blocks: bool = False
    """A drive has read errors during a rebuild from it: md must list the blocks that it cannot read."""
    content_changed: bool = False
    """The content of a member has changed: a scrub must find and repair stripes that differ."""
    explanation: Blame | None = None
    """The blame for a loss, where the fault itself explains one."""


def errors_of_soft_mounts(stack: StackSpec) -> frozenset[int]:
    """Return the errors of clients that cannot reach the server: none for hard mounts, which never give up: nfs(5)."""
    return frozenset() if stack.mount.recovery == "hard" else frozenset({EIO, ETIMEDOUT})
