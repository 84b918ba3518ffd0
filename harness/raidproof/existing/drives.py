"""The drives of an existing server, and the profiles that simulate them."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from raidproof.disk.drive_model import FLASH, ROTATING, drive_model
from raidproof.disk.profile import load_profile
from raidproof.existing.block_devices import Device
from raidproof.existing.fact import Fact, default, read
from raidproof.existing.md import MdArray
from raidproof.existing.reports import Reports
from raidproof.plan.hardware import Duty

Cache = Literal["none", "volatile", "protected"]


class Drive(BaseModel):
    """One drive, and its use."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """The name on the server, or ``missing``."""
    duty: Duty
    model: str | None = None
    real_size: int | None = None
    """Bytes of the real drive."""
    rotational: bool | None = None
    profile: Fact[str]
    differs: str = ""
    """How the drive differs from its profile."""
    write_cache: Fact[Cache]


def drives_of(array: MdArray, reports: Reports) -> tuple[Drive, ...]:
    """Return the drives of an array: the members in the order of their slots, then spares, then the journal.

    Write-mostly members are the last ones, as in plans. For a missing member the drive is that of the first member.
    """
    mostly = array.write_mostly
    first = [name for name in array.active if name not in mostly]
    members = [drive(name, "member", reports) for name in first][: array.raid_devices - len(mostly)]
    last = [drive(name, "member", reports) for name in mostly][: array.raid_devices]
    pattern = next(iter([*members, *last]), None) or drive("missing", "member", reports)
    missing = pattern.model_copy(update={"name": "missing", "real_size": None})
    members += [missing] * (array.raid_devices - len(members) - len(last)) + last
    spares = [drive(name, "spare", reports) for name in array.named("spare")]
    journal = [drive(name, "journal", reports) for name in array.named("journal")][:1]
    if array.policy == "journal" and not journal:
        journal = [pattern.model_copy(update={"name": "missing", "duty": "journal"})]
    return (*members, *spares, *journal)


def drive(name: str, duty: Duty, reports: Reports) -> Drive:
    """Return the drive on which a device is, by the device's name."""
    devices = reports.devices
    disk = devices.disk_of(name) if devices is not None else None
    entry = drive_model(disk.model) if disk is not None and disk.model else None
    rotational = _rotational(name, disk, reports)
    source = devices.source if devices is not None else ""
    if disk is not None and entry is not None:
        profile = read(entry.profile, f"{source} (model {disk.model}); table of drive models: {entry.source}")
    else:
        profile = _usual_profile(disk, rotational)
    if rotational is None and entry is not None:
        rotational = load_profile(entry.profile).rotational is not None
    return Drive(
        name=name,
        duty=duty,
        model=disk.model if disk else None,
        real_size=disk.size if disk else None,
        rotational=rotational,
        profile=profile,
        differs=entry.differs if entry else "",
        write_cache=_cache(name, disk, reports, protected=bool(entry and entry.protected)),
    )


def _usual_profile(disk: Device | None, rotational: bool | None) -> Fact[str]:
    if disk is None:
        return default(ROTATING, "the drive was not read; give --lsblk (lsblk --json -O)")
    named = f"the model {disk.model!r} is not in the table of drive models" if disk.model else "the model was not read"
    if rotational is None:
        return default(ROTATING, f"{named}, and neither was whether the drive rotates")
    kind = "the drive rotates" if rotational else "the drive does not rotate"
    return default(ROTATING if rotational else FLASH, f"{named}; {kind}")


def _rotational(name: str, disk: Device | None, reports: Reports) -> bool | None:
    if disk is not None and disk.rotational is not None:
        return disk.rotational
    file = reports.kernel_files.get(f"/sys/block/{disk.kernel_name if disk else name}/queue/rotational")
    return None if file is None or file.number is None else bool(file.number)


def _cache(name: str, disk: Device | None, reports: Reports, *, protected: bool) -> Fact[Cache]:
    """Return where acknowledged writes are before a flush; the kernel reports a protected cache as write through."""
    usual: Cache = "protected" if protected else "volatile"
    path = f"/sys/block/{disk.kernel_name if disk else name.rstrip('0123456789')}/queue/write_cache"
    file = reports.kernel_files.get(path)
    if file is None:
        return default(usual, f"{path} was not read; drives leave the factory with the write cache on")
    if file.value == "write back":
        return read(usual, file.source)
    return read("protected" if protected else "none", file.source)
