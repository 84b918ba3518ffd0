"""What the harness and the disk engine say to each other: one JSON object a line, typed on both sides."""

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
    """The power is going away: requests are neither served nor refused."""
    OFF = "off"
    """What the cut left is decided; requests are refused."""


@dataclass(frozen=True)
class MemberSpec:
    """One member disk as it begins. ``size`` is in bytes."""

    serial: str
    size: int
    mode: CacheMode = CacheMode.VOLATILE
    profile: Profile | None = None
    """Its mechanics; without, every request is answered at once."""
    placement: Placement = Placement.SPREAD
    controller: str | None = None


@dataclass(frozen=True)
class Disks:
    """All members of a lab and their controllers: the content of the file that the plugin reads."""

    members: tuple[MemberSpec, ...]
    controllers: tuple[ControllerSpec, ...] = ()
    slow_motion: float = 1.0
    """So many seconds are one of the disks'."""


@dataclass(frozen=True)
class Freeze:
    """Serve nothing from now on."""


@dataclass(frozen=True)
class Resolve:
    """Decide what the cut leaves, and refuse the requests that were waiting."""

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
    """Let requests take the time that their disks need, or answer them at once."""

    on: bool


@dataclass(frozen=True)
class GetUse:
    """Ask how busy disks, controllers and the engine itself have been."""


@dataclass(frozen=True)
class GetCounters:
    """Ask for what each member has done."""


@dataclass(frozen=True)
class Describe:
    """Ask what the engine serves and in what state."""


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
    """Make all members blank, with the modes and counters that they began with."""

    old: tuple[str, ...] = ()
    """Serials of those that read as old data where nothing was written."""


@dataclass(frozen=True)
class SaveImage:
    """Write the image of one member to a sparse file: what is durable, or what a read would see."""

    serial: str
    path: str
    durable: bool


@dataclass(frozen=True)
class Show:
    """Undo what was written since the last kept state, then do what the write log at ``path`` says."""

    path: str
    keep: bool
    """Whether that becomes the state to return to."""


@dataclass(frozen=True)
class SetDiskFault:
    """Let something be wrong with a drive from now on."""

    serial: str
    disk_fault: DiskFault


@dataclass(frozen=True)
class ClearDiskFaults:
    """Let nothing be wrong any more with some drives, or all (``None``)."""

    serials: tuple[str, ...] | None


@dataclass(frozen=True)
class Corrupt:
    """Change a region durably, without a word."""

    serial: str
    offset: int
    length: int
    seed: int


@dataclass(frozen=True)
class Swap:
    """Let two drives exchange what they hold."""

    one: str
    other: str


@dataclass(frozen=True)
class Done:
    """It was done. ``at_ns``: when, on the monotonic clock."""

    at_ns: int


@dataclass(frozen=True)
class Resolved:
    """What the cut did to each member."""

    fates: tuple[CutResult, ...]


@dataclass(frozen=True)
class Struck:
    """How many requests the disk faults of one kind have struck."""

    kind: DiskFaultKind
    times: int


@dataclass(frozen=True)
class Counters:
    """What one member has done since it began or was reset."""

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
    """Requests that a disk fault made fail."""
    struck: tuple[Struck, ...] = ()

    def struck_by(self, kind: DiskFaultKind) -> int:
        """Return how many requests a disk fault of this kind has struck."""
        return sum(one.times for one in self.struck if one.kind is kind)


@dataclass(frozen=True)
class Busy:
    """How long a disk or a controller has worked, since the engine began."""

    name: str
    busy_ns: int
    requests: int
    bytes: int


@dataclass(frozen=True)
class Use:
    """How busy everything has been since the engine began; two of them make a rate."""

    at_ns: int
    disks_ns: int
    """The disks' own time, in which all below is counted; in slow motion it passes more slowly."""
    cpu_ns: int
    """CPU time of the engine's process. Python runs one thread at a time: one CPU is all it can use."""
    served: int
    """Requests that took time."""
    late_ns: int
    """Sum over them: from the disk's answer to its delivery."""
    service_ns: int
    """Sum over them: from their arrival to the disk's answer."""
    members: tuple[Busy, ...]
    controllers: tuple[Busy, ...]


@dataclass(frozen=True)
class CountersReply:
    """The counters of all members."""

    members: tuple[Counters, ...]


@dataclass(frozen=True)
class LogClosed:
    """How much the write log holds; ``error`` if writing it failed on the way."""

    path: str
    records: int
    size_bytes: int
    error: str | None


@dataclass(frozen=True)
class Description:
    """What the engine serves."""

    power: Power
    members: tuple[MemberSpec, ...]
    """With the modes that they have now."""
    connections: int
    log: str | None
    log_error: str | None
    pid: int


@dataclass(frozen=True)
class Refused:
    """It was not done."""

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
    """Write a message as one line."""
    body = {"is": type(message).__name__, **asdict(message)}
    return json.dumps(body, default=_plain, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Read a message from one line.

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
    """Read the members of a lab from the file that `save_disks` wrote.

    Raises:
        MessageError: the file holds something else.
    """
    message = decode(path.read_bytes())
    if not isinstance(message, Disks):
        raise MessageError(f"{path}: {type(message).__name__} in place of Disks")
    return message


def save_disks(path: Path, disks: Disks) -> None:
    """Write the file from which the plugin learns its members."""
    path.write_bytes(encode(disks))


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"cannot send {value!r}")


def _build(annotation: Any, value: Any) -> Any:
    """Make the value that a type annotation asks for from plain JSON."""
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
