"""Which losses lying disks explain: an acknowledged flush covers what had reached that disk before it."""

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from raidproof.core.blame import Blame, Cause, Culprit
from raidproof.disk.cache import CacheMode
from raidproof.disk.disk_fault import DiskFaultKind
from raidproof.disk.messages import Counters
from raidproof.disk.writelog import ALL_MEMBERS, Flag, Kind, MemberInfo, Record, WriteLog, kept_by
from raidproof.guest.ledger_writer import BLOCK, HEADER, KINDS, MAGIC, METADATA, TREES
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.run import CrashTestRecord
from raidproof.verdict.contract import Conditions
from raidproof.verdict.ledger import Loss, balance_of
from raidproof.workload.history import History, Operation, WorkerSpec

CHANGES = frozenset({Kind.WRITE, Kind.ZERO, Kind.DISCARD})
_READ = CHANGES | {Kind.FLUSH, Kind.MODE}
_ENDS = frozenset({Kind.FREEZE, Kind.POWER_ON, Kind.RESET})
OF_BLOCKS = frozenset({"fsync", "o_sync", "close", "fdatasync", "o_dsync", "o_direct", "msync", "pages", "o_append"})
"""Kinds of operation whose blocks lie on whole pages, so that they can be found in the data of writes."""
BEGUN_LATE_NS = 1_000_000_000
"""An operation may have begun so much earlier than its stamp says, which is that of its arrival."""

Requests = Sequence[Record]
Block = tuple[int, int]
"""File and byte offset, as in the header of a ledger's block."""

Disks = Mapping[str, Mapping[str, Any]]
"""The engine's counters, by serial."""
SYNCED = frozenset(KINDS) - {*METADATA} | {"append"}
"""Kinds of operation of which each needs a flush of every member that was written to."""
LEAST_SYNCS = 10
"""Acknowledged ones without which nothing can be said: the first of them may still be under way on some members."""
LOGGED = ("journal", "ppl")
"""Policies under which md itself decides when which member is flushed."""
SPOILS = {DiskFaultKind.MISDIRECTED.value: "put elsewhere", DiskFaultKind.LOST_WRITES.value: "never done"}


class Lies:
    """The lies in a write log, up to one place in it. It goes forward, and for an earlier place begins anew.

    ``records``: changes, flushes and changes of a cache's mode in the order in which they took effect; a request is
    named by its place among them.
    """

    def __init__(self, records: Requests, members: Sequence[MemberInfo]) -> None:
        self.records = records
        self.members = members
        self.told = any(record.flags & Flag.LIED for record in records)
        """Whether there are any."""
        self._begin()

    def _begin(self) -> None:
        self.cut = 0
        # By member: what may be lost, in the order of completion, and when its latest lie was issued and completed.
        self._loose: list[dict[int, int]] = [{} for _ in self.members]
        self._latest: list[tuple[int, int]] = [(0, 0) for _ in self.members]
        self._loses = [info.mode.loses for info in self.members]

    def go(self, cut: int) -> None:
        """Go to a place: so many records have taken effect."""
        if cut < self.cut:
            self._begin()
        for number in range(self.cut, min(cut, len(self.records))):
            self._take(number, self.records[number])
        self.cut = cut

    def _take(self, number: int, record: Record) -> None:
        if record.kind is Kind.MODE:
            loses = CacheMode(bytes(record.data).decode()).loses
            for member in range(len(self.members)) if record.member == ALL_MEMBERS else (record.member,):
                self._loses[member] = loses
                if not loses:
                    self._loose[member].clear()
            return
        member, loose = record.member, self._loose[record.member]
        if record.kind is Kind.FLUSH:
            if record.flags & Flag.LIED:
                self._lie(record)
            else:
                for other in list(loose):
                    if loose[other] > record.issued_ns:
                        break
                    del loose[other]
        elif record.kind in CHANGES and self._loses[member]:
            forced = record.flags & Flag.FUA and not record.flags & Flag.LIED
            if not forced:
                loose[number] = record.completed_ns

    def _lie(self, flush: Record) -> None:
        self._latest[flush.member] = flush.issued_ns, flush.completed_ns
        # A part of what it owed it may have made durable.
        for sequence in kept_by(flush):
            place = bisect_left(self.records, sequence, key=lambda one: one.sequence)
            self._loose[flush.member].pop(place, None)

    def lost(self, kept: Collection[int] = ()) -> "Lost":
        """Return what of it was lost if the power went here and these requests survived whole."""
        return Lost(self, {member: dict(self._lost_by(member, kept)) for member in range(len(self.members))}, kept)

    def _lost_by(self, member: int, kept: Collection[int]) -> Iterator[tuple[int, int]]:
        """Yield each lost request of a member that was acknowledged as durable, and until when that was done."""
        issued, completed = self._latest[member]
        for number, done_ns in self._loose[member].items():
            if number in kept:
                continue
            if done_ns <= issued:
                yield number, completed
            elif self.records[number].flags & Flag.LIED:
                yield number, done_ns

    def holds(self, number: int) -> bool:
        """Return whether a request is on its disk for good."""
        return number not in self._loose[self.records[number].member]

    @cached_property
    def blocks(self) -> dict[Block, list[tuple[int, int]]]:
        """For each block of the ledger the writes that carry it: the request, and the block's generation."""
        found: dict[Block, list[tuple[int, int]]] = defaultdict(list)
        for number, record in enumerate(self.records):
            if record.kind is Kind.WRITE and not record.flags & Flag.ZEROES:
                data = record.data
                for at in range(-record.offset % BLOCK, len(data) - BLOCK + 1, BLOCK):
                    if data[at : at + len(MAGIC)] == MAGIC:
                        _, file, position, generation, _ = HEADER.unpack_from(data, at)
                        found[file, position].append((number, generation))
        return dict(found)


class Lost:
    """What disks that lied have lost of what they had acknowledged as durable, when the power went at one place."""

    def __init__(self, lies: Lies, by_member: dict[int, dict[int, int]], kept: Collection[int]) -> None:
        self._lies = lies
        self._kept = kept
        self._requests = {number for lost in by_member.values() for number in lost}
        self._until_ns = max((until for lost in by_member.values() for until in lost.values()), default=None)
        self.disks = tuple(lies.members[member].serial for member, lost in sorted(by_member.items()) if lost)
        """Serials of those that lost something so."""

    def explains(self, operation: Operation, worker: WorkerSpec) -> bool:
        """Return whether a lie explains that an acknowledged operation is not there.

        A block that reached no disk, or only caches that nobody flushed, was lost by somebody else. One that is on its
        disk may be missing because of what leads to it; so may a change of a name. There a lie explains only what was
        under way when it was told, or done before: later ones need a flush of their own.
        """
        if self._until_ns is None:
            return False
        if operation.kind in OF_BLOCKS and worker.kind not in TREES and self._lies.blocks:
            places = range(operation.place * worker.span, (operation.place + 1) * worker.span)
            written = [self._writes_of(place, operation.generation, worker) for place in places]
            if not all(self._requests.isdisjoint(requests) for requests in written):
                return True
            if not all(any(map(self._is_there, requests)) for requests in written):
                return False
        return self._until_ns >= operation.issued_ns - BEGUN_LATE_NS

    def _writes_of(self, place: int, least: int, worker: WorkerSpec) -> list[int]:
        """Return the requests by then that carry a block in a generation, or in a later one."""
        carried = self._lies.blocks.get((worker.file, place * BLOCK), ())
        return [number for number, generation in carried if number < self._lies.cut and generation >= least]

    def _is_there(self, number: int) -> bool:
        return number in self._kept or self._lies.holds(number)


def blamed(conditions: Conditions, losses: Iterable[Loss], lost: Lost) -> Conditions:
    """Return conditions in which disks that lied are to blame only for what their lies explain.

    An async export excuses the rest; else one operation that no lie explains is the stack's, whatever disks did.
    """
    lying = replace(conditions, lying_disks=lost.disks)
    honest = replace(conditions, lying_disks=())
    explained = [lost.explains(one.operation, one.worker) for one in losses]
    if not explained:
        return lying
    wrong = any(explained) if honest.excused else all(explained)
    return lying if wrong else honest


def read_lies(path: Path) -> Lies:
    """Read the lies in a stored write log up to its first power cut, at which they are then.

    Raises:
        LogError: it is none, or a damaged one.
    """
    log, records = WriteLog(path), []
    for record in log:
        if record.kind in _ENDS:
            break
        if record.kind in _READ and not record.flags & Flag.IN_FLIGHT:
            records.append(record)
    lies = Lies(records, log.members)
    lies.go(len(records))
    return lies


def of_lies(cycle: CrashTestRecord, history: History, directory: Path, conditions: Conditions) -> Conditions:
    """Return conditions in which disks that lied are blamed only if their lies explain what the server has lost.

    What of its caches survived a cut that kept some of it is not in the log: there all of it may be lost. Without a
    log nothing can be told apart, and every loss is theirs.
    """
    log, found = (directory / (path or "none") for path in (cycle.files.write_log, cycle.files.on_server))
    if not (conditions.lying_disks and log.is_file()):
        return conditions
    workers = [WorkerSpec.model_validate(worker) for worker in cycle.workers]
    lost = read_lies(log).lost()
    if cycle.not_recovered is not None:
        # Nothing is left of anything. What had reached no disk at all is not lost by one.
        by_number = {worker.number: worker for worker in workers}
        told = history.acknowledged(cycle.fault_at_ns)
        return blamed(conditions, [Loss(one, by_number[one.worker], cycle.not_recovered) for one in told], lost)
    if not found.is_file():
        return conditions
    balance = balance_of(
        workers,
        history,
        json.loads(found.read_text()),
        before_ns=cycle.fault_at_ns,
        seen_ns=cycle.resumed_ns if cycle.recovery.assemble_s is not None else None,
        torn=conditions.torn,
        unheard=cycle.lost_power,
        unsure=conditions.allowed_errors | conditions.allowed_by_fault,
    )
    return blamed(conditions, balance.losses, lost)


def judge_flushes(start: Mapping[str, Counters], end: Disks, synced: int) -> Verdict:
    """Judge that something between the file system and the disks has not swallowed all flushes of a member.

    One is enough to pass: how many a member needs depends on what lies where, and nothing here tells.

    ``start`` and ``end``: counters when the clients began, and when the power went or their work ended; ``synced``:
    how many operations of the kinds `SYNCED` were acknowledged in between.
    """
    checker = "flushes reach the disks"
    begun = {serial: start.get(serial, Counters(serial)) for serial in end}
    grown = {serial: flushes_of(now) - begun[serial].flushes - begun[serial].fua for serial, now in end.items()}
    written = {serial: now.get("writes", 0) - begun[serial].writes for serial, now in end.items()}
    if not any(written.values()):
        return Verdict(
            checker=checker, outcome=Outcome.PASS, reason="nothing was written to a disk whose flushes count"
        )
    if synced < LEAST_SYNCS:
        reason = f"{synced} operations were acknowledged as synced: too few to tell"
        return Verdict(checker=checker, outcome=Outcome.INCONCLUSIVE, reason=reason, of_the_stack=True)
    if never := sorted(serial for serial, count in written.items() if count and not grown[serial]):
        said = ", ".join(f"{serial} ({written[serial]:,} writes)" for serial in never)
        reason = f"{synced:,} operations were acknowledged as synced, and no flush reached {said}"
        detail = f"what is above {', '.join(never)} sends no flushes down"
        blame = Blame(culprit=Culprit.STACK, cause=Cause.NO_FLUSHES_SENT, members=tuple(never), detail=detail)
        return Verdict(checker=checker, outcome=Outcome.FAIL, reason=reason, of_the_stack=True, blame=blame)
    reason = f"{sum(grown.values()):,} flushes and forced writes for {synced:,} acknowledged operations"
    return Verdict(checker=checker, outcome=Outcome.PASS, reason=reason)


def flushes_of(counters: Mapping[str, Any]) -> int:
    """Return how often a disk was asked to make something durable."""
    return int(counters.get("flushes", 0)) + int(counters.get("fua", 0))


def spoilt_by(disks: Disks) -> Blame | None:
    """Say which drives have put writes elsewhere, or lost them, as the engine counted; None if none has."""
    said, members = [], []
    for serial, counters in disks.items():
        for struck in counters.get("struck") or ():
            # An enum's member, or its value where the record was read back.
            kind = getattr(struck["kind"], "value", struck["kind"])
            if kind in SPOILS and struck["times"]:
                members.append(serial)
                said.append(f"{struck['times']:,} writes to {serial} were {SPOILS[kind]}")
    if not said:
        return None
    return Blame(culprit=Culprit.DISKS, cause=Cause.MISPLACED_WRITES, members=tuple(members), detail="; ".join(said))
