"""Closed formulas for the work of an array's members under a workload, and for the performance of a single drive."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf, sqrt

from raidproof.core.topology import ControllerSpec
from raidproof.disk.profile import Flash, Profile, Rotational
from raidproof.storage.array import ArraySpec
from raidproof.storage.array.level import MemberRequests
from raidproof.workload.workload import Access

SMALL_WRITE_SOURCE = (
    "RAID write costs: Patterson, Gibson, Katz, SIGMOD 1988; Chen et al., ACM Computing Surveys 26(2), 1994"
)
RANDOM_SOURCE = (
    "random access = seek + half a revolution + transfer + overhead (Ruemmler and Wilkes, IEEE Computer 27(3), 1994)"
)
_MEAN_DISTANCE = 1 / 3
"""Mean distance between two random tracks as a fraction of the stroke: the distance of a data sheet's average seek."""
COMMIT_SOURCE = "COMMIT and FILE_SYNC: RFC 1813 (3.3.7, 3.3.21), RFC 8881 (18.3, 18.32); each takes one log write"


@dataclass(frozen=True)
class Member:
    """One disk of the server: its drive, its controller, and the part of the drive that the disk occupies."""

    profile: Profile
    controller: str | None = None
    """Name of the disk's controller; None: the disk has no controller."""
    reach: float = 1.0
    """Fraction of the drive's addresses that the disk occupies, from the outer edge on: 1 is the whole drive."""
    size: int = 0
    """Bytes of the disk; 0: those of the occupied part of the drive."""

    @property
    def bytes(self) -> int:
        """Bytes of the disk."""
        return self.size or max(1, round(self.profile.capacity * self.reach))


@dataclass(frozen=True)
class Hardware:
    """The server's disks by serial, and their controllers by name."""

    members: Mapping[str, Member]
    controllers: Mapping[str, ControllerSpec] = field(default_factory=dict)

    def of(self, serials: Sequence[str]) -> tuple[Member, ...]:
        """Return the disks with these serials."""
        return tuple(self.members[serial] for serial in serials)

    def keeps_writes(self, member: Member) -> bool:
        """Return whether a write, even a synchronous one, completes in a cache that is configured as non-volatile.

        A controller with a failed battery writes through. A controller that has not detected the failure of its
        battery continues to cache writes.
        """
        behind = self.controllers.get(member.controller or "")
        if behind is not None and behind.cache and behind.battery != "failed":
            return True
        return member.profile.cache.size > 0 and member.profile.cache.protected

    def write_cache(self, members: Sequence[Member], *, durable: bool) -> int:
        """Return the total size in bytes of the write caches of an array's drives and controllers.

        ``durable``: count only non-volatile caches, which a flush does not empty.
        """
        behind = {member.controller for member in members if member.controller}
        held = sum(one.cache for name, one in self.controllers.items() if name in behind and one.battery != "failed")
        drives = [
            member.profile.cache
            for member in members
            if member.profile.cache.write_back and (member.profile.cache.protected or not durable)
        ]
        # A stripe waits for its slowest member: the smallest cache of a drive limits all drives.
        return held + (len(members) * min(cache.size for cache in drives) if len(drives) == len(members) else 0)

    def controller_cap(self, members: Sequence[Member], traffic: float, commands: float) -> float:
        """Return the application's MB/s that the controllers allow, if all members have the same load.

        The disk traffic is ``traffic`` bytes and ``commands`` commands per byte of the application. A controller
        carries the share of its members. The first full controller limits all stripes.
        """
        cap = inf
        for name, one in self.controllers.items():
            share = sum(member.controller == name for member in members) / len(members)
            if share and one.bandwidth_mb_s is not None:
                cap = min(cap, one.bandwidth_mb_s / (traffic * share))
            if share and one.commands_per_s is not None:
                cap = min(cap, one.commands_per_s / (commands * share) / 1e6)
        return cap


def turn_ms(mechanics: Rotational) -> float:
    """Return the time of one revolution in ms."""
    return 60_000 / mechanics.rpm


def seek_ms(mechanics: Rotational, distance: float) -> float:
    """Return the time in ms to move the heads over a fraction of the full stroke.

    The time grows with the square root of the distance up to the mean distance, then linearly up to the full stroke
    (Ruemmler and Wilkes 1994: acceleration, then coasting). The curve meets the three values of a data sheet.
    """
    near, mean, far = mechanics.track_to_track_ms, mechanics.average_seek_ms, mechanics.full_stroke_ms
    if distance <= _MEAN_DISTANCE:
        return near + (mean - near) * sqrt(distance / _MEAN_DISTANCE)
    return mean + (far - mean) * (distance - _MEAN_DISTANCE) / (1 - _MEAN_DISTANCE)


def elevator_distance(depth: float) -> float:
    """Return the mean distance to the next of ``depth`` waiting requests, as a fraction of the stroke.

    SCAN serves requests in the order of their tracks, and N random requests divide the stroke into N + 1 parts
    (Denning, "Effects of scheduling on file memory operations", AFIPS 1967). For up to two requests the
    result is the mean distance without sorting. The gain of scheduling by angle (Worthington, Ganger, Patt, SIGMETRICS
    1994) is left out.
    """
    return min(_MEAN_DISTANCE, 1 / (depth + 1))


def media_rate(mechanics: Rotational, begin: float, end: float) -> float:
    """Return the mean MB/s between two positions (0: outer edge, 1: inner edge); the rate falls linearly."""
    fall = mechanics.media_rate_rim_mb_s - mechanics.media_rate_hub_mb_s
    return mechanics.media_rate_rim_mb_s - fall * (begin + end) / 2


def random_ms(profile: Profile, size: int, *, write: bool, depth: float = 1, span: float = 1.0) -> float:
    """Return the service time in ms of one random request, if ``depth`` requests wait at the drive.

    ``span``: fraction of the drive that the requests cover. A drive sorts only the requests in its queue.
    """
    waiting = max(1.0, min(depth, profile.queue_depth))
    fixed = profile.command_overhead_us / 1e3
    if profile.rotational is not None:
        mechanics = profile.rotational
        seek = seek_ms(mechanics, span * elevator_distance(waiting)) + (mechanics.write_seek_extra_ms if write else 0)
        transfer = size / 1e3 / min(media_rate(mechanics, 0, span), profile.interface_mb_s or inf)
        return seek + turn_ms(mechanics) / 2 + transfer + fixed
    bus = size / 1e3 / profile.interface_mb_s if profile.interface_mb_s else 0.0
    if profile.flash is not None:
        flash = profile.flash
        # The latencies of waiting requests overlap; all requests share the channels and the bus.
        pages = ceil(size / flash.page)
        page_ms = page_us(flash, write=write) / 1e3
        latency = ceil(pages / flash.channels) * page_ms + bus + fixed
        return max(latency / waiting, pages / flash.channels * page_ms, bus)
    return bus + fixed


def page_us(flash: Flash, *, write: bool) -> float:
    """Return the time in us to read or write one flash page; a write includes its share of the block erasure."""
    if not write:
        return flash.read_us
    return flash.program_us + flash.erase_us * flash.page / flash.erase_block


def sequential_mb_s(profile: Profile, size: int, *, write: bool, stream: bool, begin: float, end: float) -> float:
    """Return the MB/s of requests of ``size`` bytes in the order of their addresses.

    ``stream``: each request arrives before the previous one is done (read-ahead, a write-back cache, a queue), so that
    the medium limits the rate. Otherwise the next sector has passed the head when a write arrives, and each write
    takes a revolution; a read may still find its data in the drive's read-ahead cache.
    """
    fixed_ms = profile.command_overhead_us / 1e3
    bus = profile.interface_mb_s or inf
    if profile.rotational is not None:
        media = media_rate(profile.rotational, begin, end)
        if stream or (not write and profile.cache.read_ahead > 0):
            return min(media, size / 1e3 / (fixed_ms + size / 1e3 / bus))
        turns = 0.0 if size == 0 else turn_ms(profile.rotational)
        return size / 1e3 / (max(fixed_ms, turns) + size / 1e3 / min(media, bus))
    if profile.flash is not None:
        media = profile.flash.channels * profile.flash.page / page_us(profile.flash, write=write)
        if stream:
            return min(media, bus)
        return min(media, size / 1e3 / random_ms(profile, size, write=write))
    if stream or not fixed_ms:
        return bus
    return size / 1e3 / (fixed_ms + size / 1e3 / bus)


def flush_ms(profile: Profile) -> float:
    """Return the time of a flush in ms, without the time of the writes that the flush waits for."""
    if profile.cache.protected:
        return profile.command_overhead_us / 1e3
    flash = profile.flash.flush_us if profile.flash is not None and profile.flash.flush_us else 0.0
    return (flash + profile.command_overhead_us) / 1e3


@dataclass(frozen=True)
class Disks:
    """The application's throughput that the members allow, and the members' work per byte of the application."""

    mb_s: float
    """10^6 bytes per second; infinite if write caches hold all written data."""
    traffic: float
    """Bytes from and to the members per byte of the application."""
    commands: float
    """Requests to the members per byte of the application."""


def disks(hardware: Hardware, spec: ArraySpec, access: Access, request: int, *, write: bool) -> Disks:
    """Return the throughput that the members allow for requests of ``request`` bytes to the array.

    All members get the same share of the work, so that the slowest member limits the rate.
    """
    members = hardware.of(spec.members)
    merged = not access.direct and access.sync_every is None and access.sequential
    unit, raid = spec.stripe_size, spec.raid
    size = max(request, unit) // unit * unit if merged and unit else request
    work = raid.writes(size, spec.chunk_size) if write else raid.reads(size, spec.chunk_size)
    # Write-back sends many requests at the same time, from the page cache as from a drive's cache.
    behind = write and (not access.direct or _behind(hardware, members, access)) and access.sync_every is None
    # If the application syncs each request, the term for sync latency limits the rate, so assume enough requests here.
    waited = write and access.sync_every is not None and access.sync_every <= access.size
    outstanding = inf if behind or waited else access.depth * access.streams
    if write and _fits(hardware, members, access):
        rate = inf
    elif access.sequential:
        streaming = merged or outstanding > 1
        rate = _sequential(members, spec, access, size, work, write=write, stream=streaming, outstanding=outstanding)
    else:
        rate = _random(members, access, size, work, write=write, outstanding=outstanding)
    return Disks(rate, work.traffic(size), work.commands / size)


def _behind(hardware: Hardware, members: Sequence[Member], access: Access) -> bool:
    return hardware.write_cache(members, durable=access.sync_every is not None) > 0


def _fits(hardware: Hardware, members: Sequence[Member], access: Access) -> bool:
    held = hardware.write_cache(members, durable=access.sync_every is not None)
    return access.working_set is not None and 0 < access.working_set <= held


def busy_members(members: int, width: int, outstanding: float) -> float:
    """Return the mean number of members that work at the same time; members without a request are idle.

    Each outstanding request uses ``width`` different members, chosen at random.
    """
    if outstanding == inf or width >= members:
        return members
    idle: float = (1 - width / members) ** outstanding
    return members * (1 - idle)


def _random(
    members: Sequence[Member], access: Access, size: int, work: MemberRequests, *, write: bool, outstanding: float
) -> float:
    busy = busy_members(len(members), work.width, outstanding)
    waiting = outstanding * work.width / busy

    def service_ms(member: Member) -> float:
        profile = member.profile
        return random_ms(profile, work.size, write=write, depth=waiting, span=member.reach * access.span)

    slowest = max(map(service_ms, members))
    return inf if slowest == 0 else busy / (work.commands * slowest) * size / 1e3


def _sequential(
    members: Sequence[Member],
    spec: ArraySpec,
    access: Access,
    size: int,
    work: MemberRequests,
    *,
    write: bool,
    stream: bool,
    outstanding: float,
) -> float:
    # For read-modify-write, `_modify` adds the revolution.
    paced = stream or work.modifies
    slowest = min(_stream_mb_s(member, access, work, write=write, stream=paced) for member in members)
    if write and work.modifies:
        return _modify(members, slowest, size, work, outstanding)
    return slowest * _parallel(spec, access, size, write=write, merged=stream, outstanding=outstanding)


def _stream_mb_s(member: Member, access: Access, work: MemberRequests, *, write: bool, stream: bool) -> float:
    end = member.reach * access.span
    return sequential_mb_s(member.profile, work.size, write=write, stream=stream, begin=0, end=end)


def _modify(members: Sequence[Member], slowest: float, size: int, work: MemberRequests, outstanding: float) -> float:
    """Return the MB/s of read-modify-write: a sector is written one revolution after its read (Chen et al. 1994)."""
    turn = max(
        (turn_ms(member.profile.rotational) for member in members if member.profile.rotational is not None),
        default=0.0,
    )
    transfer = work.size / 1e3 / slowest
    requests_at_once = max(1.0, min(outstanding, len(members) / work.width))
    aggregate = len(members) * slowest / work.traffic(size)
    if turn + transfer == 0:
        return aggregate
    return min(aggregate, requests_at_once * size / 1e3 / (turn + 2 * transfer))


def _parallel(spec: ArraySpec, access: Access, size: int, *, write: bool, merged: bool, outstanding: float) -> float:
    """Return the number of members whose media rates add up for a sequential stream.

    Parity and second copies also pass under the heads, so that they take time in reads as in writes.
    """
    raid = spec.raid
    data = raid.width if write else raid.stream_readers(access.streams)
    if merged and not access.direct:
        return data
    # Without the page cache, only the application's own requests are outstanding.
    if write:
        touched = (raid.writes(size, spec.chunk_size).width - raid.parity) // raid.copies
    else:
        touched = raid.reads(size, spec.chunk_size).width
    return min(data, max(1, touched) * outstanding)
