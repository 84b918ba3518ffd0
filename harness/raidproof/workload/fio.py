"""The workload fio: its settings, commands and job files, and the parser of its JSON reports."""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import Machine, State, one_of
from raidproof.core.units import MIB
from raidproof.workload import presets as job_files
from raidproof.workload.presets import PRESETS, JobFile, work_of_jobs
from raidproof.workload.workload import (
    Access,
    Place,
    Point,
    Sample,
    Tool,
    ToolSize,
    Work,
    WorkloadSpec,
    durable_of,
    empty_caches,
    on_all,
    own_directory,
    run_limited,
)

DIRECTIONS = ("read", "write")
"""The directions for which fio reports bytes, requests and times."""
SHORTEST_INTERVAL_S = 0.3
"""Minimum seconds between two reports for a rate: fio may print its last report shortly after the one before."""
_BEGIN = re.compile(r"^\{", re.MULTILINE)

NAME = "raidproof-fio"
"""Beginning of the names of the directories in which fio's files are."""
JOB_FILE = "/run/raidproof/job.fio"
"""Path of the user's job file in the machine."""
REPORTING = ("--output-format=json+", "--status-interval=1")
"""fio options for a JSON report each second. json+ adds latency histograms, which can be summed over several jobs."""
SYNCHRONOUS = ("psync", "sync", "pvsync", "mmap")
"""I/O engines (``ioengine``) of fio that have one outstanding request per job."""
FULL_TIME = 0.9
"""Minimum share of ``runtime_s`` that a time-based run must last to count as a measurement."""
_WITH_A_JOB_FILE = {"tool", "job_file", "all_machines", "randseed", "deadline_s"}
"""The settings that a plan may combine with a job file."""


class FioResult(State):
    """The measurements of fio, summed over the jobs and groups of one machine, or over several machines."""

    fio_version: str
    at_s: float
    """Time of the report in seconds since the epoch, by the machine's clock."""
    bytes_of: dict[str, int]
    """Bytes transferred, by direction: ``read`` and ``write``."""
    ios_of: dict[str, int]
    """Number of requests, by direction."""
    seconds_of: dict[str, float]
    """Seconds by direction: run time of each group's longest job, summed over the groups; includes ``end_fsync``."""
    seconds: float
    """Run time in seconds in which fio read or wrote, computed as `seconds_of`."""
    latencies: dict[str, dict[int, int]]
    """Histograms: number of operations by latency in ns, for ``read``, ``write`` (completion) and ``fsync``."""

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return sum(self.bytes_of.values())

    @property
    def mb_per_s(self) -> float:
        """Rate of reads and writes together in 10^6 bytes/s; the time includes ``end_fsync``."""
        return self.bytes / 1e6 / self.seconds if self.seconds else 0.0

    @property
    def values(self) -> dict[str, float]:
        """All values by name: rates in 10^6 bytes/s and IOPS, and the 50th and 99th percentiles of latency in ms."""
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
    """Return a percentile of a latency histogram in ns: ``percent`` of the operations took at most this long.

    Raises:
        ValueError: the histogram is empty.
    """
    wanted, seen = sum(histogram.values()) * percent / 100, 0
    for nanoseconds in sorted(histogram):
        seen += histogram[nanoseconds]
        if seen >= wanted:
            return nanoseconds
    raise ValueError("the latency histogram is empty")


def merged(results: Sequence[FioResult]) -> FioResult:
    """Return one result for machines that ran at the same time: the sums of bytes and requests, the longest time."""
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
    """Return the last report in fio's JSON output.

    Raises:
        RigError: the output has no report, a truncated report, a failed job, or the message that a signal ended fio.
    """
    return parse_fio_reports(text)[-1]


def parse_fio_reports(text: str) -> tuple[FioResult, ...]:
    """Return every report in fio's JSON output; each report covers the run from its beginning.

    Raises:
        RigError: as for `parse_fio`.
    """
    with _readable(text) as reports:
        return tuple(_result(report) for report in reports)


def parse_fio_jobs(text: str) -> tuple[FioResult, ...]:
    """Return the result of each group of jobs in fio's last report, in the order in which the groups ran.

    Raises:
        RigError: as for `parse_fio`.
    """
    with _readable(text) as reports:
        groups: dict[int, list[Any]] = {}
        for job in reports[-1]["jobs"]:
            groups.setdefault(job["groupid"], []).append(job)
        return tuple(_result(reports[-1] | {"jobs": jobs}) for _, jobs in sorted(groups.items()))


@contextmanager
def _readable(text: str) -> Iterator[list[Any]]:
    """Yield fio's reports if they contain no error. An error of the ``with`` body that reads them becomes a RigError.

    Raises:
        RigError: as for `parse_fio`, or a report lacks a value or has another form.
    """
    reports, plain = _split(text)
    try:
        if errors := [said for job in reports[-1]["jobs"] if (said := _failure(job))]:
            raise RigError(f"fio: {'; '.join(errors)}{f': {plain}' if plain else ''}")
        if "terminating on signal" in plain:
            raise RigError(f"a signal ended fio before its end: {plain}")
        yield reports
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise RigError(f"fio's report cannot be parsed: {error!r}; the output begins with {text[:200]!r}") from error


def last_report(text: str) -> str:
    """Return fio's output with only its last report: reports are large, and `series` has the earlier rates."""
    begins = [match.start() for match in _BEGIN.finditer(text)]
    return text[: begins[0]] + text[begins[-1] :] if begins else text


def after_ramp(reports: Sequence[FioResult], ramp_s: float) -> Sequence[FioResult]:
    """Return the reports after fio's ramp time; fio resets its counters at the end of the ramp time."""
    if not ramp_s:
        return reports
    began = reports[-1].at_s - reports[-1].seconds
    return [report for report in reports if report.at_s - report.seconds > began - ramp_s / 2]


def series(reports: Sequence[FioResult], directions: Iterable[str], unit: str) -> tuple[Point, ...]:
    """Return the rate in each interval between two reports, in the unit ``mb_s`` or ``iops``."""
    points: list[Point] = []
    before, amount_before = 0.0, 0.0
    chosen = tuple(directions)
    for report in reports:
        amount = sum(report.bytes_of[of] / 1e6 if unit == "mb_s" else report.ios_of[of] for of in chosen)
        if report.seconds < before or amount < amount_before:
            # fio resets its counters at the end of the ramp time that a job file sets.
            points, before, amount_before = [], 0.0, 0.0
        if (lasted := report.seconds - before) >= SHORTEST_INTERVAL_S:
            points.append(Point(at_s=report.seconds, value=(amount - amount_before) / lasted))
            before, amount_before = report.seconds, amount
    return tuple(points)


def added_series(of_machines: Sequence[tuple[Point, ...]]) -> tuple[Point, ...]:
    """Return the sum of the machines' rates, interval by interval, up to the end of the shortest series."""
    return tuple(
        Point(at_s=max(point.at_s for point in points), value=sum(point.value for point in points))
        for points in zip(*of_machines, strict=False)
    )


def _split(text: str) -> tuple[list[Any], str]:
    """Split fio's output into its JSON reports and its lines of text: warnings come before, errors between reports."""
    reports: list[Any] = []
    plain, at, decoder = "", 0, json.JSONDecoder()
    while match := _BEGIN.search(text, at):
        plain += text[at : match.start()]
        try:
            report, at = decoder.raw_decode(text, match.start())
        except ValueError as error:
            raise RigError(f"fio's report is truncated: {error}; fio's messages: {plain.strip() or 'none'}") from error
        reports.append(report)
    plain = "\n".join(line.strip() for line in (plain + text[at:]).splitlines() if line.strip())
    if not reports:
        raise RigError(f"fio printed no report; its messages: {plain[-500:] or 'none'}")
    return reports, plain


def _failure(job: Any) -> str:
    # With continue_on_error a job with errors ends with error 0; first_error has the first one.
    number = job["error"] or job.get("first_error", 0)
    return f"job {job['jobname']!r} reports error {number} ({os.strerror(number)})" if number else ""


def _result(report: Any) -> FioResult:
    jobs = report["jobs"]
    groups: dict[int, dict[str, float]] = {}
    for job in jobs:
        group = groups.setdefault(job["groupid"], dict.fromkeys(DIRECTIONS, 0.0))
        for of in DIRECTIONS:
            # fio reports run time 0 for a direction without requests.
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


class FioSpec(WorkloadSpec):
    """Settings of the workload fio: the options of one job, as in fio(1), or a job file of the user."""

    on_devices: ClassVar[bool] = True

    tool: Literal["fio"] = "fio"
    preset: str | None = None
    """Name of a preset (workload/presets.py): it sets the settings that the plan does not set."""
    job_file: JobFile | None = None
    """A fio job file: a plan sets its path, relative to raidproof's working directory; the field holds its content."""
    rw: Literal["read", "write", "randread", "randwrite", "rw", "readwrite", "randrw"] = "write"
    bs: Annotated[ToolSize, Field(gt=0)] = MIB
    """Bytes of one request."""
    size: Annotated[ToolSize, Field(gt=0)] = 128 * MIB
    """Bytes that each job accesses, over all its files."""
    numjobs: int = Field(default=1, ge=1)
    """Number of jobs with these settings that run at the same time."""
    nrfiles: int = Field(default=1, ge=1)
    """Number of files of each job."""
    iodepth: int = Field(default=1, ge=1)
    """Requests that each job keeps outstanding."""
    ioengine: Literal["psync", "sync", "pvsync", "mmap", "libaio", "posixaio", "io_uring"] = "psync"
    direct: bool = False
    sync: Literal["none", "sync", "dsync"] = "none"
    fsync: int = Field(default=0, ge=0)
    """Number of writes after which a job calls fsync; 0: no fsync."""
    fdatasync: int = Field(default=0, ge=0)
    """Number of writes after which a job calls fdatasync; 0: no fdatasync."""
    end_fsync: bool = True
    """Whether the timed part ends with fsync; without fsync, writes measure the client's page cache."""
    overwrite: bool = False
    """Whether the files are written before the timed part, so that the timed part allocates no blocks."""
    rwmixread: int = Field(default=50, ge=0, le=100)
    """Percentage of reads among the requests of a mixed job."""
    runtime_s: float | None = Field(default=None, gt=0)
    """Seconds after which the timed part ends at the latest."""
    time_based: bool | None = None
    """Whether fio accesses the files repeatedly until ``runtime_s`` is over; default: true if ``runtime_s`` is set."""
    ramp_s: float = Field(default=0, ge=0)
    """Seconds of the same work before the timed part, so that the timed part begins in steady state."""
    randseed: int = Field(default=1, ge=1)
    """Seed of random offsets, so that repetitions access the same offsets. Machine number n (from 0) adds n to it."""
    reread: bool = False
    """Whether the timed part reads data that was read just before: this measures caches, unless ``direct`` is set."""
    all_machines: bool = False
    """Whether all clients run fio at the same time, each with its own files; otherwise the first client runs it."""
    deadline_s: float = Field(default=600.0, gt=0)
    """Seconds that fio may take in addition to the ramp and the timed part."""

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, asked: Any) -> Any:
        if not isinstance(asked, dict) or (name := asked.get("preset")) is None:
            return asked
        preset = PRESETS[one_of("preset", name, PRESETS)]
        if (rw := asked.get("rw", preset["rw"])) != preset["rw"]:
            raise RequestError(
                f"preset {name!r} has rw={preset['rw']}, but the plan sets rw={rw}", remedy="remove preset or rw"
            )
        return {**preset, **asked}

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.job_file is not None:
            others = set(type(self).model_fields) - _WITH_A_JOB_FILE
            if also := [name for name in others if getattr(self, name) != type(self).model_fields[name].default]:
                raise RequestError(
                    f"job_file cannot be combined with {', '.join(sorted(also))}",
                    remedy=f"set the options {', '.join(sorted(also))} in the job file, or remove job_file",
                )
        if self.iodepth > 1 and self.ioengine in SYNCHRONOUS:
            raise RequestError(
                f"ioengine={self.ioengine} has one outstanding request, so iodepth={self.iodepth} has no effect",
                remedy="set ioengine=libaio, or iodepth=1 with a larger numjobs",
            )
        if self.bs > self.size // self.nrfiles:
            raise RequestError(
                f"bs={self.bs} is larger than a file, which has {self.size // self.nrfiles} bytes",
                remedy="set a larger size or a smaller nrfiles",
            )
        if self.time_based and self.runtime_s is None:
            raise RequestError("time_based needs a run time", remedy="set runtime_s")
        if self.ramp_s and not self.timed:
            raise RequestError(f"ramp_s={self.ramp_s:g} needs a run time", remedy="set runtime_s")
        if self.reread and self.rw not in {"read", "randread"}:
            raise RequestError(f"reread needs rw=read or rw=randread, not rw={self.rw}")
        return self

    @property
    def timed(self) -> bool:
        """Whether the run time, and not the amount of data, ends the job."""
        return self.runtime_s is not None if self.time_based is None else self.time_based

    @property
    def directions(self) -> tuple[str, ...]:
        """The directions of the job: ``read``, ``write``, or both."""
        return tuple(of for of in DIRECTIONS if of in self.rw) or DIRECTIONS

    @property
    def amount(self) -> int | None:
        """Bytes that the jobs of one machine read and write in total; None if a run time is set, or for a job file."""
        if self.job_file is not None or self.runtime_s is not None:
            return None
        return self.numjobs * self.nrfiles * (self.size // self.nrfiles // self.bs * self.bs)

    def workload(self) -> "Fio":
        """Return the workload that runs fio with these settings."""
        return Fio(self)

    def work(self) -> Work:
        """Return the properties of the workload's timed part that decide which caches can serve its I/O."""
        if self.job_file is not None:
            return work_of_jobs(self.job_file, self.workload().working_set or None, everywhere=self.all_machines)
        interval = min((every for every in (self.fsync, self.fdatasync) if every), default=0)
        return Work(
            self.workload().working_set,
            reads="read" in self.directions,
            writes="write" in self.directions,
            durable=durable_of(self.sync != "none", interval * self.bs, self.size, at_end=self.end_fsync),
            direct=self.direct,
            # Without a run time fio accesses each block once, also at random offsets: fio keeps a map of blocks.
            once=not self.timed,
            warm=self.reread,
            everywhere=self.all_machines,
        )

    def access(self, *, clients: int = 1) -> Access | None:
        """Return the storage requests of fio if the workload runs on ``clients`` clients; None for a job file."""
        if self.job_file is not None:
            return None
        clients = clients if self.all_machines else 1
        interval = min((every for every in (self.fsync, self.fdatasync) if every), default=0)
        reads = 1.0 if self.rw.endswith("read") else 0.0
        return Access(
            size=self.bs,
            read_share=self.rwmixread / 100 if self.rw in {"rw", "readwrite", "randrw"} else reads,
            sequential=not self.rw.startswith("rand"),
            depth=self.iodepth,
            streams=self.numjobs * clients,
            clients=clients,
            sync_every=self.bs if self.sync != "none" else interval * self.bs or None,
            working_set=self.size * self.numjobs * clients,
            direct=self.direct,
        )


def fio_options(spec: FioSpec) -> dict[str, str]:
    """Return the job as options of fio, without the option that names its files."""
    options: dict[str, object] = {
        "name": "job", "rw": spec.rw, "bs": spec.bs, "size": spec.size, "numjobs": spec.numjobs,
        "nrfiles": spec.nrfiles, "iodepth": spec.iodepth, "ioengine": spec.ioengine, "direct": int(spec.direct),
        "sync": spec.sync, "fsync": spec.fsync, "fdatasync": spec.fdatasync, "end_fsync": int(spec.end_fsync),
        "overwrite": int(spec.overwrite), "rwmixread": spec.rwmixread, "randseed": spec.randseed,
        "thread": 1, "fallocate": "none", "invalidate": 0,
    }  # fmt: skip
    if spec.runtime_s is not None:
        options |= {"runtime": f"{round(spec.runtime_s * 1000)}ms", "time_based": int(spec.timed)}
    if spec.ramp_s:
        options["ramp_time"] = f"{round(spec.ramp_s * 1000)}ms"
    return {name: str(value) for name, value in options.items()}


def fio_command(spec: FioSpec, path: str, *, times: int = 1) -> list[str]:
    """Return the command that runs the job ``times`` times in sequence, each time on a new file at ``path``.

    One process of fio runs all of these jobs, because its start takes longer than a short job. fio prints one report.
    """
    job = _words({**fio_options(spec), "filename": path, "unlink": "1", "stonewall": "1"})
    return ["fio", "--output-format=json+", *job[1:] * times]


def fio_in_directory(spec: FioSpec, directory: str, *, layout: bool = False) -> list[str]:
    """Return the command that runs the job in a directory, or, with ``layout``, only creates the job's files."""
    if spec.job_file is not None:
        return ["fio", *REPORTING, JOB_FILE]
    options = {**fio_options(spec), "directory": directory}
    return [*_words(options | ({"create_only": "1"} if layout else {})), *REPORTING]


def fio_on_device(spec: FioSpec, device: str) -> list[str]:
    """Return the command that runs the job on the first bytes of a raw device.

    Raises:
        RequestError: the settings have a job file, whose jobs work on files.
    """
    if spec.job_file is not None:
        raise RequestError("a fio job file runs in a directory, not on a raw device", remedy='set on = "server"')
    return [*_words({**fio_options(spec), "filename": device}), *REPORTING]


def fio_job_file(spec: FioSpec, directory: str, *, layout: bool = False) -> str:
    """Return the content of the user's job file, with settings for the directory and the random seed."""
    settings = {"directory": directory, "randseed": str(spec.randseed)}
    return job_files.with_settings(spec.job_file or "", settings | ({"create_only": "1"} if layout else {}))


def primary_of(spec: FioSpec, result: FioResult) -> str:
    """Return the name of the primary value: IOPS for jobs with random offsets or fsyncs, otherwise MB/s."""
    moved = [of for of in DIRECTIONS if result.bytes_of[of]] if spec.job_file is not None else spec.directions
    by_operation = spec.job_file is None and (spec.rw.startswith("rand") or bool(spec.fsync or spec.fdatasync))
    return f"{moved[0] if len(moved) == 1 else 'total'}_{'iops' if by_operation else 'mb_s'}"


def read_ended(spec: FioSpec, ended: Completed) -> tuple[FioResult, ...]:
    """Return the reports in the output of an fio that has ended.

    Raises:
        RigError: fio failed, transferred no bytes or fewer than requested, or ended before ``runtime_s``.
    """
    said = f": {errors}" if (errors := ended.stderr.strip()[-500:]) else ""
    try:
        reports = parse_fio_reports(ended.stdout)
    except RigError as error:
        raise RigError(f"{ended.where}: {error}{said}") from error
    result = reports[-1]
    if not ended.ok:
        raise RigError(f"{ended.where}: fio ended with status {ended.status}{said}")
    if not result.bytes or not result.seconds:
        raise RigError(f"{ended.where}: fio read and wrote 0 bytes{said}")
    if spec.timed and result.seconds < FULL_TIME * (spec.runtime_s or 0):
        raise RigError(f"{ended.where}: fio ended after {result.seconds:g} s instead of {spec.runtime_s:g} s{said}")
    if spec.amount is not None and result.bytes < spec.amount:
        raise RigError(f"{ended.where}: fio read and wrote {result.bytes} bytes instead of {spec.amount}{said}")
    return reports


class Fio(Tool[FioSpec]):
    """Runs fio on the first of the workload's machines, or on all of them at the same time."""

    programs = ("fio", "timeout")

    @property
    def working_set(self) -> int:
        """Bytes of the files of all jobs of one machine; 0 if a job file does not state the sizes."""
        spec = self.spec
        return spec.size * spec.numjobs if spec.job_file is None else job_files.working_set_of(spec.job_file)

    @property
    def timed_s(self) -> float | None:
        """The run time in seconds, without the ramp; None if the amount of work ends the run."""
        if self.spec.job_file is not None:
            return job_files.timed_s_of(self.spec.job_file)
        return self.spec.runtime_s if self.spec.timed else None

    def prepare(self, place: Place) -> None:
        """Remove the files of an earlier run, and write the files that the job reads or overwrites.

        With ``reread``, also empty the caches and read the files. A raw device needs no preparation.
        """
        if place.device is not None:
            return
        self.clean(place)
        on_all(self._machines(place), lambda machine: machine.succeed(["mkdir", _directory(machine, place)]))
        if self.spec.job_file is not None or "read" in self.spec.directions or self.spec.overwrite:
            self._fio(place, layout=True)
        if self.spec.reread:
            on_all(self._machines(place), empty_caches)
            self._fio(place)

    def run(self, place: Place) -> Sample:
        """Run the job, and return its values; rates of several machines are the sum of bytes over the longest time.

        Raises:
            RigError: fio failed, exceeded its deadline, did less than requested, or its output is malformed.
        """
        if not self.spec.reread:
            on_all(self._machines(place), empty_caches)
        ran = self._fio(place)
        reports = {name: read_ended(self.spec, ended) for name, ended in ran.items()}
        result = merged([of_machine[-1] for of_machine in reports.values()])
        primary = primary_of(self.spec, result)
        subject, _, unit = primary.partition("_")
        directions = DIRECTIONS if subject == "total" else (subject,)
        return Sample(
            primary=primary,
            values=result.values,
            seconds=result.seconds,
            read_bytes=result.bytes_of["read"],
            written_bytes=result.bytes_of["write"],
            series=added_series(
                [series(after_ramp(one, self.spec.ramp_s), directions, unit) for one in reports.values()]
            ),
            output={name: last_report(ended.stdout) for name, ended in ran.items()},
        )

    def clean(self, place: Place) -> None:
        """Remove the job's files on each machine."""
        if place.device is not None:
            return
        on_all(self._machines(place), lambda machine: machine.succeed(["rm", "-rf", _directory(machine, place)]))

    def _fio(self, place: Place, *, layout: bool = False) -> dict[str, Completed]:
        machines = self._machines(place)
        specs = {
            machine.name: self.spec.model_copy(update={"randseed": self.spec.randseed + turn})
            for turn, machine in enumerate(machines)
        }

        def fio(machine: Machine) -> Completed:
            spec, directory = specs[machine.name], _directory(machine, place)
            limit = spec.deadline_s + spec.ramp_s + (self.timed_s or 0)
            if place.device is not None:
                return run_limited(machine, fio_on_device(spec, place.device), limit)
            if spec.job_file is not None:
                machine.put(fio_job_file(spec, directory, layout=layout), JOB_FILE)
            ended = run_limited(machine, fio_in_directory(spec, directory, layout=layout), limit)
            if layout and not ended.ok:
                parse_fio(f"{ended.stdout}\n{ended.stderr}")
                raise RigError(f"{machine.name}: fio could not create its files: {ended.stderr.strip()[-300:]}")
            return ended

        return on_all(machines, fio)

    def _machines(self, place: Place) -> Sequence[Machine]:
        return place.machines if self.spec.all_machines else place.machines[:1]


def _words(options: dict[str, str]) -> list[str]:
    return ["fio", *(f"--{name}={value}" for name, value in options.items())]


def _directory(machine: Machine, place: Place) -> str:
    return own_directory(machine, place.directory, NAME)
