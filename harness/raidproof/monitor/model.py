"""The expected throughput of the hardware, by closed formulas for disks, controllers, network and sync latency."""

from dataclasses import dataclass, replace
from math import ceil, inf

from raidproof.monitor.disk_model import (
    COMMIT_SOURCE,
    RANDOM_SOURCE,
    SMALL_WRITE_SOURCE,
    Hardware,
    disks,
)
from raidproof.monitor.sync_model import STRIPE_CACHE, SyncWrites, assumed_placement, room_of, sync_seconds
from raidproof.storage.filesystem import Placement
from raidproof.storage.link import LinkSpec
from raidproof.storage.mount import MountSpec
from raidproof.storage.stack import StackSpec
from raidproof.workload.workload import Access

EFFICIENCY = 1448 / 1538
"""TCP payload over wire bytes of a full Ethernet frame: 1500 bytes less IP (20), TCP (20) and its timestamps (12),
plus Ethernet's preamble, header, check sum and gap (38). RFC 894, RFC 7323, IEEE 802.3."""
WIRE_SOURCE = "payload over frame, 1448/1538 (RFC 894, RFC 7323, IEEE 802.3)"
RPC_BYTES = 200
"""Approximate bytes of RPC header, COMPOUND and reply of one READ or WRITE (RFC 5531, RFC 8881)."""
SLOTS = 64
"""Greatest number of outstanding requests of an NFSv4.1 or 4.2 client: the default of nfs.max_session_slots."""
DEFAULT_TRANSFER = 1 << 20
"""rsize and wsize in bytes of a mount without these options, if the server grants this size."""

DISKS, CONTROLLER, NETWORK, TRIPS, SYNC = "disks", "controller", "network", "round trips", "sync latency"
_FORMULAS = {
    DISKS: "rate of the slowest member x members that work at the same time / member requests per application request",
    CONTROLLER: "limit of the busiest controller / its share of the traffic to the members",
    NETWORK: "link rate x payload / frame size; link rate: the server's, or the sum of the clients' if that is less",
    TRIPS: "greatest number of outstanding bytes / round-trip time",
    SYNC: "streams x bytes between two syncs / (round trip + transfer + mean time of reads for parity, data write, "
    "log write and flush at the places of file and log)",
}
_SOURCES = {
    DISKS: f"{RANDOM_SOURCE}; {SMALL_WRITE_SOURCE}",
    CONTROLLER: "a shared resource is full when the demands of its users add up to its limit (Patterson et al. 1988)",
    NETWORK: WIRE_SOURCE,
    TRIPS: "Little's law: throughput = outstanding / latency (Little, Operations Research 9(3), 1961)",
    SYNC: COMMIT_SOURCE,
}
LEAST_SHARE = 0.7
"""Fraction of the expected throughput below which a cell is flagged."""
_LIKELY = {
    DISKS: "the members do more work than the formula counts: split, misaligned or partial-stripe requests, "
    "a log on the same disks, or one slow member",
    CONTROLLER: "the controller carries more traffic than the formula counts, or smaller commands",
    NETWORK: "the link is not full: packet loss, a small TCP window, or a CPU that is too slow",
    TRIPS: "fewer requests are outstanding than the client may send, or they are smaller than rsize and wsize",
    SYNC: "each sync takes more accesses than the formula counts: blocks that are allocated, write-back of metadata, "
    "or another process that syncs; or the accesses do not follow each other at once, as on a slow CPU",
}


def round_trip_s(client: LinkSpec, server: LinkSpec) -> float:
    """Return the round-trip time in seconds: the sum of the delays that client and server add to sent packets."""
    return (client.delay + server.delay) / 1e9


def transfer_size(mount: MountSpec, *, write: bool) -> int:
    """Return the size in bytes of one full READ or WRITE over a mount."""
    return (mount.wsize if write else mount.rsize) or DEFAULT_TRANSFER


def wire_mb_s(client: LinkSpec, server: LinkSpec, access: Access, transfer: int) -> float:
    """Return the MB/s of file data that full-duplex links carry: one link per client, and the server's for all."""
    one = min(access.size, transfer) if access.sync_every is not None or access.direct else transfer
    useful = EFFICIENCY * one / (one + RPC_BYTES)
    sides = [
        *([client.rate * access.clients] if client.rate else []),
        *([server.rate] if server.rate else []),
    ]
    direction = max(access.read_share, 1 - access.read_share)
    return min((rate / 8e6 * useful / direction for rate in sides), default=inf)


def round_trips_mb_s(client: LinkSpec, server: LinkSpec, access: Access, mount: MountSpec, *, write: bool) -> float:
    """Return the MB/s if only round trips took time: outstanding bytes / round-trip time (Little's law).

    With the page cache, a client uses all of its session slots. With O_DIRECT, only the parts of the current requests
    are outstanding. Connections (nconnect) share the slots of one session. Before NFSv4.1, the number of outstanding
    requests has no practical limit.
    """
    trip = round_trip_s(client, server)
    if trip == 0:
        return inf
    transfer = transfer_size(mount, write=write)
    slots = SLOTS if mount.vers in {"4.1", "4.2"} else inf
    if access.direct:
        parts = ceil(access.size / transfer)
        waiting = min(access.depth * access.streams * parts, slots * access.clients)
        return waiting * access.size / parts / trip / 1e6
    return inf if slots == inf else slots * access.clients * transfer / trip / 1e6


@dataclass(frozen=True)
class Expected:
    """The expected throughput of a cell, and the term of the model that limits it."""

    mb_s: float
    """10^6 bytes per second that the application reads and writes."""
    iops: float
    """Application requests per second."""
    limit: str
    """Name of the term with the lowest rate: ``disks``, ``controller``, ``network``, ..."""
    terms: dict[str, float]
    """MB/s that each term alone allows, by name; unlimited terms are left out."""
    formula: str
    """The formula of the limiting term, as text."""
    source: str
    """The publication of the formula, as text."""


@dataclass(frozen=True)
class Found:
    """What was read back from the server, and affects how long a synchronous write takes."""

    placement: Placement | None = None
    """The places of files and log; None: as in a new file system."""
    flush_first: bool = False
    """Whether md waits for a flush before it writes the data of the same request: `raidproof.storage.array.md`."""


NOTHING_FOUND = Found()


def expected(hardware: Hardware, stack: StackSpec, access: Access, found: Found = NOTHING_FOUND) -> Expected | None:
    """Return the expected throughput of an access pattern on a stack; None if no term of the model limits it.

    For example, no term limits a local workload on disks without mechanics and without controllers. Reads and writes
    of a mixed load share the time: the total rate is the harmonic mean of read rate and write rate, weighted by their
    shares. The result is also None if the file system, the volume or the array works otherwise than the model assumes.
    """
    if not stack.volume.in_place or not stack.array.uses_members_alike:
        return None
    if access.read_share < 1 and not stack.filesystem.in_place:
        synced = seen_by_server(stack, access, write=True).sync_every is not None
        if synced or not access.sequential:
            return None
    sides: list[tuple[float, dict[str, float]]] = []
    if access.read_share:
        sides.append((access.read_share, _terms(hardware, stack, access, found, write=False)))
    if access.read_share < 1:
        sides.append((1 - access.read_share, _terms(hardware, stack, access, found, write=True)))
    terms: dict[str, float] = {}
    for name in _FORMULAS:
        needed = sum(share / side[name] for share, side in sides if name in side)
        if needed:
            terms[name] = 1 / needed
    if access.remote and NETWORK in terms:
        # The link is full-duplex, and `wire_mb_s` already counts both directions.
        terms[NETWORK] = min(side[NETWORK] for _, side in sides)
    if not terms:
        return None
    limit = min(terms, key=terms.__getitem__)
    rate = terms[limit]
    return Expected(rate, rate * 1e6 / access.size, limit, terms, _FORMULAS[limit], _SOURCES[limit])


def seen_by_server(stack: StackSpec, access: Access, *, write: bool) -> Access:
    """Return the access pattern at the server's file system: the client splits requests, and mount options add syncs.

    A client with mount option ``sync`` or ``noac`` syncs each write. A server with an ``async`` export never syncs.
    """
    if not access.remote:
        return access
    transfer = transfer_size(stack.mount, write=write)
    waits = access.sync_every
    if write and (stack.mount.sync or stack.mount.noac):
        waits = min(access.size, waits or access.size)
    # nfsd writes to the page cache, which merges writes for which no client waits. nfsd's reads use read-ahead.
    direct = access.direct and access.read_share > 0 and not access.sequential
    if write and access.direct and stack.export.sync:
        # A direct write is sent with FILE_SYNC, or a COMMIT follows at once.
        waits = waits or access.size
    kept = waits if stack.export.sync else None
    return replace(access, sync_every=kept, direct=direct, size=min(access.size, transfer))


def _terms(hardware: Hardware, stack: StackSpec, access: Access, found: Found, *, write: bool) -> dict[str, float]:
    served = seen_by_server(stack, access, write=write)
    if not write:
        served = replace(served, sync_every=None)
    below = disks(hardware, stack.array, served, served.size, write=write)
    members = hardware.of(stack.array.members)
    terms = {
        DISKS: below.mb_s,
        CONTROLLER: hardware.controller_cap(members, below.traffic, below.commands),
    }
    if access.remote:
        server = stack.link if stack.server_link is None else stack.server_link
        terms[NETWORK] = wire_mb_s(stack.link, server, access, transfer_size(stack.mount, write=write))
        terms[TRIPS] = round_trips_mb_s(stack.link, server, access, stack.mount, write=write)
    if write and served.sync_every is not None:
        terms[SYNC] = _sync_mb_s(hardware, stack, access, served, found, below.mb_s)
    return {name: rate for name, rate in terms.items() if rate != inf}


def _sync_mb_s(
    hardware: Hardware, stack: StackSpec, access: Access, served: Access, found: Found, without_sync_mb_s: float
) -> float:
    every = served.sync_every or served.size
    filesystem, room = stack.filesystem, room_of(hardware, stack.array)
    placement = assumed_placement(filesystem, stack.array, room, served)
    if found.placement is not None:
        placement = found.placement.completed(placement)
    walk = SyncWrites(
        hardware=hardware,
        spec=stack.array,
        placement=placement,
        access=replace(served, size=min(access.size, every)),
        every=every,
        external_log=hardware.members[filesystem.log] if filesystem.log else None,
        flush_first=found.flush_first,
        stripe_cache=stack.tuning.stripe_cache_size or STRIPE_CACHE,
    )
    seconds = sync_seconds(walk, without_sync_mb_s)
    if access.remote:
        server = stack.link if stack.server_link is None else stack.server_link
        transfer = transfer_size(stack.mount, write=True)
        seconds += round_trip_s(stack.link, server) + every / 1e6 / wire_mb_s(stack.link, server, access, transfer)
    return inf if seconds == 0 else access.streams * every / 1e6 / seconds


@dataclass(frozen=True)
class Ratio:
    """The comparison of a measured with the expected throughput."""

    share: float
    """Measured throughput / expected throughput."""
    flagged: bool
    """Whether ``share`` is less than `LEAST_SHARE`."""
    cause: str | None
    """The likely cause, if ``flagged``."""


def compare(measured_mb_s: float, expected: Expected) -> Ratio:
    """Compare a measurement in MB/s with the expected throughput."""
    share = measured_mb_s / expected.mb_s
    flagged = share < LEAST_SHARE
    return Ratio(share, flagged, likely_cause(expected.limit) if flagged else None)


def likely_cause(limit: str) -> str:
    """Return a likely cause of less throughput than expected, for a cell whose expected limit is this term."""
    return f"the model expects the limit {limit!r}; likely cause: {_LIKELY[limit]}"
