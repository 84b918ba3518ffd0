"""What differs between the failing state of a failure and its nearest states without a failure."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, Protocol

from raidproof.crash.states import CrashState, Recording, Survivor
from raidproof.disk.writelog import Flag, Kind, Record
from raidproof.guest.ledger_format import BLOCK
from raidproof.record.failure import DifferenceRecord, DifferingRequest, Gap, MissingRecord, WriteRecord
from raidproof.verdict.damage import Damage
from raidproof.verdict.oracle import Judgement, Missing
from raidproof.workload.ledger_blocks import blocks_in

MOST_REQUESTS = 8
"""Limit of requests of a difference: each may need one more check."""


class Judge(Protocol):
    """Judges crash states, as `raidproof.crash.shrink.Replayer`."""

    def judged_for(self, damage: Damage, state: CrashState) -> Judgement:
        """Return the judgement of a state, with the checks that can show a damage."""


class Extremes(NamedTuple):
    """The two failing states that shrinking finds, and the requests in which their neighbours differ."""

    smallest: CrashState
    """The failing state with the fewest survivors."""
    survivors: Sequence[WriteRecord]
    """The survivors of ``smallest``, or parts of them."""
    fullest: CrashState
    """The failing state with the fewest lost requests."""
    lost: Sequence[WriteRecord]
    """The requests that ``fullest`` lacks, wholly or in part."""


class Window(NamedTuple):
    """The time in which a flush would have made requests durable that are volatile at a cut."""

    recording: Recording
    cut: int
    acknowledged_ns: int | None
    """The broken acknowledgement; None: the failure breaks none."""

    @property
    def cut_ns(self) -> int:
        """The instant of the cut."""
        return self.recording.instant_ns(self.cut)

    @property
    def until_ns(self) -> int:
        """The end of the window: the broken acknowledgement, or else the cut."""
        return self.cut_ns if self.acknowledged_ns is None else self.acknowledged_ns

    def completed_ns(self, number: int) -> int | None:
        """Return the completion of a request; None if the request was in flight at the cut."""
        done = number < self.cut
        return self.recording.records[number].completed_ns if done else None

    def lying_flushes(self, number: int) -> int:
        """Return how many flushes after a request and before `until_ns` the member acknowledged without execution."""
        since_ns = self.completed_ns(number)
        return 0 if since_ns is None else sum(map(_lied, self._flushes(self.recording.request(number), since_ns)))

    def gap(self, number: int) -> Gap:
        """Return why a request was volatile at `until_ns`."""
        request, done_ns = self.recording.request(number), self.completed_ns(number)
        if request.issued_ns > self.until_ns:
            return Gap.LATER
        if done_ns is None or done_ns > self.until_ns:
            return Gap.IN_FLIGHT
        lied = _lied(request) or any(map(_lied, self._flushes(request, done_ns)))
        return Gap.FLUSH_LIED if lied else Gap.NOT_FLUSHED

    def _flushes(self, request: Record, since_ns: int) -> Iterator[Record]:
        """Yield the flushes of a request's member that began after ``since_ns`` and completed before `until_ns`."""
        records = self.recording.records
        for number in range(self.recording.place(since_ns), self.cut):
            flush = records[number]
            if flush.completed_ns > self.until_ns:
                return
            if flush.kind is Kind.FLUSH and flush.member == request.member and flush.issued_ns >= since_ns:
                yield flush


def _lied(record: Record) -> bool:
    return bool(record.flags & Flag.LIED)


def broken_by(recording: Recording, missing: Sequence[Missing], requests: Iterable[int]) -> Missing | None:
    """Return the first missing operation whose blocks one of the requests holds; without one, the first."""
    written = (one for number in requests for one in blocks_in(recording.request(number).data))
    held = {(one.file, one.offset) for one in written}

    def blocks(one: Missing) -> Iterator[tuple[int, int]]:
        return ((one.worker.file, block * BLOCK) for block in one.worker.blocks_of(one.operation))

    return next((one for one in missing if held.intersection(blocks(one))), next(iter(missing), None))


def missing_record(one: Missing, instant_ns: int) -> MissingRecord:
    """Return the record of an operation that is missing after a cut at ``instant_ns``."""
    operation, worker, what = one
    return MissingRecord(
        client=worker.client,
        kind=operation.kind,
        path=worker.path,
        place=operation.place,
        generation=operation.generation,
        acknowledged_before_s=(instant_ns - (operation.promised_ns or instant_ns)) / 1e9,
        instead=what,
    )


def difference(judge: Judge, recording: Recording, damage: Damage, found: Extremes) -> DifferenceRecord:
    """Return what makes a state fail: lost requests if there are any, else surviving ones.

    Checks those neighbours that shrinking has not checked.

    Raises:
        RigError: a check failed twice for a reason other than the state.
    """
    lost = bool(found.lost)
    state, writes = (found.fullest, found.lost) if lost else (found.smallest, found.survivors)
    judgement = judge.judged_for(damage, state)
    numbers = [one.request for one in writes]
    broken = broken_by(recording, [one for one in judgement.missing if one.damage == damage], numbers)
    window = Window(recording, state.cut, broken.operation.promised_ns if broken else None)
    requests = []
    for number, parts in groupby(writes[:MOST_REQUESTS], lambda one: one.request):
        other = with_request(state, number) if lost else without_request(state, number)
        good = is_good(judge.judged_for(damage, other))
        torn = any(one.request == number for one in state.survivors if one.spans is not None)
        requests.append(differing(window, next(iter(parts)), other if good else None, torn=torn))
    return DifferenceRecord(
        state=state.name,
        dump=state.dump(),
        lost=lost,
        requests=requests,
        broken=missing_record(broken, window.cut_ns) if broken else None,
    )


def is_good(judgement: Judgement) -> bool:
    """Return whether a state shows no failure and has a verdict."""
    return not (judgement.damages or judgement.broken or judgement.undecided or judgement.unchecked)


def with_request(state: CrashState, number: int) -> CrashState:
    """Return a state in which one more request survives, wholly."""
    others = [one for one in state.survivors if one.request != number]
    return CrashState(state.cut, tuple(sorted([*others, Survivor(number)], key=lambda one: one.request)))


def without_request(state: CrashState, number: int) -> CrashState:
    """Return a state in which one request less survives."""
    return CrashState(state.cut, tuple(one for one in state.survivors if one.request != number))


def differing(window: Window, write: WriteRecord, good: CrashState | None, *, torn: bool = False) -> DifferingRequest:
    """Return a request in which a failing state differs from the state ``good``, with its times and flushes.

    ``torn``: whether only a part of the request survives in the failing state.
    """
    request, done_ns = window.recording.request(write.request), window.completed_ns(write.request)
    gap = window.gap(write.request)
    since_ns = request.issued_ns if gap is Gap.LATER else done_ns
    acknowledged_ns = window.acknowledged_ns
    return DifferingRequest(
        write=write,
        torn=torn,
        good_state=good.name if good else None,
        good_dump=good.dump() if good else None,
        issued_before_cut_s=(window.cut_ns - request.issued_ns) / 1e9,
        completed_before_cut_s=None if done_ns is None else (window.cut_ns - done_ns) / 1e9,
        before_acknowledgement_s=(
            None if acknowledged_ns is None or since_ns is None else (acknowledged_ns - since_ns) / 1e9
        ),
        lying_flushes=window.lying_flushes(write.request),
        gap=gap,
    )
