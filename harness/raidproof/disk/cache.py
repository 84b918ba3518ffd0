"""A member disk with its write cache: the writes that the cache makes durable, and those that a power cut loses."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, IntFlag
from itertools import pairwise
from random import Random
from typing import TypeAlias

from raidproof.core.errors import RigError
from raidproof.disk.sparse_image import Buffer, SparseImage

SECTOR = 512

COALESCE_FROM = 64 << 20
"""Bytes of undo data from which a lying disk merges its oldest undo records.

A lying disk never makes a request durable, so that its undo records would fill the memory.
"""
_Pieces: TypeAlias = tuple[tuple[int, bytes], ...]
_Pending: TypeAlias = tuple[int, int, bytes | _Pieces | None, int]
_PLAIN = 0


class CoalescedUndo:
    """Merged undo data of many requests: the disk's content before the first request.

    Merged requests share one fate at a power cut: all are lost, or all are kept.
    """

    def __init__(self, size: int, *, old: bool = False) -> None:
        self.requests = 0
        self.bytes = 0
        self.promised = 0
        """Number of merged requests that an acknowledged FLUSH or FUA covered."""
        self._before = SparseImage(size, old=old)
        self._covered = bytearray((size + SECTOR - 1) // SECTOR)

    def add(self, offset: int, length: int, old: tuple[tuple[int, bytes], ...], promised: bool) -> None:
        """Merge the next request, which consists of whole sectors.

        ``old``: the overwritten content, as (offset, bytes), without blank regions.
        ``promised``: whether an acknowledged FLUSH or FUA covers the request.
        """
        self.requests += 1
        self.bytes += length
        self.promised += promised
        covered, at, end = self._covered, offset // SECTOR, (offset + length) // SECTOR
        while at < end and (first := covered.find(0, at, end)) >= 0:
            taken = covered.find(1, first, end)
            at = end if taken < 0 else taken
            self._save(first * SECTOR, at * SECTOR, old)
            covered[first:at] = b"\1" * (at - first)

    def undo(self, image: SparseImage) -> None:
        """Restore the content that ``image`` had before the first merged request."""
        at, end = 0, len(self._covered)
        while at < end and (first := self._covered.find(1, at)) >= 0:
            free = self._covered.find(0, first)
            at = end if free < 0 else free
            start, stop = first * SECTOR, min(at * SECTOR, image.size)
            image.blank(start, stop - start)
            for begin, finish in self._before.extents(start, stop):
                image.write(self._before.view(begin, finish), begin)

    def _save(self, start: int, stop: int, old: tuple[tuple[int, bytes], ...]) -> None:
        for at, data in old:
            first, last = max(start, at), min(stop, at + len(data))
            if first < last:
                self._before.write(memoryview(data)[first - at : last - at], first)


class CacheMode(Enum):
    """The cache mode of a disk: where the disk keeps acknowledged writes, and whether they survive a power cut."""

    VOLATILE = "volatile"
    """The disk keeps writes in a cache that a power cut empties; FLUSH and FUA make data durable."""
    PROTECTED = "protected"
    """The disk keeps writes in a cache that survives a power cut."""
    NONE = "none"
    """The disk has no write cache and advertises none: acknowledged writes are on the medium."""
    LYING = "lying"
    """The disk keeps writes in a cache that a power cut empties; acknowledged FLUSH and FUA make no data durable."""

    @property
    def loses(self) -> bool:
        """Whether a power cut can lose acknowledged data."""
        return self in {CacheMode.VOLATILE, CacheMode.LYING}


class CutPolicy(Enum):
    """The rule by which unflushed writes survive a power cut."""

    DROP = "drop"
    """No unflushed write survives."""
    KEEP = "keep"
    """All unflushed writes survive."""
    RANDOM = "random"
    """A random subset of the unflushed writes survives; each member has its own random share from 0 to 1."""
    TORN = "torn"
    """A random subset of the unflushed writes survives; of its writes of several sectors, half survive in part."""


class PoweredOff(RigError):
    """A request reached a disk without power."""


@dataclass(frozen=True)
class CutResult:
    """The effect of a power cut on the cache of one member."""

    serial: str
    """The member's serial number."""
    pending: int
    """Number of requests (writes, discards) that were acknowledged and not durable at the cut."""
    kept: int
    """Number of pending requests that survived, whole or torn."""
    torn: int
    """Number of pending requests that survived in part."""
    dropped: int
    """Number of pending requests of which no byte survived."""
    dropped_bytes: int
    """Lost bytes of pending requests, including the lost sectors of torn requests."""
    broken_promises: int
    """Number of requests that were lost or torn despite an acknowledged FLUSH or FUA: 0 unless the disk lies."""


class _Mark(IntFlag):
    DURABLE = 1  # a FUA write: survives every cut, and is applied after the writes that it overlaps
    PROMISED = 2  # a FUA write that a lying disk acknowledged
    ZEROES = 4  # a discard or write-zeroes request


_DURABLE = int(_Mark.DURABLE)
_PROMISED = int(_Mark.PROMISED)


class Member:
    """One member disk: its content, and the requests that a power cut may lose.

    The image has the content that a read returns. Each request that is not durable has an undo record with the
    content that the request overwrote; the records are in the order of the requests. A flush deletes the records. A
    cut undoes all requests backwards, and thereby collects the data of each request; then the cut repeats the
    surviving requests in their order. A surviving earlier write therefore never covers a later durable write, and the
    result is that of a disk which wrote back a subset of its cache in order. The undo record of a write to a blank
    region has no data. The oldest records of a lying disk are merged, so that all records together never take more
    memory than the disk.
    """

    def __init__(self, serial: str, size: int, mode: CacheMode = CacheMode.VOLATILE, *, old: bool = False) -> None:
        self.serial = serial
        self.size = size
        self.powered = True
        self.pending_bytes = 0
        self._image = SparseImage(size, old=old)
        self._pending: list[_Pending] = []
        self._undo_bytes = 0
        self._coalesced: CoalescedUndo | None = None
        self._removed = 0  # number of undo records that were removed because their requests became durable
        self._promised = 0  # number of oldest pending requests that an acknowledged flush of a lying disk covered
        self._mode = mode
        self._loses = mode.loses
        self._lies = mode is CacheMode.LYING
        self._unbounded_undo = self._lies
        """Whether flushes may leave all requests volatile: then the undo records grow, and the oldest are merged."""

    @property
    def mode(self) -> CacheMode:
        """The disk's current cache mode."""
        return self._mode

    @mode.setter
    def mode(self, mode: CacheMode) -> None:
        """Change the disk's cache mode.

        Durable data stays durable. A mode in which a cut loses no data makes all data durable.
        """
        self._mode, self._loses = mode, mode.loses
        self._lies = self._unbounded_undo = mode is CacheMode.LYING
        if not mode.loses:
            self._make_all_durable()

    @property
    def pending(self) -> int:
        """Number of acknowledged requests that are not durable."""
        coalesced = self._coalesced.requests if self._coalesced else 0
        return coalesced + sum(not mark & _DURABLE for _, _, _, mark in self._pending)

    def read_into(self, buffer: memoryview, offset: int) -> None:
        """Fill ``buffer`` with the content at ``offset``, including writes that are only in the cache.

        Raises:
            PoweredOff: the disk has no power.
        """
        if not self.powered:
            raise PoweredOff(f"{self.serial}: the disk has no power")
        self._image.read_into(buffer, offset)

    def write(self, data: Buffer, offset: int, fua: bool = False, lied: bool | None = None) -> None:
        """Execute a write.

        ``fua``: make the write durable before its acknowledgement. ``lied``: acknowledge FUA without making the write
        durable; None: the cache mode decides.

        Raises:
            PoweredOff: the disk has no power.
        """
        if not self.powered:
            raise PoweredOff(f"{self.serial}: the disk has no power")
        if self._loses and (mark := self._count(len(data), fua, lied)) is not None:
            old = self._image.copy(offset, len(data))
            self._pending.append((offset, len(data), old, mark))
            if old is not None and self._unbounded_undo:
                self._add_undo_bytes(len(old))
        self._image.write(data, offset)

    def zero(self, offset: int, length: int, fua: bool = False, lied: bool | None = None) -> None:
        """Execute a discard or write-zeroes request: the region reads as zeroes afterwards.

        ``fua`` and ``lied`` have the same effect as in `write`.

        Raises:
            PoweredOff: the disk has no power.
        """
        if not self.powered:
            raise PoweredOff(f"{self.serial}: the disk has no power")
        if self._loses and (mark := self._count(length, fua, lied)) is not None:
            spans = self._image.extents(offset, offset + length)
            old = tuple((start, bytes(self._image.view(start, end))) for start, end in spans)
            self._pending.append((offset, length, old, mark | _Mark.ZEROES))
            if self._unbounded_undo:
                self._add_undo_bytes(sum(len(data) for _, data in old))
        self._image.zero(offset, length)

    @property
    def acknowledged(self) -> int:
        """Number of requests that ever got an undo record; `flush` takes an earlier value as ``covered``."""
        return self._removed + len(self._pending)

    def flush(self, covered: int | None = None, lied: bool | None = None, kept: Sequence[int] = ()) -> None:
        """Execute a flush: make acknowledged requests durable.

        ``covered``: the value of `acknowledged` at the arrival of the flush, which makes no later request durable;
        None: the flush makes all requests durable. ``lied``: acknowledge the flush without making data durable; None:
        the cache mode decides. ``kept``: the requests that a lying flush nevertheless makes durable, in order, each as
        the value of `acknowledged` before the request.

        Raises:
            PoweredOff: the disk has no power.
        """
        if not self.powered:
            raise PoweredOff(f"{self.serial}: the disk has no power")
        count = len(self._pending) if covered is None else max(0, covered - self._removed)
        if self._lies if lied is None else lied:
            self._unbounded_undo = True
            self._promised = max(self._promised, min(count, len(self._pending)))
            if self._coalesced:
                self._coalesced.promised = self._coalesced.requests
            self._make_durable(kept)
        elif count >= len(self._pending):
            self._make_all_durable()
        else:
            del self._pending[:count]
            self.pending_bytes = sum(length for _, length, _, mark in self._pending if not mark & _DURABLE)
            self._removed += count
            self._promised = max(0, self._promised - count)
            self._coalesced = None

    def cut(self, policy: CutPolicy, rng: Random) -> CutResult:
        """Cut the disk's power: durable data survives, and ``policy`` selects the surviving pending requests."""
        self.powered = False
        return self._resolve(policy, rng)

    def survivors(self, policy: CutPolicy, rng: Random) -> Iterator[tuple[int, tuple[tuple[int, int], ...]]]:
        """Yield each request that a cut may lose, as the value of `acknowledged` before it, and its surviving regions.

        The random choices are those of `cut`. Requests whose undo records were merged are left out.
        """
        for place, (request, regions) in enumerate(zip(self._pending, self._survivors(policy, rng), strict=True)):
            if not request[3] & _DURABLE:
                yield self._removed + place, regions

    def power_on(self) -> None:
        """Switch the disk's power on; the content is what survived the last cut."""
        self.powered = True

    def revert(self) -> None:
        """Undo every request that is not durable, as a cut with policy DROP does; the power stays as it is."""
        self._resolve(CutPolicy.DROP, Random())  # noqa: S311  DROP draws no random number

    def settle(self) -> None:
        """Make all requests durable, in every cache mode."""
        self._make_all_durable()

    @property
    def old(self) -> bool:
        """Whether regions that were never written read as `sparse_image.OLD_DATA`, not as zeroes."""
        return self._image.old

    def blank(self, *, old: bool = False) -> None:
        """Discard the content: all bytes then read as zero, or as `sparse_image.OLD_DATA` if ``old``."""
        self._make_all_durable()
        if old is self._image.old:
            self._image.blank(0, self.size)
        else:
            self._image = SparseImage(self.size, old=old)

    def image(self, durable: bool = True) -> SparseImage:
        """Return the disk's content, read-only.

        ``durable``: the content after a power cut now with policy DROP; otherwise the content that a read returns.
        """
        if not durable or not (self._pending or self._coalesced):
            return self._image
        copy = Member(self.serial, self.size, self._mode)
        copy._image = self._image.duplicate()
        copy._pending, copy._coalesced = self._pending, self._coalesced
        copy._resolve(CutPolicy.DROP, Random())  # noqa: S311  DROP draws no random number
        return copy._image

    def _make_durable(self, kept: Sequence[int]) -> None:
        """Make the requests with these sequence numbers durable: each then counts as a FUA write."""
        pending = self._pending
        for number in kept:
            place = number - self._removed
            if 0 <= place < len(pending) and not pending[place][3] & _DURABLE:
                offset, length, old, mark = pending[place]
                pending[place] = (offset, length, old, (mark | _DURABLE) & ~_PROMISED)
                self.pending_bytes -= length
        # The oldest requests need no undo record once they are durable, unless a cut may still undo an even older one.
        count = next((place for place, one in enumerate(pending) if not one[3] & _DURABLE), len(pending))
        if self._coalesced is None and count:
            del pending[:count]
            self._removed += count
            self._promised = max(0, self._promised - count)

    def _count(self, length: int, fua: bool, lied: bool | None) -> int | None:
        """Count a request; return the flags (`_Mark`) of its undo record, None if no cut can need an undo record."""
        mark = self._mark(lied) if fua else _PLAIN
        if mark != _DURABLE:
            self.pending_bytes += length
        return mark if mark != _DURABLE or self._pending else None

    def _mark(self, lied: bool | None) -> int:
        return int(_Mark.PROMISED if (self._lies if lied is None else lied) else _Mark.DURABLE)

    def _make_all_durable(self) -> None:
        self._removed += len(self._pending)
        self._pending, self._coalesced = [], None
        self._promised = self.pending_bytes = self._undo_bytes = 0
        self._unbounded_undo = self._lies

    def _add_undo_bytes(self, size: int) -> None:
        self._undo_bytes += size
        if self._undo_bytes >= COALESCE_FROM:
            self._coalesce_oldest()

    def _coalesce_oldest(self) -> None:
        """Merge the older half of the undo records, up to the first record that cannot be merged."""
        coalesced = self._coalesced = self._coalesced or CoalescedUndo(self.size, old=self.old)
        count = 0
        for offset, length, old, mark in self._pending[: len(self._pending) // 2]:
            if mark & _DURABLE or (offset | length) % SECTOR:
                break
            pieces = ((offset, old),) if isinstance(old, bytes) else old or ()
            coalesced.add(offset, length, pieces, count < self._promised or bool(mark & _Mark.PROMISED))
            self._undo_bytes -= sum(len(data) for _, data in pieces)
            count += 1
        self._pending = self._pending[count:]
        self._removed += count
        self._promised = max(0, self._promised - count)
        if not count:
            self._undo_bytes = 0  # no record can be merged: try again after COALESCE_FROM bytes of new undo data

    def _resolve(self, policy: CutPolicy, rng: Random) -> CutResult:
        pending, total = self._pending, self.pending
        if policy is CutPolicy.KEEP:
            self._make_all_durable()
            return CutResult(self.serial, total, total, 0, 0, 0, 0)
        verdicts = list(self._survivors(policy, rng))
        kept = torn = 0
        lost, broken = (self._coalesced.bytes, self._coalesced.promised) if self._coalesced else (0, 0)
        for index, ((_, length, _, mark), pieces) in enumerate(zip(pending, verdicts, strict=True)):
            if mark & _DURABLE:
                continue
            survived = sum(end - start for start, end in pieces)
            kept += survived > 0
            torn += 0 < survived < length
            lost += length - survived
            broken += survived < length and (index < self._promised or bool(mark & _Mark.PROMISED))
        redo: list[tuple[int, int, bytes | None]] = []
        for (offset, length, old, mark), pieces in zip(reversed(pending), reversed(verdicts), strict=True):
            for start, end in reversed(pieces):
                redo.append((start, end, None if mark & _Mark.ZEROES else self._image.copy(start, end - start)))
            self._undo(offset, length, old)
        if self._coalesced:
            self._coalesced.undo(self._image)
        for start, end, data in reversed(redo):
            if data is None:
                self._image.zero(start, end - start)
            else:
                self._image.write(data, start)
        self._make_all_durable()
        return CutResult(self.serial, total, kept, torn, total - kept, lost, broken)

    def _undo(self, offset: int, length: int, old: bytes | _Pieces | None) -> None:
        if old is None:
            self._image.blank(offset, length)
        elif isinstance(old, bytes):
            self._image.write(old, offset)
        else:
            self._image.blank(offset, length)
            for start, data in old:
                self._image.write(data, start)

    def _survivors(self, policy: CutPolicy, rng: Random) -> Iterator[tuple[tuple[int, int], ...]]:
        share = rng.random()
        for offset, length, _, mark in self._pending:
            whole = ((offset, offset + length),)
            if mark & _DURABLE or policy is CutPolicy.KEEP:
                yield whole
            elif policy is CutPolicy.DROP or rng.random() >= share:
                yield ()
            elif policy is CutPolicy.TORN and rng.random() < 0.5:
                yield tear(offset, offset + length, rng)
            else:
                yield whole


def tear(start: int, end: int, rng: Random, unit: int = SECTOR) -> tuple[tuple[int, int], ...]:
    """Return the surviving regions (start, end) of a torn request: head, tail or random sectors.

    ``unit``: number of bytes that the disk writes atomically.
    """
    edges = [start, *range(start // unit * unit + unit, end, unit), end]
    sectors = list(pairwise(edges))
    if len(sectors) == 1:
        return ((start, end),)
    at = rng.randrange(1, len(sectors))
    shape = rng.randrange(3)
    if shape == 0:
        return ((start, sectors[at][0]),)
    if shape == 1:
        return ((sectors[at][0], end),)
    regions: list[tuple[int, int]] = []
    for first, last in sectors:
        if rng.random() < 0.5:
            if regions and regions[-1][1] == first:
                regions[-1] = (regions[-1][0], last)
            else:
                regions.append((first, last))
    return tuple(regions)
