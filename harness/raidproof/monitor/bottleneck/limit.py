"""What limited a cell: the thresholds, and the order in which they are looked at."""

from collections.abc import Callable
from enum import StrEnum
from statistics import median

from raidproof.monitor.bottleneck.facts import Facts
from raidproof.monitor.derived import busier

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
