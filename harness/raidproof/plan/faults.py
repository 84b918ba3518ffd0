"""The faults of a plan: parsing of the tables ``[[fault]]``, which together are the schedule of its crash tests."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from itertools import count, groupby
from typing import Any, Literal, Self, cast

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from raidproof.core.errors import RequestError, nearest
from raidproof.fault import FAULTS, Fault
from raidproof.fault.schedule import (
    AfterRecovery,
    AfterReplies,
    At,
    InRecovery,
    Moment,
    RecoveryStage,
    ScheduledFault,
    WhenServed,
    strikes_of,
)
from raidproof.plan.table import Seconds, Table, reasons

KIND = "kind"
"""The key with the name of the fault. The other keys are those of `Timing`, and the arguments of the fault."""
MOST_TIMES = 1000


class Timing(Table):
    """When the fault of a table ``[[fault]]`` is injected, how long it lasts, and how often it is repeated."""

    at: Seconds | None = Field(default=None, ge=0)
    """Seconds after the clients began to work."""
    after_replies: int | None = Field(default=None, ge=1)
    """Number of acknowledged operations since the fault before, or since the beginning."""
    after_recovery: Seconds | None = Field(default=None, ge=0)
    """Seconds after a client could continue after the last fault that ended."""
    in_recovery: RecoveryStage | None = None
    """The stage of the server's recovery from the power cut before, at whose end the power fails again."""
    when_served: Literal[True] | None = None
    """As soon as the server serves again after the fault before."""
    lasts: Seconds | None = Field(default=None, ge=0)
    """Seconds until the fault is healed; default: as its kind says."""
    every: Seconds | None = Field(default=None, gt=0)
    """With ``at``: seconds from one repetition to the next. Without ``times``, until the next fault begins."""
    times: int | None = Field(default=None, ge=1, le=MOST_TIMES)
    """How often the fault is injected."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        given = [name for name in MOMENTS if getattr(self, name) is not None]
        if len(given) != 1:
            found = f"has {' and '.join(given)}" if given else "has no moment"
            raise ValueError(f"{found}; write exactly one of {', '.join(MOMENTS)}")
        if self.every is not None and self.at is None:
            raise ValueError(f"every needs at, not {given[0]}; write times = 3 to repeat the fault with this moment")
        if self.in_recovery is not None and self.lasts is not None:
            raise ValueError("lasts is not possible with in_recovery: the power returns at once")
        if self.at is not None and self.every is None and (self.times or 1) > 1:
            raise ValueError(f"times = {self.times} at the same instant; write every, the seconds between them")
        return self

    @property
    def moment(self) -> Moment:
        """The moment of the first repetition."""
        name = next(name for name in MOMENTS if getattr(self, name) is not None)
        kind: Callable[..., Moment] = MOMENTS[name]
        return kind() if name == "when_served" else kind(getattr(self, name))


MOMENTS: Mapping[str, type[Moment]] = {
    "at": At,
    "after_replies": AfterReplies,
    "after_recovery": AfterRecovery,
    "in_recovery": InRecovery,
    "when_served": WhenServed,
}
"""The class of the moment that each key requests."""


def read_fault(table: Mapping[str, Any]) -> tuple[ScheduledFault, Timing]:
    """Return the fault of one table ``[[fault]]`` at its first moment, and its timing.

    Raises:
        RequestError: the kind is unknown, or it has no such argument, or a value or the timing is invalid.
    """
    if KIND not in table:
        raise RequestError(f"{KIND} is missing", remedy=f"write one of: {', '.join(FAULTS)}")
    kind = FAULTS[str(table[KIND])]
    allowed = [one.name for one in fields(cast("Any", kind)) if one.init]
    for key in table:
        if key != KIND and key not in allowed and key not in Timing.model_fields:
            known = [*allowed, *Timing.model_fields]
            raise RequestError(f"fault {kind.name}: unknown key {key!r}; {nearest(key, known)}")
    try:
        timing = Timing.model_validate({key: value for key, value in table.items() if key in Timing.model_fields})
        arguments = {key: value for key, value in table.items() if key in allowed}
        fault: Fault = TypeAdapter(kind).validate_python(arguments)
    except ValidationError as error:
        raise RequestError(f"fault {kind.name}: {reasons(error)}") from error
    return ScheduledFault(fault, timing.moment, timing.lasts), timing


def read_faults(tables: Sequence[Mapping[str, Any]]) -> tuple[ScheduledFault, ...]:
    """Return the faults of all tables ``[[fault]]`` in the order of their injection, each repetition by itself.

    Raises:
        RequestError: a table is invalid, or the order of the moments is impossible.
    """
    read = []
    for place, table in enumerate(tables, 1):
        try:
            read.append(read_fault(table))
        except RequestError as error:
            raise RequestError(
                f"table {place} of {len(tables)}: {error}" if len(tables) > 1 else str(error)
            ) from error
    strikes_of([scheduled for scheduled, _ in read])
    repeated: list[ScheduledFault] = []
    for place, (scheduled, timing) in enumerate(read):
        following = read[place + 1][1].at if place + 1 < len(read) else None
        repeated += _repetitions(scheduled, timing, following)
    # The repetitions of several faults at instants mix in the order of time.
    ordered: list[ScheduledFault] = []
    for _, those in groupby(repeated, lambda one: isinstance(one.moment, At)):
        ordered += sorted(those, key=_seconds)
    return tuple(ordered)


def _seconds(scheduled: ScheduledFault) -> float:
    return scheduled.moment.seconds if isinstance(scheduled.moment, At) else 0.0


def _repetitions(scheduled: ScheduledFault, timing: Timing, following_s: float | None) -> list[ScheduledFault]:
    """Return the repetitions of a fault; without a number, those before the following fault."""
    fault, lasts_s = scheduled.fault, scheduled.lasts_s
    if timing.at is None or timing.every is None:
        return [scheduled] * (timing.times or 1)
    if timing.times is None and following_s is None:
        raise RequestError(
            f"fault {fault.name}: every = {timing.every:g} has no end, as no fault with at follows",
            remedy="write times, the number of repetitions",
        )
    instants: list[float] = []
    for number in count():
        instant = timing.at + number * timing.every
        if (number >= timing.times) if timing.times is not None else (instant >= (following_s or 0.0)):
            break
        if number >= MOST_TIMES:
            raise RequestError(f"fault {fault.name}: more than {MOST_TIMES:,} repetitions")
        instants.append(instant)
    return [ScheduledFault(fault, At(instant), lasts_s) for instant in instants]


def table_of(scheduled: ScheduledFault) -> dict[str, Any]:
    """Return the table ``[[fault]]`` that requests a fault, with values that JSON and TOML have."""
    fault, moment = scheduled.fault, scheduled.moment
    name = next(name for name, kind in MOMENTS.items() if isinstance(moment, kind))
    value = True if isinstance(moment, WhenServed) else next(iter(vars(moment).values()))
    table = {KIND: fault.name, **TypeAdapter(type(fault)).dump_python(fault, mode="json", exclude_defaults=True)}
    table[name] = str(value) if isinstance(moment, InRecovery) else value
    return table if scheduled.lasts_s is None else {**table, "lasts": scheduled.lasts_s}
