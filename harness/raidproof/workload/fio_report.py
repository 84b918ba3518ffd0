"""What fio says: its JSON, with all jobs and groups, interval after interval, and the plain lines around it."""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from raidproof.core.errors import RigError
from raidproof.core.layer import State
from raidproof.workload.sample import Point

DIRECTIONS = ("read", "write")
SHORTEST_INTERVAL_S = 0.3
"""What is shorter says nothing of a rate: the rest of a second between fio's last report and its end."""
_BEGIN = re.compile(r"^\{", re.MULTILINE)


class FioResult(State):
    """What fio measured, over all jobs and groups of one machine, or over several machines."""

    fio_version: str
    at_s: float
    """When fio wrote this, on its machine's clock."""
    bytes_of: dict[str, int]
    """By direction, ``read`` and ``write``."""
    ios_of: dict[str, int]
    seconds_of: dict[str, float]
    """As fio counts it: the longest job of a group, one group after the other; an ``end_fsync`` included."""
    seconds: float
    """Both directions together."""
    latencies: dict[str, dict[int, int]]
    """By ``read``, ``write`` (completion) and ``fsync``: how many took so many nanoseconds; of fio's json+ only."""

    @property
    def bytes(self) -> int:
        """What was read and written."""
        return sum(self.bytes_of.values())

    @property
    def mb_per_s(self) -> float:
        """Megabytes (10^6 bytes) a second, both directions together, the fsync included."""
        return self.bytes / 1e6 / self.seconds if self.seconds else 0.0

    @property
    def values(self) -> dict[str, float]:
        """Every figure under its name: MB/s, IOPS, and what half and 99 of 100 operations were done in."""
        values: dict[str, float] = {}
        for direction in DIRECTIONS:
            if seconds := self.seconds_of[direction]:
                values[f"{direction}_mb_s"] = self.bytes_of[direction] / 1e6 / seconds
                values[f"{direction}_iops"] = self.ios_of[direction] / seconds
        if len(values) > 2:
            values |= {"total_mb_s": self.mb_per_s, "total_iops": sum(self.ios_of.values()) / self.seconds}
        for what, histogram in self.latencies.items():
            if histogram:
                values |= {f"{what}_p{of}_ms": percentile_ns(histogram, of) / 1e6 for of in (50, 99)}
        return values


def percentile_ns(histogram: Mapping[int, int], percent: float) -> int:
    """Return the least latency that this many of a hundred did not exceed."""
    wanted, seen = sum(histogram.values()) * percent / 100, 0
    for nanoseconds in sorted(histogram):
        seen += histogram[nanoseconds]
        if seen >= wanted:
            return nanoseconds
    raise ValueError("no latencies")


def merged(results: Sequence[FioResult]) -> FioResult:
    """Take machines that ran at the same time for one: all that they moved, over the longest time."""
    return FioResult(
        fio_version=results[0].fio_version,
        at_s=max(one.at_s for one in results),
        bytes_of={of: sum(one.bytes_of[of] for one in results) for of in DIRECTIONS},
        ios_of={of: sum(one.ios_of[of] for one in results) for of in DIRECTIONS},
        seconds_of={of: max(one.seconds_of[of] for one in results) for of in DIRECTIONS},
        seconds=max(one.seconds for one in results),
        latencies={of: _added(one.latencies[of] for one in results) for of in (*DIRECTIONS, "fsync")},
    )


def parse_fio(text: str) -> FioResult:
    """Read fio's JSON; of several reports, the last.

    Raises:
        RigError: there is none, it is truncated, a job failed, or fio was ended; with what fio said.
    """
    return parse_fio_reports(text)[-1]


def parse_fio_reports(text: str) -> tuple[FioResult, ...]:
    """Read every report of a fio that was told to report at intervals; each counts from the beginning.

    Raises:
        RigError: as ``parse_fio``.
    """
    reports, plain = _split(text)
    try:
        if errors := [said for job in reports[-1]["jobs"] if (said := _failure(job))]:
            raise RigError(f"fio: {'; '.join(errors)}{f': {plain}' if plain else ''}")
        if "terminating on signal" in plain:
            raise RigError(f"fio was ended before its time: {plain}")
        return tuple(_result(report) for report in reports)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise RigError(f"fio's report cannot be read: {error!r}; it begins {text[:200]!r}") from error


def last_report(text: str) -> str:
    """Leave out all reports but the last: they are as large as that one, and the series is made of them."""
    begins = [match.start() for match in _BEGIN.finditer(text)]
    return text[: begins[0]] + text[begins[-1] :] if begins else text


def after_ramp(reports: Sequence[FioResult], ramp_s: float) -> Sequence[FioResult]:
    """Leave out the reports of the time in which fio warmed up: it counts from zero when that is over."""
    if not ramp_s:
        return reports
    began = reports[-1].at_s - reports[-1].seconds
    return [report for report in reports if report.at_s - report.seconds > began - ramp_s / 2]


def series(reports: Sequence[FioResult], directions: Iterable[str], unit: str) -> tuple[Point, ...]:
    """Return the rate between reports, in ``mb_s`` or ``iops``."""
    points: list[Point] = []
    before, amount_before = 0.0, 0.0
    chosen = tuple(directions)
    for report in reports:
        amount = sum(report.bytes_of[of] / 1e6 if unit == "mb_s" else report.ios_of[of] for of in chosen)
        if report.seconds < before or amount < amount_before:
            # A job file's own ramp is over.
            points, before, amount_before = [], 0.0, 0.0
        if (lasted := report.seconds - before) >= SHORTEST_INTERVAL_S:
            points.append(Point(at_s=report.seconds, value=(amount - amount_before) / lasted))
            before, amount_before = report.seconds, amount
    return tuple(points)


def added_series(of_machines: Sequence[tuple[Point, ...]]) -> tuple[Point, ...]:
    """Add up, interval by interval, what machines did at the same time, as long as all of them did."""
    return tuple(
        Point(at_s=max(point.at_s for point in points), value=sum(point.value for point in points))
        for points in zip(*of_machines, strict=False)
    )


def _split(text: str) -> tuple[list[Any], str]:
    """Separate the reports from the plain lines: warnings before, errors between."""
    reports: list[Any] = []
    plain, at, decoder = "", 0, json.JSONDecoder()
    while match := _BEGIN.search(text, at):
        plain += text[at : match.start()]
        try:
            report, at = decoder.raw_decode(text, match.start())
        except ValueError as error:
            raise RigError(f"fio's report is truncated: {error}; fio said: {plain.strip() or 'nothing'}") from error
        reports.append(report)
    plain = "\n".join(line.strip() for line in (plain + text[at:]).splitlines() if line.strip())
    if not reports:
        raise RigError(f"fio gave no report; it said: {plain[-500:] or 'nothing'}")
    return reports, plain


def _failure(job: Any) -> str:
    # With continue_on_error a job that failed ends with error 0.
    number = job["error"] or job.get("first_error", 0)
    return f"job {job['jobname']!r} reports error {number} ({os.strerror(number)})" if number else ""


def _result(report: Any) -> FioResult:
    jobs = report["jobs"]
    groups: dict[int, dict[str, float]] = {}
    for job in jobs:
        group = groups.setdefault(job["groupid"], dict.fromkeys(DIRECTIONS, 0.0))
        for of in DIRECTIONS:
            # fio gives a direction that did nothing no time.
            group[of] = max(group[of], job[of]["runtime"] / 1e3)
    return FioResult(
        fio_version=report["fio version"],
        at_s=report["timestamp_ms"] / 1e3,
        bytes_of={of: sum(job[of]["io_bytes"] for job in jobs) for of in DIRECTIONS},
        ios_of={of: sum(job[of]["total_ios"] for job in jobs) for of in DIRECTIONS},
        seconds_of={of: sum(group[of] for group in groups.values()) for of in DIRECTIONS},
        seconds=sum(max(group.values()) for group in groups.values()),
        latencies={
            "read": _added(_bins(job["read"].get("clat_ns", {})) for job in jobs),
            "write": _added(_bins(job["write"].get("clat_ns", {})) for job in jobs),
            "fsync": _added(_bins(job["sync"].get("lat_ns", {})) for job in jobs),
        },
    )


def _bins(latency: Any) -> dict[int, int]:
    return {int(nanoseconds): count for nanoseconds, count in latency.get("bins", {}).items() if count}


def _added(histograms: Iterable[Mapping[int, int]]) -> dict[int, int]:
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update(histogram)
    return dict(total)
