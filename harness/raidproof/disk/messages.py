"""The protocol between harness and disk engine: one JSON object per line, in both directions.

A request is ``{"verb": NAME, ARGUMENT: VALUE, ...}``, where the verb is an operation of the engine. The answer is
``{"result": VALUE}`` or ``{"refused": REASON}``. Both sides check values against type hints.
"""

import json
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from raidproof.core.errors import RigError
from raidproof.disk.cache import CacheMode
from raidproof.disk.disk_fault import DiskFaultKind
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


def encode(value: object) -> bytes:
    """Return dataclasses, enums, paths, and what JSON has, as one line."""
    return json.dumps(value, default=_plain, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Parse the JSON object of one line.

    Raises:
        MessageError: the line is none.
    """
    try:
        body = json.loads(line)
    except ValueError as error:
        raise MessageError(f"not a message: {line[:200]!r}: {error}") from error
    if not isinstance(body, dict):
        raise MessageError(f"not a message: {line[:200]!r}")
    return body


def build(kind: type[T], value: Any) -> T:
    """Return an object of a type from what `decode` made of it.

    Raises:
        MessageError: a field is missing, unknown or of another type.
    """
    try:
        return _build(kind, value)  # type: ignore[no-any-return]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MessageError(f"not {getattr(kind, '__name__', kind)}: {str(value)[:200]}: {error}") from error


def load_disks(path: Path) -> Disks:
    """Parse a file that `save_disks` wrote.

    Raises:
        MessageError: the file has another content.
    """
    return build(Disks, decode(path.read_bytes()))


def save_disks(path: Path, disks: Disks) -> None:
    """Write the file from which the plugin reads its members."""
    path.write_bytes(encode(disks))


def _plain(value: object) -> object:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"cannot send {value!r}")


def _build(annotation: Any, value: Any) -> Any:
    """Convert plain JSON to the type of an annotation; any collection becomes a tuple."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is UnionType:
        return None if value is None else _build(next(a for a in arguments if a is not type(None)), value)
    if origin is not None:
        if not isinstance(value, list):
            raise TypeError(f"expected a list, got {value!r}")
        return tuple(_build(arguments[0], item) for item in value)
    if is_dataclass(annotation):
        hints = get_type_hints(annotation)
        unknown = set(value) - {field.name for field in fields(annotation)}
        if unknown:
            raise TypeError(f"unknown: {', '.join(sorted(unknown))}")
        return annotation(**{name: _build(hints[name], item) for name, item in value.items()})  # type: ignore[operator]
    if issubclass(annotation, Enum | Path):
        return annotation(value)
    if type(value) is not annotation:
        raise TypeError(f"expected {annotation.__name__}, got {value!r}")
    return value
