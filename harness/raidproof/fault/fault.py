"""The interface of faults, and the effects of a fault that verdicts take into account.

A fault is a class in this folder or in another Python distribution (entry points `raidproof.faults`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from random import Random
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
"""All fault classes, by the name of the fault."""
MOST_GRACE_S = 15
"""Greatest grace period in seconds with which clients of NFSv3 lock files in crash tests: they wait for its end."""


class FaultEffects(BaseModel):
    """The effects of a fault that verdicts take into account. The record of a crash test stores them.

    Each field excuses a kind of failure or requires an observation. The defaults excuse and require nothing. Verdicts
    read these fields and nothing else of a fault.

    A field that an older record lacks has its default.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    server_memory_lost: bool = False
    """Whether the server loses its memory.

    With an async export, losses are then excused. Only a fault with this effect can show that a stack is safe.
    """
    client_memory_lost: bool = False
    """Whether the target client loses its memory: the ledger may lack the last acknowledgements that it received."""
    caches: CutPolicy | None = None
    """What the volatile caches of the server's disks keep at the cut; None if the disks stay powered and keep all."""
    nfsd_restarted: bool = False
    """Whether another instance of nfsd answers after the fault, with a new write verifier and no cached replies."""
    server_away: bool = False
    """Whether the server is unreachable during the fault, so that the clients' kernels may log hung tasks."""
    lease_lost: bool = False
    """Whether the lease of a client ends while the client holds locks: operations under a lock then fail with EIO."""
    errors: frozenset[int] = frozenset()
    """The error numbers (errno) that clients may get from the beginning of the fault on."""
    kernel_messages: tuple[str, ...] = ()
    """Regular expressions for kernel log lines that the fault causes, and that are a failure without the fault."""
    member_missing: bool = False
    """Whether the array may be degraded from the beginning of the fault on."""
    unreadable_blocks: bool = False
    """Whether a member has unreadable sectors that a rebuild needs: md must then list them as bad blocks."""
    content_changed: bool = False
    """Whether the content of a member changes: a scrub must then find and repair stripes that differ."""
    explanation: Blame | None = None
    """The culprit and the cause that verdicts name for lost data, if the fault alone explains the loss; else None."""


PERMISSIVENESS = (CutPolicy.KEEP, CutPolicy.DROP, CutPolicy.RANDOM, CutPolicy.TORN)
"""The policies of a cut, in the order of the damage that they permit."""


def combined(effects: Iterable[FaultEffects]) -> FaultEffects:
    """Return the effects of several faults together: each excuses what one of them excuses, and no more.

    ``explanation`` is the first one that is known, ``caches`` that of the policy that permits the most damage.
    """
    many = list(effects)
    flags = [name for name, field in FaultEffects.model_fields.items() if field.annotation is bool]
    policies = [one.caches for one in many if one.caches is not None]
    return FaultEffects(
        **{name: any(getattr(one, name) for one in many) for name in flags},
        caches=max(policies, key=PERMISSIVENESS.index, default=None),
        errors=frozenset().union(*(one.errors for one in many)),
        kernel_messages=tuple(dict.fromkeys(pattern for one in many for pattern in one.kernel_messages)),
        explanation=next((one.explanation for one in many if one.explanation is not None), None),
    )


def unreachable(stack: StackSpec, **others: Any) -> FaultEffects:
    """Return the effects of a fault during which clients do not reach the server; ``others``: its further effects.

    Clients may log hung tasks, and get the errors that the options of their mounts permit.
    """
    return FaultEffects(server_away=True, errors=stack.mount.effects.errors, **others)


def why_no_locks(stack: StackSpec, effects: Iterable[FaultEffects]) -> str | None:
    """Return why clients may lose locks by design, or would wait for them for too long; None if neither.

    ``effects``: those of each fault.
    """
    if stack.mount.vers != "3":
        return None
    if not stack.mount.lock:
        return "with nolock, locks exclude only processes of one client"
    if any((one.server_away and not one.server_memory_lost) or one.client_memory_lost for one in effects):
        return "clients of NFSv3 learn only of a reboot of the server that they have lost their locks"
    if stack.export.grace_to_set_s > MOST_GRACE_S:
        return f"locks of NFSv3 wait for lockd's grace period after a fault, which is longer than {MOST_GRACE_S} s"
    return None


@dataclass(frozen=True)
class FaultContext:
    """The running lab and stack on which a fault acts."""

    lab: Lab
    """The machines, disks and network."""
    stack: Stack
    """The storage stack of the lab's server and clients."""


@dataclass(frozen=True)
class FaultEvent:
    """The report of an injected fault that took effect."""

    fault: str
    """The name of the fault."""
    target: str
    """The machine (by name), disk (by serial) or md device (by path) that the fault affects."""
    at_ns: int
    """The instant of the fault in ns (CLOCK_MONOTONIC of the harness). Operations acknowledged earlier must last."""
    proof: str
    """The evidence that the fault took effect, as a sentence for the record."""
    cut_results: tuple[CutResult, ...] = ()
    """For each member disk, what its volatile cache kept; empty if no machine lost power."""


class Fault(ABC):
    """A disturbance of a lab or of its stack. Each fault is a frozen dataclass whose fields are its arguments.

    A subclass that sets ``name`` is registered in `FAULTS` under that name. It must define `effects` itself or inherit
    `effects` from a base class without a name; it may not inherit the effects of another named fault.
    """

    name: ClassVar[str]
    lasting: ClassVar[bool] = False
    """Whether a schedule leaves the fault in effect until the end of the crash test, unless it says how long."""
    may_last: ClassVar[bool] = False
    """Whether a schedule that says how long leaves the fault in effect while it continues."""

    def __init_subclass__(cls, **more: Any) -> None:
        """Register a subclass that sets ``name``.

        Raises:
            TypeError: the subclass does not define `effects`.
            RequestError: another fault has the same name.
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
        """Return the fault that a scenario requested by its name only.

        The fault gets ``policy`` and ``seed`` if it has fields of these names, and defaults for its other fields.

        Raises:
            RequestError: the fault has another field without a default.
        """
        given = {"policy": policy, "seed": seed}
        arguments = [one for one in fields(cast("Any", cls)) if one.init]
        lacking = [
            one.name
            for one in arguments
            if one.name not in given and one.default is MISSING and one.default_factory is MISSING
        ]
        if lacking:
            raise RequestError(
                f"the fault {cls.name!r} needs values for its arguments: {', '.join(lacking)}",
                remedy=f"give {cls.__name__}(...) instead of its name",
            )
        return cls(**{one.name: given[one.name] for one in arguments if one.name in given})

    @classmethod
    def drawn(cls, rng: Random, stack: StackSpec) -> Self | None:  # noqa: ARG003
        """Return this fault with random arguments for a stack; None if random schedules leave it out, as by default.

        The fault must be possible together with any other one, end by itself or by `heal`, and need no preparation.
        """
        return None

    @property
    def lacked(self) -> frozenset[str]:
        """The serials of the members that the array lacks while the fault is in effect."""
        return frozenset()

    def refuse(self, stack: StackSpec) -> None:
        """Check, before anything is built, that a stack of this configuration can have the fault.

        Raises:
            RequestError: it cannot. Nothing is raised if only the running lab shows it.
        """
        for serial in sorted(self.lacked):
            stack.array.refuse_loss(serial)

    @abstractmethod
    def effects(self, stack: StackSpec) -> FaultEffects:
        """Return the effects of the fault in a stack of this configuration; nothing has been built yet."""

    def target(self, context: FaultContext) -> Machine | None:  # noqa: ARG002
        """Return the machine that the fault takes down, whose services must be activated again; None by default."""
        return None

    @abstractmethod
    def inject(self, context: FaultContext) -> FaultEvent:
        """Inject the fault, and return the event with the proof that the fault took effect."""

    @abstractmethod
    def heal(self, context: FaultContext) -> None:
        """End the fault; do not re-create the array, the file system or their data."""

    def lasted(self, context: FaultContext, members: Mapping[str, Identity], kernel_log: str | None) -> str | None:  # noqa: ARG002
        """Return the proof that this fault still lasted when the crash test injected its main fault.

        The main fault is the argument ``fault=`` of the crash test; this fault is one of ``during=``. None means that
        this fault lasts until it is healed, so that no proof is needed. ``members`` has the superblock of each disk,
        by serial, read after the main fault and before any assembly. ``kernel_log`` is the server's kernel log from
        the injection of this fault to the main fault; None if it was not recorded.

        Raises:
            RigError: this fault had ended before the main fault was injected.
        """
        return None


def _declares_effects(cls: type[Fault]) -> bool:
    """Return whether a fault class, or a base class of it without a name, defines `effects`."""
    for one in cls.__mro__:
        if one is Fault or (one is not cls and "name" in vars(one)):
            return False
        if "effects" in vars(one):
            return True
    return False
