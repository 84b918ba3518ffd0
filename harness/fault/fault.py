"""What every fault has to offer."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from harness.disk.cache import Fate
from harness.machine.machine import Machine


@dataclass(frozen=True)
class Injected:
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
    """A disturbance of one machine."""

    name: ClassVar[str]
    reboots: ClassVar[bool]
    """Whether the machine is off afterwards, so that everything on it has to be activated again."""

    def inject(self, machine: Machine) -> Injected:
        """Let it happen, and return the proof that it did."""

    def heal(self, machine: Machine) -> None:
        """Give the machine what the fault took from it; nothing is created anew."""
