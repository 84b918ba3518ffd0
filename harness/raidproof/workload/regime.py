"""What a run measured: a cache or the disks; and whether the run reached steady state (SNIA SSS PTS 2.0)."""

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
"""Number of consecutive points of a series in a window, by the standard SNIA SSS PTS 2.0."""
EXCURSION = 0.20
"""Allowed difference of the largest and the smallest value of a window, as a share of the window's mean."""
SLOPE = 0.10
"""Allowed rise or fall of the least-squares line over a window, as a share of the window's mean."""
Shape = tuple[float | None, float | None]
"""Excursion and slope of a window, as shares of its mean; None if the mean is 0."""
Cache = Literal["client cache", "server cache", "controller cache", "drive cache"]
"""The caches between an application and the disks, the nearest to the application first."""


class Steady(State):
    """Whether a workload ended in steady state, and since when it was in steady state."""

    steady: bool | None
    """Whether the last window is steady; None if the series has too few points for a window."""
    since_s: float | None
    """Time from which on all windows are steady, in s since the workload began; None if the last one is not steady."""
    window: int
    """Number of points in a window."""
    excursion: float | None
    """Difference of the largest and the smallest value of the last window, as a share of its mean.

    None if there is no window, or its mean is 0.
    """
    slope: float | None
    """Rise of the least-squares line over the last window, as a share of its mean; negative for a fall."""
    reason: str


def find_steady(series: Sequence[Point]) -> Steady:
    """Return whether the last window of a series is steady, and from which time on all windows are steady.

    The standard (SNIA SSS PTS 2.0) ends the workload at the first steady window. raidproof continues the workload, so
    the last window decides: while a cache fills, the rate is steady at the cache's rate, and later at the disks' rate.

    Raises:
        RigError: the times of the points do not increase.
    """
    if any(late.at_s <= early.at_s for early, late in pairwise(series)):
        raise RigError("the times of the points of a series do not increase")
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
    return _found(True, since_s, last, f"steady from {since_s:g} s on")


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
        return "no data was transferred in the last window"
    if excursion > EXCURSION:
        return f"the values of a window differ by {excursion:.0%} of their mean, more than {EXCURSION:.0%}"
    if abs(slope) > SLOPE:
        return f"the values {'rise' if slope > 0 else 'fall'} by {abs(slope):.0%} in a window, more than {SLOPE:.0%}"
    return ""


def _found(steady: bool | None, since_s: float | None, last: Shape, reason: str) -> Steady:
    return Steady(steady=steady, since_s=since_s, window=WINDOW, excursion=last[0], slope=last[1], reason=reason)


@dataclass(frozen=True)
class Memory:
    """Sizes of the caches between an application and the disks, in bytes."""

    server: int
    """Page cache of the server."""
    client: int
    """Page cache of one client."""
    controller: int = 0
    """Write caches of all controllers that acknowledge writes from the cache, with or without a working battery."""
    drives: int = 0
    """Caches of all drives that the workload reaches."""
    drives_protected: bool = False
    """Whether the drives' caches survive a power cut (flash with capacitors), so that a flush does not empty them."""


@dataclass(frozen=True)
class Route:
    """The path of a workload's data: where the workload runs, and the options of export and mount."""

    on: str
    """Where the workload runs: ``clients``, ``server``, or another word, for a raw device of the server."""
    machines: int = 1
    """Number of machines that run the workload."""
    export_sync: bool = True
    """Whether the export has the option ``sync`` (exports(5))."""
    mount_sync: bool = False
    """Whether the mount has the option ``sync`` (nfs(5))."""
    delegations: bool = False
    """Whether the server grants write delegations, with which a client need not write back at close.

    Enabled leases are not sufficient: Linux 6.12 granted no delegation for a file opened for writing only (dd), and
    the client committed its data at close.
    """
    emptied: bool = True
    """Whether all caches were empty when the timed part began."""

    @property
    def over_nfs(self) -> bool:
        """Whether the workload runs on NFS clients."""
        return self.on == CLIENTS


class Regime(State):
    """What a result measures: a cache or the disks."""

    cache: Cache | None
    """The cache that the result measures; None if it measures the disks, or the working set is not known."""
    reason: str
    accepted: bool
    """Whether the result counts: it does not measure a cache, or the plan allows caches (``allow_cache``)."""


def regime_of(work: Work, memory: Memory, route: Route, *, allow_cache: bool = False) -> Regime:
    """Return the nearest cache to the application that can hold all data that a workload reads, or that it writes."""
    if work.working_set is None:
        return Regime(cache=None, reason="the working set is not known before the run", accepted=True)
    on_all = work.working_set * (route.machines if work.everywhere else 1)
    # Each client caches its own working set; server, controllers and drives cache those of all clients.
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
    """Return the caches that can serve reads if all data fits into them: data cached before the run, or read again."""
    if route.emptied and work.once and not work.warm:
        return set()
    caches: set[Cache] = {"drive cache"}
    # O_DIRECT on a client bypasses the client's cache only: nfsd reads through the server's page cache.
    if route.over_nfs or not work.direct:
        caches.add("server cache")
    if route.over_nfs and not work.direct:
        caches.add("client cache")
    return caches


def _may_keep_writes(work: Work, memory: Memory, route: Route) -> set[Cache]:
    """Return the caches that can keep all writes of the timed part from the disks if they are large enough."""
    kept = _stay(_made_durable(work, route), once=work.once)
    # A controller with a write cache also acknowledges flushes from the cache.
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
    """Return when writes become durable, by the workload's own calls or by the NFS client."""
    if not route.over_nfs:
        return work.durable
    # An O_DIRECT write over NFS returns after its COMMIT (fs/nfs/direct.c); close writes back and commits, unless the
    # client holds a write delegation (nfs4_file_flush).
    by_client = work.direct or route.mount_sync or (work.closes and not route.delegations)
    return "each" if by_client else work.durable


def _stay(durable: Durable, *, once: bool) -> bool:
    """Return whether writes can stay in memory: no flush follows, or later writes replace them before the flush."""
    return durable == "no" or (durable == "end" and not once)


def _why_disks(work: Work, touched: int) -> str:
    what = " and ".join(name for name, does in (("reads", work.reads), ("writes", work.writes)) if does)
    return f"{what} of {format_size(touched)} bypass the caches or do not fit into them"
