"""The kernel's files behind the knobs: what is written into them, and what is read out."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from pydantic import Field

from raidproof.core.errors import RigError
from raidproof.core.layer import State
from raidproof.core.units import KIB
from raidproof.storage.tuning.spec import TuningSpec

DIRTY = ("dirty_bytes", "dirty_background_bytes", "dirty_ratio", "dirty_background_ratio")
VM = "/proc/sys/vm"
WRITE_BACK = {
    "dirty_expire_s": f"{VM}/dirty_expire_centisecs",
    "dirty_writeback_s": f"{VM}/dirty_writeback_centisecs",
    "xfs_sync_s": "/proc/sys/fs/xfs/xfssyncd_centisecs",
}
"""When data is written back that no client has asked to be durable: field and file, which counts 1/100 s."""
XFS_SYNC_DEFAULT_S = 30.0
Whose = Literal["server", "client"]


class QueueState(State):
    """The queue of a member, as found."""

    scheduler: str
    nr_requests: int
    read_ahead: int
    max_request: int


class MdTuningState(State):
    """The knobs of an md device, as found; None where its level has none."""

    read_ahead: int
    stripe_cache_size: int | None = None
    md_threads: int | None = None
    sync_speed_min: int | None = None
    sync_speed_max: int | None = None


class DirtyState(State):
    """Limits for dirty pages of a machine: the bytes are 0 where the ratio (percent of free memory) holds."""

    dirty_bytes: int
    dirty_background_bytes: int
    dirty_ratio: int
    dirty_background_ratio: int
    dirty_expire_s: float
    """Age from which dirty data is written back."""
    dirty_writeback_s: float
    """How often the kernel looks for such data; 0 is never."""
    xfs_sync_s: float | None = None
    """How often XFS writes its log out; None where the kernel has loaded no XFS."""


class TuningState(State):
    """The knobs of all machines, as found."""

    members: dict[str, QueueState] = Field(default_factory=dict)
    """By the disk's path."""
    arrays: dict[str, MdTuningState] = Field(default_factory=dict)
    """By the md device's path."""
    server: DirtyState | None = None
    clients: dict[str, DirtyState] = Field(default_factory=dict)
    """By the machine's name."""


class Knob(NamedTuple):
    """One file of the kernel's, and how a value is written into it."""

    name: str
    """Of the field, in request and state."""
    file: str
    unit: int = 1
    """Bytes for one of the file's unit."""


# In this order they are written: a change of the scheduler sets nr_requests anew.
QUEUE = (
    Knob("scheduler", "queue/scheduler"),
    Knob("nr_requests", "queue/nr_requests"),
    Knob("read_ahead", "queue/read_ahead_kb", KIB),
    Knob("max_request", "queue/max_sectors_kb", KIB),
)
MD = (
    Knob("read_ahead", "queue/read_ahead_kb", KIB),
    Knob("stripe_cache_size", "md/stripe_cache_size"),
    Knob("md_threads", "md/group_thread_cnt"),
    Knob("sync_speed_min", "md/sync_speed_min", KIB),
    Knob("sync_speed_max", "md/sync_speed_max", KIB),
)


def asked_of_md(spec: TuningSpec, knob: Knob) -> str | int | None:
    """What was asked of an md device's knob."""
    value: str | int | None = getattr(spec, "array_read_ahead" if knob.name == "read_ahead" else knob.name)
    return value


def queue_values(spec: TuningSpec, kernel_names: Iterable[str]) -> dict[str, str]:
    """What to write for the members, by path."""
    return _values(QUEUE, lambda knob: getattr(spec, knob.name), kernel_names)


def md_values(spec: TuningSpec, kernel_names: Iterable[str]) -> dict[str, str]:
    """What to write for the array that is exported, by path."""
    return _values(MD, lambda knob: asked_of_md(spec, knob), kernel_names)


def queue_restoring(spec: TuningSpec, kernel_name: str, before: QueueState) -> dict[str, str]:
    """What to write for a member to undo ``queue_values``, by path."""

    def changed(knob: Knob) -> str | int | None:
        value: str | int | None = getattr(before, knob.name)
        return None if getattr(spec, knob.name) is None else value

    return _values(QUEUE, changed, [kernel_name])


def dirty_values(spec: TuningSpec, whose: Whose) -> dict[str, str]:
    """What to write on a machine, by path."""
    asked = {name: getattr(spec, f"{whose}_{name}") for name in DIRTY[:2]}
    return {f"{VM}/{name}": str(value) for name, value in asked.items() if value is not None}


def write_back_values(spec: TuningSpec) -> dict[str, str]:
    """What to write on the server, by path."""
    asked = {path: getattr(spec, f"server_{name}") for name, path in WRITE_BACK.items()}
    return {path: str(round(100 * seconds)) for path, seconds in asked.items() if seconds is not None}


def write_back_restoring(spec: TuningSpec, before: DirtyState) -> dict[str, str]:
    """What to write on the server to undo ``write_back_values``, by path; what was not there has its default."""
    found = {path: getattr(before, name) for name, path in WRITE_BACK.items()}
    default = XFS_SYNC_DEFAULT_S
    return {
        path: str(round(100 * (default if found[path] is None else found[path]))) for path in write_back_values(spec)
    }


def dirty_restoring(spec: TuningSpec, whose: Whose, before: DirtyState) -> dict[str, str]:
    """What to write on a machine to undo ``dirty_values``, by path."""
    values = {}
    for path in dirty_values(spec, whose):
        limit = path.removeprefix(f"{VM}/")
        # 0 bytes cannot be written: it is the ratio that takes their place again.
        name = limit if getattr(before, limit) else limit.replace("bytes", "ratio")
        values[f"{VM}/{name}"] = str(getattr(before, name))
    return values


def _values(
    knobs: Sequence[Knob], asked: Callable[[Knob], str | int | None], kernel_names: Iterable[str]
) -> dict[str, str]:
    return {
        f"/sys/block/{name}/{knob.file}": str(value // knob.unit if isinstance(value, int) else value)
        for name in kernel_names
        for knob in knobs
        if (value := asked(knob)) is not None
    }


def parse_queue(kernel_name: str, content: Mapping[str, str]) -> QueueState:
    """Read the queue of a disk out of files by path.

    Raises:
        RigError: one is missing.
    """
    return QueueState.model_validate(_read(QUEUE, kernel_name, content))


def parse_md_tuning(kernel_name: str, content: Mapping[str, str]) -> MdTuningState:
    """Read the knobs of an md device out of files by path.

    Raises:
        RigError: one that every level has is missing.
    """
    return MdTuningState.model_validate(_read(MD, kernel_name, content))


def parse_dirty(content: Mapping[str, str]) -> DirtyState:
    """Read a machine's limits out of files by path.

    Raises:
        RigError: one is missing.
    """
    try:
        limits = {name: int(content[f"{VM}/{name}"]) for name in DIRTY}
        found = {name: int(content[path]) / 100 for name, path in WRITE_BACK.items() if path in content}
        return DirtyState.model_validate(limits | found)
    except (KeyError, ValueError) as error:
        raise RigError(f"no limits for dirty pages: {error!r}") from error


def _read(knobs: Sequence[Knob], kernel_name: str, content: Mapping[str, str]) -> dict[str, str | int]:
    found: dict[str, str | int] = {}
    for knob in knobs:
        path = f"/sys/block/{kernel_name}/{knob.file}"
        if (text := content.get(path)) is None:
            if knob.file.startswith("md/"):
                continue
            raise RigError(f"{path} is missing")
        if knob.name == "scheduler":
            # "none [mq-deadline] kyber": the one in brackets; a device without a choice says only "none".
            chosen = re.search(r"\[([\w-]+)\]", text)
            found[knob.name] = chosen.group(1) if chosen else text.strip()
        elif (number := re.match(r"\d+", text)) is not None:
            # "200000 (system)", says md of a speed that is not the array's own.
            found[knob.name] = int(number.group()) * knob.unit
        else:
            raise RigError(f"{path} should be a number: {text!r}")
    return found
