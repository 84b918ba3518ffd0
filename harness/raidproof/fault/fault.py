"""What every fault has to offer."""

from dataclasses import dataclass
from errno import EIO, ETIMEDOUT
from typing import ClassVar, Protocol

from raidproof.disk.cache import Fate
from raidproof.lab.lab import Lab
from raidproof.machine.machine import Machine
from raidproof.storage.stack import Stack


@dataclass(frozen=True)
class FaultContext:
    """All that a fault can touch: a lab, and the stack that stands in it."""

    lab: Lab
    stack: Stack


@dataclass(frozen=True)
class FaultEvent:
    """A fault that took effect.

    ``at_ns`` is the instant up to which acknowledgements count: what a client had been told before it, it was told
    before the fault.
    """

    fault: str
    target: str
    at_ns: int
    proof: str
    fates: tuple[Fate, ...] = ()
    """What became of the cache of each member disk, if the machine lost its power."""


class Fault(Protocol):
    """A disturbance of a lab or of the stack in it."""

    name: ClassVar[str]

    def victim(self, context: FaultContext) -> Machine | None:
        """Return the machine that it takes down, so that all on it has to be activated again; None if none."""

    def inject(self, context: FaultContext) -> FaultEvent:
        """Let it happen, and return the proof that it did."""

    def heal(self, context: FaultContext) -> None:
        """Give back what the fault took; nothing is created anew."""


class NobodyGoesDown:
    """A fault that all machines survive."""

    def victim(self, context: FaultContext) -> None:
        """Return no machine."""


def given_up(context: FaultContext) -> frozenset[int]:
    """Return what clients may be told that cannot reach the server: only soft mounts give up (nfs(5))."""
    return frozenset() if context.stack.spec.mount.recovery == "hard" else frozenset({EIO, ETIMEDOUT})


def allowed_by(fault: Fault, context: FaultContext) -> frozenset[int]:
    """Return the errors of which clients may be told while a fault lasts: what its ``allows(scene)`` says, or none."""
    allows = getattr(fault, "allows", None)
    return allows(context) if allows else frozenset()
