"""When the data of the ledger became durable, computed from the write log of a crash test.

Data are found in the write log by the headers of the ledger's blocks. Changes of names have no such header, so this
says nothing about them.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple
from zlib import crc32

from raidproof.disk.writelog import Flag, Kind, Record
from raidproof.guest.ledger_format import BLOCK, METADATA, TREES
from raidproof.verdict.blame import ENDS, OF_BLOCKS, Block
from raidproof.workload.history import History, Operation, WorkerSpec
from raidproof.workload.ledger_blocks import blocks_in

# As numbers: operators of enum.Flag take longer than all else that is done with a request.
_IN_FLIGHT, _LIED, _FUA, _ZEROES = map(int, (Flag.IN_FLIGHT, Flag.LIED, Flag.FUA, Flag.ZEROES))
Version = tuple[Block, int]
"""A block of the ledger in one generation."""
Instance = tuple[int, int]
"""A flush: member, and its number among the flushes of the member. Or a FUA write: member, and time of its reply."""


class Copy(NamedTuple):
    """A write request that brought a version of a block to a member."""

    member: int
    done_ns: int
    """Time of the reply."""
    fua: bool


class Flush(NamedTuple):
    """A flush of a member that the member executed."""

    issued_ns: int
    completed_ns: int


class Write(NamedTuple):
    """A write request of a member."""

    issued_ns: int
    done_ns: int
    """Time of the reply."""
    member: int
    fua: bool
    digest: int
    """Checksum of the data, which is equal for equal data."""


class Requests(NamedTuple):
    """The requests of a write log up to the first power cut."""

    copies: Mapping[Version, Sequence[Copy]]
    """The first request of each member that had a version of a block."""
    flushes: Mapping[int, Sequence[Flush]]
    """The flushes of each member in the order of their begin."""
    end_ns: int
    """The instant of the power cut, or of the last request."""
    lied: bool = False
    """Whether a disk acknowledged a flush or FUA write that it did not execute, or executed in part."""
    writes: Sequence[Write] = ()
    """All writes in the order of their begin."""


class Needed(NamedTuple):
    """A version of a block that an acknowledged operation wrote."""

    promised_ns: int
    copies: Sequence[Copy]


def requests_of(log: Iterable[Record]) -> Requests:
    """Return the requests of a write log, up to the first power cut.

    Raises:
        LogError: the log is damaged.
    """
    copies: dict[Version, dict[int, Copy]] = defaultdict(dict)
    flushes: dict[int, list[Flush]] = defaultdict(list)
    writes: list[Write] = []
    end_ns, lied = 0, False
    for record in log:
        if record.kind in ENDS:
            end_ns = record.completed_ns
            break
        flags = int(record.flags)
        if flags & _IN_FLIGHT:
            continue
        end_ns, lied = max(end_ns, record.completed_ns), lied or bool(flags & _LIED)
        if record.kind is Kind.FLUSH and not flags & _LIED:
            flushes[record.member].append(Flush(record.issued_ns, record.completed_ns))
        elif record.kind is Kind.WRITE and not flags & _ZEROES:
            fua, data = flags & (_FUA | _LIED) == _FUA, record.data
            writes.append(Write(record.issued_ns, record.completed_ns, record.member, fua, crc32(data)))
            for file, offset, generation in blocks_in(data):
                copies[(file, offset), generation].setdefault(
                    record.member, Copy(record.member, record.completed_ns, fua)
                )
    return Requests(
        {version: [*found.values()] for version, found in copies.items()},
        {member: sorted(found) for member, found in flushes.items()},
        end_ns,
        lied,
        sorted(writes),
    )


def needed_of(requests: Requests, history: History, workers: Iterable[WorkerSpec]) -> dict[Operation, list[Needed]]:
    """Return the versions of blocks that each acknowledged operation wrote, as far as the write log has them."""
    by_number = {worker.number: worker for worker in workers if worker.kind not in TREES}
    found: dict[Operation, list[Needed]] = defaultdict(list)
    for one in history.acknowledged(requests.end_ns):
        worker = by_number.get(one.worker)
        if worker is None or one.kind not in OF_BLOCKS or one.promised_ns is None:
            continue
        for block in worker.blocks_of(one):
            copies = requests.copies.get(((worker.file, block * BLOCK), one.generation))
            if copies:
                found[one].append(Needed(one.promised_ns, copies))
    return dict(found)


def needed_of_names(requests: Requests, solo: Iterable[Operation]) -> list[Needed]:
    """Return the writes that acknowledged solo operations needed which change names; ``solo``: all solo operations.

    No other worker is at work, so all writes between the begin of the operation and its reply count as the
    operation's, parity included. Equal data on several members are copies of each other.
    """
    begun = [one.issued_ns for one in requests.writes]
    found = []
    for one in solo:
        if one.kind not in METADATA or one.promised_ns is None or one.promised_ns >= requests.end_ns:
            continue
        same: dict[int, list[Copy]] = defaultdict(list)
        for write in requests.writes[bisect_left(begun, one.issued_ns) : bisect_right(begun, one.promised_ns)]:
            if write.done_ns <= one.promised_ns:
                same[write.digest].append(Copy(write.member, write.done_ns, write.fua))
        found += [Needed(one.promised_ns, copies) for copies in same.values()]
    return found


class Durability:
    """The instants at which data become durable, also without some flushes."""

    def __init__(self, flushes: Mapping[int, Sequence[Flush]]) -> None:
        self._flushes = flushes
        self._begun = {member: [one.issued_ns for one in found] for member, found in flushes.items()}

    def flush_of(self, copy: Copy, without: frozenset[Instance] = frozenset()) -> Instance | None:
        """Return the flush that makes a copy durable, ``without`` some flushes; None if none does.

        Of the flushes that began after the write had ended, it is the one that ends first.
        """
        flushes = self._flushes.get(copy.member, ())
        best: int | None = None
        for number in range(bisect_left(self._begun.get(copy.member, ()), copy.done_ns), len(flushes)):
            if best is not None and flushes[number].issued_ns >= flushes[best].completed_ns:
                break
            later = best is not None and flushes[number].completed_ns >= flushes[best].completed_ns
            if not later and (copy.member, number) not in without:
                best = number
        return None if best is None else (copy.member, best)

    def completed_ns(self, flush: Instance) -> int:
        """Return when a flush took effect."""
        member, number = flush
        return self._flushes[member][number].completed_ns

    def flushed_ns(self, copy: Copy, without: frozenset[Instance] = frozenset()) -> float:
        """Return when a flush makes a copy durable, ``without`` some flushes; infinite if none does."""
        flush = self.flush_of(copy, without)
        return inf if flush is None else self.completed_ns(flush)

    def durable_ns(self, copies: Iterable[Copy], without: frozenset[Instance] = frozenset()) -> float:
        """Return when the first of several copies is durable. A FUA write is durable at its reply."""
        return min(one.done_ns if one.fua else self.flushed_ns(one, without) for one in copies)
