"""The interface of faults, and their effects. A fault is a class in this folder or in another distribution."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from errno import EIO, ETIMEDOUT
from typing import Any, ClassVar, Self, cast

from pydantic import BaseModel, ConfigDict

from raidproof.core.blame import Blame
from raidproof.core.errors import RequestError
from raidproof.core.registry import Registry
from raidproof.disk.cache import CutPolicy, CutResult
from raidproof.lab.lab import Lab
from raidproof.machine.machine import Machine
from raidproof.storage.array import Identity
from raidproof.storage.stack import Stack, StackSpec

FAULTS: Registry[type["Fault"]] = Registry("fault", "raidproof.fault", "raidproof.faults")
"""Every fault by its name."""


class FaultEffects(BaseModel):
    """The effects of a fault, as far as verdicts depend on them: the record of a crash test stores them.

    Each field excuses failures or requires observations; the default excuses nothing. No verdict depends on another
    field of a fault.

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
    cut_results: tuple[CutResult, ...] = ()
    """The result of the cut for the cache of each member disk, if the machine lost power."""


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
