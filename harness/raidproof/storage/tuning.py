"""Kernel settings of machines: requests, the files that hold them; set, read back, restored."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import PAGE_SIZE, Machine, Spec, State, Value, read_files, require_effective
from raidproof.core.units import KIB, Size, format_size

USUAL_WRITE_BACK = {"dirty_expire": 30, "dirty_writeback": 5, "xfs_sync": 30}
"""Linux's defaults, in seconds."""

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


class TuningSpec(Spec):
    """Knobs that are asked for; None leaves one as it is. Sizes in bytes."""

    scheduler: Literal["none", "mq-deadline", "kyber", "bfq"] | None = None
    """The I/O scheduler of each member."""
    nr_requests: int | None = Field(default=None, ge=4, le=65536)
    """Requests that may wait at each member; below 4 the kernel takes 4."""
    read_ahead: Size | None = None
    """Of each member. What is read through the array follows array_read_ahead."""
    max_request: Size | None = None
    """The largest request that a member is given (max_sectors_kb)."""
    array_read_ahead: Size | None = None
    stripe_cache_size: int | None = None
    """Stripes that md keeps in memory; each takes a page for every member. RAID4, 5 and 6 only."""
    md_threads: int | None = Field(default=None, ge=0, le=8192)
    """Threads that help md with stripes (group_thread_cnt); 0 is the array's own alone. RAID4, 5 and 6 only."""
    sync_speed_min: Size | None = None
    """Bytes per second that a resync takes at least of each member, whatever else wants them."""
    sync_speed_max: Size | None = None
    server_dirty_bytes: Size | None = None
    server_dirty_background_bytes: Size | None = None
    server_dirty_expire_s: float | None = Field(default=None, ge=0.01, le=3600)
    """Age from which the server writes dirty data back that no client has asked to be durable."""
    server_dirty_writeback_s: float | None = Field(default=None, ge=0.01, le=3600)
    """How often the server looks for such data."""
    server_xfs_sync_s: float | None = Field(default=None, ge=1, le=72)
    """How often XFS on the server writes its log out, and with it the metadata that no client has asked for."""
    client_dirty_bytes: Size | None = None
    """Written but not yet sent to the server: beyond it, write() waits."""
    client_dirty_background_bytes: Size | None = None
    """Beyond it, the client begins to send."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for name in ("read_ahead", "array_read_ahead"):
            if (size := getattr(self, name)) is not None and size % PAGE_SIZE:
                raise RequestError(f"{name} {format_size(size)}: the kernel rounds down to whole pages of 4KiB")
        if self.max_request is not None and (self.max_request < PAGE_SIZE or self.max_request % KIB):
            raise RequestError(f"max_request {format_size(self.max_request)}: whole KiB, at least a page of 4KiB")
        if self.stripe_cache_size is not None and not 17 <= self.stripe_cache_size <= 32768:
            raise RequestError(f"stripe_cache_size {self.stripe_cache_size}: md takes 17 to 32768")
        for name in ("sync_speed_min", "sync_speed_max"):
            if (speed := getattr(self, name)) is not None and (speed < KIB or speed % KIB):
                raise RequestError(f"{name} {format_size(speed)}: md counts in whole KiB per second, from 1 on")
        if self.sync_speed_min and self.sync_speed_max and self.sync_speed_min > self.sync_speed_max:
            raise RequestError("sync_speed_min is more than sync_speed_max")
        for whose in ("server", "client"):
            _refuse_dirty(
                whose, getattr(self, f"{whose}_dirty_bytes"), getattr(self, f"{whose}_dirty_background_bytes")
            )
        return self

    def caveats(self) -> tuple[str, ...]:
        """What makes a loss under these knobs another one than that of a deployed server."""
        asked = {name: getattr(self, f"server_{name}_s") for name in USUAL_WRITE_BACK}
        changed = [
            f"{name} is {asked[name]:g} s, not {usual} s"
            for name, usual in USUAL_WRITE_BACK.items()
            if asked[name] not in {None, usual}
        ]
        meaning = "when the server writes back by itself decides how much an async export loses"
        return (f"{', '.join(changed)}: {meaning}",) if changed else ()

    @property
    def parity_only(self) -> tuple[str, ...]:
        """What was asked and only RAID4, 5 and 6 have."""
        return tuple(name for name in ("stripe_cache_size", "md_threads") if getattr(self, name) is not None)


def _refuse_dirty(whose: str, limit: int | None, background: int | None) -> None:
    if limit is not None and limit < 2 * PAGE_SIZE:
        raise RequestError(f"{whose}_dirty_bytes {format_size(limit)}: the kernel takes no less than two pages, 8KiB")
    if background is not None and background < PAGE_SIZE:
        raise RequestError(f"{whose}_dirty_background_bytes {format_size(background)}: less than a page, 4KiB")
    if limit is not None and background is not None and background >= limit:
        raise RequestError(
            f"{whose}_dirty_background_bytes {format_size(background)} is not below "
            f"{whose}_dirty_bytes {format_size(limit)}: the kernel would take half of that instead"
        )


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


def _require_dirty(spec: TuningSpec, whose: Whose, machine: str, found: DirtyState) -> None:
    asked = {name: getattr(spec, f"{whose}_{name}") for name in DIRTY[:2]}
    require_effective(f"the memory of {machine}", asked, found.model_dump())


def _require_write_back(spec: TuningSpec, machine: str, found: DirtyState) -> None:
    asked = {name: getattr(spec, f"server_{name}") for name in WRITE_BACK}
    require_effective(f"the write-back of {machine}", asked, found.model_dump())


class ServerTuning:
    """The knobs of the server: its members, its arrays, its memory. The array must be online."""

    def __init__(self, spec: TuningSpec, machine: Machine, disks: Sequence[str], arrays: Sequence[str]) -> None:
        """``disks`` and ``arrays`` are device paths; the last array is the one that is exported."""
        self.spec = spec
        self.machine = machine
        self.disks = tuple(disks)
        self.arrays = tuple(arrays)
        self._before: TuningState | None = None

    def activate(self) -> TuningState | None:
        """Set what was asked, if anything was, and check it.

        Raises:
            NotEffective: the kernel has something else.
        """
        exported = self.arrays[-1].removeprefix("/dev/")
        memory = dirty_values(self.spec, "server") | write_back_values(self.spec)
        values = md_values(self.spec, [exported]) | memory
        if not values and not queue_values(self.spec, self.disks):
            return None
        if self.spec.server_xfs_sync_s is not None:
            # Its knobs are there once it is loaded, and no XFS need be mounted yet. It may also be built in.
            self.machine.run(["modprobe", "--quiet", "xfs"])
        names = self._names()
        if self._before is None:
            self._before = self._state(names)
        # What the kernel refuses shows when it is read back.
        self.machine.put_all(queue_values(self.spec, names.values()) | values)
        return self._effective(self._state(names))

    def deactivate(self) -> None:
        """Put back what activate() found, but for the array's own, which ends with it."""
        if self._before is None or self._before.server is None:
            return
        values = dirty_restoring(self.spec, "server", self._before.server)
        values |= write_back_restoring(self.spec, self._before.server)
        # By the disk's path: after a reboot the kernel may have another name for it.
        for disk, name in self._names().items():
            values |= queue_restoring(self.spec, name, self._before.members[disk])
        self.machine.put_all(values)
        self._before = None

    def state(self) -> TuningState:
        """Read all knobs.

        Raises:
            RigError: the array is not online.
        """
        return self._state(self._names())

    def require_effective(self) -> TuningState:
        """Return the state, if that is what was asked.

        Raises:
            NotEffective: it is not.
        """
        return self._effective(self.state())

    def _effective(self, state: TuningState) -> TuningState:
        for disk, queue in state.members.items():
            asked: dict[str, Value] = {knob.name: getattr(self.spec, knob.name) for knob in QUEUE}
            require_effective(f"the queue of {disk}", asked, queue.model_dump())
        asked = {knob.name: asked_of_md(self.spec, knob) for knob in MD}
        require_effective(self.arrays[-1], asked, state.arrays[self.arrays[-1]].model_dump())
        if state.server:
            _require_dirty(self.spec, "server", self.machine.name, state.server)
            _require_write_back(self.spec, self.machine.name, state.server)
        return state

    def _names(self) -> dict[str, str]:
        found = self.machine.resolve(self.disks)
        return {disk: path.removeprefix("/dev/") for disk, path in zip(self.disks, found, strict=True)}

    def _state(self, names: Mapping[str, str]) -> TuningState:
        mds = {path: path.removeprefix("/dev/") for path in self.arrays}
        paths = [
            *(f"/sys/block/{name}/{knob.file}" for name in names.values() for knob in QUEUE),
            *(f"/sys/block/{name}/{knob.file}" for name in mds.values() for knob in MD),
            *(f"{VM}/{name}" for name in DIRTY),
            *WRITE_BACK.values(),
        ]
        content = read_files(self.machine, paths)
        return TuningState(
            members={disk: parse_queue(name, content) for disk, name in names.items()},
            arrays={path: parse_md_tuning(name, content) for path, name in mds.items()},
            server=parse_dirty(content),
        )


class ClientTuning:
    """The knobs of one client: its memory."""

    def __init__(self, spec: TuningSpec, machine: Machine) -> None:
        self.spec = spec
        self.machine = machine
        self._before: DirtyState | None = None

    def activate(self) -> DirtyState | None:
        """Set what was asked, if anything was, and check it.

        Raises:
            NotEffective: the kernel has something else.
        """
        values = dirty_values(self.spec, "client")
        if not values:
            return None
        if self._before is None:
            self._before = self.state()
        self.machine.put_all(values)
        return self.require_effective()

    def deactivate(self) -> None:
        """Put back what activate() found."""
        if self._before is not None:
            self.machine.put_all(dirty_restoring(self.spec, "client", self._before))
            self._before = None

    def state(self) -> DirtyState:
        """Read the limits."""
        return parse_dirty(read_files(self.machine, [*(f"{VM}/{name}" for name in DIRTY), *WRITE_BACK.values()]))

    def require_effective(self) -> DirtyState:
        """Return the limits, if they are what was asked.

        Raises:
            NotEffective: they are not.
        """
        state = self.state()
        _require_dirty(self.spec, "client", self.machine.name, state)
        return state
