"""fio: patterns, presets and job files, and its JSON output with all jobs, groups and intervals."""

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
SHORTEST_INTERVAL_S = 0.3
"""Shorter intervals give no rate: the remainder between fio's last periodic report and its end."""
_BEGIN = re.compile(r"^\{", re.MULTILINE)

NAME = "raidproof-fio"
JOB_FILE = "/run/raidproof/job.fio"
REPORTING = ("--output-format=json+", "--status-interval=1")
"""json+ contains the latency histograms: unlike percentiles, histograms of several jobs can be added up."""
SYNCHRONOUS = ("psync", "sync", "pvsync", "mmap")
FULL_TIME = 0.9
"""A run that ended before this share of its time is not a measurement."""
_WITH_A_JOB_FILE = {"tool", "job_file", "all_machines", "randseed", "deadline_s"}


class FioResult(State):
    """What fio measured, over all jobs and groups of one machine, or over several machines."""

    fio_version: str
    at_s: float
    """Time of the report, on its machine's clock."""
    bytes_of: dict[str, int]
    """By direction: ``read`` and ``write``."""
    ios_of: dict[str, int]
    seconds_of: dict[str, float]
    """As fio counts: the longest job of a group, summed over groups; includes ``end_fsync``."""
    seconds: float
    """Seconds of both directions together."""
    latencies: dict[str, dict[int, int]]
    """By ``read``, ``write`` (completion) and ``fsync``: number of operations by latency in ns; json+ only."""

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return sum(self.bytes_of.values())

    @property
    def mb_per_s(self) -> float:
        """10^6 bytes/s, both directions together, including the fsync."""
        return self.bytes / 1e6 / self.seconds if self.seconds else 0.0

    @property
    def values(self) -> dict[str, float]:
        """Every result under its name: MB/s, IOPS, and the 50th and 99th latency percentiles."""
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
    """Return the least latency in ns that this percentage of operations did not exceed."""
    wanted, seen = sum(histogram.values()) * percent / 100, 0
    for nanoseconds in sorted(histogram):
        seen += histogram[nanoseconds]
        if seen >= wanted:
            return nanoseconds
    raise ValueError("no latencies")


def merged(results: Sequence[FioResult]) -> FioResult:
    """Merge the results of machines that ran at the same time: the sum of bytes, over the longest time."""
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
    """Parse fio's JSON; of several reports, the last.

    Raises:
        RigError: no report, a truncated report, a failed job, or a fio that was killed; with fio's messages.
    """
    return parse_fio_reports(text)[-1]


def parse_fio_reports(text: str) -> tuple[FioResult, ...]:
    """Parse every report of a fio that reports at intervals; each counts from the beginning.

    Raises:
        RigError: as ``parse_fio``.
    """
    with _readable(text) as reports:
        return tuple(_result(report) for report in reports)


def parse_fio_jobs(text: str) -> tuple[FioResult, ...]:
    """Parse the last report of a fio whose jobs ran in sequence; jobs that ran at the same time are one result.

    Raises:
        RigError: as ``parse_fio``.
    """
    with _readable(text) as reports:
        groups: dict[int, list[Any]] = {}
        for job in reports[-1]["jobs"]:
            groups.setdefault(job["groupid"], []).append(job)
        return tuple(_result(reports[-1] | {"jobs": jobs}) for _, jobs in sorted(groups.items()))


@contextmanager
def _readable(text: str) -> Iterator[list[Any]]:
    """Give the reports of a fio that succeeded; what the body cannot read in them becomes a RigError."""
    reports, plain = _split(text)
    try:
        if errors := [said for job in reports[-1]["jobs"] if (said := _failure(job))]:
            raise RigError(f"fio: {'; '.join(errors)}{f': {plain}' if plain else ''}")
        if "terminating on signal" in plain:
            raise RigError(f"fio was ended before its time: {plain}")
        yield reports
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise RigError(f"fio's report cannot be read: {error!r}; it begins {text[:200]!r}") from error


def last_report(text: str) -> str:
    """Return fio's output without all reports but the last: each is as large, and the series already contains them."""
    begins = [match.start() for match in _BEGIN.finditer(text)]
    return text[: begins[0]] + text[begins[-1] :] if begins else text


def after_ramp(reports: Sequence[FioResult], ramp_s: float) -> Sequence[FioResult]:
    """Leave out the reports of fio's ramp time: fio counts from zero when it is over."""
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
            # The ramp of a job file is over: fio counts from zero again.
            points, before, amount_before = [], 0.0, 0.0
        if (lasted := report.seconds - before) >= SHORTEST_INTERVAL_S:
            points.append(Point(at_s=report.seconds, value=(amount - amount_before) / lasted))
            before, amount_before = report.seconds, amount
    return tuple(points)


def added_series(of_machines: Sequence[tuple[Point, ...]]) -> tuple[Point, ...]:
    """Add up the rates of machines that ran at the same time, interval by interval, as long as all of them ran."""
    return tuple(
        Point(at_s=max(point.at_s for point in points), value=sum(point.value for point in points))
        for points in zip(*of_machines, strict=False)
    )


def _split(text: str) -> tuple[list[Any], str]:
    """Separate the reports from the plain lines: warnings come before, errors between."""
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
    # With continue_on_error, a failed job ends with error 0.
    number = job["error"] or job.get("first_error", 0)
    return f"job {job['jobname']!r} reports error {number} ({os.strerror(number)})" if number else ""


def _result(report: Any) -> FioResult:
    jobs = report["jobs"]
    groups: dict[int, dict[str, float]] = {}
    for job in jobs:
        group = groups.setdefault(job["groupid"], dict.fromkeys(DIRECTIONS, 0.0))
        for of in DIRECTIONS:
            # fio reports no time for a direction that did nothing.
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
    """One fio job, with the options of fio(1), or a job file."""

    on_devices: ClassVar[bool] = True

    tool: Literal["fio"] = "fio"
    preset: str | None = None
    """Preset with the defaults of all settings that are not given (workload/presets.py)."""
    job_file: JobFile | None = None
    """Path of a job file, relative to where the harness runs; the field holds its content."""
    rw: Literal["read", "write", "randread", "randwrite", "rw", "readwrite", "randrw"] = "write"
    bs: Annotated[ToolSize, Field(gt=0)] = MIB
    size: Annotated[ToolSize, Field(gt=0)] = 128 * MIB
    """Bytes of each of ``numjobs``, over all its files."""
    numjobs: int = Field(default=1, ge=1)
    nrfiles: int = Field(default=1, ge=1)
    iodepth: int = Field(default=1, ge=1)
    ioengine: Literal["psync", "sync", "pvsync", "mmap", "libaio", "posixaio", "io_uring"] = "psync"
    direct: bool = False
    sync: Literal["none", "sync", "dsync"] = "none"
    fsync: int = Field(default=0, ge=0)
    """Number of writes between two fsyncs; 0: none."""
    fdatasync: int = Field(default=0, ge=0)
    end_fsync: bool = True
    """Make the data durable inside the timed part; without it a write measures the client's page cache."""
    overwrite: bool = False
    """Write the file out before, so that the timed part allocates nothing."""
    rwmixread: int = Field(default=50, ge=0, le=100)
    runtime_s: float | None = Field(default=None, gt=0)
    time_based: bool | None = None
    """Continue for ``runtime_s`` however small the file; default: true if ``runtime_s`` is given."""
    ramp_s: float = Field(default=0, ge=0)
    """Seconds of work before the timed part, so that it begins in the steady state."""
    randseed: int = Field(default=1, ge=1)
    """Seed of random offsets: repetitions access the same offsets. Each further machine uses the next seed."""
    reread: bool = False
    """Read data that has just been read: measures caches, on purpose (unless ``direct``)."""
    all_machines: bool = False
    """Run on all clients at the same time, each with its own files."""
    deadline_s: float = Field(default=600.0, gt=0)
    """Seconds that fio may take in addition to its timed part."""

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, asked: Any) -> Any:
        if not isinstance(asked, dict) or (name := asked.get("preset")) is None:
            return asked
        preset = PRESETS[one_of("preset", name, PRESETS)]
        if (rw := asked.get("rw", preset["rw"])) != preset["rw"]:
            raise RequestError(f"preset {name!r} is rw={preset['rw']}, not rw={rw}", remedy="leave one of them out")
        return {**preset, **asked}

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.job_file is not None:
            others = set(type(self).model_fields) - _WITH_A_JOB_FILE
            if also := [name for name in others if getattr(self, name) != type(self).model_fields[name].default]:
                raise RequestError(f"beside a job file there is no {', '.join(sorted(also))}", remedy="write it there")
        if self.iodepth > 1 and self.ioengine in SYNCHRONOUS:
            raise RequestError(
                f"ioengine={self.ioengine} does one access at a time: there is no iodepth of {self.iodepth}",
                remedy="set ioengine=libaio, or iodepth=1 with a larger numjobs",
            )
        if self.bs > self.size // self.nrfiles:
            raise RequestError(f"bs={self.bs} is more than a file holds", remedy="ask for a larger size")
        if self.time_based and self.runtime_s is None:
            raise RequestError("time_based without a time", remedy="say runtime_s")
        if self.ramp_s and not self.timed:
            raise RequestError("a ramp belongs to a run of a given time", remedy="say runtime_s")
        if self.reread and self.rw not in {"read", "randread"}:
            raise RequestError(f"reread reads, and rw is {self.rw}")
        return self

    @property
    def timed(self) -> bool:
        """Whether a run time, not an amount, ends the job."""
        return self.runtime_s is not None if self.time_based is None else self.time_based

    @property
    def directions(self) -> tuple[str, ...]:
        """``read``, ``write``, or both."""
        return tuple(of for of in DIRECTIONS if of in self.rw) or DIRECTIONS

    @property
    def amount(self) -> int | None:
        """Bytes that one machine must have moved at the end; None if time ends the run, or for a job file."""
        if self.job_file is not None or self.runtime_s is not None:
            return None
        return self.numjobs * self.nrfiles * (self.size // self.nrfiles // self.bs * self.bs)

    def workload(self) -> "Fio":
        """Return the tool with these settings, ready to run."""
        return Fio(self)

    def work(self) -> Work:
        """Return the requests of the timed part that matter to caches."""
        if self.job_file is not None:
            return work_of_jobs(self.job_file, self.workload().working_set or None, everywhere=self.all_machines)
        interval = min((every for every in (self.fsync, self.fdatasync) if every), default=0)
        return Work(
            self.workload().working_set,
            reads="read" in self.directions,
            writes="write" in self.directions,
            durable=durable_of(self.sync != "none", interval * self.bs, self.size, at_end=self.end_fsync),
            direct=self.direct,
            # Without a run time fio touches each block once: random offsets too, because of fio's map of blocks.
            once=not self.timed,
            warm=self.reread,
            everywhere=self.all_machines,
        )

    def access(self, *, clients: int = 1) -> Access | None:
        """Return the storage requests of the timed part, on this number of clients; None for a job file."""
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
    """Return the job as fio options, without its files."""
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
    """Return the command that works on one file, several times in sequence, and reports once.

    Each time is a job of its own, on a new file: a start of fio takes longer than what a short job measures.
    """
    job = _words({**fio_options(spec), "filename": path, "unlink": "1", "stonewall": "1"})
    return ["fio", "--output-format=json+", *job[1:] * times]


def fio_in_directory(spec: FioSpec, directory: str, *, layout: bool = False) -> list[str]:
    """Return the command that works on files in a directory, or that only lays them out."""
    if spec.job_file is not None:
        return ["fio", *REPORTING, JOB_FILE]
    options = {**fio_options(spec), "directory": directory}
    return [*_words(options | ({"create_only": "1"} if layout else {})), *REPORTING]


def fio_on_device(spec: FioSpec, device: str) -> list[str]:
    """Return the command that works on the first bytes of a raw device.

    Raises:
        RequestError: for a job file, which names files.
    """
    if spec.job_file is not None:
        raise RequestError("a job file works in a directory, not on a raw device", remedy='say on = "server"')
    return [*_words({**fio_options(spec), "filename": device}), *REPORTING]


def fio_job_file(spec: FioSpec, directory: str, *, layout: bool = False) -> str:
    """Return the user's job file, with the directory of its files."""
    settings = {"directory": directory, "randseed": str(spec.randseed)}
    return job_files.with_settings(spec.job_file or "", settings | ({"create_only": "1"} if layout else {}))


def primary_of(spec: FioSpec, result: FioResult) -> str:
    """Return the name of the primary value: IOPS for random or synced jobs, else MB/s."""
    moved = [of for of in DIRECTIONS if result.bytes_of[of]] if spec.job_file is not None else spec.directions
    by_operation = spec.job_file is None and (spec.rw.startswith("rand") or bool(spec.fsync or spec.fdatasync))
    return f"{moved[0] if len(moved) == 1 else 'total'}_{'iops' if by_operation else 'mb_s'}"


def read_ended(spec: FioSpec, ended: Completed) -> tuple[FioResult, ...]:
    """Return the reports of a fio that ended.

    Raises:
        RigError: fio failed, or did less than requested; with fio's messages.
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
        raise RigError(f"{ended.where}: fio neither read nor wrote{said}")
    if spec.timed and result.seconds < FULL_TIME * (spec.runtime_s or 0):
        raise RigError(f"{ended.where}: fio ended after {result.seconds:g} s of {spec.runtime_s:g}{said}")
    if spec.amount is not None and result.bytes < spec.amount:
        raise RigError(f"{ended.where}: fio moved {result.bytes} bytes of {spec.amount}{said}")
    return reports


class Fio(Tool[FioSpec]):
    """Runs fio on the first machine of a place, or on all at once."""

    programs = ("fio", "timeout")

    @property
    def working_set(self) -> int:
        """Bytes of all jobs' files; 0 if a job file does not give them."""
        spec = self.spec
        return spec.size * spec.numjobs if spec.job_file is None else job_files.working_set_of(spec.job_file)

    @property
    def timed_s(self) -> float | None:
        """The run time in seconds, without ramp; None if the amount of work ends the run."""
        if self.spec.job_file is not None:
            return job_files.timed_s_of(self.spec.job_file)
        return self.spec.runtime_s if self.spec.timed else None

    def prepare(self, place: Place) -> None:
        """Remove old files; lay out durably the files that are read or overwritten, and empty these machines' caches.

        A raw device exists already, with all its blocks.
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
        """Run the job, on all machines at once if requested: rates are the sums over the longest time.

        Raises:
            RigError: fio failed, ran too long, did less than requested, or its output cannot be parsed.
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
        """Remove the files."""
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
                raise RigError(f"{machine.name}: fio could not lay out its files: {ended.stderr.strip()[-300:]}")
            return ended

        return on_all(machines, fio)

    def _machines(self, place: Place) -> Sequence[Machine]:
        return place.machines if self.spec.all_machines else place.machines[:1]


def _words(options: dict[str, str]) -> list[str]:
    return ["fio", *(f"--{name}={value}" for name, value in options.items())]


def _directory(machine: Machine, place: Place) -> str:
    return own_directory(machine, place.directory, NAME)
