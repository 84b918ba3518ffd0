"""Kernel settings of machines: their requests and files; how they are set, read back, and restored."""

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
"""Files that control write-back without a client's request, by field; the files are in 1/100 s."""
XFS_SYNC_DEFAULT_S = 30.0
Whose = Literal["server", "client"]


class TuningSpec(Spec):
    """Requested settings; None leaves one unchanged. Sizes in bytes."""

    scheduler: Literal["none", "mq-deadline", "kyber", "bfq"] | None = None
    """The I/O scheduler of each member."""
    nr_requests: int | None = Field(default=None, ge=4, le=65536)
    """Requests that may wait at each member; the kernel's minimum is 4."""
    read_ahead: Size | None = None
    """Of each member. Reads through the array use array_read_ahead."""
    max_request: Size | None = None
    """The largest request to a member (max_sectors_kb)."""
    array_read_ahead: Size | None = None
    stripe_cache_size: int | None = None
    """Stripes that md keeps in memory; each takes a page per member. RAID4, 5 and 6 only."""
    md_threads: int | None = Field(default=None, ge=0, le=8192)
    """Threads that help md with stripes (group_thread_cnt); 0 is only the array's own. RAID4, 5 and 6 only."""
    sync_speed_min: Size | None = None
    """Minimum speed of a resync in bytes per second of each member, whatever the other load."""
    sync_speed_max: Size | None = None
    server_dirty_bytes: Size | None = None
    server_dirty_background_bytes: Size | None = None
    server_dirty_expire_s: float | None = Field(default=None, ge=0.01, le=3600)
    """Age at which the server writes back dirty data without a client's request."""
    server_dirty_writeback_s: float | None = Field(default=None, ge=0.01, le=3600)
    """Interval at which the server looks for such data."""
    server_xfs_sync_s: float | None = Field(default=None, ge=1, le=72)
    """Interval at which XFS on the server flushes its log, and with it metadata, without a client's request."""
    client_dirty_bytes: Size | None = None
    """Limit of data that is written but not yet sent to the server: above it, write() waits."""
    client_dirty_background_bytes: Size | None = None
    """Above it, the client begins to send."""

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
        """Return why a loss under these settings differs from that of a deployed server."""
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
        """Return the requested settings that only RAID4, 5 and 6 have."""
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
    """The effective queue settings of a member."""

    scheduler: str
    nr_requests: int
    read_ahead: int
    max_request: int


class MdTuningState(State):
    """The effective settings of an md device; None if its level does not have one."""

    read_ahead: int
    stripe_cache_size: int | None = None
    md_threads: int | None = None
    sync_speed_min: int | None = None
    sync_speed_max: int | None = None


class DirtyState(State):
    """Limits for dirty pages of a machine: the bytes are 0 if the ratio (percent of free memory) applies."""

    dirty_bytes: int
    dirty_background_bytes: int
    dirty_ratio: int
    dirty_background_ratio: int
    dirty_expire_s: float
    """Age at which dirty data is written back."""
    dirty_writeback_s: float
    """Interval at which the kernel looks for such data; 0 is never."""
    xfs_sync_s: float | None = None
    """Interval at which XFS flushes its log; None if the kernel has loaded no XFS."""


class TuningState(State):
    """The effective settings of all machines."""

    members: dict[str, QueueState] = Field(default_factory=dict)
    """By the path of the disk."""
    arrays: dict[str, MdTuningState] = Field(default_factory=dict)
    """By the path of the md device."""
    server: DirtyState | None = None
    clients: dict[str, DirtyState] = Field(default_factory=dict)
    """By the name of the machine."""


class Knob(NamedTuple):
    """One kernel file, and how a value is written into it."""

    name: str
    """Name of the field, in request and state."""
    file: str
    unit: int = 1
    """Bytes per unit of the file."""


# Written in this order: a change of the scheduler resets nr_requests.
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
    """Return the requested value of an md device's setting."""
    value: str | int | None = getattr(spec, "array_read_ahead" if knob.name == "read_ahead" else knob.name)
    return value


def queue_values(spec: TuningSpec, kernel_names: Iterable[str]) -> dict[str, str]:
    """Return the values to write for the members, by path."""
    return _values(QUEUE, lambda knob: getattr(spec, knob.name), kernel_names)


def md_values(spec: TuningSpec, kernel_names: Iterable[str]) -> dict[str, str]:
    """Return the values to write for the exported array, by path."""
    return _values(MD, lambda knob: asked_of_md(spec, knob), kernel_names)


def queue_restoring(spec: TuningSpec, kernel_name: str, before: QueueState) -> dict[str, str]:
    """Return the values that undo ``queue_values`` for a member, by path."""

    def changed(knob: Knob) -> str | int | None:
        value: str | int | None = getattr(before, knob.name)
        return None if getattr(spec, knob.name) is None else value

    return _values(QUEUE, changed, [kernel_name])


def dirty_values(spec: TuningSpec, whose: Whose) -> dict[str, str]:
    """Return the values to write on a machine, by path."""
    asked = {name: getattr(spec, f"{whose}_{name}") for name in DIRTY[:2]}
    return {f"{VM}/{name}": str(value) for name, value in asked.items() if value is not None}


def write_back_values(spec: TuningSpec) -> dict[str, str]:
    """Return the values to write on the server, by path."""
    asked = {path: getattr(spec, f"server_{name}") for name, path in WRITE_BACK.items()}
    return {path: str(round(100 * seconds)) for path, seconds in asked.items() if seconds is not None}


def write_back_restoring(spec: TuningSpec, before: DirtyState) -> dict[str, str]:
    """Return the values that undo ``write_back_values``, by path; a missing earlier value gets the default."""
    found = {path: getattr(before, name) for name, path in WRITE_BACK.items()}
    default = XFS_SYNC_DEFAULT_S
    return {
        path: str(round(100 * (default if found[path] is None else found[path]))) for path in write_back_values(spec)
    }


def dirty_restoring(spec: TuningSpec, whose: Whose, before: DirtyState) -> dict[str, str]:
    """Return the values that undo ``dirty_values`` on a machine, by path."""
    values = {}
    for path in dirty_values(spec, whose):
        limit = path.removeprefix(f"{VM}/")
        # 0 bytes cannot be written: writing the ratio resets the bytes to 0.
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
    """Parse the queue settings of a disk from the content of files, by path.

    Raises:
        RigError: a file is missing.
    """
    return QueueState.model_validate(_read(QUEUE, kernel_name, content))


def parse_md_tuning(kernel_name: str, content: Mapping[str, str]) -> MdTuningState:
    """Parse the settings of an md device from the content of files, by path.

    Raises:
        RigError: a file that every level has is missing.
    """
    return MdTuningState.model_validate(_read(MD, kernel_name, content))


def parse_dirty(content: Mapping[str, str]) -> DirtyState:
    """Parse a machine's limits from the content of files, by path.

    Raises:
        RigError: a file is missing.
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
            # "none [mq-deadline] kyber": the choice is in brackets; a device without a choice has only "none".
            chosen = re.search(r"\[([\w-]+)\]", text)
            found[knob.name] = chosen.group(1) if chosen else text.strip()
        elif (number := re.match(r"\d+", text)) is not None:
            # md prints "200000 (system)" for a speed that is not set for the array.
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
    """Settings of the server: its members, its arrays, its memory. The array must be online."""

    def __init__(self, spec: TuningSpec, machine: Machine, disks: Sequence[str], arrays: Sequence[str]) -> None:
        """Take device paths in ``disks`` and ``arrays``; the last array is the exported one."""
        self.spec = spec
        self.machine = machine
        self.disks = tuple(disks)
        self.arrays = tuple(arrays)
        self._before: TuningState | None = None

    def activate(self) -> TuningState | None:
        """Apply the requested settings, if any, and verify them.

        Raises:
            NotEffective: the kernel has other values.
        """
        exported = self.arrays[-1].removeprefix("/dev/")
        memory = dirty_values(self.spec, "server") | write_back_values(self.spec)
        values = md_values(self.spec, [exported]) | memory
        if not values and not queue_values(self.spec, self.disks):
            return None
        if self.spec.server_xfs_sync_s is not None:
            # The settings exist once XFS is loaded, before any mount. XFS may also be built in.
            self.machine.run(["modprobe", "--quiet", "xfs"])
        names = self._names()
        if self._before is None:
            self._before = self._state(names)
        # A value that the kernel refuses is detected when it is read back.
        self.machine.put_all(queue_values(self.spec, names.values()) | values)
        return self._effective(self._state(names))

    def deactivate(self) -> None:
        """Restore what activate() found, except the array's settings, which end with it."""
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
        """Read all settings.

        Raises:
            RigError: the array is not online.
        """
        return self._state(self._names())

    def require_effective(self) -> TuningState:
        """Return the state, if it is as requested.

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
    """Settings of one client: its memory."""

    def __init__(self, spec: TuningSpec, machine: Machine) -> None:
        self.spec = spec
        self.machine = machine
        self._before: DirtyState | None = None

    def activate(self) -> DirtyState | None:
        """Apply the requested settings, if any, and verify them.

        Raises:
            NotEffective: the kernel has other values.
        """
        values = dirty_values(self.spec, "client")
        if not values:
            return None
        if self._before is None:
            self._before = self.state()
        self.machine.put_all(values)
        return self.require_effective()

    def deactivate(self) -> None:
        """Restore what activate() found."""
        if self._before is not None:
            self.machine.put_all(dirty_restoring(self.spec, "client", self._before))
            self._before = None

    def state(self) -> DirtyState:
        """Read the limits."""
        return parse_dirty(read_files(self.machine, [*(f"{VM}/{name}" for name in DIRTY), *WRITE_BACK.values()]))

    def require_effective(self) -> DirtyState:
        """Return the limits, if they are as requested.

        Raises:
            NotEffective: they are not.
        """
        state = self.state()
        _require_dirty(self.spec, "client", self.machine.name, state)
        return state
