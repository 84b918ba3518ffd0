"""Presets: named settings of fio, each for one purpose; and the parser of the user's fio job files."""

import re
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from configparser import Error as BadFile
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BeforeValidator

from raidproof.core.errors import RequestError
from raidproof.core.units import KIB, MIB
from raidproof.workload.workload import Durable, Work, parse_tool_size

GLOBAL = "global"
"""Name of the section of a job file whose settings apply to the following jobs."""
_SECONDS = {"us": 1e-6, "ms": 1e-3, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
"""Seconds in each unit of time that fio accepts."""

Job = Mapping[str, str | None]
"""The settings of one job of a fio job file, by option; None for an option without a value."""

_SEQUENTIAL = {"bs": MIB}
_RANDOM = {"bs": 4 * KIB, "direct": True, "ioengine": "libaio", "iodepth": 16}
# As iozone -I: O_DIRECT, one request at a time. Like iozone, fio accesses each record of a random pass once.
_RECORDS = {"bs": 128 * KIB, "direct": True, "ioengine": "psync"}
PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "sequential-write": {"rw": "write", **_SEQUENTIAL},
        "sequential-read": {"rw": "read", **_SEQUENTIAL},
        "random-read": {"rw": "randread", **_RANDOM},
        "random-write": {"rw": "randwrite", "overwrite": True, **_RANDOM},
        "mixed": {"rw": "randrw", "rwmixread": 70, "overwrite": True, **_RANDOM},
        # As a database or a mail server: each small write is durable before the next.
        "fsync-heavy": {"rw": "randwrite", "bs": 4 * KIB, "fsync": 1, "overwrite": True},
        "many-clients": {"rw": "write", "all_machines": True, **_SEQUENTIAL},
        "iozone-write": {"rw": "write", **_RECORDS},
        "iozone-rewrite": {"rw": "write", "overwrite": True, **_RECORDS},
        "iozone-read": {"rw": "read", **_RECORDS},
        "iozone-reread": {"rw": "read", "reread": True, **_RECORDS},
        "iozone-random-read": {"rw": "randread", **_RECORDS},
        "iozone-random-write": {"rw": "randwrite", "overwrite": True, **_RECORDS},
    }
)
"""The settings of `FioSpec` in each preset. A plan sets the record size with ``bs``, the file size with ``size``."""
_WEAKEST_FIRST: tuple[Durable, ...] = ("no", "end", "each")
"""The values of `Durable`, in the order of increasing durability."""


def _read(value: Any) -> Any:
    """Return the content of a job file. A value of one line is the path of the file; other values are its content.

    Raises:
        RequestError: the file cannot be read, or is not a job file.
    """
    if not isinstance(value, str | Path):
        return value
    if "\n" in str(value):
        jobs_of(str(value))
        return value
    try:
        content = Path(value).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"fio job file {str(value)!r} cannot be read: {error}") from error
    # The final newline distinguishes content from a path when a stored value is validated again.
    content = content if content.endswith("\n") else f"{content}\n"
    jobs_of(content)
    return content


JobFile = Annotated[str, BeforeValidator(_read)]
"""A pydantic field of a job file: it accepts the path of the file, and holds the content."""


def jobs_of(content: str) -> list[Job]:
    """Return the settings of each job, including those of the ``[global]`` sections before the job.

    Raises:
        RequestError: the text is not a job file, has no job, or sets ``directory``.
    """
    jobs: list[Job] = []
    common: dict[str, str | None] = {}
    for name, settings in _sections(content):
        if "directory" in settings:
            raise RequestError(
                "the fio job file sets the option directory",
                remedy="remove the option directory from the job file: raidproof sets the directory",
            )
        if name == GLOBAL:
            common |= settings
        else:
            jobs.append({**common, **settings})
    if not jobs:
        raise RequestError("the fio job file has no job", remedy="add a section [NAME] for each job")
    return jobs


def _sections(content: str) -> Iterator[tuple[str, dict[str, str | None]]]:
    # fio allows repeated sections, and each [global] applies to the jobs after it, so each section is parsed alone.
    for part in re.split(r"^(?=[ \t]*\[)", content, flags=re.MULTILINE):
        parser = ConfigParser(
            allow_no_value=True, interpolation=None, delimiters=("=",), comment_prefixes=("#", ";"), strict=False,
            default_section="",
        )  # fmt: skip
        try:
            parser.read_string(part)
        except BadFile as error:
            raise RequestError(f"the fio job file cannot be parsed: {error.message}") from error
        for name in parser.sections():
            yield name, dict(parser.items(name))


def working_set_of(content: str) -> int:
    """Return the bytes of the files of all jobs; 0 if a job does not set its size in bytes."""
    total = 0
    for job in jobs_of(content):
        try:
            total += parse_tool_size(job.get("size") or "") * int(job.get("numjobs") or 1)
        except (RequestError, ValueError):
            return 0
    return total


def timed_s_of(content: str) -> float | None:
    """Return the run time of the jobs in seconds; None if a job is not time-based.

    Jobs run at the same time, except that a job with ``stonewall`` starts after the jobs before it.
    """
    groups = [0.0]
    for job in jobs_of(content):
        runtime = _seconds(job.get("runtime"))
        if runtime is None or "time_based" not in job:
            return None
        if "stonewall" in job or "wait_for_previous" in job:
            groups.append(0.0)
        groups[-1] = max(groups[-1], runtime)
    return sum(groups)


def _seconds(text: str | None) -> float | None:
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", (text or "").strip().lower())
    return int(match.group(1)) * _SECONDS[match.group(2)] if match and match.group(2) in _SECONDS else None


def with_settings(content: str, settings: Mapping[str, str]) -> str:
    """Return a job file with additional global settings at its beginning; the file's own settings take precedence."""
    lines = [f"[{GLOBAL}]", *(f"{name}={value}" for name, value in settings.items())]
    return "\n".join([*lines, content])


def work_of_jobs(content: str, working_set: int | None, *, everywhere: bool) -> Work:
    """Return the properties of a job file's jobs that decide which caches can serve their reads and writes.

    If the jobs differ in a property, the value that allows more caches counts.
    """
    jobs = jobs_of(content)
    directions = [_word(job, "rw", _word(job, "readwrite", "read")) for job in jobs]
    writing = [job for job, rw in zip(jobs, directions, strict=True) if "write" in rw or "rw" in rw or "trim" in rw]
    return Work(
        working_set,
        reads=any("read" in rw or "rw" in rw for rw in directions),
        writes=bool(writing),
        durable=min((_job_durable(job) for job in writing), key=_WEAKEST_FIRST.index, default="no"),
        direct=all(_on(job, "direct") for job in jobs),
        # Several jobs may share a file, and then access a block several times.
        once=len(jobs) == 1 and not (_on(jobs[0], "time_based") or _on(jobs[0], "norandommap") or "loops" in jobs[0]),
        everywhere=everywhere,
    )


def _job_durable(job: Job) -> Durable:
    # Only fsync after each write counts as "each": the bytes between two fsyncs are not computed here.
    each = any(_word(job, name, "0") == "1" for name in ("fsync", "fdatasync"))
    synchronous = _word(job, "sync", "none") not in {"none", "0"}
    return "each" if each or synchronous else "end" if _on(job, "end_fsync") else "no"


def _word(job: Job, name: str, default: str) -> str:
    return (job.get(name) or default).strip().lower()


def _on(job: Job, name: str) -> bool:
    """Return whether a switch of a job is on: it has no value, or a value other than 0."""
    return name in job and (job[name] or "1").strip() != "0"
