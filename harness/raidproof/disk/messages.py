"""The protocol between harness and disk engine: one JSON object for each line, in both directions.

A request is ``{"verb": NAME, ARGUMENT: VALUE, ...}``; NAME is an operation in `raidproof.disk.control.VERBS`. The
answer is ``{"result": VALUE}`` or ``{"refused": REASON}``. Both sides check values against type hints.
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

OF_MACHINE = "@"
"""The character between a member's serial number and a machine's name in the name of an NBD export."""


def export_of(serial: str, machine: str) -> str:
    """Return the name of the NBD export by which one of several machines uses a member."""
    return f"{serial}{OF_MACHINE}{machine}"


class MessageError(RigError):
    """A line of the protocol is not a valid request or answer."""


class Power(Enum):
    """The power state of all members."""

    ON = "on"
    """The engine serves requests."""
    FROZEN = "frozen"
    """A power cut has begun: requests wait, and neither succeed nor fail."""
    OFF = "off"
    """The cut policy has been applied: requests fail."""


@dataclass(frozen=True)
class MemberSpec:
    """The initial state of one member disk."""

    serial: str
    """Serial number, and name of the NBD export."""
    size: int
    """Size in bytes."""
    mode: CacheMode = CacheMode.VOLATILE
    profile: Profile | None = None
    """Timing profile; None: the engine answers every request at once."""
    placement: Placement = Placement.SPREAD
    """Location of the member on a drive that is larger than the member."""
    controller: str | None = None
    """Name of the disk's controller; None: no controller."""


@dataclass(frozen=True)
class Disks:
    """All member disks of a lab and their controllers: the content of the nbdkit plugin's configuration file."""

    members: tuple[MemberSpec, ...]
    controllers: tuple[ControllerSpec, ...] = ()
    slow_motion: float = 1.0
    """Real seconds for each simulated second."""


@dataclass(frozen=True)
class Struck:
    """The number of requests to one member that disk faults of one kind have affected."""

    kind: DiskFaultKind
    times: int
    """Number of affected requests."""


@dataclass(frozen=True)
class Counters:
    """The request counters of one member since the start of the engine, or since a reset."""

    serial: str
    reads: int = 0
    """Number of read requests."""
    writes: int = 0
    """Number of write requests."""
    flushes: int = 0
    """Number of FLUSH requests."""
    fua: int = 0
    """Number of write, discard and write-zeroes requests with FUA."""
    discards: int = 0
    """Number of discard requests."""
    zeroes: int = 0
    """Number of write-zeroes requests."""
    read_bytes: int = 0
    """Bytes of all read requests."""
    written_bytes: int = 0
    """Bytes of all write requests."""
    discarded_bytes: int = 0
    """Bytes of all discard and write-zeroes requests."""
    lied: int = 0
    """Number of FLUSH and FUA requests that the disk acknowledged without making all data durable."""
    pending: int = 0
    """Number of requests that are acknowledged and not durable now."""
    pending_bytes: int = 0
    """Bytes of the requests in ``pending``."""
    errors: int = 0
    """Number of requests that failed because of a disk fault."""
    struck: tuple[Struck, ...] = ()
    """Number of requests that disk faults have affected, by kind of disk fault."""

    def struck_by(self, kind: DiskFaultKind) -> int:
        """Return the number of requests that disk faults of one kind have affected."""
        return sum(one.times for one in self.struck if one.kind is kind)


@dataclass(frozen=True)
class Busy:
    """The simulated work of a disk or a controller since the start of the engine."""

    name: str
    """The disk's serial number, or the controller's name."""
    busy_ns: int
    """Simulated time in ns in which the disk or controller worked."""
    requests: int
    """Number of answered requests."""
    bytes: int
    """Bytes that the answered requests read and wrote."""


@dataclass(frozen=True)
class Use:
    """Utilization counters since the start of the engine; the differences between two readings give rates."""

    at_ns: int
    """Instant of the reading (CLOCK_MONOTONIC, ns)."""
    disks_ns: int
    """Simulated instant of the reading in ns; in slow motion simulated time passes more slowly than real time."""
    cpu_ns: int
    """CPU time of the engine's process in ns. Python runs one thread at a time, so that one CPU is the limit."""
    served: int
    """Number of requests with a simulated service time."""
    late_ns: int
    """Simulated ns from the simulated completion to the real answer, summed over the requests in ``served``."""
    service_ns: int
    """Simulated ns from the arrival to the simulated completion, summed over the requests in ``served``."""
    members: tuple[Busy, ...]
    controllers: tuple[Busy, ...]


@dataclass(frozen=True)
class LogClosed:
    """The size of a write log that was closed."""

    path: str
    records: int
    """Number of records, without the final END."""
    size_bytes: int
    error: str | None
    """Message of the error that made a write to the log fail; None: the log is complete."""


@dataclass(frozen=True)
class Description:
    """The state of a disk engine."""

    power: Power
    members: tuple[MemberSpec, ...]
    """The members with their current cache modes, without timing profiles."""
    connections: int
    """Number of client connections that were made since the last power cut."""
    log: str | None
    """Path of the open write log; None: no write log is open."""
    log_error: str | None
    """Message of the error that closed the last write log; None: no error."""
    pid: int
    """Process id of the engine."""


def encode(value: object) -> bytes:
    """Return a value as one line of JSON; the value may contain dataclasses, enums and paths."""
    return json.dumps(value, default=_plain, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Return the JSON object in one line of the protocol.

    Raises:
        MessageError: the line is not a JSON object.
    """
    try:
        body = json.loads(line)
    except ValueError as error:
        raise MessageError(f"a line of the protocol is not JSON: {line[:200]!r}: {error}") from error
    if not isinstance(body, dict):
        raise MessageError(f"a line of the protocol is not a JSON object: {line[:200]!r}")
    return body


def build(kind: type[T], value: Any) -> T:
    """Return an object of the type ``kind`` from its JSON value, as `decode` returns it.

    Raises:
        MessageError: a field is missing, is unknown, or has a value of another type.
    """
    try:
        return _build(kind, value)  # type: ignore[no-any-return]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        name = getattr(kind, "__name__", kind)
        raise MessageError(f"a value of type {name} is invalid: {str(value)[:200]}: {error}") from error


def load_disks(path: Path) -> Disks:
    """Return the disks in a file that `save_disks` wrote.

    Raises:
        MessageError: the file does not describe disks.
    """
    return build(Disks, decode(path.read_bytes()))


def save_disks(path: Path, disks: Disks) -> None:
    """Write the configuration file from which the nbdkit plugin reads its member disks."""
    path.write_bytes(encode(disks))


def _plain(value: object) -> object:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"cannot encode {value!r} as JSON")


def _build(annotation: Any, value: Any) -> Any:
    """Convert a JSON value to the type of an annotation; a list becomes a tuple."""
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
            raise TypeError(f"unknown fields: {', '.join(sorted(unknown))}")
        return annotation(**{name: _build(hints[name], item) for name, item in value.items()})  # type: ignore[operator]
    if issubclass(annotation, Enum | Path):
        return annotation(value)
    if type(value) is not annotation:
        raise TypeError(f"expected {annotation.__name__}, got {value!r}")
    return value
