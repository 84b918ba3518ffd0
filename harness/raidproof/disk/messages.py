"""The protocol between harness and disk engine: one JSON object per line, typed on both sides."""

import json
from dataclasses import asdict, dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from raidproof.core.errors import RigError
from raidproof.disk.cache import CacheMode, CutPolicy, CutResult
from raidproof.disk.disk_fault import DiskFault, DiskFaultKind
from raidproof.disk.profile import Profile
from raidproof.disk.timing.hardware import ControllerSpec
from raidproof.disk.timing.rotational import Placement

T = TypeVar("T")


class MessageError(RigError):
    """A line that is no message."""


class Power(Enum):
    """Whether the members are served."""

    ON = "on"
    FROZEN = "frozen"
    """A power cut has begun: requests are neither served nor failed."""
    OFF = "off"
    """The cut policy has been applied; requests fail."""


@dataclass(frozen=True)
class MemberSpec:
    """The initial state of one member disk. ``size`` is in bytes."""

    serial: str
    size: int
    mode: CacheMode = CacheMode.VOLATILE
    profile: Profile | None = None
    """Timing profile; without one every request is answered at once."""
    placement: Placement = Placement.SPREAD
    controller: str | None = None


@dataclass(frozen=True)
class Disks:
    """All members of a lab and their controllers: the content of the file that the plugin reads."""

    members: tuple[MemberSpec, ...]
    controllers: tuple[ControllerSpec, ...] = ()
    slow_motion: float = 1.0
    """Real seconds per simulated second."""


@dataclass(frozen=True)
class Freeze:
    """Stop serving all members."""


@dataclass(frozen=True)
class Resolve:
    """Apply the power cut to the caches, and fail the waiting requests."""

    policy: CutPolicy
    seed: int


@dataclass(frozen=True)
class PowerOn:
    """Serve again, to connections made since the cut."""


@dataclass(frozen=True)
class SetMode:
    """Change the cache mode of some members, or of all (``None``)."""

    serials: tuple[str, ...] | None
    mode: CacheMode


@dataclass(frozen=True)
class SetTiming:
    """Simulate the disks' service times, or answer requests at once."""

    on: bool


@dataclass(frozen=True)
class GetUse:
    """Request the utilization counters of disks, controllers and engine."""


@dataclass(frozen=True)
class GetCounters:
    """Request the counters of each member."""


@dataclass(frozen=True)
class Describe:
    """Request what the engine serves, and its state."""


@dataclass(frozen=True)
class StartLog:
    """Begin a write log at a path that the engine can write."""

    path: str
    data: bool


@dataclass(frozen=True)
class StopLog:
    """End the write log."""


@dataclass(frozen=True)
class MarkLog:
    """Write a text into the write log."""

    text: str


@dataclass(frozen=True)
class Reset:
    """Make all members blank, with their initial modes and counters."""

    old: tuple[str, ...] = ()
    """Serials of members whose unwritten parts read as old data."""


@dataclass(frozen=True)
class SaveImage:
    """Write the image of one member to a sparse file: its durable content, or what a read returns."""

    serial: str
    path: str
    durable: bool


@dataclass(frozen=True)
class Show:
    """Undo what was written since the last kept state, then apply the write log at ``path``."""

    path: str
    keep: bool
    """Whether the result becomes the kept state."""


@dataclass(frozen=True)
class SetDiskFault:
    """Set a disk fault of a drive."""

    serial: str
    disk_fault: DiskFault


@dataclass(frozen=True)
class ClearDiskFaults:
    """Remove the disk faults of some drives, or of all (``None``)."""

    serials: tuple[str, ...] | None


@dataclass(frozen=True)
class Corrupt:
    """Change a region durably and silently."""

    serial: str
    offset: int
    length: int
    seed: int


@dataclass(frozen=True)
class Swap:
    """Exchange the content of two drives."""

    one: str
    other: str


@dataclass(frozen=True)
class Done:
    """The request was executed. ``at_ns``: when (CLOCK_MONOTONIC)."""

    at_ns: int


@dataclass(frozen=True)
class Resolved:
    """The effect of the power cut on each member."""

    fates: tuple[CutResult, ...]


@dataclass(frozen=True)
class Struck:
    """Number of requests that disk faults of one kind have affected."""

    kind: DiskFaultKind
    times: int


@dataclass(frozen=True)
class Counters:
    """The counters of one member since the engine began, or since a reset."""

    serial: str
    reads: int = 0
    writes: int = 0
    flushes: int = 0
    fua: int = 0
    """Writes and discards with FUA."""
    discards: int = 0
    zeroes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    discarded_bytes: int = 0
    """Bytes of discards and write-zeroes."""
    lied: int = 0
    """FLUSH and FUA requests that were acknowledged and not honoured."""
    pending: int = 0
    pending_bytes: int = 0
    errors: int = 0
    """Requests that failed because of a disk fault."""
    struck: tuple[Struck, ...] = ()

    def struck_by(self, kind: DiskFaultKind) -> int:
        """Return the number of requests that disk faults of a kind have affected."""
        return sum(one.times for one in self.struck if one.kind is kind)


@dataclass(frozen=True)
class Busy:
    """Work of a disk or a controller since the engine began."""

    name: str
    busy_ns: int
    requests: int
    bytes: int


@dataclass(frozen=True)
class Use:
    """Utilization counters since the engine began; the difference of two gives a rate."""

    at_ns: int
    disks_ns: int
    """Simulated time, to which all following times refer; in slow motion it passes more slowly."""
    cpu_ns: int
    """CPU time of the engine's process. Python runs one thread at a time: it can use one CPU at most."""
    served: int
    """Number of requests with a simulated service time."""
    late_ns: int
    """Sum over these requests: from the simulated completion to the delivery."""
    service_ns: int
    """Sum over these requests: from the arrival to the simulated completion."""
    members: tuple[Busy, ...]
    controllers: tuple[Busy, ...]


@dataclass(frozen=True)
class CountersReply:
    """The counters of all members."""

    members: tuple[Counters, ...]


@dataclass(frozen=True)
class LogClosed:
    """The size of the closed write log; ``error`` if writing it failed."""

    path: str
    records: int
    size_bytes: int
    error: str | None


@dataclass(frozen=True)
class Description:
    """What the engine serves."""

    power: Power
    members: tuple[MemberSpec, ...]
    """With their current modes."""
    connections: int
    log: str | None
    log_error: str | None
    pid: int


@dataclass(frozen=True)
class Refused:
    """The request was not executed."""

    reason: str


Request = (
    Freeze
    | Resolve
    | PowerOn
    | SetMode
    | SetTiming
    | GetUse
    | GetCounters
    | Describe
    | StartLog
    | StopLog
    | MarkLog
    | Reset
    | SaveImage
    | Show
    | SetDiskFault
    | ClearDiskFaults
    | Corrupt
    | Swap
)
Reply = Done | Resolved | CountersReply | Use | LogClosed | Description | Refused
Message = Request | Reply | Disks

_BY_NAME = {kind.__name__: kind for kind in get_args(Message)}


def encode(message: Message) -> bytes:
    """Return a message as one line."""
    body = {"is": type(message).__name__, **asdict(message)}
    return json.dumps(body, default=_plain, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Parse a message from one line.

    Raises:
        MessageError: it is none, or a field is missing, unknown or of another type.
    """
    try:
        body = json.loads(line)
        kind = _BY_NAME[body.pop("is")]
        return _build(kind, body)  # type: ignore[no-any-return]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MessageError(f"not a message: {line[:200]!r}: {error}") from error


def load_disks(path: Path) -> Disks:
    """Parse a file that `save_disks` wrote.

    Raises:
        MessageError: the file has another content.
    """
    message = decode(path.read_bytes())
    if not isinstance(message, Disks):
        raise MessageError(f"{path}: {type(message).__name__} in place of Disks")
    return message


def save_disks(path: Path, disks: Disks) -> None:
    """Write the file from which the plugin reads its members."""
    path.write_bytes(encode(disks))


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"cannot send {value!r}")


def _build(annotation: Any, value: Any) -> Any:
    """Convert plain JSON to the type of an annotation."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is UnionType:
        return None if value is None else _build(next(a for a in arguments if a is not type(None)), value)
    if origin is tuple:
        if not isinstance(value, list):
            raise TypeError(f"expected a list, got {value!r}")
        return tuple(_build(arguments[0], item) for item in value)
    if is_dataclass(annotation):
        hints = get_type_hints(annotation)
        unknown = set(value) - {field.name for field in fields(annotation)}
        if unknown:
            raise TypeError(f"unknown: {', '.join(sorted(unknown))}")
        return annotation(**{name: _build(hints[name], item) for name, item in value.items()})  # type: ignore[operator]
    if issubclass(annotation, Enum):
        return annotation(value)
    if type(value) is not annotation:
        raise TypeError(f"expected {annotation.__name__}, got {value!r}")
    return value
