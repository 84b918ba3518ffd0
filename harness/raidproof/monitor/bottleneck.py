"""The bottleneck of a cell: what limited it, by thresholds in a fixed order, and the cause in a sentence."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import NamedTuple

from raidproof.core.units import KIB, MIB
from raidproof.monitor.monitor import Derived, EngineUse, busier
from raidproof.storage.array import ArraySpec, capacity
from raidproof.storage.array.spec import PARITY_LEVELS

FULL = 0.9
"""Share of the time from which a resource counts as full: a queue before it is ten long on average (M/M/1)."""
STANDS_OUT = 0.2
"""How much busier than the others one member has to be. Parity that rotates keeps healthy members within a tenth."""
ENGINE_FULL = 0.85
"""Of one core: Python's lock lets the engine use no more, and a host that is shared rarely gives it all of that."""
LATE = 0.1
"""Lateness over service time from which the disks that were played are not those that were asked for."""
MOSTLY = 0.7
"""Share of the host's cores from which they are what is waited for, if disks are idle and calls are not answered: a
call passes from core to core, and while it does the others have nothing to do."""
IDLE = 0.5
"""Busy share below which a disk has time left for twice as much."""
LINK_FULL = 0.9
"""Of the link's rate; Ethernet, IP and TCP with acknowledgements take up to a tenth that the interface does not count
on both ends."""
ALWAYS_WAITING = 0.7
"""Calls in flight from which somebody is waiting for the server nearly all the time."""
CACHED = 0.5
"""Share of what the applications read that never crossed the network."""
SENT_AGAIN = 0.01
"""Share of calls that were sent again: with more, TCP spends its time in timeouts."""
READS_BACK = 0.1
"""Blocks read for each one written from which read-modify-write is worth telling."""
SMALL_CALL = 64 * KIB
"""Bytes of a READ or WRITE below which the call costs more than what it carries: 64 KiB take 0.5 ms at 1 Gbit/s,
which is about what a call costs by itself."""
SPLIT = 4.0
"""Requests that the array gets for each of the applications' from which splitting is worth telling."""
WASTE = 1.2
"""Bytes written to the members over those that whole stripes need, from which the excess is worth telling: journals
take up to a tenth."""
FLOOD = 4.0
"""The same, from which the excess is the cause, whatever else there is: a small block that is written alone, with its
parity, comes to 1.5 times what a RAID5 of four needs."""
OF_THE_TIME = 0.5
"""Share of the time that is spent waiting for one thing, from which it is the cause."""


def percent(share: float) -> str:
    """Write a share."""
    return f"{share * 100:.0f} %"


def size(number: float) -> str:
    """Write a number of bytes, which need not be round."""
    if number >= MIB:
        return f"{number / MIB:.3g} MiB"
    return f"{number / KIB:.3g} KiB" if number >= KIB else f"{number:.0f} bytes"


def milliseconds(number: float) -> str:
    """Write a time."""
    return f"{number:.0f} ms" if number >= 10 else f"{number:.1f} ms"


def count(number: float) -> str:
    """Write how many, roughly."""
    return f"{number:.0f}" if number >= 1 else f"{number:.2g}"


@dataclass(frozen=True)
class Facts:
    """All that the rules look at."""

    derived: Derived
    array: ArraySpec
    wsize: int | None = None
    """Bytes, as effective on the mount."""
    sync: bool = True
    """Of the export."""
    engine: EngineUse | None = None
    """None where the disks are real, or have no mechanics."""
    link_bytes_s: float | None = None
    """What the server's link carries in one direction; None has no limit."""

    @property
    def members_busy(self) -> dict[str, float]:
        """Share of the time by serial: as the simulated disks say, else as the kernel does."""
        if self.engine is not None and self.engine.members_busy:
            return self.engine.members_busy
        return {serial: use.busy for serial, use in (self.derived.members or {}).items()}

    @property
    def link(self) -> float | None:
        """Bytes a second in the busier direction of the server's links."""
        server = self.derived.machines.get(self.derived.server)
        if server is None or server.received_bytes_s is None or server.sent_bytes_s is None:
            return None
        return max(server.received_bytes_s, server.sent_bytes_s)

    @property
    def stripe(self) -> int | None:
        """Bytes of data in a whole stripe; None for a mirror."""
        geometry = self.array.geometry
        return geometry.stripe_unit * geometry.data_disks if geometry else None

    @property
    def needed(self) -> float:
        """Bytes that the members have to write for each byte of data, in whole stripes."""
        return len(self.array.members) * MIB / capacity(self.array, MIB)


class Limit(StrEnum):
    """What kept a cell from being faster."""

    DISKS = "disks"
    ONE_DISK = "one disk"
    CONTROLLER = "controller"
    NETWORK = "network"
    LATENCY = "latency"
    """Nothing is full: each operation waits for the one before."""
    ENGINE = "engine"
    HOST_CPU = "host cpu"
    SERVER_CPU = "server cpu"
    CLIENT_CPU = "client cpu"
    CLIENT_CACHE = "client cache"
    UNKNOWN = "unknown"

    @property
    def rankable(self) -> bool:
        """Whether the figure says something of the configuration, and not of the machine that played it."""
        return self not in _OF_THE_RIG


_OF_THE_RIG = {Limit.ENGINE, Limit.HOST_CPU, Limit.SERVER_CPU, Limit.CLIENT_CPU, Limit.CLIENT_CACHE}


def find_limit(facts: Facts) -> Limit:
    """Return the first thing that was full; the rig's own limits come before those of what it plays."""
    for limit, holds in _LIMITS:
        if holds(facts):
            return limit
    return Limit.UNKNOWN


def _engine_full(facts: Facts) -> bool:
    return facts.engine is not None and facts.engine.cpu_share >= ENGINE_FULL


def _engine_late(facts: Facts) -> bool:
    # Disks without mechanics have no time to be late for. Looked at only where nothing is full: late answers in a
    # burst cost nothing as long as heads or links have work.
    engine = facts.engine
    return engine is not None and engine.service_ns_mean > 0 and engine.late_ns_mean > LATE * engine.service_ns_mean


def _host_cpu(facts: Facts) -> bool:
    # Where simulated disks are the busy ones, a busy host delays only what waits for them anyway.
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
    # All of them: one that has more to do than the others does not keep those from doing more.
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
    # That nothing is full can only be said of what was seen.
    if not facts.members_busy or server is None or server.cpu is None:
        return False
    if calls is not None:
        return calls.waiting >= ALWAYS_WAITING
    # On the server itself: whoever waits, waits for the array.
    return not facts.derived.clients and array is not None and array.in_flight >= ALWAYS_WAITING


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
    """Return what the first rule that applies says."""
    return next(said for rule in RULES if (said := rule(facts, limit)))


def engine(facts: Facts, limit: Limit) -> str | None:
    """The disk engine could not keep up."""
    use = facts.engine
    if limit is not Limit.ENGINE or use is None:
        return None
    if use.cpu_share >= ENGINE_FULL:
        return f"the disk engine used {percent(use.cpu_share)} of a core: this host cannot play these disks any faster"
    return (
        f"the disk engine answered {use.late_ns_mean / 1e6:.2f} ms late on average, and the disks that it plays take "
        f"{use.service_ns_mean / 1e6:.2f} ms: the host was too slow for them"
    )


def host_cpu(facts: Facts, limit: Limit) -> str | None:
    """The host, on which all machines are processes, had nothing left."""
    if limit is not Limit.HOST_CPU or facts.derived.host_cpu is None:
        return None
    return (
        f"the host's cores are busy {percent(facts.derived.host_cpu)} of the time: its CPU was measured, not the disks"
    )


def resync(facts: Facts, _limit: Limit) -> str | None:
    """The array was busy with itself."""
    doing = facts.derived.syncing
    return f"a {' and a '.join(doing)} of the array ran during the measurement" if doing else None


def sent_again(facts: Facts, _limit: Limit) -> str | None:
    """The network loses what is sent."""
    calls = facts.derived.calls
    if calls is None or calls.sent_again < max(2.0, SENT_AGAIN * calls.calls):
        return None
    return f"{calls.sent_again} of {calls.calls} calls were sent again: the network or the server lost them"


def controller(facts: Facts, limit: Limit) -> str | None:
    """A controller is full."""
    if limit is not Limit.CONTROLLER or facts.engine is None:
        return None
    busy = facts.engine.controllers_busy
    fullest = max(busy, key=lambda name: busy[name])
    members = facts.members_busy.values()
    rest = f", its disks {percent(median(members))}" if members else ""
    return f"controller {fullest} is busy {percent(busy[fullest])} of the time{rest}"


def one_disk(facts: Facts, limit: Limit) -> str | None:
    """One member holds up the others."""
    if limit is not Limit.ONE_DISK:
        return None
    busy = facts.members_busy
    slowest = max(busy, key=lambda serial: busy[serial])
    others = median(share for serial, share in busy.items() if serial != slowest)
    return f"{slowest} is busy {percent(busy[slowest])} of the time, the others {percent(others)}"


def link(facts: Facts, limit: Limit) -> str | None:
    """The link is full."""
    if limit is not Limit.NETWORK or facts.link is None or facts.link_bytes_s is None:
        return None
    return f"the link is full: {facts.link / 1e6:.0f} of {facts.link_bytes_s / 1e6:.0f} MB/s"


def client_cache(facts: Facts, limit: Limit) -> str | None:
    """Most of what was read was in the client's memory."""
    read, wire = facts.derived.read_bytes, facts.derived.wire_read_bytes
    if limit is not Limit.CLIENT_CACHE or not read or wire is None:
        return None
    return f"{percent(max(CACHED, 1 - wire / read))} of what was read came from the client's own memory"


def guest_cpu(facts: Facts, limit: Limit) -> str | None:
    """A machine had no CPU left."""
    derived = facts.derived
    calls = f", {derived.calls_per_mb:.0f} calls for each MB" if derived.calls_per_mb else ""
    if limit is Limit.SERVER_CPU and (use := derived.machines.get(derived.server)) and use.cpu is not None:
        return f"the server's CPU is busy {percent(use.cpu)} of the time{calls}"
    if limit is Limit.CLIENT_CPU:
        share = min(use.cpu for use in derived.clients.values() if use.cpu is not None)
        return f"the client's CPU is busy {percent(share)} of the time{calls}"
    return None


def read_modify_write(facts: Facts, _limit: Limit) -> str | None:
    """Parity is computed from what has to be read first."""
    back, array, stripe = facts.derived.member_reads_per_written, facts.derived.array, facts.stripe
    if facts.array.level not in PARITY_LEVELS or back is None or back < READS_BACK or not stripe or array is None:
        return None
    begin = f"RAID{facts.array.level} reads {back:.1f} blocks for each block written"
    asked = array.mean_bytes
    # The server may join WRITEs before it writes: what the transfers are too small for, its requests show.
    if facts.wsize is not None and facts.wsize < stripe and asked is not None and asked <= 2 * facts.wsize:
        return f"{begin}: wsize {size(facts.wsize)} never fills a {size(stripe)} stripe"
    if asked is not None and asked < stripe:
        return f"{begin}: the array is given {size(asked)} at a time, a stripe has {size(stripe)}"
    return f"{begin}: its requests do not begin and end with the {size(stripe)} stripes"


def commits(facts: Facts, _limit: Limit) -> str | None:
    """Somebody waits for COMMIT most of the time."""
    use = facts.derived.commits
    if use is None or not use.calls or use.mean_exec_ms is None or use.waiting < OF_THE_TIME:
        return None
    rate = use.calls / facts.derived.seconds
    return f"each fsync waits {milliseconds(use.mean_exec_ms)}: {count(rate)} COMMITs a second"


def synchronous_writes(facts: Facts, limit: Limit) -> str | None:
    """One WRITE at a time, each of which waits for the disks."""
    use, size_of = facts.derived.writes, facts.derived.mean_write_bytes
    clients = max(1, len(facts.derived.clients))
    if limit is not Limit.LATENCY or use is None or use.mean_rtt_ms is None or size_of is None:
        return None
    if not ALWAYS_WAITING <= use.waiting <= 2.0 * clients:
        return None
    rate = use.calls / facts.derived.seconds
    waits = "is answered from memory" if not facts.sync else "waits for the disks"
    return f"each WRITE of {size(size_of)} {waits} for {milliseconds(use.mean_rtt_ms)}: {count(rate)} a second"


def small_calls(facts: Facts, limit: Limit) -> str | None:
    """Each MB takes many round trips."""
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
    """The members write much more than the data and its redundancy."""
    more, needed = facts.derived.write_amplification, facts.needed
    if more is None or more < WASTE * needed:
        return None
    return (
        f"the members write {more:.1f} bytes for each byte of the client's, where RAID{facts.array.level} needs "
        f"{needed:.1f}: the rest is log, metadata and padding"
    )


def flood(facts: Facts, limit: Limit) -> str | None:
    """The members write many times the data and its redundancy."""
    more = facts.derived.write_amplification
    return amplification(facts, limit) if more is not None and more >= FLOOD * facts.needed else None


def splitting(facts: Facts, _limit: Limit) -> str | None:
    """The applications' requests arrive at the array in pieces."""
    pieces, array, most = facts.derived.splitting, facts.derived.array, facts.derived.request_limit
    if pieces is None or pieces < SPLIT or array is None or array.mean_bytes is None:
        return None
    because = f"; it takes no more than {size(most)} at once" if most and array.mean_bytes > most / 2 else ""
    return f"each request arrives at the array in {pieces:.0f} pieces of {size(array.mean_bytes)}{because}"


def disks(facts: Facts, limit: Limit) -> str | None:
    """All members are full."""
    if limit is not Limit.DISKS:
        return None
    uses = (facts.derived.members or {}).values()
    sizes = [use.mean_bytes for use in uses if use.mean_bytes is not None]
    rest = f", with requests of {size(median(sizes))}" if sizes else ""
    return f"the members are busy {percent(median(facts.members_busy.values()))} of the time{rest}"


def waiting(facts: Facts, limit: Limit) -> str | None:
    """Nothing is full, and yet somebody waits all the time."""
    if limit is not Limit.LATENCY:
        return None
    calls, array = facts.derived.calls, facts.derived.array
    if calls is not None and calls.mean_rtt_ms is not None:
        return f"nothing is full: {calls.waiting:.1f} calls at a time wait {milliseconds(calls.mean_rtt_ms)} each"
    each = f" {milliseconds(array.mean_ms)} each" if array is not None and array.mean_ms is not None else ""
    return f"nothing is full: {array.in_flight if array else 0:.1f} requests at a time wait for the array{each}"


def nothing(facts: Facts, _limit: Limit) -> str:
    """What was measured explains nothing."""
    busy = facts.members_busy.values()
    seen = [f"the busiest member {percent(max(busy))}"] if busy else []
    seen += [f"{name}'s CPU {percent(use.cpu)}" for name, use in facts.derived.machines.items() if use.cpu is not None]
    missing = f"; not seen: {', '.join(facts.derived.unknown)}" if facts.derived.unknown else ""
    return f"nothing that was measured is full: {', '.join(seen) or 'hardly anything could be read'}{missing}"


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
    """What limited a cell, and why."""

    limit: Limit
    sentence: str

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
    """Say what limited a cell.

    ``wsize`` is the effective one, ``sync`` the export's, the link's rate in bytes a second and one direction.
    Nothing is guessed: without the monitors' numbers the limit is unknown.
    """
    if derived is None:
        return Cause(Limit.UNKNOWN, "the monitors failed: nothing is known of what happened below")
    facts = Facts(derived, array, wsize, sync, engine, link_bytes_s)
    limit = find_limit(facts)
    return Cause(limit, explain(facts, limit))
