"""The interface of faults. A fault is a class in a file of this folder or of another distribution."""

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
    """All that a fault may change: a lab, and the stack in it."""

    lab: Lab
    stack: Stack


@dataclass(frozen=True)
class FaultEvent:
    """A fault that took effect.

    ``at_ns`` (CLOCK_MONOTONIC) is the instant of the fault: operations acknowledged before it must be kept.
    """

    fault: str
    target: str
    at_ns: int
    proof: str
    fates: tuple[CutResult, ...] = ()
    """The fate of the cache of each member disk, if the machine lost power."""


class Fault(ABC):
    """A disturbance of a lab or of the stack in it: a frozen dataclass whose fields are its arguments.

    A class with its own ``name`` is registered under that name, and must declare its own effects: effects of a named
    base class are not inherited.
    """

    name: ClassVar[str]

    def __init_subclass__(cls, **more: Any) -> None:
        """Register the fault.

        Raises:
            TypeError: the class does not declare its effects.
            RequestError: another fault has its name.
        """
        super().__init_subclass__(**more)
        if "name" in vars(cls):
            if not _declares_effects(cls):
                raise TypeError(
                    f"{cls.__module__}.{cls.__qualname__}: the fault {cls.name!r} does not declare its effects: "
                    "define effects(self, stack) -> FaultEffects in its class"
                )
            FAULTS.add(cls.name, cls)

    @classmethod
    def by_name(cls, policy: CutPolicy, seed: int) -> Self:
        """Return the fault for a request by name, with the policy and the seed if it has such fields.

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
        """Return the effects in a stack of this configuration, before anything has been built."""

    def target(self, context: FaultContext) -> Machine | None:  # noqa: ARG002
        """Return the machine that the fault takes down, whose services must be activated again; None if none."""
        return None

    @abstractmethod
    def inject(self, context: FaultContext) -> FaultEvent:
        """Inject the fault, and return the proof that it took effect."""

    @abstractmethod
    def heal(self, context: FaultContext) -> None:
        """Undo the fault; nothing is created anew."""

    def lasted(self, context: FaultContext, members: Mapping[str, Identity], said: str | None) -> str | None:  # noqa: ARG002
        """Return the proof that the fault still held when another fault came; None if it cannot end by itself.

        ``members``: the disks' metadata, read before anything was assembled. ``said``: the server's kernel log from
        the injection to the other fault; None where it was not recorded.

        Raises:
            RigError: the fault had ended before, so that the other fault came too late.
        """
        return None


def _declares_effects(cls: type[Fault]) -> bool:
    """Return whether a fault, or an unnamed base class of it, declares its effects."""
    for one in cls.__mro__:
        if one is Fault or (one is not cls and "name" in vars(one)):
            return False
        if "effects" in vars(one):
            return True
    return False
