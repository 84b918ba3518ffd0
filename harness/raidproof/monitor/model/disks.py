"""What the members of an array give together, by level, before controllers and network."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from raidproof.monitor.model.access import Access
from raidproof.monitor.model.drive import random_ms, sequential_mb_s, turn_ms
from raidproof.monitor.model.hardware import Hardware, Member
from raidproof.monitor.model.level import Work, copies, data_width, parity, read_work, stripe, write_work
from raidproof.storage.array import ArraySpec, Level


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
