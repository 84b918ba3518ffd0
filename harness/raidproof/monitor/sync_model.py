"""The duration of synchronous writes: the accesses of each member, one after another, at the places of file and log.

The places and the order of the accesses follow from the array's level, the file system and the kernel. The mean over
many synchronous writes at random places of the file, always the same ones, gives the duration.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import count
from math import ceil, inf
from random import Random
from typing import NamedTuple

from raidproof.core.units import KIB, MIB
from raidproof.disk.profile import Rotational
from raidproof.monitor.disk_model import Hardware, Member, flush_ms, media_rate, page_us, seek_ms, turn_ms
from raidproof.storage.array import ArraySpec
from raidproof.storage.filesystem import Extent, FilesystemSpec, Placement
from raidproof.workload.workload import Access

PAGE = 4 * KIB
"""Bytes of the unit in which md reads, caches and writes stripes with parity (STRIPE_SIZE in drivers/md/raid5.h)."""
STRIPE_CACHE = 256
"""Pages of each member in md's stripe cache: the default of md/stripe_cache_size (NR_STRIPES, drivers/md/raid5.c)."""
SEGMENTS = 8
"""Number of sequential streams that a drive keeps in its read cache, as in the simulated drives."""
LONGEST = 4 * MIB
"""Bytes of a sequential write between two syncs up to which the accesses are followed one by one."""
MOST_REQUESTS = 32
"""Random requests of all streams between two syncs up to which the accesses are followed one by one."""
_MOST_ROUNDS, _LEAST_ROUNDS, _MOST_PIECES = 256, 16, 2048
_SETTLED = 1 / 8
"""Share of the rounds that is left out of the mean, because the heads begin at the outer edge."""


class Region(NamedTuple):
    """A region of a member: the number of its slot in the array, offset and length in bytes."""

    slot: int
    offset: int
    length: int


def room_of(hardware: Hardware, spec: ArraySpec) -> int:
    """Return the bytes of the array."""
    return spec.raid.capacity(min(member.bytes for member in hardware.of(spec.members)))


def assumed_placement(filesystem: FilesystemSpec, spec: ArraySpec, room: int, access: Access) -> Placement:
    """Return the placement in a new file system: the file at the beginning, and the log in the middle of the device.

    mkfs.xfs puts the log into the middle allocation group, mke2fs the journal into the middle block group, so that
    seeks to it are short.
    """
    length = access.working_set if access.working_set and access.span == 1 else round(access.span * room)
    file = Extent(offset=0, length=max(access.size, min(length, room)))
    log = None if filesystem.log else Extent(offset=room // 2, length=max(PAGE, min(64 * MIB, room // 8)))
    return Placement(files=(file,), log=log, log_writes=filesystem.log_writes(None, spec.geometry))


@dataclass(slots=True)
class _Segment:
    """Consecutive bytes of a member in its drive's read cache."""

    begin: float
    end: float
    limit: float
    """Offset at which the read-ahead ends."""


class _Drive:
    """One drive: the position of its heads, and the time in ms at which it has executed all accepted requests."""

    def __init__(self, hardware: Hardware, member: Member) -> None:
        self.member, self.profile = member, member.profile
        self.keeps = hardware.keeps_writes(member)
        cache = self.profile.cache
        self.caches = self.keeps or (cache.write_back and cache.size > 0)
        self.overhead_ms = self.profile.command_overhead_us / 1e3
        self.flush_ms = 0.0 if self.keeps else flush_ms(self.profile)
        self.free_ms = 0.0
        self._at = 0.0
        self._ahead = cache.read_ahead if self.profile.rotational is not None else 0
        self._segments: list[_Segment] = []
        self._reading_on = False
        """Whether the heads have read on after the last segment since ``free_ms``."""

    def read(self, now: float, region: Region) -> float:
        """Read a region from ``now`` on; return the time at which the data has arrived."""
        arrived = now + self.overhead_ms
        if self._reads_on_until(arrived, region):
            return arrived + self._bus_ms(region.length)
        done = self._execute(arrived, region, write=False)
        if self._ahead:
            self._segments = [one for one in self._segments if not one.begin <= region.offset <= one.end]
            end = region.offset + region.length
            self._segments = [*self._segments[1 - SEGMENTS :], _Segment(region.offset, end, end + self._ahead)]
            self._reading_on = True
        return done + self._bus_ms(region.length)

    def _reads_on_until(self, now: float, region: Region) -> bool:
        """Extend the last segment by what the idle heads have read until ``now``; return whether it is enough.

        A drive continues to read after a read, until another request needs the heads.
        """
        mechanics = self.profile.rotational
        if self._reading_on and mechanics is not None:
            last, place = self._segments[-1], self._place(region)
            read = max(0.0, now - self.free_ms) * 1e3 * media_rate(mechanics, place, place)
            last.end = min(last.limit, self._at + read)
        return any(one.begin <= region.offset and region.offset + region.length <= one.end for one in self._segments)

    def write(self, now: float, region: Region) -> float:
        """Write a region from ``now`` on; return the time of the acknowledgement."""
        arrived = now + self.overhead_ms + self._bus_ms(region.length)
        if self.keeps:
            return arrived
        done = self._execute(arrived, region, write=True)
        return arrived if self.caches else done

    def flushed(self, now: float) -> float:
        """Return the time at which a flush from ``now`` on ends."""
        return now + self.flush_ms if self.keeps else max(now, self.free_ms) + self.flush_ms

    def _bus_ms(self, length: int) -> float:
        return length / 1e3 / self.profile.interface_mb_s if self.profile.interface_mb_s else 0.0

    def _place(self, region: Region) -> float:
        """Return the position of a region between the outer (0) and the inner edge (1) of the drive."""
        return self.member.reach * min(1.0, region.offset / self.member.bytes)

    def _execute(self, now: float, region: Region, *, write: bool) -> float:
        if self._reading_on:
            self._reads_on_until(now, region)
            self._at, self._reading_on = self._segments[-1].end, False
        if self.profile.rotational is not None:
            done = self._under_heads(max(now, self.free_ms), region, self.profile.rotational, write=write)
        elif (flash := self.profile.flash) is not None:
            share = min(1.0, region.length / flash.page)
            done = now + ceil(region.length / flash.page / flash.channels) * share * page_us(flash, write=write) / 1e3
        else:
            done = now
        self.free_ms = max(self.free_ms, done)
        return done

    def _under_heads(self, now: float, region: Region, mechanics: Rotational, *, write: bool) -> float:
        """Return the time at which a region has passed the heads: seek, rotation, transfer (Ruemmler, Wilkes 1994)."""
        turn, size = turn_ms(mechanics), self.member.bytes
        place = self._place(region)
        rate = media_rate(mechanics, place, place)
        track = rate * 1e3 * turn
        tracks = abs(region.offset // track - self._at // track)
        move = 0.0
        if tracks == 1:
            move = mechanics.head_switch_ms
        elif tracks:
            move = seek_ms(mechanics, self.member.reach * abs(region.offset - self._at) / size)
            move += mechanics.write_seek_extra_ms if write else 0.0
        angle = region.offset / track * turn
        # The rounding keeps the end of one request and the beginning of the next at the same angle.
        wait = round(angle - now - move, 6) % turn
        self._at = region.offset + region.length
        return now + move + wait + region.length / 1e3 / rate


class _Stripes:
    """The requests to members that writes to an array cause, with md's stripe cache for levels with parity."""

    def __init__(self, spec: ArraySpec, member_bytes: int, cached: int) -> None:
        self._raid, self._chunk = spec.raid, spec.chunk_size or member_bytes
        self._parity = self._raid.parity > 0
        self._limit = cached
        self._known: OrderedDict[tuple[int, int], set[int]] = OrderedDict()
        """The slots whose content md has, for each cached page of a stripe; the page used last is the last one."""

    def pieces(self, extent: Extent) -> int:
        """Return the number of chunks that a write overlaps."""
        return (extent.offset + extent.length - 1) // self._chunk - extent.offset // self._chunk + 1

    def requests(self, extent: Extent) -> tuple[list[Region], list[Region]]:
        """Return the reads that md must make first, and the writes."""
        reads: list[Region] = []
        writes: list[Region] = []
        by_stripe: dict[int, list[tuple[int, int, int]]] = {}
        at, end = extent.offset, extent.offset + extent.length
        while at < end:
            chunk, inside = divmod(at, self._chunk)
            length = min(self._chunk - inside, end - at)
            at += length
            places = self._raid.places(chunk)
            if not self._parity:
                writes += [Region(slot, stripe * self._chunk + inside, length) for slot, stripe in places]
                continue
            ((slot, stripe),) = places
            by_stripe.setdefault(stripe, []).append((slot, inside, length))
        for stripe, parts in by_stripe.items():
            begin = min(inside for _, inside, _ in parts) // PAGE * PAGE
            length = max(PAGE, max(inside + length for _, inside, length in parts) - begin)
            targets = {slot for slot, _, _ in parts}
            whole = {slot for slot, _, part in parts if part >= PAGE}
            needed: set[int] = set()
            for page in range(begin, begin + length, PAGE):
                needed |= self._needed((stripe, page), targets, whole)
            offset, row = stripe * self._chunk + begin, self._raid.row(stripe)
            reads += [Region(slot, offset, length) for slot in sorted(needed)]
            written = targets | {slot for slot in (row.p, row.q) if slot is not None}
            writes += [Region(slot, offset, length) for slot in sorted(written)]
        return reads, writes

    def _needed(self, page: tuple[int, int], targets: set[int], whole: set[int]) -> set[int]:
        """Return the slots that md reads before it writes ``targets``; keep all content in the stripe cache.

        md takes the fewer reads: the old data and parity, or the data that is not overwritten; for equal numbers the
        latter (handle_stripe_dirtying in drivers/md/raid5.c).
        """
        row = self._raid.row(page[0])
        parities = {slot for slot in (row.p, row.q) if slot is not None}
        known = self._known.pop(page, set())
        modify = (targets | parities) - known
        construct = set(row.data) - whole - known
        needed = modify if len(modify) < len(construct) else construct
        self._known[page] = known | needed | targets | parities
        while len(self._known) > self._limit:
            self._known.popitem(last=False)
        return needed


@dataclass(eq=False)
class SyncWrites:
    """The walk through synchronous writes of one workload. Two walks are equal if their parameters are."""

    hardware: Hardware
    spec: ArraySpec
    placement: Placement
    access: Access
    every: int
    """Bytes between two syncs of a stream."""
    external_log: Member | None = None
    flush_first: bool = False
    """Whether md waits for the flush before it writes the log's last block, as kernels before 6.12 do."""
    stripe_cache: int = STRIPE_CACHE
    _drives: list[_Drive] = field(init=False)
    _stripes: _Stripes = field(init=False)

    def __post_init__(self) -> None:
        members = self.hardware.of(self.spec.members)
        self._drives = [_Drive(self.hardware, member) for member in members]
        least = min(member.bytes for member in members)
        self._stripes = _Stripes(self.spec, least, self.stripe_cache)
        self._log_drive = _Drive(self.hardware, self.external_log) if self.external_log is not None else None

    @property
    def _key(self) -> str:
        """All parameters as text."""
        return repr([getattr(self, one.name) for one in fields(self) if one.init])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SyncWrites) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def seconds(self) -> float:
        """Return the mean seconds in which each stream makes one synchronous write.

        Streams that sync at the same time share the write of the log (group commit).
        """
        positions = self._positions()
        first = next(positions)
        pieces = sum(map(self._stripes.pieces, first)) + len(self.placement.log_writes)
        rounds = max(_LEAST_ROUNDS, min(_MOST_ROUNDS, _MOST_PIECES // pieces))
        now, begun, skipped = 0.0, 0.0, ceil(rounds * _SETTLED)
        log = self._log_positions()
        for number, data in zip(range(rounds), positions, strict=False):
            if number == skipped:
                begun = now
            now = self._round(now, data, log)
        return (now - begun) / (rounds - skipped) / 1e3

    def _round(self, now: float, data: Sequence[Extent], log: Iterator[int]) -> float:
        now = self._write(now, data)
        sizes = self.placement.log_writes
        for number, size in enumerate(sizes):
            last = number == len(sizes) - 1
            if last and (self.flush_first or self._log_drive is not None):
                now = self._flush(now)
            extent = Extent(offset=next(log), length=size)
            if self._log_drive is not None:
                now = self._log_drive.write(now, Region(0, extent.offset, extent.length))
            else:
                now = self._write(now, [extent])
        if self._log_drive is not None:
            return self._log_drive.flushed(self._log_drive.flushed(now))
        # Without FUA, which virtio-blk lacks, the kernel flushes before and after the last write to the log.
        return self._flush(self._flush(now)) if sizes and not self.flush_first else self._flush(now)

    def _write(self, now: float, extents: Sequence[Extent]) -> float:
        """Write extents that the kernel issues at the same time; return the time of the last acknowledgement."""
        requests = [self._stripes.requests(extent) for extent in extents]
        reads = [self._drives[one.slot].read(now, one) for needed, _ in requests for one in needed]
        now = max(reads, default=now)
        return max(self._drives[one.slot].write(now, one) for _, written in requests for one in written)

    def _flush(self, now: float) -> float:
        return max(drive.flushed(now) for drive in self._drives)

    def _positions(self) -> Iterator[list[Extent]]:
        """Yield the extents that each round writes, in ascending order as the kernel's write-back sorts them."""
        size = min(self.access.size, self.every)
        requests = 1 if self.access.sequential else max(1, self.every // size)
        length = self.every if self.access.sequential else size
        total = sum(one.length for one in self.placement.files)
        blocks, streams = max(1, total // length), self.access.streams
        chance = Random(1)  # noqa: S311  no secret
        for number in count():
            chosen = []
            for stream in range(streams):
                for _ in range(requests):
                    if self.access.sequential:
                        block = (blocks * stream // streams + number) % blocks
                    else:
                        block = int(chance.random() * blocks)
                    chosen.append(Extent(offset=self._on_device(block * length), length=length))
            yield sorted(chosen, key=lambda one: one.offset)

    def _on_device(self, offset: int) -> int:
        for extent in self.placement.files:
            if offset < extent.length:
                return extent.offset + offset
            offset -= extent.length
        return self.placement.files[0].offset

    def _log_positions(self) -> Iterator[int]:
        """Yield the offset of each write to the log, which are adjacent, and begin again at the log's end."""
        place = self.placement.log or Extent(offset=0, length=LONGEST)
        at, sizes = 0, self.placement.log_writes
        if not sizes:
            return
        for number in count():
            size = sizes[number % len(sizes)]
            if at + size > place.length:
                at = 0
            yield place.offset + at
            at += size


def sync_seconds(walk: SyncWrites, mb_s: float = inf) -> float:
    """Return the mean seconds of a synchronous write of each stream.

    The bytes that `longest` excludes take the rate ``mb_s`` of writes without syncs, which the streams share.
    """
    longer = max(0, walk.every - longest(walk.access))
    return _seconds(replace(walk, every=walk.every - longer)) + longer * walk.access.streams / 1e6 / mb_s


@lru_cache(maxsize=1024)
def _seconds(walk: SyncWrites) -> float:
    """Return the result of a walk; equal walks, as of the cells of a plan, are followed once."""
    return walk.seconds()


def longest(access: Access) -> int:
    """Return the bytes between two syncs of a stream up to which the walk follows each access."""
    if access.sequential:
        return LONGEST
    return access.size * max(1, MOST_REQUESTS // access.streams)
