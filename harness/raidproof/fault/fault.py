"""What every fault has to offer. A fault is one class, in a file of this folder or of another distribution."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Self, cast

from raidproof.core.errors import RequestError
from raidproof.core.registry import Registry
from raidproof.disk.cache import CutPolicy, CutResult
from raidproof.fault.effects import FaultEffects
from raidproof.lab.lab import Lab
from raidproof.machine.machine import Machine
from raidproof.storage.array import Identity
from raidproof.storage.stack import Stack, StackSpec

FAULTS: Registry[type["Fault"]] = Registry("fault", "raidproof.fault", "raidproof.faults")
"""Every fault by its name."""


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
    fates: tuple[CutResult, ...] = ()
    """What became of the cache of each member disk, if the machine lost its power."""


class Fault(ABC):
    """A disturbance of a lab or of the stack in it: a frozen dataclass whose fields are its arguments.

    A class that has a name of its own is registered under it, and has to declare its own effects: those of the class
    that it is made from hold for that one only.
    """

    name: ClassVar[str]

    def __init_subclass__(cls, **more: Any) -> None:
        """Register the fault.

        Raises:
            TypeError: it does not declare its effects.
            RequestError: another one has its name.
        """
        super().__init_subclass__(**more)
        if "name" in vars(cls):
            if not _declares_effects(cls):
                raise TypeError(
                    f"{cls.__module__}.{cls.__qualname__}: the fault {cls.name!r} does not declare what it does: "
                    "define effects(self, stack) -> FaultEffects in its class"
                )
            FAULTS.add(cls.name, cls)

    @classmethod
    def by_name(cls, policy: CutPolicy, seed: int) -> Self:
        """Return the fault that is asked for by its name alone, with the policy and the seed if it takes them.

        Raises:
            RequestError: it has other fields without a default.
        """
        known = {"policy": policy, "seed": seed}
        taken = [one for one in fields(cast("Any", cls)) if one.init]
        lacking = [
            one.name
            for one in taken
            if one.name not in known and one.default is MISSING and one.default_factory is MISSING
        ]
        if lacking:
            raise RequestError(
                f"the fault {cls.name!r} needs {', '.join(lacking)}",
                remedy=f"give {cls.__name__}(...) instead of its name",
            )
        return cls(**{one.name: known[one.name] for one in taken if one.name in known})

    @abstractmethod
    def effects(self, stack: StackSpec) -> FaultEffects:
        """Return what it does in a stack of this configuration, before anything has been built."""

    def target(self, context: FaultContext) -> Machine | None:  # noqa: ARG002
        """Return the machine that it takes down, so that all on it has to be activated again; None if none."""
        return None

    @abstractmethod
    def inject(self, context: FaultContext) -> FaultEvent:
        """Let it happen, and return the proof that it did."""

    @abstractmethod
    def heal(self, context: FaultContext) -> None:
        """Give back what the fault took; nothing is created anew."""

    def lasted(self, context: FaultContext, members: Mapping[str, Identity], said: str | None) -> str | None:  # noqa: ARG002
        """Return the proof that it was still so when another fault came; None if nothing can have ended it.

        ``members``: what the disks say, read before anything was assembled. ``said``: what the server's kernel said
        from the injection to its end; None where nobody could hear it.

        Raises:
            RigError: it had ended before, so the other fault hit something else.
        """
        return None


def _declares_effects(cls: type[Fault]) -> bool:
    """Whether a fault, or what it shares with others and has no name, says what it does."""
    for one in cls.__mro__:
        if one is Fault or (one is not cls and "name" in vars(one)):
            return False
        if "effects" in vars(one):
            return True
    return False
