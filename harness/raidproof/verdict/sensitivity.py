"""The sensitivity of a crash test: which defects of the stack a crash state of its write log would have shown.

A defect is applied to the write log one instance at a time: one flush is left out or takes effect late, one FUA write
is executed without FUA, one commit record overtakes its flush. The instance shows if the data of an acknowledged
operation were then still volatile after the server's reply: a power cut in this time loses them, if the disks lose
everything volatile. If the next flush of the member comes before the reply, no crash state shows the instance.

The write log shows which requests have data of the ledger (`durability`). For changes of names, all requests between
the begin of a solo operation and its reply count.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import NamedTuple

from raidproof.core.log import logger
from raidproof.disk.writelog import LogError
from raidproof.record.sensitivity import Defect, Sensitivity, Subject
from raidproof.verdict.durability import Copy, Durability, Flush, Instance, Needed, Requests, needed_of_names
from raidproof.verdict.evidence import CrashTestEvidence
from raidproof.verdict.solo import solo_operations
from raidproof.workload.history import Operation


def rounds_of(flushes: Mapping[int, Sequence[Flush]]) -> dict[Instance, frozenset[Instance]]:
    """Return the flushes of different members that ran at the same time, for each flush.

    A layer above the members sends a flush to all of them at once. A flush begins a new round if its member has one in
    the current round, or if all flushes of the current round had ended when it began.
    """
    every = sorted(
        (one.issued_ns, one.completed_ns, member, number)
        for member, found in flushes.items()
        for number, one in enumerate(found)
    )
    rounds: list[set[Instance]] = []
    until_ns = -1
    for issued_ns, completed_ns, member, number in every:
        if not rounds or issued_ns > until_ns or member in {of for of, _ in rounds[-1]}:
            rounds.append(set())
            until_ns = completed_ns
        rounds[-1].add((member, number))
        until_ns = max(until_ns, completed_ns)
    return {one: together for found in rounds for together in [frozenset(found)] for one in found}


EARLY_NS = 1_500_000
"""Nanoseconds from the acknowledgement of a flush to its effect, with `Defect.EARLY_FLUSH`."""
Round = frozenset[Instance]
"""The flushes of different members that ran at the same time."""


class Preflush(NamedTuple):
    """The time of a round of flushes that must precede the write of a commit record."""

    begun_ns: int
    ended_ns: int
    fua: bool
    """Whether the commit record was written with FUA."""


def before_commits(
    requests: Requests, rounds: Mapping[Instance, Round], solo: Iterable[Operation] = ()
) -> Mapping[Round, Preflush]:
    """Return the rounds of flushes that directly precede the write of a commit record.

    A commit record is written with FUA. Disks without FUA get a further flush instead: then the first write after a
    flush of the same solo operation counts as a commit record. No other write begins in between. ``solo``: the solo
    operations.
    """
    times = {
        one: (
            min(requests.flushes[member][number].issued_ns for member, number in one),
            max(requests.flushes[member][number].completed_ns for member, number in one),
        )
        for one in {*rounds.values()}
    }
    by_end = sorted(times, key=lambda one: times[one][1])
    ends = [times[one][1] for one in by_end]
    issued, plain = (
        [one.issued_ns for one in requests.writes],
        [one.issued_ns for one in requests.writes if not one.fua],
    )
    spans = sorted((one.issued_ns, one.promised_ns) for one in solo if one.promised_ns is not None)
    begun = [one for one, _ in spans]
    found: dict[Round, Preflush] = {}
    for write in requests.writes:
        place = bisect_right(ends, write.issued_ns) - 1
        if place < 0:
            continue
        together = by_end[place]
        begun_ns, ended_ns = times[together]
        # Of writes with FUA, several may follow one flush, such as those of data and parity.
        others = plain if write.fua else issued
        if bisect_left(others, write.issued_ns) > bisect_left(others, ended_ns):
            continue
        number = bisect_right(begun, begun_ns) - 1
        of_one = number >= 0 and write.issued_ns <= spans[number][1]
        if write.fua or (of_one and together not in found):
            found[together] = Preflush(begun_ns, ended_ns, write.fua)
    return found


class Absence(NamedTuple):
    """The time in which data of an acknowledged operation would have been volatile without an instance of a defect."""

    defect: Defect
    instance: Instance | frozenset[Instance]
    promised_ns: int
    """The reply to the operation."""
    until_ns: float
    lost_with_all: bool = True
    """Whether the data are lost if the disks lose everything volatile; else only if they keep a part of it."""

    def shows_at(self, cut_ns: float) -> bool:
        """Return whether a power cut would lose the data, if the disks lose everything volatile."""
        return self.lost_with_all and self.promised_ns < cut_ns < self.until_ns


class Order:
    """The order of the flushes and writes of a write log; see `before_commits` for ``solo``."""

    def __init__(self, requests: Requests, solo: Iterable[Operation] = ()) -> None:
        self.requests = requests
        self.durability = Durability(requests.flushes)
        self.rounds = rounds_of(requests.flushes)
        self.commits = before_commits(requests, self.rounds, solo)


def absences(order: Order, needed: Iterable[Needed]) -> Iterator[Absence]:
    """Yield all times in which data would have been volatile with an instance of a defect."""
    durability = order.durability
    for promised_ns, copies in needed:
        for copy in copies:
            if copy.fua:
                plain = [one._replace(fua=False) if one is copy else one for one in copies]
                yield Absence(Defect.FUA, (copy.member, copy.done_ns), promised_ns, durability.durable_ns(plain))
                continue
            flush = durability.flush_of(copy)
            if flush is None or (flushed_ns := durability.completed_ns(flush)) > promised_ns:
                continue  # no flush made the data durable before the reply
            alone, together = frozenset({flush}), order.rounds[flush]
            without = durability.durable_ns(copies, alone)
            of_all = durability.durable_ns(copies, together)
            yield Absence(Defect.FLUSH_OF_A_MEMBER, alone, promised_ns, without)
            yield Absence(Defect.FLUSH, together, promised_ns, of_all)
            yield Absence(Defect.EARLY_FLUSH, alone, promised_ns, min(without, flushed_ns + EARLY_NS))
            if together in order.commits:
                yield Absence(Defect.NO_PREFLUSH, together, promised_ns, of_all)


def overtaken(order: Order) -> Iterator[Absence]:
    """Yield the times in which a commit record could be durable before older requests, had it overtaken its flush.

    No time if the flush covered no request: then the order makes no difference.
    """
    plain = (Copy(one.member, one.done_ns, fua=False) for one in order.requests.writes if not one.fua)
    covering = {order.durability.flush_of(one) for one in plain}
    for together, (begun_ns, ended_ns, fua) in order.commits.items():
        until_ns = ended_ns if together & covering else begun_ns
        yield Absence(Defect.COMMIT_FIRST, together, begun_ns, until_ns, lost_with_all=fua)


def missed_at(requests: Requests, needed: Iterable[Needed], cuts_ns: Iterable[int]) -> Mapping[int, Set[Hashable]]:
    """Return for the instant of each power cut (ns) the flushes of a member whose absence it would show."""
    found: dict[int, set[Hashable]] = {cut_ns: set() for cut_ns in sorted(cuts_ns)}
    instants = list(found)
    for one in absences(Order(requests), needed):
        if one.defect is Defect.FLUSH_OF_A_MEMBER:
            for cut_ns in instants[bisect_right(instants, one.promised_ns) : bisect_left(instants, one.until_ns)]:
                found[cut_ns].add(one.instance)
    return found


class _Shown(NamedTuple):
    """Which cuts show an instance of a defect."""

    some: bool = False
    this: bool = False
    """The injected power cut."""
    checked: bool = False
    """That of a checked crash state."""


def sensitivity(
    order: Order,
    needed: Iterable[Needed],
    cut_ns: int | None,
    checked_ns: Iterable[int] | None = None,
    subject: Subject = Subject.DATA,
) -> list[Sensitivity]:
    """Return the sensitivity to each defect; to `Defect.COMMIT_FIRST` only with the subject DATA.

    ``cut_ns``: the injected power cut, None without one. ``checked_ns``: the instants of the checked crash states in
    which nothing volatile survived; None if no crash state was to be checked.
    """
    of_data = subject is Subject.DATA
    shown: dict[Defect, dict[Hashable, _Shown]] = {
        one: {} for one in Defect if of_data or one is not Defect.COMMIT_FIRST
    }
    checked = sorted(checked_ns or ())
    for one in chain(absences(order, needed), overtaken(order) if of_data else ()):
        before = shown[one.defect].get(one.instance, _Shown())
        place = bisect_right(checked, one.promised_ns)
        shown[one.defect][one.instance] = _Shown(
            before.some or one.promised_ns < min(one.until_ns, order.requests.end_ns),
            before.this or (cut_ns is not None and one.shows_at(cut_ns)),
            before.checked or (place < len(checked) and one.shows_at(checked[place])),
        )
    return [
        Sensitivity(
            defect=defect,
            subject=subject,
            instances=len(found),
            in_some_state=sum(one.some for one in found.values()),
            in_this_cut=None if cut_ns is None else sum(one.this for one in found.values()),
            in_checked_states=None if checked_ns is None else sum(one.checked for one in found.values()),
        )
        for defect, found in shown.items()
    ]


def sensitivity_of(evidence: CrashTestEvidence) -> list[Sensitivity]:
    """Return the sensitivity of a crash test; empty without a write log that has the written data and can be read."""
    try:
        data = evidence.data
    except LogError as error:
        # No verdict depends on the sensitivity. An exploration refuses such a log.
        logger.info("%s: no sensitivity: %s", evidence.record.name, error)
        return []
    if data is None:
        return []
    cut_ns = evidence.fault_at_ns if evidence.record.effects.caches is not None else None
    solo = solo_operations(evidence.history, evidence.record.observed.solo)
    return of_data_and_names(data.requests, data.blocks, solo, cut_ns)


def of_data_and_names(
    requests: Requests,
    blocks: Iterable[Needed],
    solo: Sequence[Operation],
    cut_ns: int | None,
    checked_ns: Iterable[int] | None = None,
) -> list[Sensitivity]:
    """Return the sensitivity for data, and for changes of names if there are any; see `sensitivity`.

    ``blocks``: the blocks that acknowledged operations wrote.
    """
    order, names = Order(requests, solo), needed_of_names(requests, solo)
    found = sensitivity(order, blocks, cut_ns, checked_ns)
    return found + (sensitivity(order, names, cut_ns, checked_ns, Subject.NAMES) if names else [])
