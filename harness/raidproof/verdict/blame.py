"""Attribution of losses to lying disks, and to drives that misdirected or dropped writes.

An acknowledged flush of a disk promises that all earlier writes to the disk are durable. A lie is an acknowledged
flush or FUA write that the disk did not execute.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from raidproof.core.blame import Blame, Cause, Culprit
from raidproof.disk.cache import CacheMode
from raidproof.disk.disk_fault import DiskFaultKind
from raidproof.disk.writelog import ALL_MEMBERS, CHANGES, Flag, Kind, MemberInfo, Record, WriteLog, kept_by
from raidproof.guest.ledger_format import BLOCK, TREES
from raidproof.workload.history import Operation, WorkerSpec
from raidproof.workload.ledger_blocks import blocks_in

_READ = CHANGES | {Kind.FLUSH, Kind.MODE}
ENDS = frozenset({Kind.FREEZE, Kind.POWER_ON, Kind.RESET})
"""Kinds of log records that end the requests before the first power cut."""
OF_BLOCKS = frozenset(
    {"fsync", "o_sync", "close", "fdatasync", "o_dsync", "o_direct", "msync", "pages", "o_append", "o_direct_sync"}
)
"""Kinds of operation that write page-aligned blocks, which can be found in the write requests of a write log."""
BEGUN_LATE_NS = 1_000_000_000
"""Greatest time from the begin of an operation to its time stamp (arrival of the client's report), in nanoseconds."""

Requests = Sequence[Record]
Block = tuple[int, int]
"""Identity of a block of the ledger: file and byte offset, as in the block's header."""

Disks = Mapping[str, Mapping[str, Any]]
"""The disk engine's counters, by serial of the disk."""
CORRUPTIONS = {
    DiskFaultKind.MISDIRECTED.value: "written to another place",
    DiskFaultKind.LOST_WRITES.value: "acknowledged and not executed",
}
"""For each kind of disk fault: what the disk engine did with the affected writes, as text."""


class Lies:
    """The requests in a write log that lying disks may lose in a cut at the current position; `go` sets the position.

    ``records``: changes, flushes and changes of the cache mode in the order of their effect. A request is identified
    by its index in ``records``.
    """

    def __init__(self, records: Requests, members: Sequence[MemberInfo]) -> None:
        self.records = records
        self.members = members
        self.lied = any(record.flags & Flag.LIED for record in records)
        """Whether the log contains a flush or FUA write that a disk acknowledged without executing it."""
        self._begin()

    def _begin(self) -> None:
        self.cut = 0
        # For each member: the volatile requests with their completion times; issue and completion time of the last
        # lying flush; whether the cache mode makes writes volatile.
        self._loose: list[dict[int, int]] = [{} for _ in self.members]
        self._latest: list[tuple[int, int]] = [(0, 0) for _ in self.members]
        self._loses = [info.mode.loses for info in self.members]

    def go(self, cut: int) -> None:
        """Move the position behind the first ``cut`` records; a move backwards reads the log from its beginning."""
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
                self._take_lying_flush(record)
            else:
                for other in list(loose):
                    if loose[other] > record.issued_ns:
                        break
                    del loose[other]
        elif record.kind in CHANGES and self._loses[member]:
            forced = record.flags & Flag.FUA and not record.flags & Flag.LIED
            if not forced:
                loose[number] = record.completed_ns

    def _take_lying_flush(self, flush: Record) -> None:
        self._latest[flush.member] = flush.issued_ns, flush.completed_ns
        # A lying flush may have made some of the requests durable.
        for sequence in kept_by(flush):
            place = bisect_left(self.records, sequence, key=lambda one: one.sequence)
            self._loose[flush.member].pop(place, None)

    def lost(self, kept: Collection[int] = ()) -> "Lost":
        """Return the requests lost by lies in a cut at the current position; the requests in ``kept`` survive it."""
        return Lost(self, {member: dict(self._lost_by(member, kept)) for member in range(len(self.members))}, kept)

    def _lost_by(self, member: int, kept: Collection[int]) -> Iterator[tuple[int, int]]:
        """Yield each lost request that a member acknowledged as durable, with the time (ns) of the acknowledgement."""
        issued, completed = self._latest[member]
        for number, done_ns in self._loose[member].items():
            if number in kept:
                continue
            if done_ns <= issued:
                yield number, completed
            elif self.records[number].flags & Flag.LIED:
                yield number, done_ns

    def holds(self, number: int) -> bool:
        """Return whether a request is durable on its disk at the current position."""
        return number not in self._loose[self.records[number].member]

    @cached_property
    def blocks(self) -> dict[Block, list[tuple[int, int]]]:
        """For each block of the ledger, the write requests that contain it, each with the generation of the block."""
        found: dict[Block, list[tuple[int, int]]] = defaultdict(list)
        for number, record in enumerate(self.records):
            if record.kind is Kind.WRITE and not record.flags & Flag.ZEROES:
                for file, position, generation in blocks_in(record.data):
                    found[file, position].append((number, generation))
        return dict(found)


class Lost:
    """The requests that lying disks acknowledged as durable and lost at one cut.

    ``by_member``: by index of the member, the lost requests with the instants (ns) of their false acknowledgements.
    ``kept``: the requests that survived the cut.
    """

    def __init__(self, lies: Lies, by_member: dict[int, dict[int, int]], kept: Collection[int]) -> None:
        self._log = lies
        self._kept = kept
        self._requests = {number for lost in by_member.values() for number in lost}
        self._until_ns = max((until for lost in by_member.values() for until in lost.values()), default=None)
        self.disks = tuple(lies.members[member].serial for member, lost in sorted(by_member.items()) if lost)
        """Serials of the disks that lost a request that they had acknowledged as durable."""

    def explains(self, operation: Operation, worker: WorkerSpec) -> bool:
        """Return whether a lie of a disk explains the loss of an acknowledged operation.

        A lie explains the loss of a block whose write request was lost. It does not explain the loss of a block that
        reached no disk, or only a cache that was not flushed afterwards. A block that is durable on its disk, and the
        change of a name, can be missing because a lie lost metadata of the file system. Then the operation must have
        begun before the lie ended: a later operation needs another flush.
        """
        if self._until_ns is None:
            return False
        if operation.kind in OF_BLOCKS and worker.kind not in TREES and self._log.blocks:
            written = [self._writes_of(one, operation.generation, worker) for one in worker.blocks_of(operation)]
            if not all(self._requests.isdisjoint(requests) for requests in written):
                return True
            if not all(any(map(self._is_there, requests)) for requests in written):
                return False
        return self._until_ns >= operation.issued_ns - BEGUN_LATE_NS

    def _writes_of(self, block: int, least: int, worker: WorkerSpec) -> list[int]:
        """Return the requests before the cut that contain a block in generation ``least`` or a later one."""
        carried = self._log.blocks.get((worker.file, block * BLOCK), ())
        return [number for number, generation in carried if number < self._log.cut and generation >= least]

    def _is_there(self, number: int) -> bool:
        return number in self._kept or self._log.holds(number)


def read_lies(log: WriteLog) -> Lies:
    """Return the `Lies` of a stored write log, positioned at the first power cut in the log, or at its end.

    Raises:
        LogError: the log is damaged.
    """
    records = []
    for record in log:
        if record.kind in ENDS:
            break
        if record.kind in _READ and not record.flags & Flag.IN_FLIGHT:
            records.append(record)
    lies = Lies(records, log.members)
    lies.go(len(records))
    return lies


def corrupted_by(disks: Disks) -> Blame | None:
    """Return the blame on drives with misdirected or lost writes, counted by the disk engine; None without any."""
    details, members = [], []
    for serial, counters in disks.items():
        for hit in counters.get("struck") or ():
            # The kind is an enum member, or text in a record that was read back.
            kind = getattr(hit["kind"], "value", hit["kind"])
            if kind in CORRUPTIONS and hit["times"]:
                members.append(serial)
                details.append(f"{hit['times']:,} writes to {serial} were {CORRUPTIONS[kind]}")
    if not details:
        return None
    return Blame(
        culprit=Culprit.DISKS, cause=Cause.MISPLACED_WRITES, members=tuple(members), detail="; ".join(details)
    )
