"""A write log as a sequence of cuts: instants at which the power could have gone."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise

from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import ALL_MEMBERS, Flag, Kind, LogError, MemberInfo, Record, WriteLog

CHANGES = frozenset({Kind.WRITE, Kind.ZERO, Kind.DISCARD})
_KEPT = CHANGES | {Kind.FLUSH, Kind.MODE}
_ENDS = frozenset({Kind.POWER_ON, Kind.RESET})


class Recording:
    """The requests to the members of one run, up to its first power cut.

    A *cut* is an index into ``records``: the power goes when that many records and no others have completed. A
    *request* number is an index into ``records``, or beyond their end into ``caught``.

    Raises:
        LogError: the log has no data, or the disks were not blank when it began.
    """

    def __init__(self, log: WriteLog) -> None:
        if not log.with_data:
            raise LogError(f"{log.path}: written without data, it shows times only")
        if not log.blank:
            raise LogError(f"{log.path}: begun on disks that were not blank, their content is unknown")
        self.log = log
        self.members: tuple[MemberInfo, ...] = log.members
        self.records: list[Record] = []
        """Changes, flushes and changes of a cache mode, in the order in which they took effect."""
        self.caught: list[Record] = []
        """Changes in flight at the run's own power cut."""
        self.end_ns = log.opened_ns
        self.corrupted_ns: int | None = None
        """The instant of the first disk fault or other mark, in ns; None: none was marked."""
        self._read()

    def _read(self) -> None:
        frozen = False
        for record in self.log:
            if record.kind in _ENDS:
                break
            if record.flags & Flag.IN_FLIGHT:
                # Logged when they were failed, which is after the cut.
                if record.kind in CHANGES:
                    self.caught.append(record)
            elif record.kind is Kind.FREEZE:
                frozen, self.end_ns = True, record.completed_ns
            elif record.kind is Kind.MARK:
                # Only `raidproof.disk.engine` writes marks: for disk faults and for changed settings.
                self.corrupted_ns = record.completed_ns if self.corrupted_ns is None else self.corrupted_ns
            elif record.kind in _KEPT and not frozen:
                self.records.append(record)
                self.end_ns = record.completed_ns

    def request(self, number: int) -> Record:
        """Return a request by its number."""
        done = len(self.records)
        return self.records[number] if number < done else self.caught[number - done]

    def instant_ns(self, cut: int) -> int:
        """Return the latest instant of a cut in ns: just before the next request took effect.

        The latest, because more operations are acknowledged by then, so that more must have survived.
        """
        return self.records[cut].completed_ns - 1 if cut < len(self.records) else self.end_ns

    def place(self, instant_ns: int) -> int:
        """Return the first cut whose latest instant is not before an instant."""
        return bisect_left(self.records, instant_ns, key=lambda record: record.completed_ns)

    @cached_property
    def cuts(self) -> tuple[int, ...]:
        """The cuts before and after each change of what is durable, and one between two neighbours."""
        marks = {0, len(self.records)}
        for number in self._settling():
            marks |= {number, number + 1}
        between = [(first + last) // 2 for first, last in pairwise(sorted(marks))]
        return tuple(sorted({*marks, *between}))

    def _settling(self) -> Iterator[int]:
        """Yield the records that make data durable; with a cache mode that loses nothing, each change does."""
        loses = [info.mode.loses for info in self.members]
        for number, record in enumerate(self.records):
            if record.kind is Kind.MODE:
                for member in self.whose(record):
                    loses[member] = self.loses(record)
                if not self.loses(record):
                    yield number
            elif record.kind is Kind.FLUSH or record.flags & Flag.FUA or not loses[record.member]:
                yield number

    def loses(self, record: Record) -> bool:
        """Return whether the cache mode in a MODE record can lose acknowledged data."""
        return CacheMode(bytes(record.data).decode()).loses

    def whose(self, record: Record) -> Sequence[int]:
        """Return the members that a MODE record applies to."""
        return range(len(self.members)) if record.member == ALL_MEMBERS else (record.member,)
