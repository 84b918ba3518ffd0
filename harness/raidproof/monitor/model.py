"""The throughput that the hardware should give, in closed formulas: disks, network, commit latency."""

from dataclasses import dataclass, replace
from math import ceil, inf

from raidproof.monitor.disk_model import (
    COMMIT_SOURCE,
    RANDOM_SOURCE,
    SMALL_WRITE_SOURCE,
    Hardware,
    disks,
    server_commit_s,
)
from raidproof.storage.link import LinkSpec
from raidproof.storage.mount import MountSpec
from raidproof.storage.stack import StackSpec
from raidproof.workload.workload import Access

EFFICIENCY = 1448 / 1538
"""TCP payload over wire bytes of a full Ethernet frame: 1500 bytes less IP (20), TCP (20) and its timestamps (12),
plus Ethernet's preamble, header, check sum and gap (38). RFC 894, RFC 7323, IEEE 802.3."""
WIRE_SOURCE = "payload over frame, 1448/1538 (RFC 894, RFC 7323, IEEE 802.3)"
RPC_BYTES = 200
"""Approximate overhead in bytes of call, compound and reply of one READ or WRITE (RFC 5531, RFC 8881)."""
SLOTS = 64
"""Outstanding requests of a client of NFSv4.1 and later: the default of nfs.max_session_slots."""
DEFAULT_TRANSFER = 1 << 20
"""rsize and wsize in bytes where none is requested, if the server grants it."""

DISKS, CONTROLLER, NETWORK, TRIPS, SYNC = "disks", "controller", "network", "round trips", "sync latency"
_FORMULAS = {
    DISKS: "rate of the slowest member x members that work at once / requests to members for each of the application",
    CONTROLLER: "limit of the fullest controller / its share of what goes to the members",
    NETWORK: "link rate x payload of a frame, of the clients' links together or of the server's",
    TRIPS: "bytes that may be outstanding / round trip",
    SYNC: "streams x bytes between two waits / (round trip + transfer + data write + journal write + flush)",
}
_SOURCES = {
    DISKS: f"{RANDOM_SOURCE}; {SMALL_WRITE_SOURCE}",
    CONTROLLER: "a shared resource is full when its members' demands add up to its limit (Patterson et al. 1988)",
    NETWORK: WIRE_SOURCE,
    TRIPS: "Little's law: throughput = outstanding / latency (Little, Operations Research 9(3), 1961)",
    SYNC: COMMIT_SOURCE,
}
LEAST_SHARE = 0.7
"""Cells with a lower fraction of the expected throughput are flagged."""
_LIKELY = {
    DISKS: "the members do more than the formula counts: requests that are split, misaligned or not whole stripes, "
    "a log on the same heads, or one slow member",
    CONTROLLER: "the controller is shared with more traffic than this, or its commands are smaller than the stripe's",
    NETWORK: "the link is not filled: losses, a small window, or a processor that cannot keep up",
    TRIPS: "fewer requests are outstanding than the client may have, or they are smaller than rsize and wsize",
    SYNC: "each wait costs more than one data write and one log write: parity reads first, or several flushes",
}


def round_trip_s(client: LinkSpec, server: LinkSpec) -> float:
    """Return the round-trip time in seconds: each side delays what it sends."""
    return (client.delay + server.delay) / 1e9


def transfer_size(mount: MountSpec, *, write: bool) -> int:
    """Return the size in bytes of one READ or WRITE."""
    return (mount.wsize if write else mount.rsize) or DEFAULT_TRANSFER


def wire_mb_s(client: LinkSpec, server: LinkSpec, access: Access, transfer: int) -> float:
    """Return the MB/s of file data over full-duplex links: each client has its own, and all share the server's."""
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

    The page cache keeps a client's slots full; a direct request has only its own parts outstanding. Connections
    (nconnect) share the slots of one session; before NFSv4.1 the slots of a client have no practical limit.
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
    """The throughput that the hardware should give."""

    mb_s: float
    """Application bytes per second / 10^6."""
    iops: float
    """Application requests per second."""
    limit: str
    """The term with the lowest rate."""
    terms: dict[str, float]
    """MB/s by each term alone; unlimited terms are left out."""
    formula: str
    """The formula of the limiting term, as text."""
    source: str


def expected(hardware: Hardware, stack: StackSpec, access: Access) -> Expected | None:
    """Return the throughput that the hardware should give; None if no term limits it (disks without mechanics).

    Reads and writes of a mixed load share the time: the total is the harmonic mean of both.
    """
    sides: list[tuple[float, dict[str, float]]] = []
    if access.read_share:
        sides.append((access.read_share, _terms(hardware, stack, access, write=False)))
    if access.read_share < 1:
        sides.append((1 - access.read_share, _terms(hardware, stack, access, write=True)))
    terms: dict[str, float] = {}
    for name in _FORMULAS:
        needed = sum(share / side[name] for share, side in sides if name in side)
        if needed:
            terms[name] = 1 / needed
    if access.remote and NETWORK in terms:
        # Full duplex: both directions at once, which `wire_mb_s` counts already.
        terms[NETWORK] = min(side[NETWORK] for _, side in sides)
    if not terms:
        return None
    limit = min(terms, key=terms.__getitem__)
    rate = terms[limit]
    return Expected(rate, rate * 1e6 / access.size, limit, terms, _FORMULAS[limit], _SOURCES[limit])


def seen_by_server(stack: StackSpec, access: Access, *, write: bool) -> Access:
    """Return the access as the server's file system sees it: split into transfers, with the waits of the mount.

    A mount with ``sync`` or ``noac`` waits for each request; an ``async`` export never waits.
    """
    if not access.remote:
        return access
    transfer = transfer_size(stack.mount, write=write)
    waits = access.sync_every
    if write and (stack.mount.sync or stack.mount.noac):
        waits = min(access.size, waits or access.size)
    # nfsd writes to its page cache, which merges writes without a waiting client. Its reads use read-ahead.
    direct = access.direct and access.read_share > 0 and not access.sequential
    if write and access.direct and stack.export.sync:
        # A direct write is sent with FILE_SYNC, or a COMMIT follows at once.
        waits = waits or access.size
    kept = waits if stack.export.sync else None
    return replace(access, sync_every=kept, direct=direct, size=min(access.size, transfer))


def _terms(hardware: Hardware, stack: StackSpec, access: Access, *, write: bool) -> dict[str, float]:
    served = seen_by_server(stack, access, write=write)
    if not write:
        served = replace(served, sync_every=None)
    below = disks(hardware, stack.array, served, served.size, write=write)
    members = hardware.of(stack.array.members)
    found = {
        DISKS: below.mb_s,
        CONTROLLER: hardware.controller_cap(members, below.traffic, below.commands),
    }
    if access.remote:
        server = stack.link if stack.server_link is None else stack.server_link
        found[NETWORK] = wire_mb_s(stack.link, server, access, transfer_size(stack.mount, write=write))
        found[TRIPS] = round_trips_mb_s(stack.link, server, access, stack.mount, write=write)
    if write and served.sync_every is not None:
        found[SYNC] = _sync_mb_s(hardware, stack, access, served.sync_every)
    return {name: rate for name, rate in found.items() if rate != inf}


def _sync_mb_s(hardware: Hardware, stack: StackSpec, access: Access, every: int) -> float:
    log = hardware.members[stack.filesystem.log] if stack.filesystem.log else None
    seconds = server_commit_s(hardware, stack.array, every, external_log=log)
    if access.remote:
        server = stack.link if stack.server_link is None else stack.server_link
        transfer = transfer_size(stack.mount, write=True)
        seconds += round_trip_s(stack.link, server) + every / 1e6 / wire_mb_s(stack.link, server, access, transfer)
    return inf if seconds == 0 else access.streams * every / 1e6 / seconds


@dataclass(frozen=True)
class Ratio:
    """Measured over expected throughput."""

    share: float
    flagged: bool
    cause: str | None
    """The likely cause for a flagged cell, by the term that should have been the limit."""


def compare(measured_mb_s: float, expected: Expected) -> Ratio:
    """Compare a measurement in MB/s with the expected throughput."""
    share = measured_mb_s / expected.mb_s
    flagged = share < LEAST_SHARE
    return Ratio(share, flagged, likely_cause(expected.limit) if flagged else None)


def likely_cause(limit: str) -> str:
    """Return why a cell may stay below the expected throughput, by the term that should have been its limit."""
    return f"expected the {limit} to be the limit; {_LIKELY[limit]}"
