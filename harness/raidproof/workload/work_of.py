"""What each tool does in its timed part, as far as caches care."""

from collections.abc import Callable
from typing import Any

from raidproof.core.errors import RigError
from raidproof.core.layer import Spec
from raidproof.core.units import MIB
from raidproof.workload.bonnie import Bonnie, BonnieSpec
from raidproof.workload.dd import DdSpec
from raidproof.workload.fio import Fio, FioSpec
from raidproof.workload.hdparm import HdparmSpec
from raidproof.workload.metadata import CLUSTER, MetadataSpec
from raidproof.workload.postmark import Postmark, PostmarkSpec
from raidproof.workload.presets import Job, jobs_of
from raidproof.workload.regime import Durable, Work
from raidproof.workload.shared_file import SharedFileSpec

_HDPARM_BUFFER = 2 * MIB
"""What ``hdparm -T`` reads over and over (TIMING_BUF_MB in hdparm.c)."""
_WEAKEST_FIRST: tuple[Durable, ...] = ("no", "end", "each")


def _fio(spec: FioSpec) -> Work:
    if spec.job_file is not None:
        return _job_file(spec)
    interval = min((every for every in (spec.fsync, spec.fdatasync) if every), default=0)
    return Work(
        Fio(spec).working_set,
        reads="read" in spec.directions,
        writes="write" in spec.directions,
        durable=durable_of(spec.sync != "none", interval * spec.bs, spec.size, at_end=spec.end_fsync),
        direct=spec.direct,
        # Without a time it touches each block once: random offsets too, by fio's map of blocks.
        once=not spec.timed,
        warm=spec.reread,
        everywhere=spec.all_machines,
    )


def durable_of(synchronous: bool, interval: int, size: int, *, at_end: bool) -> Durable:
    """Say when writes become durable: fsync comes after ``interval`` bytes (0: never), or only at the end."""
    if synchronous or 0 < interval < size:
        return "each"
    return "end" if interval or at_end else "no"


def _job_file(spec: FioSpec) -> Work:
    """Of several jobs, what lets most into caches: one that does so is enough."""
    jobs = jobs_of(spec.job_file or "")
    directions = [_word(job, "rw", _word(job, "readwrite", "read")) for job in jobs]
    writing = [job for job, rw in zip(jobs, directions, strict=True) if "write" in rw or "rw" in rw or "trim" in rw]
    return Work(
        Fio(spec).working_set or None,
        reads=any("read" in rw or "rw" in rw for rw in directions),
        writes=bool(writing),
        durable=min((_job_durable(job) for job in writing), key=_WEAKEST_FIRST.index, default="no"),
        direct=all(_on(job, "direct") for job in jobs),
        # Jobs may share a file, so only a single one certainly touches each block once.
        once=len(jobs) == 1 and not (_on(jobs[0], "time_based") or _on(jobs[0], "norandommap") or "loops" in jobs[0]),
        everywhere=spec.all_machines,
    )


def _job_durable(job: Job) -> Durable:
    # After how many bytes fsync comes is not worked out here: only after each write is certain.
    each = any(_word(job, name, "0") == "1" for name in ("fsync", "fdatasync"))
    synchronous = _word(job, "sync", "none") not in {"none", "0"}
    return "each" if each or synchronous else "end" if _on(job, "end_fsync") else "no"


def _word(job: Job, name: str, default: str) -> str:
    return (job.get(name) or default).strip().lower()


def _on(job: Job, name: str) -> bool:
    """Whether a switch is on; by its name alone it is."""
    return name in job and (job[name] or "1").strip() != "0"


def _dd(spec: DdSpec) -> Work:
    flags = {*spec.oflag, *spec.iflag}
    return Work(
        spec.total,
        reads=spec.direction == "read",
        writes=spec.direction == "write",
        durable=durable_of(
            bool(flags & {"sync", "dsync"}), 0, spec.total, at_end=bool({"fsync", "fdatasync"} & {*spec.conv})
        ),
        direct="direct" in flags,
        closes=True,
        everywhere=spec.all_machines,
    )


def _hdparm(spec: HdparmSpec) -> Work:
    memory = spec.timing == "T"
    return Work(_HDPARM_BUFFER if memory else None, reads=True, writes=False, direct=spec.direct, once=not memory)


def _postmark(spec: PostmarkSpec) -> Work:
    # It reads and appends to files that it has just written, and closes each.
    working_set = Postmark(spec).working_set
    return Work(working_set, reads=spec.bias_read > 0, writes=True, once=False, closes=True, everywhere=True)


def _bonnie(spec: BonnieSpec) -> Work:
    # By its primary value: writing the large file, or creating small ones.
    return Work(
        Bonnie(spec).working_set,
        reads=False,
        writes=True,
        durable="each" if spec.fsync else "no",
        direct=spec.direct and bool(spec.size),
        closes=not spec.size,
        everywhere=True,
    )


def _metadata(spec: MetadataSpec) -> Work:
    # By its primary value: creating.
    return Work(
        spec.files * (spec.size + CLUSTER) if spec.files else None,
        reads=False,
        writes=True,
        durable="each" if spec.fsync_file or spec.fsync_directory else "no",
        closes=True,
        everywhere=True,
    )


def _shared_file(spec: SharedFileSpec) -> Work:
    # Every round ends with fsync; the check is not timed.
    return Work(spec.size, reads=False, writes=True, durable="each", everywhere=True)


_WORKS: dict[type[Spec], Callable[[Any], Work]] = {
    FioSpec: _fio,
    DdSpec: _dd,
    HdparmSpec: _hdparm,
    PostmarkSpec: _postmark,
    BonnieSpec: _bonnie,
    MetadataSpec: _metadata,
    SharedFileSpec: _shared_file,
}


def work_of(spec: Spec) -> Work:
    """Return what a tool with these settings does.

    Raises:
        RigError: nobody has said so of this tool.
    """
    if (known := _WORKS.get(type(spec))) is None:
        raise RigError(f"what {type(spec).__name__} does to caches is not known")
    return known(spec)
