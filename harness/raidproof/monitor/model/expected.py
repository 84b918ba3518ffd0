"""What a cell should give: each term by its own formula, and the smallest of them binds."""

from dataclasses import dataclass, replace
from math import inf

from raidproof.monitor.model.access import Access
from raidproof.monitor.model.commit import COMMIT_SOURCE, server_commit_s
from raidproof.monitor.model.disks import disks
from raidproof.monitor.model.drive import RANDOM_SOURCE
from raidproof.monitor.model.hardware import Hardware
from raidproof.monitor.model.level import SMALL_WRITE_SOURCE
from raidproof.monitor.model.network import WIRE_SOURCE, round_trip_s, round_trips_mb_s, transfer_size, wire_mb_s
from raidproof.storage.stack import StackSpec

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


@dataclass(frozen=True)
class Expected:
    """What the hardware should have given."""

    mb_s: float
    """10^6 bytes of the application a second."""
    iops: float
    """Its requests a second."""
    limit: str
    """The term that binds."""
    terms: dict[str, float]
    """MB/s by each term alone; one that limits nothing is left out."""
    formula: str
    """The binding one, in words."""
    source: str


def expected(hardware: Hardware, stack: StackSpec, access: Access) -> Expected | None:
    """Return what the hardware should give, or None if nothing that was told limits it (disks without mechanics).

    Reads and writes of a mix share the time: the whole is the harmonic mean of both.
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
        # Full duplex: both directions at once, which the wire's own formula counts already.
        terms[NETWORK] = min(side[NETWORK] for _, side in sides)
    if not terms:
        return None
    limit = min(terms, key=terms.__getitem__)
    rate = terms[limit]
    return Expected(rate, rate * 1e6 / access.size, limit, terms, _FORMULAS[limit], _SOURCES[limit])


def seen_by_server(stack: StackSpec, access: Access, *, write: bool) -> Access:
    """Return the access as the server's file system sees it: cut to the transfer size, and waiting as the mount says.

    A ``sync`` mount, or one with ``noac``, waits for each request; an ``async`` export waits for nothing.
    """
    if not access.remote:
        return access
    transfer = transfer_size(stack.mount, write=write)
    waits = access.sync_every
    if write and (stack.mount.sync or stack.mount.noac):
        waits = min(access.size, waits or access.size)
    # nfsd writes into its page cache: what no client waits for is merged there. Its reads are read ahead.
    direct = access.direct and access.read_share > 0 and not access.sequential
    if write and access.direct and stack.export.sync:
        # A direct write is asked for with FILE_SYNC, or followed by a COMMIT at once.
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
