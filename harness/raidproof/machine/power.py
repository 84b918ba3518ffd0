"""How a machine gets and loses its power: what each provider has to offer."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from raidproof.core.waiting import Deadline
from raidproof.disk.cache import CutPolicy, Fate


@dataclass(frozen=True)
class Cut:
    """A power cut that happened.

    ``at_ns`` is the instant from which nothing reached a disk any more; acknowledgements that arrived before it were
    given before it.
    """

    at_ns: int
    policy: CutPolicy
    seed: int
    fates: tuple[Fate, ...] = ()
    """What became of each member's cache."""


OWN_POWEROFF = ("/sbin/raidproof-poweroff",)
"""In machines that run our own init."""


class Power(Protocol):
    """The switch of one machine."""

    @property
    def consoles(self) -> tuple[Path, ...]:
        """The console log of each boot, the last one last."""

    @property
    def poweroff(self) -> tuple[str, ...]:
        """The command that stops the machine in good order; it returns at once."""

    def on(self) -> None:
        """Begin to boot; returns before the machine answers."""

    def cut(self, policy: CutPolicy, seed: int) -> Cut:
        """Take the power away. Nothing runs in the machine for it, and nothing is flushed."""

    def wait_off(self, deadline: Deadline) -> None:
        """Return when the machine has stopped by itself."""

    def require_on(self) -> None:
        """Raise RigError, with the reason, if the machine has died."""
