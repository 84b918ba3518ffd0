"""Which cache a result measures, if any: what a workload touches against the memory on its way to the disks."""

from dataclasses import dataclass
from typing import Literal

from raidproof.core.layer import State
from raidproof.core.units import format_size

Durable = Literal["each", "end", "no"]
"""When the timed part makes what it writes durable: each write before the next ones, all at its end, or not at all."""
Cache = Literal["client cache", "server cache", "controller cache", "drive cache"]
CLIENTS, SERVER = "clients", "server"


@dataclass(frozen=True)
class Work:
    """What the timed part of a workload does, as far as caches care."""

    working_set: int | None
    """Bytes that one machine touches; None where nobody knows before."""
    reads: bool
    writes: bool
    durable: Durable = "no"
    direct: bool = False
    """O_DIRECT: past the page cache of the machine that it runs on."""
    once: bool = True
    """Nothing is touched twice in the timed part."""
    closes: bool = False
    """The time includes closing each file, or names are made and removed: an NFS client makes that durable."""
    warm: bool = False
    """What is read has been read just before, on purpose: no one may empty caches in between."""
    everywhere: bool = False
    """On all machines at the same time, each on files of its own; else on one."""


@dataclass(frozen=True)
class Memory:
    """What there is to cache in, in bytes."""

    server: int
    client: int
    """Of one client."""
    controller: int = 0
    """Write caches of all controllers that acknowledge from them: the battery is good, or they do not know better."""
    drives: int = 0
    """Caches of all drives that the workload reaches."""
    drives_protected: bool = False
    """They survive a power cut (flash with capacitors), so a flush does not empty them."""


@dataclass(frozen=True)
class Route:
    """What a workload's data pass through."""

    on: str
    """``clients``, ``server``, or anything else for a bare device of the server."""
    machines: int = 1
    export_sync: bool = True
    mount_sync: bool = False
    delegations: bool = False
    """The server gives write delegations: then a client need not write back when it closes a file. That leases are on
    does not mean it: Linux 6.12 gave none to a file opened for writing only (dd), and close committed it."""
    emptied: bool = True
    """All caches were empty when the timed part began."""

    @property
    def over_nfs(self) -> bool:
        """Whether there is a client between."""
        return self.on == CLIENTS


class Regime(State):
    """What a result measures."""

    cache: Cache | None
    """None: the disks."""
    reason: str
    accepted: bool
    """Whether it may stand as a throughput: it is not that of a cache, or a cache was asked for."""


def regime_of(work: Work, memory: Memory, route: Route, *, allow_cache: bool = False) -> Regime:
    """Name the cache nearest to the application that holds all of what a workload reads, or all that it writes."""
    if work.working_set is None:
        return Regime(cache=None, reason="nobody knows before how much it touches", accepted=True)
    on_all = work.working_set * (route.machines if work.everywhere else 1)
    # Page caches go by what one client touches; all that is behind the network, by what all of them do.
    sizes: dict[Cache, tuple[int, int]] = {
        "client cache": (work.working_set, memory.client),
        "server cache": (on_all, memory.server),
        "controller cache": (on_all, memory.controller),
        "drive cache": (on_all, memory.drives),
    }
    reads = _may_serve_reads(work, route) if work.reads else set()
    writes = _may_keep_writes(work, memory, route) if work.writes else set()
    for cache, (touched, size) in sizes.items():
        if touched <= size and cache in reads | writes:
            what = " and ".join(name for name, by in (("reads", reads), ("writes", writes)) if cache in by)
            reason = f"{what} of {format_size(touched)} fit into the {cache} of {format_size(size)}"
            return Regime(cache=cache, reason=reason, accepted=allow_cache)
    return Regime(cache=None, reason=_why_disks(work, on_all), accepted=True)


def _may_serve_reads(work: Work, route: Route) -> set[Cache]:
    """Caches that answer reads if all that is read fits: it is in them already, or is read again."""
    if route.emptied and work.once and not work.warm:
        return set()
    caches: set[Cache] = {"drive cache"}
    # On a client, O_DIRECT passes the client's cache only: nfsd reads through the server's.
    if route.over_nfs or not work.direct:
        caches.add("server cache")
    if route.over_nfs and not work.direct:
        caches.add("client cache")
    return caches


def _may_keep_writes(work: Work, memory: Memory, route: Route) -> set[Cache]:
    """Caches in which writes may stay while the time runs, if all that is written fits."""
    kept = _stay(_made_durable(work, route), once=work.once)
    # A controller with a battery acknowledges flushes too.
    caches: set[Cache] = {"controller cache"}
    if route.over_nfs:
        if kept and not work.direct:
            caches.add("client cache")
        # An async export answers COMMIT, and stable writes, from memory.
        kept = kept or not route.export_sync
    if kept and (route.over_nfs or not work.direct):
        caches.add("server cache")
    if kept or memory.drives_protected:
        caches.add("drive cache")
    return caches


def _made_durable(work: Work, route: Route) -> Durable:
    """When the machine that it runs on makes writes durable, asked or not."""
    if not route.over_nfs:
        return work.durable
    # An O_DIRECT write over NFS returns after its COMMIT (fs/nfs/direct.c); close writes back and commits, unless
    # there is a write delegation (nfs4_file_flush).
    unasked = work.direct or route.mount_sync or (work.closes and not route.delegations)
    return "each" if unasked else work.durable


def _stay(durable: Durable, *, once: bool) -> bool:
    """Whether writes stay in memory: nobody flushes them, or they are overwritten there before the last flush."""
    return durable == "no" or (durable == "end" and not once)


def _why_disks(work: Work, touched: int) -> str:
    what = " and ".join(name for name, does in (("reads", work.reads), ("writes", work.writes)) if does)
    return f"{what} of {format_size(touched)} pass through every cache, or fit into none that could hold them"
