"""The bottleneck of a cell: the resource that limited its throughput, by thresholds in a fixed order, and why."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import NamedTuple

from raidproof.core.units import KIB, MIB
from raidproof.monitor.monitor import Derived, EngineUse, busier
from raidproof.storage.array import ArraySpec

FULL = 0.9
"""Utilization from which a resource counts as full: its mean queue length is about ten (M/M/1)."""
STANDS_OUT = 0.2
"""Difference between the utilization of one full member and the median of the others, from which this member is the
limit. With rotating parity, healthy members differ by at most 0.1."""
ENGINE_FULL = 0.85
"""Fraction of one core from which the disk engine counts as full: Python's global interpreter lock allows at most one
core, and a shared host rarely gives the engine a whole core."""
LATE = 0.1
"""Mean delay of the engine's replies / mean service time of the simulated disks; above it, the engine is the limit."""
MOSTLY = 0.7
"""Utilization of the host's cores from which they are the limit, if all disks are idle and calls are outstanding: a
call passes from core to core, and meanwhile the other cores have no work."""
IDLE = 0.5
"""Utilization below which a disk counts as idle: it could do at least twice the work."""
LINK_FULL = 0.9
"""Fraction of the link's rate from which the link counts as full: up to a tenth goes to headers of Ethernet, IP and
TCP and to acknowledgements, which the interface does not count on both ends."""
ALWAYS_WAITING = 0.7
"""Mean number of calls in flight from which a client waits for the server nearly all the time."""
CACHED = 0.5
"""Fraction of the applications' reads without network traffic, from which the client's cache is the limit."""
SENT_AGAIN = 0.01
"""Fraction of retransmitted calls from which retransmission is the cause: TCP then spends its time in timeouts."""
READS_BACK = 0.1
"""Blocks read per block written from which read-modify-write is reported."""
SMALL_CALL = 64 * KIB
"""Size in bytes of a READ or WRITE below which the call takes longer than the transfer of its data: 64 KiB take 0.5 ms
at 1 Gbit/s, about the fixed time of a call."""
SPLIT = 4.0
"""Requests to the array per application request from which splitting is reported."""
WASTE = 1.2
"""Bytes written to the members / bytes that whole stripes need, from which the excess is reported: journals take up to
a tenth."""
FLOOD = 4.0
"""Bytes written to the members / bytes that whole stripes need, from which the excess is reported before other causes.
A small block written alone with its parity takes 1.5 times the bytes that whole stripes need on a RAID5 of four."""
OF_THE_TIME = 0.5
"""Mean number of COMMITs in flight from which waiting for COMMIT is the cause."""


def percent(share: float) -> str:
    """Return a fraction as a percentage."""
    return f"{share * 100:.0f} %"


def size(number: float) -> str:
    """Return a number of bytes as text with a unit, rounded to three digits."""
    if number >= MIB:
        return f"{number / MIB:.3g} MiB"
    return f"{number / KIB:.3g} KiB" if number >= KIB else f"{number:.0f} bytes"


def milliseconds(number: float) -> str:
    """Return a time in ms as text."""
    return f"{number:.0f} ms" if number >= 10 else f"{number:.1f} ms"


def count(number: float) -> str:
    """Return a number as text, rounded."""
    return f"{number:.0f}" if number >= 1 else f"{number:.2g}"


@dataclass(frozen=True)
class Facts:
    """The measurements and settings of a cell that the rules read."""

    derived: Derived
    array: ArraySpec
    wsize: int | None = None
    """Effective wsize of the mount in bytes; None: unknown."""
    sync: bool = True
    """Whether the export is ``sync``."""
    engine: EngineUse | None = None
    """Utilization of the disk engine; None for real disks, and for disks without mechanics."""
    link_bytes_s: float | None = None
    """Bytes per second of the server's link in one direction; None: unlimited."""

    @property
    def members_busy(self) -> dict[str, float]:
        """Utilization of each member by serial: of the simulated disk, or, if unknown, by the kernel's counters."""
        if self.engine is not None and self.engine.members_busy:
            return self.engine.members_busy
        return {serial: use.busy for serial, use in (self.derived.members or {}).items()}

    @property
    def link(self) -> float | None:
        """Bytes per second in the busier direction of the server's network links; None: unknown."""
        server = self.derived.machines.get(self.derived.server)
        if server is None or server.received_bytes_s is None or server.sent_bytes_s is None:
            return None
        return max(server.received_bytes_s, server.sent_bytes_s)


class Limit(StrEnum):
    """The resource that limited a cell."""

    DISKS = "disks"
    ONE_DISK = "one disk"
    CONTROLLER = "controller"
    NETWORK = "network"
    LATENCY = "latency"
    """No resource is full: each operation waits for the previous one."""
    ENGINE = "engine"
    HOST_CPU = "host cpu"
    SERVER_CPU = "server cpu"
    CLIENT_CPU = "client cpu"
    CLIENT_CACHE = "client cache"
    UNKNOWN = "unknown"

    @property
    def rankable(self) -> bool:
        """Whether a cell with this limit may be ranked: the limit is not one of the simulating host or machines."""
        return self not in _OF_THE_RIG


_OF_THE_RIG = {Limit.ENGINE, Limit.HOST_CPU, Limit.SERVER_CPU, Limit.CLIENT_CPU, Limit.CLIENT_CACHE}


def find_limit(facts: Facts) -> Limit:
    """Return the resource that limited a cell: the first in the order of `_LIMITS` that was full."""
    for limit, holds in _LIMITS:
        if holds(facts):
            return limit
    return Limit.UNKNOWN


def _engine_full(facts: Facts) -> bool:
    return facts.engine is not None and facts.engine.cpu_share >= ENGINE_FULL


def _engine_late(facts: Facts) -> bool:
    # Disks without mechanics have no service time. This rule comes after all full resources: late replies in a burst
    # do not reduce the throughput as long as heads or links have work.
    engine = facts.engine
    return engine is not None and engine.service_ns_mean > 0 and engine.late_ns_mean > LATE * engine.service_ns_mean


def _host_cpu(facts: Facts) -> bool:
    # If the simulated disks are full, a busy host delays only requests that wait for the disks in any case.
    host, calls, busy = facts.derived.host_cpu, facts.derived.calls, facts.members_busy.values()
    if _full(host):
        return not _simulated_disks_full(facts)
    unanswered = calls is not None and calls.waiting >= ALWAYS_WAITING
    return host is not None and host >= MOSTLY and unanswered and max(busy, default=1.0) < IDLE


def _simulated_disks_full(facts: Facts) -> bool:
    engine = facts.engine
    return (
        engine is not None
        and max((*engine.members_busy.values(), *engine.controllers_busy.values()), default=0) >= FULL
    )


def _full(share: float | None) -> bool:
    return share is not None and share >= FULL


def _controller(facts: Facts) -> bool:
    return facts.engine is not None and _full(max(facts.engine.controllers_busy.values(), default=None))


def _one_disk(facts: Facts) -> bool:
    busy = facts.members_busy
    name = max(busy, key=lambda serial: busy[serial], default=None)
    more = None if name is None else busier(name, busy)
    return name is not None and _full(busy[name]) and more is not None and more >= STANDS_OUT


def _disks(facts: Facts) -> bool:
    busy = facts.members_busy.values()
    return _full(median(busy) if busy else None)


def _network(facts: Facts) -> bool:
    return facts.link_bytes_s is not None and facts.link is not None and facts.link >= LINK_FULL * facts.link_bytes_s


def _server_cpu(facts: Facts) -> bool:
    server = facts.derived.machines.get(facts.derived.server)
    return _full(server.cpu if server else None)


def _client_cpu(facts: Facts) -> bool:
    # All clients must be full: one busy client does not slow the others down.
    shares = [use.cpu for use in facts.derived.clients.values()]
    return bool(shares) and all(_full(share) for share in shares)


def _client_cache(facts: Facts) -> bool:
    read, wire, written = facts.derived.read_bytes, facts.derived.wire_read_bytes, facts.derived.written_bytes
    if not read or wire is None:
        return False
    return read > (written or 0) and wire < (1 - CACHED) * read


def _latency(facts: Facts) -> bool:
    calls, array = facts.derived.calls, facts.derived.array
    server = facts.derived.machines.get(facts.derived.server)
    # A resource that was not monitored could have been full.
    if not facts.members_busy or server is None or server.cpu is None:
        return False
    if calls is not None:
        return calls.waiting >= ALWAYS_WAITING
    # A workload on the server can wait only for the array.
    return not facts.derived.clients and array is not None and array.in_flight >= ALWAYS_WAITING


# A full engine or host comes first, because it distorts the utilization of all other resources.
_LIMITS: tuple[tuple[Limit, Callable[[Facts], bool]], ...] = (
    (Limit.ENGINE, _engine_full),
    (Limit.HOST_CPU, _host_cpu),
    (Limit.CONTROLLER, _controller),
    (Limit.ONE_DISK, _one_disk),
    (Limit.DISKS, _disks),
    (Limit.NETWORK, _network),
    (Limit.CLIENT_CACHE, _client_cache),
    (Limit.SERVER_CPU, _server_cpu),
    (Limit.CLIENT_CPU, _client_cpu),
    (Limit.ENGINE, _engine_late),
    (Limit.LATENCY, _latency),
)


def explain(facts: Facts, limit: Limit) -> str:
    """Return the sentence of the first rule in `RULES` that applies to the measurements of a cell."""
    return next(sentence for rule in RULES if (sentence := rule(facts, limit)))


def engine(facts: Facts, limit: Limit) -> str | None:
    """Explain that the disk engine was too slow for the simulated disks."""
    use = facts.engine
    if limit is not Limit.ENGINE or use is None:
        return None
    if use.cpu_share >= ENGINE_FULL:
        return f"the disk engine used {percent(use.cpu_share)} of a core: this host cannot simulate these disks faster"
    return (
        f"the disk engine replied {use.late_ns_mean / 1e6:.2f} ms late on average, and a request takes the simulated "
        f"disks {use.service_ns_mean / 1e6:.2f} ms: this host is too slow to simulate these disks"
    )


def host_cpu(facts: Facts, limit: Limit) -> str | None:
    """Explain that the CPU of this host is full; all machines are processes on this host."""
    if limit is not Limit.HOST_CPU or facts.derived.host_cpu is None:
        return None
    busy = percent(facts.derived.host_cpu)
    return f"this host's cores are busy {busy} of the time: the CPU was measured, not the disks"


def resync(facts: Facts, _limit: Limit) -> str | None:
    """Explain that md ran a resync, check or similar action during the measurement."""
    doing = facts.derived.syncing
    return f"a {' and a '.join(doing)} of the array ran during the measurement" if doing else None


def sent_again(facts: Facts, _limit: Limit) -> str | None:
    """Explain that clients retransmitted calls."""
    calls = facts.derived.calls
    if calls is None or calls.sent_again < max(2.0, SENT_AGAIN * calls.calls):
        return None
    return f"{calls.sent_again} of {calls.calls} calls were retransmitted: the network or the server lost them"


def controller(facts: Facts, limit: Limit) -> str | None:
    """Explain that a controller is full."""
    if limit is not Limit.CONTROLLER or facts.engine is None:
        return None
    busy = facts.engine.controllers_busy
    fullest = max(busy, key=lambda name: busy[name])
    members = facts.members_busy.values()
    rest = f", its disks {percent(median(members))}" if members else ""
    return f"controller {fullest} is busy {percent(busy[fullest])} of the time{rest}"


def one_disk(facts: Facts, limit: Limit) -> str | None:
    """Explain that one member is full, and busier than the other members."""
    if limit is not Limit.ONE_DISK:
        return None
    busy = facts.members_busy
    slowest = max(busy, key=lambda serial: busy[serial])
    others = median(share for serial, share in busy.items() if serial != slowest)
    return f"{slowest} is busy {percent(busy[slowest])} of the time, the other members {percent(others)}"


def link(facts: Facts, limit: Limit) -> str | None:
    """Explain that the server's network link is full."""
    if limit is not Limit.NETWORK or facts.link is None or facts.link_bytes_s is None:
        return None
    return f"the server's network link is full: {facts.link / 1e6:.0f} of {facts.link_bytes_s / 1e6:.0f} MB/s"


def client_cache(facts: Facts, limit: Limit) -> str | None:
    """Explain that most of the data was read from the client's cache."""
    read, wire = facts.derived.read_bytes, facts.derived.wire_read_bytes
    if limit is not Limit.CLIENT_CACHE or not read or wire is None:
        return None
    return f"{percent(max(CACHED, 1 - wire / read))} of the bytes read came from the client's cache"


def guest_cpu(facts: Facts, limit: Limit) -> str | None:
    """Explain that the CPU of the server, or of every client, is full."""
    derived = facts.derived
    calls = f", with {derived.calls_per_mb:.0f} NFS calls per MB" if derived.calls_per_mb else ""
    if limit is Limit.SERVER_CPU and (use := derived.machines.get(derived.server)) and use.cpu is not None:
        return f"the server's CPU is busy {percent(use.cpu)} of the time{calls}"
    if limit is Limit.CLIENT_CPU:
        share = min(use.cpu for use in derived.clients.values() if use.cpu is not None)
        return f"the client's CPU is busy {percent(share)} of the time{calls}"
    return None


def read_modify_write(facts: Facts, _limit: Limit) -> str | None:
    """Explain that parity is computed from blocks that must be read first."""
    back, array, stripe = facts.derived.member_reads_per_written, facts.derived.array, facts.array.stripe_size
    if not facts.array.kind.parity or back is None or back < READS_BACK or not stripe or array is None:
        return None
    begin = f"RAID{facts.array.level} reads {back:.1f} blocks for each block written"
    asked = array.mean_bytes
    # The server may merge WRITEs before it writes: the mean request to the array shows whether it did.
    if facts.wsize is not None and facts.wsize < stripe and asked is not None and asked <= 2 * facts.wsize:
        return f"{begin}: wsize {size(facts.wsize)} never fills a {size(stripe)} stripe"
    if asked is not None and asked < stripe:
        return f"{begin}: a request to the array has {size(asked)}, a stripe has {size(stripe)}"
    return f"{begin}: requests are not aligned to the stripes of {size(stripe)}"


def commits(facts: Facts, _limit: Limit) -> str | None:
    """Explain that the clients wait for COMMIT most of the time."""
    use = facts.derived.commits
    if use is None or not use.calls or use.mean_exec_ms is None or use.waiting < OF_THE_TIME:
        return None
    rate = use.calls / facts.derived.seconds
    return f"each fsync waits {milliseconds(use.mean_exec_ms)} for its COMMIT: {count(rate)} COMMITs per second"


def synchronous_writes(facts: Facts, limit: Limit) -> str | None:
    """Explain that each client has one WRITE in flight at a time and waits for its reply."""
    use, size_of = facts.derived.writes, facts.derived.mean_write_bytes
    clients = max(1, len(facts.derived.clients))
    if limit is not Limit.LATENCY or use is None or use.mean_rtt_ms is None or size_of is None:
        return None
    if not ALWAYS_WAITING <= use.waiting <= 2.0 * clients:
        return None
    rate = use.calls / facts.derived.seconds
    reply = "waits for the disks" if facts.sync else "is acknowledged from memory"
    took = milliseconds(use.mean_rtt_ms)
    return f"each WRITE of {size(size_of)} {reply} and takes {took}: {count(rate)} WRITEs per second"


def small_calls(facts: Facts, limit: Limit) -> str | None:
    """Explain that READs or WRITEs are small, so that each MB takes many round trips."""
    derived = facts.derived
    kinds = (("WRITE", derived.writes, derived.mean_write_bytes), ("READ", derived.reads, derived.mean_read_bytes))
    most = max(kinds, key=lambda kind: kind[1].calls if kind[1] else 0)
    name, use, mean = most
    if limit is not Limit.LATENCY or use is None or mean is None or mean >= SMALL_CALL or use.mean_rtt_ms is None:
        return None
    return (
        f"each MB takes {count(1e6 / mean)} round trips of {milliseconds(use.mean_rtt_ms)}: "
        f"a {name} carries {size(mean)}"
    )


def amplification(facts: Facts, _limit: Limit) -> str | None:
    """Explain that the members write much more than the data and its redundancy."""
    more, needed = facts.derived.write_amplification, facts.array.raid.written
    if more is None or more < WASTE * needed:
        return None
    return (
        f"the members write {more:.1f} bytes per byte that the workload writes, where RAID{facts.array.level} needs "
        f"{needed:.1f}: the rest is log, metadata and padding"
    )


def flood(facts: Facts, limit: Limit) -> str | None:
    """Explain that the members write many times the data and its redundancy."""
    more = facts.derived.write_amplification
    return amplification(facts, limit) if more is not None and more >= FLOOD * facts.array.raid.written else None


def splitting(facts: Facts, _limit: Limit) -> str | None:
    """Explain that the applications' requests reach the array in pieces."""
    pieces, array, most = facts.derived.splitting, facts.derived.array, facts.derived.request_limit
    if pieces is None or pieces < SPLIT or array is None or array.mean_bytes is None:
        return None
    because = f"; the array accepts at most {size(most)} per request" if most and array.mean_bytes > most / 2 else ""
    return (
        f"each request of the workload reaches the array in {pieces:.0f} pieces of {size(array.mean_bytes)}{because}"
    )


def disks(facts: Facts, limit: Limit) -> str | None:
    """Explain that all members are full."""
    if limit is not Limit.DISKS:
        return None
    uses = (facts.derived.members or {}).values()
    sizes = [use.mean_bytes for use in uses if use.mean_bytes is not None]
    rest = f", with requests of {size(median(sizes))}" if sizes else ""
    return f"the members are busy {percent(median(facts.members_busy.values()))} of the time{rest}"


def waiting(facts: Facts, limit: Limit) -> str | None:
    """Explain that no resource is full although requests are in flight all the time."""
    if limit is not Limit.LATENCY:
        return None
    calls, array = facts.derived.calls, facts.derived.array
    if calls is not None and calls.mean_rtt_ms is not None:
        return (
            f"no resource is full: {calls.waiting:.1f} calls are in flight, each for {milliseconds(calls.mean_rtt_ms)}"
        )
    each = f", each for {milliseconds(array.mean_ms)}" if array is not None and array.mean_ms is not None else ""
    return f"no resource is full: {array.in_flight if array else 0:.1f} requests wait for the array{each}"


def nothing(facts: Facts, _limit: Limit) -> str:
    """Explain that no measured resource is full, with the utilizations."""
    busy = facts.members_busy.values()
    seen = [f"the busiest member {percent(max(busy))}"] if busy else []
    seen += [f"{name}'s CPU {percent(use.cpu)}" for name, use in facts.derived.machines.items() if use.cpu is not None]
    missing = f"; not measured: {', '.join(facts.derived.unknown)}" if facts.derived.unknown else ""
    return f"no measured resource is full: {', '.join(seen) or 'no utilization could be read'}{missing}"


RULES: tuple[Callable[[Facts, Limit], str | None], ...] = (
    engine,
    host_cpu,
    resync,
    sent_again,
    controller,
    one_disk,
    link,
    client_cache,
    guest_cpu,
    flood,
    read_modify_write,
    commits,
    amplification,
    splitting,
    synchronous_writes,
    small_calls,
    disks,
    waiting,
    nothing,
)


class Cause(NamedTuple):
    """The resource that limited a cell, and the explanation."""

    limit: Limit
    sentence: str
    """The explanation, as text for users."""

    @property
    def rankable(self) -> bool:
        """Whether the cell may be ranked."""
        return self.limit.rankable


def find_cause(
    derived: Derived | None,
    array: ArraySpec,
    *,
    wsize: int | None = None,
    sync: bool = True,
    engine: EngineUse | None = None,
    link_bytes_s: float | None = None,
) -> Cause:
    """Return the resource that limited a cell, and the explanation.

    ``derived``: measurements; None: the server was not monitored, so that the limit is unknown. ``wsize``: effective
    wsize of the mount in bytes. ``sync``: whether the export is ``sync``. ``link_bytes_s``: bytes per second of the
    server's link in one direction.
    """
    if derived is None:
        return Cause(Limit.UNKNOWN, "the limit is unknown: the server was not monitored")
    facts = Facts(derived, array, wsize, sync, engine, link_bytes_s)
    limit = find_limit(facts)
    return Cause(limit, explain(facts, limit))
