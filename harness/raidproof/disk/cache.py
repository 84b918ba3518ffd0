"""The write cache of a member disk: what it acknowledges, what it makes durable, and what a power cut leaves."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, IntFlag
from itertools import pairwise
from random import Random
from typing import TypeAlias

from raidproof.core.errors import RigError
from raidproof.disk.sparse_image import Buffer, SparseImage

SECTOR = 512

SINK_AT = 64 << 20
"""Limit in bytes of undo data of a lying disk: it never flushes, so that the notes would fill the memory."""
_Pieces: TypeAlias = tuple[tuple[int, bytes], ...]
_Pending: TypeAlias = tuple[int, int, bytes | _Pieces | None, int]
_PLAIN = 0


class CoalescedUndo:
    """Merged undo data of many requests: the bytes that were there before the first of them.

    Merged requests no longer survive a power cut one by one: all are lost, or all are kept.
    """

    def __init__(self, size: int, *, old: bool = False) -> None:
        self.requests = 0
        self.bytes = 0
        self.promised = 0
        """Number of the requests that an acknowledged FLUSH or FUA covered."""
        self._before = SparseImage(size, old=old)
        self._covered = bytearray((size + SECTOR - 1) // SECTOR)

    def add(self, offset: int, length: int, old: tuple[tuple[int, bytes], ...], promised: bool) -> None:
        """Add the next request in order, made of whole sectors; ``old``: what it overwrote, without blank parts."""
        self.requests += 1
        self.bytes += length
        self.promised += promised
        covered, at, end = self._covered, offset // SECTOR, (offset + length) // SECTOR
        while at < end and (first := covered.find(0, at, end)) >= 0:
            taken = covered.find(1, first, end)
            at = end if taken < 0 else taken
            self._save(first * SECTOR, at * SECTOR, old)
            covered[first:at] = b"\1" * (at - first)

    def undo(self, platter: SparseImage) -> None:
        """Restore the content before all merged requests."""
        at, end = 0, len(self._covered)
        while at < end and (first := self._covered.find(1, at)) >= 0:
            free = self._covered.find(0, first)
            at = end if free < 0 else free
            start, stop = first * SECTOR, min(at * SECTOR, platter.size)
            platter.blank(start, stop - start)
            for begin, finish in self._before.extents(start, stop):
                platter.write(self._before.view(begin, finish), begin)

    def _save(self, start: int, stop: int, old: tuple[tuple[int, bytes], ...]) -> None:
        for at, data in old:
            first, last = max(start, at), min(stop, at + len(data))
            if first < last:
                self._before.write(memoryview(data)[first - at : last - at], first)


class CacheMode(Enum):
    """Where a disk keeps a write when it acknowledges it."""

    VOLATILE = "volatile"
    """In a cache that a power cut empties; FLUSH and FUA are honoured."""
    PROTECTED = "protected"
    """In a cache that survives a power cut."""
    NONE = "none"
    """On the medium: the disk has no write cache and advertises none."""
    LYING = "lying"
    """In a volatile cache; FLUSH and FUA are acknowledged without making anything durable."""

    @property
    def loses(self) -> bool:
        """Whether a power cut can lose acknowledged data."""
        return self in {CacheMode.VOLATILE, CacheMode.LYING}


class CutPolicy(Enum):
    """Which of the unflushed writes survive a power cut."""

    DROP = "drop"
    """None of them."""
    KEEP = "keep"
    """All of them."""
    RANDOM = "random"
    """A random subset; the share that survives is drawn per member, from almost none to almost all."""
    TORN = "torn"
    """A random subset, of which half the requests of several sectors survive in some sectors only."""


class PoweredOff(RigError):
    """A request reached a disk without power."""


@dataclass(frozen=True)
class CutResult:
    """The effect of a power cut on the cache of one member."""

    serial: str
    pending: int
    """Requests (writes, discards) that were acknowledged and not durable."""
    kept: int
    """Number of them that survived, whole or torn."""
    torn: int
    """Number of the surviving ones that survived in part."""
    dropped: int
    """Number of those that did not survive."""
    dropped_bytes: int
    """Bytes that did not survive, including those that torn requests lost."""
    broken_promises: int
    """Requests lost or torn despite an acknowledged FLUSH or FUA: more than 0 only if the disk lies."""


class _Mark(IntFlag):
    DURABLE = 1  # a FUA write: kept by every cut, and later than what it overwrote
    PROMISED = 2  # a FUA write of a lying disk
    ZEROES = 4


_DURABLE = int(_Mark.DURABLE)
_PROMISED = int(_Mark.PROMISED)


class Member:
    """One disk: its content, and what a power cut may take of it.

    The image holds what a read returns. Each request that is not durable yet has a note of what it overwrote, in
    order. A flush drops the notes. A cut undoes them backwards, which also recovers what each request had written, and
    then repeats the surviving requests in their order. So a surviving earlier write never covers a later durable one,
    and overlapping writes come out as if the disk had written back a subset of its cache in order. A write to a blank
    region needs no copy. The oldest notes of a lying disk are merged into one, so that they never take more memory
    than the disk.
    """

    def __init__(self, serial: str, size: int, mode: CacheMode = CacheMode.VOLATILE, *, old: bool = False) -> None:
        self.serial = serial
        self.size = size
        self.powered = True
        self.pending_bytes = 0
        self._image = SparseImage(size, old=old)
        self._pending: list[_Pending] = []
        self._noted_bytes = 0
        self._coalesced: CoalescedUndo | None = None
        self._forgotten = 0  # number of requests that were noted and have become durable
        self._promised = 0  # number of oldest pending requests that a lying flush covered
        self._mode = mode
        self._loses = mode.loses
        self._lies = mode is CacheMode.LYING
        self._unbounded_undo = self._lies
        """Whether recent flushes lied: the notes may then grow without bound, so that the oldest are merged."""

    @property
    def mode(self) -> CacheMode:
        """The current cache mode."""
        return self._mode

    @mode.setter
    def mode(self, mode: CacheMode) -> None:
        """Change the cache mode: durable data stays durable, and a mode that loses nothing makes all data durable."""
        self._mode, self._loses = mode, mode.loses
        self._lies = self._unbounded_undo = mode is CacheMode.LYING
        if not mode.loses:
            self._forget()

    @property
    def pending(self) -> int:
        """Number of requests that were acknowledged and are not durable."""
        coalesced = self._coalesced.requests if self._coalesced else 0
        return coalesced + sum(not mark & _DURABLE for _, _, _, mark in self._pending)

    def read_into(self, buffer: memoryview, offset: int) -> None:
        """Fill ``buffer`` with the content at ``offset``, cache included.

        Raises:
            PoweredOff: the disk has no power.
        """
        if not self.powered:
            raise PoweredOff(f"{self.serial}: no power")
        self._image.read_into(buffer, offset)

    def write(self, data: Buffer, offset: int, fua: bool = False, lied: bool | None = None) -> None:
        """Execute a write; with ``fua`` it is durable before it is acknowledged, unless the disk ``lied``.

        By default the mode determines whether the disk lies.

        Raises:
            PoweredOff: the disk has no power.
        """
        if not self.powered:
            raise PoweredOff(f"{self.serial}: no power")
        if self._loses and (mark := self._count(len(data), fua, lied)) is not None:
            old = self._image.copy(offset, len(data))
            self._pending.append((offset, len(data), old, mark))
            if old is not None and self._unbounded_undo:
                self._note(len(old))
        self._image.write(data, offset)

    def zero(self, offset: int, length: int, fua: bool = False, lied: bool | None = None) -> None:
        """Execute a discard or write-zeroes request: cached and forced like a write; the region reads as zeroes.

        Raises:
            PoweredOff: the disk has no power.
        """
        if not self.powered:
            raise PoweredOff(f"{self.serial}: no power")
        if self._loses and (mark := self._count(length, fua, lied)) is not None:
            spans = self._image.extents(offset, offset + length)
            old = tuple((start, bytes(self._image.view(start, end))) for start, end in spans)
            self._pending.append((offset, length, old, mark | _Mark.ZEROES))
            if self._unbounded_undo:
                self._note(sum(len(data) for _, data in old))
        self._image.zero(offset, length)

    @property
    def acknowledged(self) -> int:
        """A count of requests that only grows; its value when a flush arrives is the flush's ``covered``."""
        return self._forgotten + len(self._pending)

    def flush(self, covered: int | None = None, lied: bool | None = None, kept: Sequence[int] = ()) -> None:
        """Make all acknowledged data durable, or nothing if the disk ``lied``; by default the mode determines that.

        ``covered``: `acknowledged` when the flush arrived; a slow flush need not cover later writes.
        ``kept``: for a lying flush, `acknowledged` before each request that it makes durable nevertheless, in order.

        Raises:
            PoweredOff: the disk has no power.
        """
        if not self.powered:
            raise PoweredOff(f"{self.serial}: no power")
        count = len(self._pending) if covered is None else max(0, covered - self._forgotten)
        if self._lies if lied is None else lied:
            self._unbounded_undo = True
            self._promised = max(self._promised, min(count, len(self._pending)))
            if self._coalesced:
                self._coalesced.promised = self._coalesced.requests
            self._keep(kept)
        elif count >= len(self._pending):
            self._forget()
        else:
            del self._pending[:count]
            self.pending_bytes = sum(length for _, length, _, mark in self._pending if not mark & _DURABLE)
            self._forgotten += count
            self._promised = max(0, self._promised - count)
            self._coalesced = None

    def cut(self, policy: CutPolicy, rng: Random) -> CutResult:
        """Cut the power: durable data stays, and ``policy`` decides about the rest."""
        self.powered = False
        return self._resolve(policy, rng)

    def power_on(self) -> None:
        """Restore power; the content is what the cut left."""
        self.powered = True

    def revert(self) -> None:
        """Undo every request that is not durable, like a cut with policy DROP, without changing the power."""
        self._resolve(CutPolicy.DROP, Random())  # noqa: S311  not used: nothing is drawn

    def settle(self) -> None:
        """Make everything durable, whatever the mode."""
        self._forget()

    @property
    def old(self) -> bool:
        """Whether unwritten parts read as old data, not as zeroes."""
        return self._image.old

    def blank(self, *, old: bool = False) -> None:
        """Make the whole disk zero and durable, or full of old data if ``old``."""
        self._forget()
        if old is self._image.old:
            self._image.blank(0, self.size)
        else:
            self._image = SparseImage(self.size, old=old)

    def image(self, durable: bool = True) -> SparseImage:
        """Return the content after a cut with policy DROP now, or as a read returns it; read-only."""
        if not durable or not (self._pending or self._coalesced):
            return self._image
        twin = Member(self.serial, self.size, self._mode)
        twin._image = self._image.duplicate()
        twin._pending, twin._coalesced = self._pending, self._coalesced
        twin._resolve(CutPolicy.DROP, Random())  # noqa: S311  not used: nothing is drawn
        return twin._image

    def _keep(self, kept: Sequence[int]) -> None:
        """Make some requests durable: as a FUA write, each is newer than what it overwrote."""
        pending = self._pending
        for number in kept:
            place = number - self._forgotten
            if 0 <= place < len(pending) and not pending[place][3] & _DURABLE:
                offset, length, old, mark = pending[place]
                pending[place] = (offset, length, old, (mark | _DURABLE) & ~_PROMISED)
                self.pending_bytes -= length
        # Durable requests at the beginning of the notes need no notes, unless what they overwrote may still be undone.
        count = next((place for place, one in enumerate(pending) if not one[3] & _DURABLE), len(pending))
        if self._coalesced is None and count:
            del pending[:count]
            self._forgotten += count
            self._promised = max(0, self._promised - count)

    def _count(self, length: int, fua: bool, lied: bool | None) -> int | None:
        """Count a request; return its mark, or None if a cut cannot need what the request overwrites."""
        mark = self._mark(lied) if fua else _PLAIN
        if mark != _DURABLE:
            self.pending_bytes += length
        return mark if mark != _DURABLE or self._pending else None

    def _mark(self, lied: bool | None) -> int:
        return int(_Mark.PROMISED if (self._lies if lied is None else lied) else _Mark.DURABLE)

    def _forget(self) -> None:
        self._forgotten += len(self._pending)
        self._pending, self._coalesced = [], None
        self._promised = self.pending_bytes = self._noted_bytes = 0
        self._unbounded_undo = self._lies

    def _note(self, size: int) -> None:
        self._noted_bytes += size
        if self._noted_bytes >= SINK_AT:
            self._sink()

    def _sink(self) -> None:
        """Merge the older half of the notes, up to the first that cannot be merged."""
        coalesced = self._coalesced = self._coalesced or CoalescedUndo(self.size, old=self.old)
        count = 0
        for offset, length, old, mark in self._pending[: len(self._pending) // 2]:
            if mark & _DURABLE or (offset | length) % SECTOR:
                break
            pieces = ((offset, old),) if isinstance(old, bytes) else old or ()
            coalesced.add(offset, length, pieces, count < self._promised or bool(mark & _Mark.PROMISED))
            self._noted_bytes -= sum(len(data) for _, data in pieces)
            count += 1
        self._pending = self._pending[count:]
        self._forgotten += count
        self._promised = max(0, self._promised - count)
        if not count:
            self._noted_bytes = 0  # nothing can be merged: try again after as much new data

    def _resolve(self, policy: CutPolicy, rng: Random) -> CutResult:
        pending, total = self._pending, self.pending
        if policy is CutPolicy.KEEP:
            self._forget()
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
        self._forget()
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
            if mark & _DURABLE:
                yield whole
            elif policy is CutPolicy.DROP or rng.random() >= share:
                yield ()
            elif policy is CutPolicy.TORN and rng.random() < 0.5:
                yield tear(offset, offset + length, rng)
            else:
                yield whole


def tear(start: int, end: int, rng: Random, unit: int = SECTOR) -> tuple[tuple[int, int], ...]:
    """Choose the surviving sectors of a request (head, tail or any subset), as regions in order.

    ``unit``: bytes that the disk writes atomically.
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
