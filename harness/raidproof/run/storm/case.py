"""A random crash test: its stack, its workers and its schedule of faults, drawn from a seed; and which are legal."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from raidproof.core.errors import RequestError
from raidproof.disk.cache import CacheMode
from raidproof.fault import FAULTS, Fault, PowerCut
from raidproof.fault.schedule import (
    AfterRecovery,
    AfterReplies,
    At,
    InRecovery,
    Moment,
    RecoveryStage,
    Schedule,
    ScheduledFault,
    WhenServed,
)
from raidproof.plan.faults import table_of
from raidproof.storage.array import AnyArray
from raidproof.storage.stack import StackSpec
from raidproof.workload.ledger import KINDS

MOST_FAULTS = 4
"""Greatest number of faults of a drawn schedule."""
LEAST_KINDS, MOST_KINDS = 3, 6
"""Numbers of kinds of worker on each client between which the seed draws."""
FIRST_S = 0.5
"""Seconds from the begin of the work to the first fault, at least."""
CUTS = 0.3
"""Share of power cuts of the server among the faults."""
CUT_IN_RECOVERY = 0.25
"""Share of the faults after a power cut that are a second cut within the recovery."""
SOUND = (CacheMode.VOLATILE, CacheMode.VOLATILE, CacheMode.NONE, CacheMode.PROTECTED)
"""The caches of disks that do what they should; one that stands twice is drawn twice as often."""
PPL = "ppl"
CLOSED = frozenset({PPL, "journal"})
"""md's consistency policies with which an array starts although it is dirty and a member is missing."""


@dataclass(frozen=True)
class Case:
    """A crash test with a schedule of faults."""

    stack: StackSpec
    cache_mode: CacheMode
    kinds: tuple[str, ...]
    """The kinds of worker on each client."""
    faults: tuple[ScheduledFault, ...]

    def tables(self) -> list[dict[str, Any]]:
        """Return the faults as the tables ``[[fault]]`` of a plan."""
        return [table_of(one) for one in self.faults]


def draw(seed: int, stacks: Sequence[StackSpec], kinds: Sequence[str] = (), *, beyond: bool = False) -> Case:
    """Return the case of a seed; it depends on nothing but the arguments.

    ``kinds``: the kinds of fault that may be drawn; empty: all that random schedules have. ``beyond``: more members
    may be lost than the level survives.

    Raises:
        RequestError: no schedule with these kinds is legal for the stack.
    """
    rng = Random(f"storm {seed}")  # noqa: S311
    stack = rng.choice(list(stacks))
    # A partial parity log is safe only on disks without a volatile cache (docs/findings.md).
    cache_mode = CacheMode.NONE if stack.array.policy == PPL else rng.choice(SOUND)
    workers = rng.sample(sorted(set(KINDS)), rng.randint(LEAST_KINDS, MOST_KINDS))
    wanted = rng.randint(1, MOST_FAULTS)
    case = Case(stack, cache_mode, tuple(sorted(workers)), ())
    for _ in range(200):
        case = _with_one_more(case, rng, kinds, beyond=beyond, last=len(case.faults) + 1 == wanted)
        if len(case.faults) >= wanted and why_not(case, beyond=beyond) is None:
            return case
    raise RequestError(
        f"seed {seed}: no schedule of {', '.join(kinds) or 'the known faults'} is legal for {stack.array.type} RAID"
        f"{stack.array.level}"
    )


def _with_one_more(case: Case, rng: Random, kinds: Sequence[str], *, beyond: bool, last: bool) -> Case:
    """Return the case with a further random fault; the same case if the fault is not legal there."""
    named = list(kinds) or list(FAULTS)
    kind = PowerCut.name if PowerCut.name in named and rng.random() < CUTS else rng.choice(named)
    fault = FAULTS[kind].drawn(rng, case.stack)
    if fault is None:
        return case
    scheduled = ScheduledFault(fault, *_moment(case, fault, rng))
    more = Case(case.stack, case.cache_mode, case.kinds, (*case.faults, scheduled))
    # A schedule of faults that all stay in effect is not possible; a later one may end.
    ends = any(not one.stays for one in more.faults)
    legal = why_not(more, beyond=beyond) is None if ends else not last and _stack_refuses(more, beyond=beyond) is None
    return more if legal else case


def _moment(case: Case, fault: Fault, rng: Random) -> tuple[Moment, float | None]:
    """Return a random moment for the next fault, and how long the fault lasts."""
    lasts_s = rng.choice([None, 0.5, 1.0, 2.0]) if fault.lasting else None
    before = case.faults[-1] if case.faults else None
    second = before is not None and type(before.fault) is PowerCut and type(fault) is PowerCut
    if second and rng.random() < CUT_IN_RECOVERY:
        return InRecovery(rng.choice(list(RecoveryStage))), None
    ended = any(not one.stays for one in case.faults)
    if ended and not fault.lasting and rng.random() < CUT_IN_RECOVERY:
        return WhenServed(), lasts_s
    if ended and rng.random() < 0.5:
        return AfterRecovery(round(rng.uniform(0.0, 2.0), 1)), lasts_s
    if rng.random() < 0.3:
        return AfterReplies(rng.randrange(20, 200)), lasts_s
    latest = max((one.moment.seconds for one in case.faults if isinstance(one.moment, At)), default=FIRST_S)
    return At(round(latest + rng.uniform(0.0, 2.0), 1)), lasts_s


def why_not(case: Case, *, beyond: bool = False) -> str | None:
    """Return why a case cannot be run, or why its promises could not be kept by design; None if it is legal."""
    try:
        Schedule.of(case.faults, case.stack).refuse(case.stack)
    except RequestError as error:
        return str(error)
    return _stack_refuses(case, beyond=beyond)


def _stack_refuses(case: Case, *, beyond: bool) -> str | None:
    """Return why a stack cannot have the faults together; None if it can."""
    lasting = [one.fault for one in case.faults if one.stays]
    lacking = [fault for fault in lasting if fault.lacked]
    # md ends its background work when a member is lost, and does not begin it on an array that is not in sync.
    if len(lasting) > 1 and len(lacking) < len(lasting):
        return "a fault of md's background work or of a drive's speed excludes other faults that stay in effect"
    losing = next((place for place, one in enumerate(case.faults) if _loses_memory(one, case.stack)), None)
    if losing is not None and any(one.stays and not one.fault.lacked for one in case.faults[losing:]):
        return "md may resync after a crash of the server, which excludes a fault of its background work"
    serials = [serial for fault in lacking for serial in fault.lacked]
    if len(serials) > len(set(serials)):
        return "a member is lost twice"
    if beyond:
        return None
    if len(serials) > survives(case.stack.array):
        return f"the array lacks {len(serials)} members, and survives the loss of {survives(case.stack.array)}"
    open_hole = case.stack.array.kind.parity > 0 and case.stack.array.policy not in CLOSED
    lost = False
    for one in case.faults:
        lost = lost or bool(one.fault.lacked)
        if lost and open_hole and _loses_memory(one, case.stack):
            return "md does not start an array of this level that is dirty and degraded"
    return None


def _loses_memory(one: ScheduledFault, stack: StackSpec) -> bool:
    return one.fault.effects(stack).server_memory_lost


def survives(array: AnyArray) -> int:
    """Return the number of members that the array may lose, whichever they are."""
    raid = array.raid
    if not array.kind.redundant:
        return 0
    return raid.parity or (raid.most_lost if raid.width == 1 else 1)
