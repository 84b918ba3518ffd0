"""Timing profiles of disks: parameters from data sheets, in TOML files."""

from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

from raidproof.core.errors import RequestError, nearest
from raidproof.core.toml import read_toml

_FOLDER = Path(__file__).with_name("profiles")


@dataclass(frozen=True)
class DriveCache:
    """The cache memory of a drive."""

    size: int = 0
    """Bytes of writes that the cache holds before they are on the medium."""
    write_back: bool = False
    """Whether the drive acknowledges a write as soon as the data is in the cache."""
    protected: bool = False
    """Whether the cache survives a power cut, so that a flush takes no time."""
    read_ahead: int = 0
    """Number of bytes that the drive reads ahead after a read."""
    sorted: int = 4
    """Number of the oldest cached writes from which the drive selects the write with the shortest positioning time.

    The default of 4 gives 1.3 random writes for each random read, and 360 writes of 4 KiB a second within 8 GB. The
    value 1 gives as many random writes as random reads; the SCSI profiles use it. Measurements: a drive of 5,400 rpm
    (IDE, 2000) executed 66 random reads and 90 cached random writes a second; a drive of 10,000 rpm (SCSI, 2000,
    unknown cache setting) executed 105 of each (Chung and others, "Windows 2000 Disk IO Performance", Microsoft
    Research). A SATA drive of 10,000 rpm executed some 400 writes of 4 KiB a second within 8 GB (AnandTech, "The SSD
    Anthology", 2009). The evidence is weak: the values were chosen with the measured rate of a pair of 15,000 rpm
    drives in view."""


@dataclass(frozen=True)
class Rotational:
    """The mechanics of a rotating disk: platters and heads."""

    rpm: float
    """Revolutions per minute."""
    track_to_track_ms: float
    """Seek time between adjacent tracks."""
    average_seek_ms: float
    """Mean seek time between two random tracks."""
    full_stroke_ms: float
    """Seek time between the outermost and the innermost track."""
    write_seek_extra_ms: float
    """Additional time before a write, in which the heads settle on the track."""
    head_switch_ms: float
    """Time from the end of a track to the beginning of the next track in a sequential transfer."""
    media_rate_rim_mb_s: float
    """Sustained rate in the outermost zone in 10^6 bytes per second, including head switches."""
    media_rate_hub_mb_s: float
    """Sustained rate in the innermost zone in 10^6 bytes per second, including head switches."""
    zones: int = 16
    """Number of zones; all tracks of a zone have the same number of sectors."""

    @property
    def turn_ms(self) -> float:
        """Duration of one revolution in ms."""
        return 60e3 / self.rpm


@dataclass(frozen=True)
class Flash:
    """The flash chips of a solid-state drive, which work in parallel.

    The model has no garbage collection, as in a drive that is mostly empty.
    """

    channels: int
    """Number of pages that the drive can read or program at the same time: channels times dies per channel."""
    page: int
    """Bytes that one read or program operation transfers."""
    read_us: float
    """Duration of reading one page."""
    program_us: float
    """Duration of programming one page, without the erasure."""
    erase_us: float
    """Duration of erasing one erase block."""
    erase_block: int
    """Bytes of an erase block. Each programmed page takes its share of ``erase_us`` in addition."""
    flush_us: float = 0.0
    """Duration of a flush with an empty cache, in which the drive writes its mapping tables."""


@dataclass(frozen=True)
class Measured:
    """The measurement of which a profile was made, and how well the profile predicts the measured drive."""

    drive: str
    """Model and serial number of the drive, or its path."""
    median_deviation_percent: float
    """Median of the absolute deviations of the simulation from the drive, over workloads that the fit did not use."""
    worst_deviation_percent: float
    """The greatest deviation; negative: the simulation is slower than the drive."""
    worst_workload: str
    """The workload with the greatest deviation."""
    assumed: str = ""
    """The parameters that were not measured, and their source."""
    unexplained: str = ""
    """Observations that the profile does not explain."""

    @property
    def sentence(self) -> str:
        """How well the profile predicts the drive, as a sentence for reports."""
        worst = f"worst {self.worst_deviation_percent:+.0f} %: {self.worst_workload}"
        said = f"predicts reads of {self.drive} within {self.median_deviation_percent:.0f} % (median; {worst})"
        said += f"; not measured: {self.assumed}" if self.assumed else ""
        return f"{said}; not explained: {self.unexplained}" if self.unexplained else said


@dataclass(frozen=True)
class Profile:
    """The timing parameters of one disk model."""

    name: str
    """Name of the profile: the name of its file without ``.toml``."""
    source: str
    """Source of the parameters, for example a data sheet."""
    capacity: int = 0
    """Capacity in bytes."""
    queue_depth: int = 1
    """Number of requests that the drive holds and reorders."""
    command_overhead_us: float = 0.0
    """Time that the drive needs for each command in addition to positioning and transfer."""
    interface_mb_s: float = 0.0
    """Rate of the interface in 10^6 bytes per second."""
    cache: DriveCache = field(default_factory=DriveCache)
    rotational: Rotational | None = None
    flash: Flash | None = None
    measured: Measured | None = None
    """The measurement of this profile; None: the parameters are from a data sheet."""

    @property
    def timed(self) -> bool:
        """Whether requests take simulated time: whether the profile has a table ``rotational`` or ``flash``."""
        return self.rotational is not None or self.flash is not None

    @property
    def sequential_mb_s(self) -> float:
        """Rate of a sequential read at the start of the disk, in 10^6 bytes per second; infinite if untimed."""
        if self.rotational is not None:
            return min(self.rotational.media_rate_rim_mb_s, self.interface_mb_s)
        if self.flash is not None:
            return min(self.flash.channels * self.flash.page / self.flash.read_us, self.interface_mb_s)
        return float("inf")


def profile_names() -> list[str]:
    """Return the names of the profiles that the package contains."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load_profile(name: str) -> Profile:
    """Return the profile with a name, or the profile in a user's file: a path that ends in ``.toml``.

    Raises:
        RequestError: the profile or file does not exist; a key is missing or unknown; or a value is impossible.
    """
    path = Path(name) if name.endswith(".toml") else _FOLDER / f"{name}.toml"
    if path.parent == _FOLDER and name not in profile_names():
        raise RequestError(f"unknown disk profile {name!r}", remedy=nearest(name, profile_names()))
    table = read_toml(path)
    profile: Profile = _build(Profile, {"name": path.stem, **table}, f"{path}")
    _check(profile, path)
    return profile


def _build(annotation: Any, value: Any, where: str) -> Any:
    """Convert a TOML value to the type of an annotation; ``where`` is the file and key for messages."""
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
            raise RequestError(f"{where}: missing key: {', '.join(missing)}")
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
    """Raise RequestError if the profile has impossible values."""
    if profile.rotational is not None and profile.flash is not None:
        raise RequestError(f"{path}: a profile may have a table [rotational] or [flash], not both")
    if profile.timed and not (profile.capacity > 0 and profile.queue_depth > 0 and profile.interface_mb_s > 0):
        found = f"{profile.capacity}, {profile.queue_depth} and {profile.interface_mb_s:g}"
        raise RequestError(f"{path}: capacity, queue_depth and interface_mb_s must be more than 0; found {found}")
    numbers = [(part, one.name, getattr(part, one.name)) for part in _parts(profile) for one in fields(part)]
    for part, name, number in numbers:
        free = isinstance(part, DriveCache | Profile) or name in {"write_seek_extra_ms", "flush_us"}
        if isinstance(number, int | float) and (number < 0 or (number == 0 and not free)):
            raise RequestError(f"{path}: {name} must be {'at least' if free else 'more than'} 0; found {number}")
    mechanics = profile.rotational
    if mechanics is None:
        return
    if not mechanics.track_to_track_ms <= mechanics.average_seek_ms <= mechanics.full_stroke_ms:
        raise RequestError(
            f"{path}: track_to_track_ms ({mechanics.track_to_track_ms:g}), average_seek_ms "
            f"({mechanics.average_seek_ms:g}) and full_stroke_ms ({mechanics.full_stroke_ms:g}) must not decrease "
            "in this order"
        )
    if mechanics.media_rate_hub_mb_s > mechanics.media_rate_rim_mb_s:
        raise RequestError(
            f"{path}: media_rate_hub_mb_s ({mechanics.media_rate_hub_mb_s:g}) must not be more than "
            f"media_rate_rim_mb_s ({mechanics.media_rate_rim_mb_s:g})"
        )


def _parts(profile: Profile) -> list[Any]:
    return [one for one in (profile, profile.cache, profile.rotational, profile.flash) if one is not None]
