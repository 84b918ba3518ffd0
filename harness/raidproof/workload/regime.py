"""What a workload measured: which cache, if any, and whether the run was in steady state (SNIA SSS PTS 2.0)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, linear_regression
from typing import Literal

from raidproof.core.errors import RigError
from raidproof.core.layer import State
from raidproof.core.units import format_size
from raidproof.workload.workload import CLIENTS, Durable, Point, Work

WINDOW = 5
"""Points that are judged together."""
EXCURSION = 0.20
"""Allowed distance between the largest and the smallest value of a window, as a share of its mean."""
SLOPE = 0.10
"""Allowed rise or fall of the least-squares line over a window, as a share of its mean."""
Shape = tuple[float | None, float | None]
"""Excursion and slope of a window, as shares of its mean."""
Cache = Literal["client cache", "server cache", "controller cache", "drive cache"]


class Steady(State):
    """Whether a run ended in steady state, and since when."""

    steady: bool | None
    """None: too few points."""
    since_s: float | None
    """Seconds from the beginning of the run; from here to its end every window is steady."""
    window: int
    excursion: float | None
    """Of the last window, as a share of its mean; None if there is no window or nothing moved."""
    slope: float | None
    """Rise of the line over the last window, negative if it falls, as a share of its mean."""
    reason: str


def find_steady(series: Sequence[Point]) -> Steady:
    """Judge a series by its windows of five points.

    The standard stops at the first steady window. Here the run continues, so the last window decides: with a cache
    that fills up late the run looks steady twice, and only the second time counts.

    Raises:
        RigError: the points are not in the order of time.
    """
    if any(late.at_s <= early.at_s for early, late in pairwise(series)):
        raise RigError("the points of a series are not in the order of time")
    if len(series) < WINDOW:
        return _found(None, None, (None, None), f"{len(series)} points are fewer than a window of {WINDOW}")
    windows = [series[first : first + WINDOW] for first in range(len(series) - WINDOW + 1)]
    last = _shape(windows[-1])
    if reason := _unsteady(last):
        return _found(False, None, last, reason)
    first = len(windows) - 1
    while first and not _unsteady(_shape(windows[first - 1])):
        first -= 1
    since_s = series[first - 1].at_s if first else 0.0
    return _found(True, since_s, last, f"steady since {since_s:g} s")


def _shape(window: Sequence[Point]) -> Shape:
    values = [point.value for point in window]
    if (mean := fmean(values)) <= 0:
        return None, None
    times = [point.at_s for point in window]
    line = linear_regression(times, values)
    return (max(values) - min(values)) / mean, line.slope * (times[-1] - times[0]) / mean


def _unsteady(shape: Shape) -> str:
    excursion, slope = shape
    if excursion is None or slope is None:
        return "nothing moved"
    if excursion > EXCURSION:
        return f"values {excursion:.0%} of their mean apart, more than {EXCURSION:.0%}"
    if abs(slope) > SLOPE:
        return f"{'rising' if slope > 0 else 'falling'} by {abs(slope):.0%} in a window, more than {SLOPE:.0%}"
    return ""


def _found(steady: bool | None, since_s: float | None, last: Shape, reason: str) -> Steady:
    return Steady(steady=steady, since_s=since_s, window=WINDOW, excursion=last[0], slope=last[1], reason=reason)


@dataclass(frozen=True)
class Memory:
    """Sizes of the caches, in bytes."""

    server: int
    client: int
    """Of one client."""
    controller: int = 0
    """Write caches of all controllers that acknowledge from them, with or without a working battery."""
    drives: int = 0
    """Caches of all drives that the workload reaches."""
    drives_protected: bool = False
    """The drives' caches survive a power cut (flash with capacitors), so a flush does not empty them."""


@dataclass(frozen=True)
class Route:
    """The path of a workload's data."""

    on: str
    """``clients``, ``server``, or anything else for a bare device of the server."""
    machines: int = 1
    export_sync: bool = True
    mount_sync: bool = False
    delegations: bool = False
    """The server grants write delegations: then a client need not write back when it closes a file.

    Enabled leases are not sufficient: Linux 6.12 granted none for a file opened for writing only (dd), and close
    committed it.
    """
    emptied: bool = True
    """All caches were empty when the timed part began."""

    @property
    def over_nfs(self) -> bool:
        """Whether the workload runs on NFS clients."""
        return self.on == CLIENTS


class Regime(State):
    """What a result measures."""

    cache: Cache | None
    """None: the disks."""
    reason: str
    accepted: bool
    """Whether the result counts as a throughput: it is not that of a cache, or a cache was requested."""


def regime_of(work: Work, memory: Memory, route: Route, *, allow_cache: bool = False) -> Regime:
    """Return the cache nearest to the application that holds all data that a workload reads, or all that it writes."""
    if work.working_set is None:
        return Regime(cache=None, reason="the working set is not known in advance", accepted=True)
    on_all = work.working_set * (route.machines if work.everywhere else 1)
    # The client cache holds the working set of one client; all behind the network holds that of all clients.
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
    """Return the caches that answer reads if all data fits: it is cached already, or is read again."""
    if route.emptied and work.once and not work.warm:
        return set()
    caches: set[Cache] = {"drive cache"}
    # On a client, O_DIRECT bypasses the client's cache only: nfsd reads through the server's.
    if route.over_nfs or not work.direct:
        caches.add("server cache")
    if route.over_nfs and not work.direct:
        caches.add("client cache")
    return caches


def _may_keep_writes(work: Work, memory: Memory, route: Route) -> set[Cache]:
    """Return the caches that can absorb all writes of the timed part if they are large enough."""
    kept = _stay(_made_durable(work, route), once=work.once)
    # A controller with a battery acknowledges flushes, too.
    caches: set[Cache] = {"controller cache"}
    if route.over_nfs:
        if kept and not work.direct:
            caches.add("client cache")
        # An async export acknowledges COMMIT and stable writes from memory.
        kept = kept or not route.export_sync
    if kept and (route.over_nfs or not work.direct):
        caches.add("server cache")
    if kept or memory.drives_protected:
        caches.add("drive cache")
    return caches


def _made_durable(work: Work, route: Route) -> Durable:
    """Return when the machine that runs the workload makes writes durable, requested or not."""
    if not route.over_nfs:
        return work.durable
    # An O_DIRECT write over NFS returns after its COMMIT (fs/nfs/direct.c); close writes back and commits, unless the
    # client holds a write delegation (nfs4_file_flush).
    unasked = work.direct or route.mount_sync or (work.closes and not route.delegations)
    return "each" if unasked else work.durable


def _stay(durable: Durable, *, once: bool) -> bool:
    """Return whether writes stay in memory: they are never flushed, or are overwritten there before the last flush."""
    return durable == "no" or (durable == "end" and not once)


def _why_disks(work: Work, touched: int) -> str:
    what = " and ".join(name for name, does in (("reads", work.reads), ("writes", work.writes)) if does)
    return f"{what} of {format_size(touched)} pass through every cache, or fit into none that could hold them"
