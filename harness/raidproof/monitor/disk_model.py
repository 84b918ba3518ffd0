"""What members must do for a workload, and what a single drive can do, in closed formulas."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf, sqrt

from raidproof.core.layer import Spec
from raidproof.core.topology import ControllerSpec
from raidproof.core.units import KIB
from raidproof.disk.profile import Flash, Profile, Rotational
from raidproof.storage.array import ArraySpec, Level
from raidproof.storage.array.spec import PARITY_LEVELS, default_layout
from raidproof.workload.dd import DdSpec
from raidproof.workload.fio import FioSpec
from raidproof.workload.hdparm import HdparmSpec

SMALL_WRITE_SOURCE = (
    "RAID write costs: Patterson, Gibson, Katz, SIGMOD 1988; Chen et al., ACM Computing Surveys 26(2), 1994"
)
RANDOM_SOURCE = (
    "random access = seek + half a turn + transfer + overhead (Ruemmler and Wilkes, IEEE Computer 27(3), 1994)"
)
_MEAN_DISTANCE = 1 / 3
"""Of the stroke, between two random tracks: what a data sheet's average seek is measured over."""
COMMIT_SOURCE = "COMMIT and FILE_SYNC: RFC 1813 (3.3.7, 3.3.21), RFC 8881 (18.3, 18.32); one log write each"
LOG_WRITE = 4096
"""Bytes of the smallest write of a journal."""
_HDPARM_REQUEST = 2048 * KIB
"""Bytes that hdparm -t asks for at a time."""
_HDPARM_SPAN = 0.01
"""Share of the device that it reads, about: the fastest part."""


@dataclass(frozen=True)
class Member:
    """One disk of the server."""

    profile: Profile
    controller: str | None = None
    reach: float = 1.0
    """Share of the drive's addresses, from the rim, over which the member lies: 1 if it is spread over the drive."""


@dataclass(frozen=True)
class Hardware:
    """The server's disks by serial, and their controllers by name."""

    members: Mapping[str, Member]
    controllers: Mapping[str, ControllerSpec] = field(default_factory=dict)

    def of(self, serials: Sequence[str]) -> tuple[Member, ...]:
        """The disks of an array."""
        return tuple(self.members[serial] for serial in serials)

    def keeps_writes(self, member: Member) -> bool:
        """Whether a write, also a synchronous one, is answered from a cache that (it is believed) outlives a cut.

        A controller with a failed battery writes through; one whose failure nobody noticed does not.
        """
        behind = self.controllers.get(member.controller or "")
        if behind is not None and behind.cache and behind.battery != "failed":
            return True
        return member.profile.cache.size > 0 and member.profile.cache.protected

    def write_cache(self, members: Sequence[Member], *, durable: bool) -> int:
        """Bytes that the write caches of an array hold; ``durable`` counts only those that a flush does not empty."""
        behind = {member.controller for member in members if member.controller}
        held = sum(one.cache for name, one in self.controllers.items() if name in behind and one.battery != "failed")
        drives = [
            member.profile.cache
            for member in members
            if member.profile.cache.write_back and (member.profile.cache.protected or not durable)
        ]
        # A stripe waits for its slowest member, so one without a cache holds up all.
        return held + (len(members) * min(cache.size for cache in drives) if len(drives) == len(members) else 0)

    def controller_cap(self, members: Sequence[Member], traffic: float, commands: float) -> float:
        """MB/s of the application that the controllers let pass, the members being loaded evenly.

        A controller carries its members' share of all that goes to the disks: ``traffic`` bytes a byte of the
        application, and as many ``commands``. The first that is full holds up all stripes.
        """
        cap = inf
        for name, one in self.controllers.items():
            share = sum(member.controller == name for member in members) / len(members)
            if share and one.bandwidth_mb_s is not None:
                cap = min(cap, one.bandwidth_mb_s / (traffic * share))
            if share and one.commands_per_s is not None:
                cap = min(cap, one.commands_per_s / (commands * share) / 1e6)
        return cap


@dataclass(frozen=True)
class Work:
    """What the members do for one request."""

    commands: float
    """Requests to members, all together."""
    width: int
    """Members that work at the same time for it."""
    size: int
    """Bytes of one of them."""
    modifies: bool = False
    """Whether old data or parity must be read before anything can be written."""

    def traffic(self, request: int) -> float:
        """Bytes at the members for a byte of the application."""
        return self.commands * self.size / request


def copies(spec: ArraySpec) -> int:
    """How many members hold each byte, parity not counted."""
    match spec.level:
        case Level.RAID1:
            return len(spec.members)
        case Level.RAID10:
            return int((spec.layout or default_layout(Level.RAID10) or "n2")[1:])
        case Level.STRIPED_MIRRORS:
            return len(spec.members) // spec.leg_count
        case Level.MIRRORED_STRIPES:
            return spec.leg_count
        case _:
            return 1


def parity(level: Level) -> int:
    """How many units of a stripe are parity."""
    return 2 if level is Level.RAID6 else 1 if level in PARITY_LEVELS else 0


def data_width(spec: ArraySpec) -> int:
    """How many different stripe units can be read or written at once, if each byte counts once."""
    members = len(spec.members)
    return members - parity(spec.level) if parity(spec.level) else max(1, members // copies(spec))


def stripe(spec: ArraySpec) -> int | None:
    """Bytes of data in a whole stripe; None for a mirror."""
    return None if spec.chunk_size is None else spec.chunk_size * data_width(spec)


def read_work(spec: ArraySpec, request: int) -> Work:
    """Return what a read of so many bytes costs: each chunk is read once, from one of its copies."""
    chunk = spec.chunk_size or request
    readers = len(spec.members) if spec.level is Level.RAID10 else data_width(spec)
    width = min(ceil(request / chunk), readers)
    return Work(commands=width, width=width, size=ceil(request / width))


def write_work(spec: ArraySpec, request: int) -> Work:
    """Return what a write of so many bytes costs, if it begins at a chunk (a large one: at a stripe).

    A mirror writes each copy. Parity: whole stripes are written with their parity, n/(n-1) for RAID5. Of a part of
    k chunks, either the old data and parity are read (k + p reads), or the rest of the stripe (d - k); md takes what
    needs fewer, and then writes k + p. So a small write costs 4 requests on RAID5, 6 on RAID6, 2 on a pair.
    """
    protection, width = parity(spec.level), data_width(spec)
    chunk = spec.chunk_size or request
    if not protection:
        parts = min(ceil(request / chunk), width)
        return Work(commands=parts * copies(spec), width=parts * copies(spec), size=ceil(request / parts))
    whole, rest = divmod(request, chunk * width)
    members = width + protection
    if not rest:
        return Work(commands=members, width=members, size=whole * chunk)
    touched = ceil(rest / chunk)
    reads = min(touched + protection, width - touched)
    partial = touched + protection + reads
    unit = min(rest, chunk)
    if not whole:
        return Work(commands=partial, width=touched + protection, size=unit, modifies=reads > 0)
    # Whole stripes and a part: one size for all, so that the bytes are right.
    total = whole * chunk * members + partial * unit
    commands = members + partial
    return Work(commands=commands, width=members, size=ceil(total / commands), modifies=reads > 0)


@dataclass(frozen=True)
class Access:
    """A stream of requests in its steady state, as the application makes them."""

    size: int
    """Bytes of one request."""
    read_share: float = 0.0
    """Of the requests, 0 to 1; the rest are writes."""
    sequential: bool = True
    depth: int = 1
    """Requests that one stream has outstanding; where not ``direct`` the page cache has more of them."""
    streams: int = 1
    """Over all clients; each has a file, or a part of one, of its own."""
    clients: int = 1
    sync_every: int | None = None
    """Bytes after which a stream waits until they are durable (fsync, or O_SYNC with the request's size)."""
    span: float = 1.0
    """Share of the array, from its beginning, over which the requests are spread: it bounds the seeks."""
    working_set: int | None = None
    """Bytes that are written in all, or again and again; a write cache that holds them hides the disks."""
    direct: bool = False
    """Past the page cache of the client."""
    remote: bool = True
    """Over NFS; otherwise on the server itself."""

    def __post_init__(self) -> None:
        if self.size < 1 or self.depth < 1 or self.streams < 1 or self.clients < 1:
            raise ValueError("size, depth, streams and clients are at least 1")
        if not 0 <= self.read_share <= 1 or not 0 < self.span <= 1:
            raise ValueError("read_share is 0 to 1, span more than 0 and at most 1")
        if self.sync_every is not None and self.sync_every < 1:
            raise ValueError("sync_every is at least 1")


def turn_ms(mechanics: Rotational) -> float:
    """Return the time of one revolution."""
    return 60_000 / mechanics.rpm


def seek_ms(mechanics: Rotational, distance: float) -> float:
    """Return the time to move the heads over a share of the full stroke.

    It grows with the root of the distance up to the mean distance, then evenly up to the full stroke (Ruemmler and
    Wilkes 1994: acceleration, then coasting), through the three values that a data sheet gives.
    """
    near, mean, far = mechanics.track_to_track_ms, mechanics.average_seek_ms, mechanics.full_stroke_ms
    if distance <= _MEAN_DISTANCE:
        return near + (mean - near) * sqrt(distance / _MEAN_DISTANCE)
    return mean + (far - mean) * (distance - _MEAN_DISTANCE) / (1 - _MEAN_DISTANCE)


def elevator_distance(depth: float) -> float:
    """Return the mean way to the next of so many waiting requests, as a share of the stroke.

    SCAN serves them in the order of their tracks, and N random ones part the stroke into N + 1 (Denning, "Effects of
    scheduling on file memory operations", AFIPS 1967). Up to two this is the mean distance: nothing is gained. What
    a drive gains by choosing also by angle (Worthington, Ganger, Patt, SIGMETRICS 1994) is left out.
    """
    return min(_MEAN_DISTANCE, 1 / (depth + 1))


def media_rate(mechanics: Rotational, begin: float, end: float) -> float:
    """Return the mean MB/s between two places, as shares of the drive from its rim: the rate falls evenly."""
    fall = mechanics.media_rate_rim_mb_s - mechanics.media_rate_hub_mb_s
    return mechanics.media_rate_rim_mb_s - fall * (begin + end) / 2


def random_ms(profile: Profile, size: int, *, write: bool, depth: float = 1, span: float = 1.0) -> float:
    """Return the milliseconds that a drive needs for one random request, with ``depth`` waiting in it.

    ``span`` is the share of the drive over which the requests lie. A drive sorts no more than its queue holds.
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
        # Latency of one request, overlapped with the others; the channels and the bus are shared by all.
        pages = ceil(size / flash.page)
        page_ms = page_us(flash, write=write) / 1e3
        latency = ceil(pages / flash.channels) * page_ms + bus + fixed
        return max(latency / waiting, pages / flash.channels * page_ms, bus)
    return bus + fixed


def page_us(flash: Flash, *, write: bool) -> float:
    """Return the microseconds of one page: a write also bears its share of the erasure of its block."""
    if not write:
        return flash.read_us
    return flash.program_us + flash.erase_us * flash.page / flash.erase_block


def sequential_mb_s(profile: Profile, size: int, *, write: bool, stream: bool, begin: float, end: float) -> float:
    """Return the MB/s of requests of ``size`` bytes in the order of their addresses.

    ``stream``: the next request is there before the last one is done (read-ahead, a write-back cache, a queue), so
    the media set the pace. Otherwise the next sector has passed when a write asks for it, and each request costs a
    turn; a read still finds the drive's own read-ahead.
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
    """Return the time of a flush over and above the writes that it waits for."""
    if profile.cache.protected:
        return profile.command_overhead_us / 1e3
    flash = profile.flash.flush_us if profile.flash is not None and profile.flash.flush_us else 0.0
    return (flash + profile.command_overhead_us) / 1e3


def server_commit_s(hardware: Hardware, spec: ArraySpec, size: int, *, external_log: Member | None = None) -> float:
    """Return the seconds in which a server makes ``size`` new bytes durable: data, then journal, then the flush.

    Each is a random access, for the heads go from one to the other; the reads before a small write to parity come
    before it. A log on a disk of its own costs no seek but still half a turn. Caches that outlive a cut answer with
    the command alone.
    """
    members = hardware.of(spec.members)
    data = _write_ms(hardware, members, spec, size)
    if external_log is None:
        return (data + _write_ms(hardware, members, spec, LOG_WRITE) + _flush_ms(hardware, members)) / 1e3
    log = _one_ms(hardware, external_log, LOG_WRITE, span=0.0)
    return (data + log + _flush_ms(hardware, [*members, external_log])) / 1e3


def _write_ms(hardware: Hardware, members: Sequence[Member], spec: ArraySpec, size: int) -> float:
    work = write_work(spec, size)
    phases = 2 if work.modifies else 1
    return phases * max(_one_ms(hardware, member, work.size, span=member.reach) for member in members)


def _one_ms(hardware: Hardware, member: Member, size: int, *, span: float) -> float:
    profile = member.profile
    if hardware.keeps_writes(member):
        return profile.command_overhead_us / 1e3 + size / 1e3 / (profile.interface_mb_s or inf)
    return random_ms(profile, size, write=True, span=span)


def _flush_ms(hardware: Hardware, members: Sequence[Member]) -> float:
    return max(0.0 if hardware.keeps_writes(member) else flush_ms(member.profile) for member in members)


def access_of(spec: Spec, *, clients: int = 1) -> Access | None:
    """Return what a workload asks of the storage, on so many clients; None where no formula is known to hold.

    Tools with files of many sizes, or with phases, have none: their figure is compared with others' only.
    """
    match spec:
        case DdSpec():
            return _of_dd(spec, clients if spec.all_machines else 1)
        case FioSpec(job_file=None):
            return _of_fio(spec, clients if spec.all_machines else 1)
        case HdparmSpec(timing="t"):
            # Three seconds from the device's beginning on.
            return Access(size=_HDPARM_REQUEST, read_share=1.0, remote=False, direct=spec.direct, span=_HDPARM_SPAN)
        case _:
            return None


def _of_fio(spec: FioSpec, clients: int) -> Access:
    interval = min((every for every in (spec.fsync, spec.fdatasync) if every), default=0)
    reads = 1.0 if spec.rw.endswith("read") else 0.0
    return Access(
        size=spec.bs,
        read_share=spec.rwmixread / 100 if spec.rw in {"rw", "readwrite", "randrw"} else reads,
        sequential=not spec.rw.startswith("rand"),
        depth=spec.iodepth,
        streams=spec.numjobs * clients,
        clients=clients,
        sync_every=spec.bs if spec.sync != "none" else interval * spec.bs or None,
        working_set=spec.size * spec.numjobs * clients,
        direct=spec.direct,
    )


def _of_dd(spec: DdSpec, clients: int) -> Access:
    flags = {*spec.oflag, *spec.iflag}
    return Access(
        size=spec.bs,
        read_share=1.0 if spec.direction == "read" else 0.0,
        streams=clients,
        clients=clients,
        sync_every=spec.bs if flags & {"sync", "dsync"} else None,
        working_set=spec.total * clients,
        direct="direct" in flags,
    )


@dataclass(frozen=True)
class Disks:
    """The rate that the members allow, and what that costs at them."""

    mb_s: float
    """Infinite where write caches hold all that is written."""
    traffic: float
    """Bytes at the members for a byte of the application."""
    commands: float
    """Requests to members for a byte of the application."""


def disks(hardware: Hardware, spec: ArraySpec, access: Access, request: int, *, write: bool) -> Disks:
    """Return what the members allow for requests of ``request`` bytes, as the array sees them.

    All members get the same share, so the slowest governs.
    """
    members = hardware.of(spec.members)
    merged = not access.direct and access.sync_every is None and access.sequential
    unit = stripe(spec)
    size = max(request, unit) // unit * unit if merged and unit else request
    work = write_work(spec, size) if write else read_work(spec, size)
    # What the file system delays leaves its page cache in many requests at once; so do caches of drives.
    behind = write and (not access.direct or _behind(hardware, members, access)) and access.sync_every is None
    # Where each request is waited for, that time is the commit's: here counts what the members could do.
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
    """Return how many members work at the same time on the mean.

    Each of the outstanding requests takes ``width`` different ones at random; those that none took are idle.
    """
    if outstanding == inf or width >= members:
        return members
    idle: float = (1 - width / members) ** outstanding
    return members * (1 - idle)


def _random(
    members: Sequence[Member], access: Access, size: int, work: Work, *, write: bool, outstanding: float
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
    work: Work,
    *,
    write: bool,
    stream: bool,
    outstanding: float,
) -> float:
    # What is read first and then written pays its turn in the formula for that.
    paced = stream or work.modifies
    slowest = min(_stream_mb_s(member, access, work, write=write, stream=paced) for member in members)
    if write and work.modifies:
        return _modify(members, slowest, size, work, outstanding)
    return slowest * _parallel(spec, access, size, write=write, merged=stream, outstanding=outstanding)


def _stream_mb_s(member: Member, access: Access, work: Work, *, write: bool, stream: bool) -> float:
    end = member.reach * access.span
    return sequential_mb_s(member.profile, work.size, write=write, stream=stream, begin=0, end=end)


def _modify(members: Sequence[Member], slowest: float, size: int, work: Work, outstanding: float) -> float:
    """Read, and write the same place: that comes by again a turn later (Chen et al. 1994)."""
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
    """How many members' media rates a sequential stream gets.

    Parity and second copies pass under the heads too, so they are lost to a read as to a write. Only the far layout
    of RAID10 reads like a stripe over all. A mirror of whole disks serves each stream from one copy.
    """
    data = data_width(spec)
    if not write:
        if spec.level is Level.RAID10 and (spec.layout or "n2").startswith("f"):
            data = len(spec.members)
        elif spec.level in {Level.RAID1, Level.STRIPED_MIRRORS, Level.MIRRORED_STRIPES, Level.RAID10}:
            data = min(len(spec.members), data * min(access.streams, copies(spec)))
    if merged and not access.direct:
        return data
    # Past the page cache nobody asks for more than the requests that are there.
    if write:
        touched = (write_work(spec, size).width - parity(spec.level)) // copies(spec)
    else:
        touched = read_work(spec, size).width
    return min(data, max(1, touched) * outstanding)
