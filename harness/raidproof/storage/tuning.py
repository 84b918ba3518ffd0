"""Kernel settings of machines, in files of /proc/sys and /sys: requested and effective values, and their restoration.

The settings are queue settings of members, settings of md devices, and limits and intervals of write-back.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import PAGE_SIZE, Machine, Spec, State, Value, read_files, require_effective, whole_number
from raidproof.core.units import KIB, Size, format_size
from raidproof.storage.filesystem import FILESYSTEMS

USUAL_WRITE_BACK = {"dirty_expire": 30, "dirty_writeback": 5, "xfs_sync": 30}
"""Linux's default age and intervals of write-back, in seconds."""

DIRTY = ("dirty_bytes", "dirty_background_bytes", "dirty_ratio", "dirty_background_ratio")
"""Files in /proc/sys/vm with the limits of dirty memory."""
VM = "/proc/sys/vm"
WRITE_BACK = {
    "dirty_expire_s": f"{VM}/dirty_expire_centisecs",
    "dirty_writeback_s": f"{VM}/dirty_writeback_centisecs",
    "xfs_sync_s": "/proc/sys/fs/xfs/xfssyncd_centisecs",
}
"""Files that control when the kernel writes back without a request, by field of `DirtyState`; unit 1/100 s."""
XFS_SYNC_DEFAULT_S = 30.0
Whose = Literal["server", "client"]


class TuningSpec(Spec):
    """The requested kernel settings. A field that is None leaves its setting unchanged. Sizes are in bytes."""

    scheduler: Literal["none", "mq-deadline", "kyber", "bfq"] | None = None
    """The I/O scheduler of each member."""
    nr_requests: int | None = Field(default=None, ge=4, le=65536)
    """Number of requests that the queue of each member holds; the kernel's minimum is 4."""
    read_ahead: Size | None = None
    """Read-ahead of each member. Reads of files use ``array_read_ahead`` instead."""
    max_request: Size | None = None
    """Size of the largest request to a member (max_sectors_kb)."""
    array_read_ahead: Size | None = None
    """Read-ahead of the md device that carries the file system."""
    stripe_cache_size: int | None = None
    """Number of stripes in md's cache; each takes a page per member. RAID4, 5 and 6 only."""
    md_threads: int | None = Field(default=None, ge=0, le=8192)
    """Threads that handle stripes besides the array's own thread (group_thread_cnt). RAID4, 5 and 6 only."""
    sync_speed_min: Size | None = None
    """Bytes per second of each member that a resync gets even while clients use the array."""
    sync_speed_max: Size | None = None
    """Maximum speed of a resync in bytes per second of each member."""
    server_dirty_bytes: Size | None = None
    """Limit of dirty data in the server's memory: above this limit, a write waits for write-back (vm.dirty_bytes)."""
    server_dirty_background_bytes: Size | None = None
    """Amount of dirty data above which the server's kernel begins write-back (vm.dirty_background_bytes)."""
    server_dirty_expire_s: float | None = Field(default=None, ge=0.01, le=3600)
    """Age in seconds at which the server's kernel writes back dirty data without a request."""
    server_dirty_writeback_s: float | None = Field(default=None, ge=0.01, le=3600)
    """Interval in seconds at which the server's kernel searches for dirty data older than `server_dirty_expire_s`."""
    server_xfs_sync_s: float | None = Field(default=None, ge=1, le=72)
    """Interval in seconds at which XFS on the server flushes its log, and with it metadata, without a request."""
    client_dirty_bytes: Size | None = None
    """Limit of dirty data that a client has not yet sent to the server: above this limit, write() waits."""
    client_dirty_background_bytes: Size | None = None
    """Amount of dirty data above which a client begins to send it to the server."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for name in ("read_ahead", "array_read_ahead"):
            if (size := getattr(self, name)) is not None and size % PAGE_SIZE:
                raise RequestError(f"{name} {format_size(size)} does not consist of whole pages of 4KiB")
        if self.max_request is not None and (self.max_request < PAGE_SIZE or self.max_request % KIB):
            raise RequestError(
                f"max_request {format_size(self.max_request)} is not a multiple of 1KiB, or less than a page of 4KiB"
            )
        if self.stripe_cache_size is not None and not 17 <= self.stripe_cache_size <= 32768:
            raise RequestError(f"stripe_cache_size {self.stripe_cache_size} is not from 17 to 32768, the range of md")
        for name in ("sync_speed_min", "sync_speed_max"):
            if (speed := getattr(self, name)) is not None and (speed < KIB or speed % KIB):
                raise RequestError(
                    f"{name} {format_size(speed)} per second: md counts in whole KiB per second, and needs at least 1"
                )
        if self.sync_speed_min and self.sync_speed_max and self.sync_speed_min > self.sync_speed_max:
            raise RequestError(
                f"sync_speed_min is more than sync_speed_max: {format_size(self.sync_speed_min)} > "
                f"{format_size(self.sync_speed_max)}"
            )
        for whose in ("server", "client"):
            _refuse_dirty(
                whose, getattr(self, f"{whose}_dirty_bytes"), getattr(self, f"{whose}_dirty_background_bytes")
            )
        return self

    def caveats(self) -> tuple[str, ...]:
        """Return sentences: why a loss under these settings may differ from the loss of a deployed server."""
        requested = {name: getattr(self, f"server_{name}_s") for name in USUAL_WRITE_BACK}
        changed = [
            f"{name} is {requested[name]:g} s, not the default {usual} s"
            for name, usual in USUAL_WRITE_BACK.items()
            if requested[name] not in {None, usual}
        ]
        meaning = "the time of the server's write-back affects how much an async export loses"
        return (f"{', '.join(changed)}: {meaning}",) if changed else ()

    @property
    def parity_only(self) -> tuple[str, ...]:
        """The names of the requested settings that only RAID4, 5 and 6 have."""
        return tuple(name for name in ("stripe_cache_size", "md_threads") if getattr(self, name) is not None)

    @property
    def md_only(self) -> tuple[str, ...]:
        """The names of the requested settings that only arrays with md's files in sysfs have."""
        names = (knob.name for knob in MD if knob.file.startswith(MD_FILES))
        return tuple(name for name in names if getattr(self, name) is not None)


def _refuse_dirty(whose: str, limit: int | None, background: int | None) -> None:
    if limit is not None and limit < 2 * PAGE_SIZE:
        raise RequestError(
            f"{whose}_dirty_bytes {format_size(limit)}: the kernel accepts no less than two pages, 8KiB"
        )
    if background is not None and background < PAGE_SIZE:
        raise RequestError(f"{whose}_dirty_background_bytes {format_size(background)} is less than a page, 4KiB")
    if limit is not None and background is not None and background >= limit:
        raise RequestError(
            f"{whose}_dirty_background_bytes {format_size(background)} is not below "
            f"{whose}_dirty_bytes {format_size(limit)}: the kernel would use half of {whose}_dirty_bytes instead"
        )


class QueueState(State):
    """The effective queue settings of a member, with names and units as in `TuningSpec`."""

    scheduler: str
    nr_requests: int
    read_ahead: int
    max_request: int


class MdTuningState(State):
    """The effective settings of an md device, with names and units as in `TuningSpec`.

    A field is None if the level of the md device does not have the setting.
    """

    read_ahead: int
    """Read-ahead of the md device in bytes."""
    stripe_cache_size: int | None = None
    md_threads: int | None = None
    sync_speed_min: int | None = None
    sync_speed_max: int | None = None


class DirtyState(State):
    """The effective limits and intervals of a machine's write-back.

    Each limit is either in bytes or a ratio, in percent of the available memory; the other of the two is 0.
    """

    dirty_bytes: int
    dirty_background_bytes: int
    dirty_ratio: int
    dirty_background_ratio: int
    dirty_expire_s: float
    """Age in seconds at which the kernel writes back dirty data."""
    dirty_writeback_s: float
    """Interval in seconds at which the kernel searches for dirty data of age `dirty_expire_s`; 0 means never."""
    xfs_sync_s: float | None = None
    """Interval in seconds at which XFS flushes its log; None if XFS is not loaded."""


class TuningState(State):
    """The effective kernel settings of the server and the clients."""

    members: dict[str, QueueState] = Field(default_factory=dict)
    """Settings of the disks of the array by device path."""
    arrays: dict[str, MdTuningState] = Field(default_factory=dict)
    """Settings of the md devices by device path."""
    server: DirtyState | None = None
    clients: dict[str, DirtyState] = Field(default_factory=dict)
    """Write-back settings of the clients by name."""


MD_FILES = "md/"
"""Begin of the files that only an md device has, relative to its directory in /sys/block."""


class Knob(NamedTuple):
    """A setting of a block device, and the sysfs file that holds its value."""

    name: str
    """Name of the field in `QueueState` or `MdTuningState`."""
    file: str
    """Path relative to the device's directory in /sys/block."""
    unit: int = 1
    """Bytes per unit of the number in the file."""


# The order matters: a write to scheduler resets nr_requests.
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
    """Return the requested value of a setting of the md device with the file system; None if none is requested."""
    value: str | int | None = getattr(spec, "array_read_ahead" if knob.name == "read_ahead" else knob.name)
    return value


def queue_values(spec: TuningSpec, kernel_names: Iterable[str]) -> dict[str, str]:
    """Return the requested queue settings of members: the text to write by the path of each sysfs file."""
    return _values(QUEUE, lambda knob: getattr(spec, knob.name), kernel_names)


def md_values(spec: TuningSpec, kernel_names: Iterable[str]) -> dict[str, str]:
    """Return the requested settings of md devices: the text to write by the path of each sysfs file."""
    return _values(MD, lambda knob: asked_of_md(spec, knob), kernel_names)


def queue_restoring(spec: TuningSpec, kernel_name: str, before: QueueState) -> dict[str, str]:
    """Return the text by path that restores the queue settings of a member that ``queue_values`` changes."""

    def changed(knob: Knob) -> str | int | None:
        value: str | int | None = getattr(before, knob.name)
        return None if getattr(spec, knob.name) is None else value

    return _values(QUEUE, changed, [kernel_name])


def dirty_values(spec: TuningSpec, whose: Whose) -> dict[str, str]:
    """Return the requested limits of dirty memory of the server or a client: the text to write by path of the file."""
    requested = {name: getattr(spec, f"{whose}_{name}") for name in DIRTY[:2]}
    return {f"{VM}/{name}": str(value) for name, value in requested.items() if value is not None}


def write_back_values(spec: TuningSpec) -> dict[str, str]:
    """Return the requested age and intervals of the server's write-back: the text to write by path of the file."""
    requested = {path: getattr(spec, f"server_{name}") for name, path in WRITE_BACK.items()}
    return {path: str(round(100 * seconds)) for path, seconds in requested.items() if seconds is not None}


def write_back_restoring(spec: TuningSpec, before: DirtyState) -> dict[str, str]:
    """Return the text by path that restores the files that ``write_back_values`` changes.

    The interval of XFS gets its default if XFS was not loaded before.
    """
    found = {path: getattr(before, name) for name, path in WRITE_BACK.items()}
    default = XFS_SYNC_DEFAULT_S
    return {
        path: str(round(100 * (default if found[path] is None else found[path]))) for path in write_back_values(spec)
    }


def dirty_restoring(spec: TuningSpec, whose: Whose, before: DirtyState) -> dict[str, str]:
    """Return the text by path that restores the files that ``dirty_values`` changes."""
    values = {}
    for path in dirty_values(spec, whose):
        limit = path.removeprefix(f"{VM}/")
        # The kernel refuses a write of 0 bytes. A write of the ratio resets the bytes to 0.
        name = limit if getattr(before, limit) else limit.replace("bytes", "ratio")
        values[f"{VM}/{name}"] = str(getattr(before, name))
    return values


def sysctl_line(path: str, value: str) -> str:
    """Return the line of a file in /etc/sysctl.d that sets a file in /proc/sys."""
    return f"{path.removeprefix('/proc/sys/').replace('/', '.')} = {value}"


def udev_rule(path: str, value: str) -> str:
    """Return the udev rule that sets a file in /sys/block when its device appears (udev(7))."""
    name, _, file = path.removeprefix("/sys/block/").partition("/")
    return f'ACTION=="add|change", SUBSYSTEM=="block", KERNEL=="{name}", ATTR{{{file}}}="{value}"'


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
    """Parse the queue settings of a disk; ``content`` is the text of sysfs files by path.

    Raises:
        RigError: a file is missing, or does not begin with a number.
    """
    return QueueState.model_validate(_read(QUEUE, kernel_name, content))


def parse_md_tuning(kernel_name: str, content: Mapping[str, str]) -> MdTuningState:
    """Parse the settings of an md device; ``content`` is the text of sysfs files by path.

    Raises:
        RigError: a file that every level has is missing, or a file does not begin with a number.
    """
    return MdTuningState.model_validate(_read(MD, kernel_name, content))


def parse_dirty(content: Mapping[str, str]) -> DirtyState:
    """Parse the limits and intervals of a machine's write-back; ``content`` is the text of files by path.

    Raises:
        RigError: a file in /proc/sys/vm is missing, or is not a number.
    """
    limits = {name: _whole_number(f"{VM}/{name}", content) for name in DIRTY}
    found = {
        name: _whole_number(path, content) / 100
        for name, path in WRITE_BACK.items()
        # /proc/sys/fs/xfs exists only if XFS is loaded.
        if path.startswith(VM) or path in content
    }
    return DirtyState.model_validate(limits | found)


def _whole_number(path: str, content: Mapping[str, str]) -> int:
    if (text := content.get(path)) is None:
        raise RigError(f"{path} does not exist or could not be read")
    return whole_number(text, path)


def _read(knobs: Sequence[Knob], kernel_name: str, content: Mapping[str, str]) -> dict[str, str | int]:
    found: dict[str, str | int] = {}
    for knob in knobs:
        path = f"/sys/block/{kernel_name}/{knob.file}"
        if (text := content.get(path)) is None:
            if knob.file.startswith(MD_FILES):
                continue
            raise RigError(f"{path} does not exist or could not be read")
        if knob.name == "scheduler":
            # "none [mq-deadline] kyber": brackets mark the scheduler in use. A device without schedulers has "none".
            chosen = re.search(r"\[([\w-]+)\]", text)
            found[knob.name] = chosen.group(1) if chosen else text.strip()
        elif (number := re.match(r"\d+", text)) is not None:
            # md prints "200000 (system)" if the system's default applies to the array.
            found[knob.name] = int(number.group()) * knob.unit
        else:
            raise RigError(f"{path}: expected a whole number at the beginning, found {text!r}")
    return found


def _require_dirty(spec: TuningSpec, whose: Whose, machine: str, found: DirtyState) -> None:
    requested = {name: getattr(spec, f"{whose}_{name}") for name in DIRTY[:2]}
    require_effective(f"the limit of dirty memory of {machine}", requested, found.model_dump())


def _require_write_back(spec: TuningSpec, machine: str, found: DirtyState) -> None:
    requested = {name: getattr(spec, f"server_{name}") for name in WRITE_BACK}
    require_effective(f"the write-back of {machine}", requested, found.model_dump())


class ServerTuning:
    """The kernel settings of the server: members, md devices, write-back. The array must be online.

    ``disks`` and ``arrays`` are device paths. The last md device in ``arrays`` carries the file system; without md
    devices, the disks do.
    """

    def __init__(self, spec: TuningSpec, machine: Machine, disks: Sequence[str], arrays: Sequence[str]) -> None:
        self.spec = spec
        self.machine = machine
        self.disks = tuple(disks)
        self.arrays = tuple(arrays)
        self._before: TuningState | None = None

    def activate(self) -> TuningState | None:
        """Apply the requested settings, and verify them; return None if no settings are requested.

        Raises:
            NotEffective: an effective value differs from the requested one.
        """
        exported = [path.removeprefix("/dev/") for path in self.arrays[-1:]]
        memory = dirty_values(self.spec, "server") | write_back_values(self.spec)
        values = md_values(self.spec, exported) | memory
        if not values and not queue_values(self.spec, self.disks):
            return None
        if self.spec.server_xfs_sync_s is not None:
            # The file with the setting exists as soon as the module of its file system is loaded. modprobe fails if
            # the file system is built in.
            for name, kind in FILESYSTEMS.items():
                if WRITE_BACK["xfs_sync_s"] in kind.commit_files:
                    self.machine.run(["modprobe", "--quiet", name])
        names = self._names()
        if self._before is None:
            self._before = self._state(names)
        # Errors are ignored here: reading the settings back shows a value that the kernel refused.
        self.machine.put_all(queue_values(self.spec, names.values()) | values)
        return self._effective(self._state(names))

    def deactivate(self) -> None:
        """Restore the settings of members and memory. The settings of md devices end when the array is stopped."""
        if self._before is None or self._before.server is None:
            return
        values = dirty_restoring(self.spec, "server", self._before.server)
        values |= write_back_restoring(self.spec, self._before.server)
        # Look up by device path: after a reboot the kernel may have another name for the disk.
        for disk, name in self._names().items():
            values |= queue_restoring(self.spec, name, self._before.members[disk])
        self.machine.put_all(values)
        self._before = None

    def state(self) -> TuningState:
        """Read all settings of the server.

        Raises:
            RigError: the array is not online, so that its sysfs files do not exist.
        """
        return self._state(self._names())

    def require_effective(self) -> TuningState:
        """Verify that the effective settings are as requested, and return them.

        Raises:
            NotEffective: an effective value differs from the requested one.
        """
        return self._effective(self.state())

    def _effective(self, state: TuningState) -> TuningState:
        for disk, queue in state.members.items():
            requested: dict[str, Value] = {knob.name: getattr(self.spec, knob.name) for knob in QUEUE}
            require_effective(f"the queue of {disk}", requested, queue.model_dump())
        requested = {knob.name: asked_of_md(self.spec, knob) for knob in MD}
        for path in self.arrays[-1:]:
            require_effective(path, requested, state.arrays[path].model_dump())
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
    """The kernel settings of one client: limits of dirty memory."""

    def __init__(self, spec: TuningSpec, machine: Machine) -> None:
        self.spec = spec
        self.machine = machine
        self._before: DirtyState | None = None

    def activate(self) -> DirtyState | None:
        """Apply the requested limits, and verify them; return None if no limits are requested.

        Raises:
            NotEffective: an effective limit differs from the requested one.
        """
        values = dirty_values(self.spec, "client")
        if not values:
            return None
        if self._before is None:
            self._before = self.state()
        self.machine.put_all(values)
        return self.require_effective()

    def deactivate(self) -> None:
        """Restore the limits that the client had before `activate`."""
        if self._before is not None:
            self.machine.put_all(dirty_restoring(self.spec, "client", self._before))
            self._before = None

    def state(self) -> DirtyState:
        """Read the limits and intervals of the client's write-back."""
        return parse_dirty(read_files(self.machine, [*(f"{VM}/{name}" for name in DIRTY), *WRITE_BACK.values()]))

    def require_effective(self) -> DirtyState:
        """Verify that the effective limits are as requested, and return them.

        Raises:
            NotEffective: an effective limit differs from the requested one.
        """
        state = self.state()
        _require_dirty(self.spec, "client", self.machine.name, state)
        return state
