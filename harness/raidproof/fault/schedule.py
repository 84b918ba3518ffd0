"""The schedule of a crash test: which faults are injected, in which order, when, and how long they last.

`at`, `after_replies`, `after_recovery`, `in_recovery` and `when_served` make its entries.
"""

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass, fields
from enum import Enum, StrEnum
from typing import Any, NamedTuple, Self, cast

from raidproof.core.errors import RequestError
from raidproof.fault.fault import Fault
from raidproof.fault.machine import ClientPowerCut, MachineDown, PowerCut
from raidproof.storage.stack import StackSpec


class RecoveryStage(StrEnum):
    """A stage of the server's recovery, before the server serves its clients again."""

    BOOT = "boot"
    ASSEMBLE = "assemble"
    """The array is assembled from the members that are found on the disks."""
    MOUNT = "mount"
    """The file system is mounted, which replays its log."""


@dataclass(frozen=True)
class AfterWork:
    """When the clients have worked for the time of the crash test (``ledger_seconds``), solo operations included."""

    def __str__(self) -> str:
        return "after the work"


@dataclass(frozen=True)
class At:
    """A number of seconds after the clients began to work."""

    seconds: float

    def __str__(self) -> str:
        return f"at {self.seconds:g} s"


@dataclass(frozen=True)
class AfterReplies:
    """When the clients have reported this number of acknowledged operations since the fault before, if any."""

    count: int

    def __str__(self) -> str:
        return f"after {self.count:,} replies"


@dataclass(frozen=True)
class AfterRecovery:
    """A number of seconds after a client could continue its work after the last fault that ended."""

    seconds: float

    def __str__(self) -> str:
        return f"{self.seconds:g} s after the recovery"


@dataclass(frozen=True)
class InRecovery:
    """At the end of a stage of the server's recovery from the fault before."""

    stage: RecoveryStage

    def __str__(self) -> str:
        return f"in the recovery, after {self.stage}"


@dataclass(frozen=True)
class WhenServed:
    """As soon as the server serves again after the fault before, at the beginning of its grace period."""

    def __str__(self) -> str:
        return "when the server serves again"


Moment = AfterWork | At | AfterReplies | AfterRecovery | InRecovery | WhenServed
"""When a fault is injected, at the earliest. A fault waits until the fault before has been injected."""


@dataclass(frozen=True)
class ScheduledFault:
    """A fault with the moment of its injection."""

    fault: Fault
    moment: Moment
    lasts_s: float | None = None
    """Seconds from the end of the injection until the fault is healed.

    None: a fault whose class is ``lasting`` lasts until the clients have finished; another one is healed at once.
    While a fault lasts, the schedule continues if its class is ``lasting`` or ``may_last``.
    """

    def __post_init__(self) -> None:
        """Check the duration.

        Raises:
            RequestError: the duration is negative.
        """
        if self.lasts_s is not None and self.lasts_s < 0:
            raise RequestError(f"fault {self.fault.name}: lasts_s is {self.lasts_s:g}, it must not be negative")

    def __str__(self) -> str:
        words = [str(self.moment), self.fault.name]
        for one in fields(cast("Any", self.fault)):
            value = getattr(self.fault, one.name)
            if value != one.default:
                said = str(value.value if isinstance(value, Enum) else value)
                words.append(said if one.default is MISSING else f"{one.name}={said}")
        return " ".join(words) + ("" if self.lasts_s is None else f", for {self.lasts_s:g} s")

    @property
    def stays(self) -> bool:
        """Whether the clients go on while the fault is in effect; else it is healed before the schedule continues."""
        return self.fault.lasting or (self.fault.may_last and self.lasts_s is not None)


def at(seconds: float, fault: Fault, *, lasts_s: float | None = None) -> ScheduledFault:
    """Return a fault that is injected ``seconds`` after the clients began to work."""
    return ScheduledFault(fault, At(seconds), lasts_s)


def after_replies(count: int, fault: Fault, *, lasts_s: float | None = None) -> ScheduledFault:
    """Return a fault that is injected when the clients have reported ``count`` acknowledged operations.

    They are counted from the beginning of the clients' work, or from the fault before: from the end of its injection
    if it stays in effect, else from when a client could continue.
    """
    return ScheduledFault(fault, AfterReplies(count), lasts_s)


def after_recovery(seconds: float, fault: Fault, *, lasts_s: float | None = None) -> ScheduledFault:
    """Return a fault that is injected ``seconds`` after a client could continue after the last fault that ended."""
    return ScheduledFault(fault, AfterRecovery(seconds), lasts_s)


def in_recovery(stage: RecoveryStage | str, fault: PowerCut) -> ScheduledFault:
    """Return a power cut at the end of a stage of the server's recovery: ``boot``, ``assemble`` or ``mount``.

    Raises:
        RequestError: there is no such stage.
    """
    if stage not in {*RecoveryStage}:
        stages = ", ".join(RecoveryStage)
        raise RequestError(f"the server's recovery has no stage {stage!r}", remedy=f"use one of: {stages}")
    return ScheduledFault(fault, InRecovery(RecoveryStage(stage)))


def when_served(fault: Fault) -> ScheduledFault:
    """Return a fault that is injected as soon as the server serves again, before clients were made to reconnect.

    The server is then at the beginning of its grace period. The fault before must have taken the server down.
    """
    return ScheduledFault(fault, WhenServed())


class Strike(NamedTuple):
    """A scheduled fault, and the power cuts that interrupt the server's recovery from it."""

    scheduled: ScheduledFault
    interruptions: tuple[ScheduledFault, ...] = ()
    followed_at_once: bool = False
    """Whether the next fault is injected as soon as the server serves again."""


@dataclass(frozen=True)
class Schedule:
    """The faults of a crash test in the order of their injection."""

    conditions: tuple[Fault, ...]
    """The faults injected before the clients begin, which last until the clients have finished."""
    earlier: tuple[Strike, ...]
    """The faults while the clients work, before the main fault."""
    main: Strike | None
    """The main fault: the write log ends with it, and the results give times relative to it. None: no fault."""
    later: tuple[Strike, ...]
    """The faults after the recovery from the main fault."""

    @classmethod
    def short(cls, conditions: Iterable[Fault], main: Fault | None) -> Self:
        """Return the schedule of a main fault at the end of the clients' work, and of faults from before the work."""
        strike = None if main is None else Strike(ScheduledFault(main, AfterWork()))
        return cls(tuple(conditions), (), strike, ())

    @classmethod
    def of(cls, faults: Sequence[ScheduledFault], stack: StackSpec) -> Self:
        """Return the schedule of faults while the clients work.

        The main fault is the first one that loses a machine's memory; without one, the first that is healed before
        the schedule continues.

        Raises:
            RequestError: the order of the moments is impossible, or all faults last until the end.
        """
        strikes = strikes_of(faults)
        ending = [one for one in strikes if not one.scheduled.stays]
        losing = [one for one in ending if _loses_memory(one.scheduled.fault, stack)]
        main = next(iter([*losing, *ending]), None)
        if main is None:
            names = ", ".join(one.scheduled.fault.name for one in strikes)
            raise RequestError(
                f"the schedule has only faults that stay in effect while the clients work: {names}",
                remedy="add a fault that ends, such as PowerCut(), or give these faults in during=",
            )
        place = next(number for number, one in enumerate(strikes) if one is main)
        return cls((), tuple(strikes[:place]), main, tuple(strikes[place + 1 :]))

    def refuse(self, stack: StackSpec) -> None:
        """Check, before anything is built, that a stack of this configuration can have each fault.

        Raises:
            RequestError: it cannot.
        """
        for fault in self.faults:
            try:
                fault.refuse(stack)
            except RequestError as error:
                raise RequestError(f"fault {fault.name}: {error}") from error

    @property
    def main_fault(self) -> Fault | None:
        """The fault of `main`; None: no fault."""
        return None if self.main is None else self.main.scheduled.fault

    @property
    def is_short(self) -> bool:
        """Whether the main fault, if any, follows the clients' work of a fixed time."""
        return self.main is None or isinstance(self.main.scheduled.moment, AfterWork)

    @property
    def faults(self) -> list[Fault]:
        """All faults in the order of their injection."""
        strikes = [*self.earlier, *((self.main,) if self.main else ()), *self.later]
        scheduled = [one for strike in strikes for one in (strike.scheduled, *strike.interruptions)]
        return [*self.conditions, *(one.fault for one in scheduled)]


def strikes_of(faults: Sequence[ScheduledFault]) -> list[Strike]:
    """Return scheduled faults, each with the power cuts that interrupt the recovery from it.

    Raises:
        RequestError: the order of the moments is impossible.
    """
    strikes: list[Strike] = []
    latest_s = 0.0
    for one in faults:
        before = strikes[-1] if strikes else None
        match one.moment:
            case At(seconds) if seconds < latest_s:
                raise RequestError(
                    f"fault {one.fault.name}: at {seconds:g} s is earlier than the fault before, at {latest_s:g} s"
                )
            case At(seconds):
                latest_s = seconds
            case AfterRecovery() if all(strike.scheduled.stays for strike in strikes):
                raise RequestError(
                    f"fault {one.fault.name}: after_recovery needs a fault before it that ends, such as PowerCut()"
                )
            case InRecovery(stage):
                _refuse_interruption(one, before, stage)
            case WhenServed() if before is None or not _takes_server_down(before.scheduled.fault):
                raise RequestError(
                    f"fault {one.fault.name}: when_served needs a fault of the server's machine before it",
                    remedy="put at(seconds, PowerCut()) before it",
                )
            case WhenServed() if one.stays:
                raise RequestError(f"fault {one.fault.name}: when_served needs a fault that ends, such as PowerCut()")
        if isinstance(one.moment, InRecovery) and before is not None:
            strikes[-1] = before._replace(interruptions=(*before.interruptions, one))
        else:
            if isinstance(one.moment, WhenServed) and before is not None:
                strikes[-1] = before._replace(followed_at_once=True)
            strikes.append(Strike(one))
    return strikes


def _refuse_interruption(one: ScheduledFault, before: Strike | None, stage: RecoveryStage) -> None:
    """Raise RequestError unless a fault can interrupt the recovery of the server from the fault before."""
    if type(one.fault) is not PowerCut:
        raise RequestError(
            f"fault {one.fault.name}: only a power cut of the server can interrupt the server's recovery ({stage})",
            remedy="use in_recovery(stage, PowerCut())",
        )
    if before is None or type(before.scheduled.fault) is not PowerCut:
        raise RequestError(
            f"in_recovery({stage}) needs a power cut of the server before it, whose recovery it interrupts",
            remedy="put at(seconds, PowerCut()) before it",
        )


def _takes_server_down(fault: Fault) -> bool:
    return isinstance(fault, MachineDown) and not isinstance(fault, ClientPowerCut)


def _loses_memory(fault: Fault, stack: StackSpec) -> bool:
    effects = fault.effects(stack)
    return effects.server_memory_lost or effects.client_memory_lost
