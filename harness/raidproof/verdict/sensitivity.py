"""The sensitivity of a crash test: which defects of the stack a crash state of its write log would have shown.

A defect is applied to the write log one instance at a time: one flush is left out, or one FUA write is executed
without FUA. The instance shows if the data of an acknowledged operation were then still volatile after the server's
reply: a power cut in this time loses them, if the disks lose everything volatile. If the next flush of the member
comes before the reply, no crash state shows the instance.

Only data are found in the write log (`durability`), so this says nothing about changes of names.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from raidproof.core.log import logger
from raidproof.disk.writelog import LogError
from raidproof.record.sensitivity import Defect, Sensitivity
from raidproof.verdict.durability import Durability, Flush, Instance, Needed, Requests
from raidproof.verdict.evidence import CrashTestEvidence


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


class Absence(NamedTuple):
    """The time in which data of an acknowledged operation would have been volatile without an instance of a defect."""

    defect: Defect
    instance: Instance | frozenset[Instance]
    promised_ns: int
    """The reply to the operation."""
    until_ns: float

    def shows_at(self, cut_ns: float) -> bool:
        """Return whether a power cut would lose the data, if the disks lose everything volatile."""
        return self.promised_ns < cut_ns < self.until_ns


def absences(requests: Requests, needed: Iterable[Needed]) -> Iterator[Absence]:
    """Yield all times in which data would have been volatile without an instance of a defect."""
    durability, rounds = Durability(requests.flushes), rounds_of(requests.flushes)
    for promised_ns, copies in needed:
        for copy in copies:
            if copy.fua:
                plain = [one._replace(fua=False) if one is copy else one for one in copies]
                yield Absence(Defect.FUA, (copy.member, copy.done_ns), promised_ns, durability.durable_ns(plain))
                continue
            flush = durability.flush_of(copy)
            if flush is None or durability.flushed_ns(copy) > promised_ns:
                continue  # no flush made the data durable before the reply
            for defect, instance in ((Defect.FLUSH_OF_A_MEMBER, frozenset({flush})), (Defect.FLUSH, rounds[flush])):
                yield Absence(defect, instance, promised_ns, durability.durable_ns(copies, instance))


def missed_at(requests: Requests, needed: Iterable[Needed], cuts_ns: Iterable[int]) -> Mapping[int, Set[Hashable]]:
    """Return for the instant of each power cut (ns) the flushes of a member whose absence it would show."""
    found: dict[int, set[Hashable]] = {cut_ns: set() for cut_ns in sorted(cuts_ns)}
    instants = list(found)
    for one in absences(requests, needed):
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
    requests: Requests, needed: Iterable[Needed], cut_ns: int | None, checked_ns: Iterable[int] | None = None
) -> list[Sensitivity]:
    """Return the sensitivity to each defect.

    ``cut_ns``: the injected power cut, None without one. ``checked_ns``: the instants of the checked crash states in
    which nothing volatile survived; None if no crash state was to be checked.
    """
    shown: dict[Defect, dict[Hashable, _Shown]] = {one: {} for one in Defect}
    checked = sorted(checked_ns or ())
    for one in absences(requests, needed):
        before = shown[one.defect].get(one.instance, _Shown())
        place = bisect_right(checked, one.promised_ns)
        shown[one.defect][one.instance] = _Shown(
            before.some or one.promised_ns < min(one.until_ns, requests.end_ns),
            before.this or (cut_ns is not None and one.shows_at(cut_ns)),
            before.checked or (place < len(checked) and one.shows_at(checked[place])),
        )
    return [
        Sensitivity(
            defect=defect,
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
    return sensitivity(data.requests, data.blocks, cut_ns)
