"""Timing profiles of disks: parameters from data sheets, stored as TOML."""

import tomllib
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

from raidproof.core.errors import RequestError, nearest

_FOLDER = Path(__file__).with_name("profiles")


@dataclass(frozen=True)
class DriveCache:
    """The memory in a drive. Sizes in bytes."""

    size: int = 0
    """Capacity for writes that are not on the medium yet."""
    write_back: bool = False
    """Whether a write is acknowledged once it is in the cache."""
    protected: bool = False
    """Whether the cache survives a power cut, so that a flush costs nothing."""
    read_ahead: int = 0
    """Bytes that the drive reads ahead after a read."""
    sorted: int = 4
    """Number of oldest cached writes among which the drive chooses the next. Firmware sorts little.

    Of two drives of 2000, one of 5,400 rpm (IDE) made 66 random reads and 90 cached random writes a second; one of
    10,000 rpm (SCSI) made 105 and 105, with an unknown cache setting (Chung and others, "Windows 2000 Disk IO
    Performance", Microsoft Research). A SATA drive of 10,000 rpm made some 400 writes of 4 KiB within 8 GB (AnandTech,
    "The SSD Anthology", 2009). With 4 the model makes 1.3 writes per read and 360 within 8 GB; with 1 it makes as many
    writes as reads, which the SCSI profiles use. The evidence is weak, and the figure of a 15,000 rpm pair was known
    when the values were chosen."""


@dataclass(frozen=True)
class Rotational:
    """Platters and heads. Rates in 10^6 bytes per second."""

    rpm: float
    track_to_track_ms: float
    average_seek_ms: float
    full_stroke_ms: float
    write_seek_extra_ms: float
    """Additional seek time before a write, for the heads to settle."""
    head_switch_ms: float
    """From the end of a track to the beginning of the next."""
    media_rate_rim_mb_s: float
    """Sustained rate in the outermost zone, head switches included."""
    media_rate_hub_mb_s: float
    """The same in the innermost zone."""
    zones: int = 16

    @property
    def turn_ms(self) -> float:
        """The time of one revolution in ms."""
        return 60e3 / self.rpm


@dataclass(frozen=True)
class Flash:
    """Flash chips that work in parallel, without garbage collection: a drive that is mostly empty."""

    channels: int
    """Number of pages that can be read or programmed at the same time: channels times dies per channel."""
    page: int
    """Bytes that are read or programmed at once."""
    read_us: float
    program_us: float
    erase_us: float
    erase_block: int
    """Bytes; each programmed page includes its share of the erasure."""
    flush_us: float = 0.0
    """Duration of a flush of an empty cache: the mapping tables are written."""


@dataclass(frozen=True)
class Profile:
    """One model of disk."""

    name: str
    source: str
    """Source of the parameters."""
    capacity: int = 0
    """Bytes."""
    queue_depth: int = 1
    """Number of requests that the drive holds and reorders."""
    command_overhead_us: float = 0.0
    interface_mb_s: float = 0.0
    """10^6 bytes per second."""
    cache: DriveCache = field(default_factory=DriveCache)
    rotational: Rotational | None = None
    flash: Flash | None = None

    @property
    def timed(self) -> bool:
        """Whether requests take time; a disk with neither platters nor flash answers at once."""
        return self.rotational is not None or self.flash is not None

    @property
    def sequential_mb_s(self) -> float:
        """The rate of a sequential read of the first bytes, in 10^6 bytes per second; infinite if untimed."""
        if self.rotational is not None:
            return min(self.rotational.media_rate_rim_mb_s, self.interface_mb_s)
        if self.flash is not None:
            return min(self.flash.channels * self.flash.page / self.flash.read_us, self.interface_mb_s)
        return float("inf")


def profile_names() -> list[str]:
    """Return the names of the harness's profiles."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load_profile(name: str) -> Profile:
    """Return a profile by its name, or from the user's file: a path that ends in ``.toml``.

    Raises:
        RequestError: there is no such profile or file; or a key is missing or unknown, or a value impossible.
    """
    path = Path(name) if name.endswith(".toml") else _FOLDER / f"{name}.toml"
    if path.parent == _FOLDER and name not in profile_names():
        raise RequestError(f"no disk profile {name!r}", remedy=nearest(name, profile_names()))
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RequestError(f"cannot read the disk profile {path}: {error}") from error
    profile: Profile = _build(Profile, {"name": path.stem, **table}, f"{path}")
    _check(profile, path)
    return profile


def _build(annotation: Any, value: Any, where: str) -> Any:
    """Convert a TOML value to the type of an annotation."""
    if isinstance(annotation, UnionType):
        annotation = get_args(annotation)[0]
    if is_dataclass(annotation):
        if not isinstance(value, dict):
            raise RequestError(f"{where}: expected a table, got {value!r}")
        known = {one.name: one for one in fields(annotation)}
        for key in value:
            if key not in known:
                raise RequestError(f"{where}: unknown key {key!r}", remedy=nearest(key, known))
        if missing := [one.name for one in known.values() if one.name not in value and _required(one)]:
            raise RequestError(f"{where}: missing: {', '.join(missing)}")
        hints = get_type_hints(annotation)
        return annotation(**{key: _build(hints[key], item, f"{where}: {key}") for key, item in value.items()})  # type: ignore[operator]
    if annotation is float and type(value) is int:
        return float(value)
    if type(value) is not annotation:
        raise RequestError(f"{where}: expected {annotation.__name__}, got {value!r}")
    return value


def _required(one: "Field[Any]") -> bool:
    return one.default is MISSING and one.default_factory is MISSING


def _check(profile: Profile, path: Path) -> None:
    """Raise RequestError for a profile that no disk can have."""
    if profile.rotational is not None and profile.flash is not None:
        raise RequestError(f"{path}: a disk has platters or flash, not both")
    if profile.timed and not (profile.capacity > 0 and profile.queue_depth > 0 and profile.interface_mb_s > 0):
        raise RequestError(f"{path}: capacity, queue_depth and interface_mb_s must be more than 0")
    numbers = [(part, one.name, getattr(part, one.name)) for part in _parts(profile) for one in fields(part)]
    for part, name, number in numbers:
        free = isinstance(part, DriveCache | Profile) or name in {"write_seek_extra_ms", "flush_us"}
        if isinstance(number, int | float) and (number < 0 or (number == 0 and not free)):
            raise RequestError(f"{path}: {name} cannot be {number}")
    mechanics = profile.rotational
    if mechanics is None:
        return
    if not mechanics.track_to_track_ms <= mechanics.average_seek_ms <= mechanics.full_stroke_ms:
        raise RequestError(f"{path}: seek times must not decrease from track to average to full stroke")
    if mechanics.media_rate_hub_mb_s > mechanics.media_rate_rim_mb_s:
        raise RequestError(f"{path}: the media rate at the rim must not be less than at the hub")


def _parts(profile: Profile) -> list[Any]:
    return [one for one in (profile, profile.cache, profile.rotational, profile.flash) if one is not None]
