"""The block devices of a server: the output of lsblk --json, with any selection of columns."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from raidproof.existing.given import Given, plain, shortened

COLUMNS = "NAME,KNAME,PKNAME,TYPE,SIZE,ROTA,MODEL,VENDOR,TRAN,FSTYPE,LABEL,UUID,PARTUUID,MOUNTPOINT"
"""The columns that ``raidproof import --ssh`` reads; lsblk of util-linux 2.23 (2013) has them."""
DEEPEST = 32
"""Greatest number of devices stacked on each other."""
_UNITS = {"": 1, "B": 1, **{unit: 1024 ** (place + 1) for place, unit in enumerate("KMGTPE")}}
_TRUE = {"1", "true"}


class Device(BaseModel):
    """One block device. None: the column was not printed, or is empty."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """The name in lsblk: ``sda1``, ``md0``, ``vg-data``."""
    kernel_name: str
    type: str | None = None
    """disk, part, raid5, lvm, crypt, ..."""
    size: int | None = None
    """Bytes; rounded if lsblk printed a size such as 3.6T."""
    rotational: bool | None = None
    model: str | None = None
    vendor: str | None = None
    transport: str | None = None
    filesystem: str | None = None
    label: str | None = None
    uuid: str | None = None
    part_uuid: str | None = None
    mounts: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    """Names of the devices that this one is on: its disk, the members of its array."""

    def is_called(self, source: str) -> bool:
        """Return whether the first field of fstab names this device."""
        tag, _, value = source.partition("=")
        value = value.strip('"')
        match tag.upper():
            case "UUID":
                return self.uuid is not None and self.uuid.lower() == value.lower()
            case "LABEL":
                return self.label == value
            case "PARTUUID":
                return self.part_uuid is not None and self.part_uuid.lower() == value.lower()
        if source.startswith("/dev/disk/by-uuid/"):
            return self.uuid is not None and source.rpartition("/")[2].lower() == self.uuid.lower()
        if source.startswith("/dev/disk/by-label/"):
            return source.rpartition("/")[2] == self.label
        name = source.removeprefix("/dev/").removeprefix("mapper/").removeprefix("md/")
        # device-mapper writes vg/lv as vg-lv, and doubles each - in a name.
        volume = "-".join(part.replace("-", "--") for part in name.split("/"))
        return name in {self.name, self.kernel_name} or volume == self.name


class BlockDevices(BaseModel):
    """All block devices of a server by name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    devices: dict[str, Device]

    def called(self, source: str) -> Device | None:
        """Return the device that the first field of fstab names."""
        return next((one for one in self.devices.values() if one.is_called(source)), None)

    def mounted_on(self, directory: str) -> Device | None:
        """Return the device with this mount point."""
        return next((one for one in self.devices.values() if directory in one.mounts), None)

    def chain(self, device: Device) -> tuple[Device, ...]:
        """Return a device, and all devices below it, the nearest first; each once."""
        found, left = {device.name: device}, list(device.below)
        while left:
            name = left.pop(0)
            if name in self.devices and name not in found:
                found[name] = self.devices[name]
                left += self.devices[name].below
        return tuple(found.values())

    def disk_of(self, name: str) -> Device | None:
        """Return the disk of a partition or device, by a name that mdadm prints; None if lsblk does not list it."""
        device = self.called(name)
        if device is None:
            return None
        disks = [one for one in self.chain(device) if one.type in {"disk", "mpath", None} and not one.below]
        return disks[0] if disks else device


def parse_lsblk(file: Given) -> BlockDevices:
    """Return the block devices in the output of ``lsblk --json``.

    Raises:
        RequestError: the text is not JSON of lsblk, or a device has no name or a malformed value.
    """
    document = file.json()
    if not isinstance(document, dict) or not isinstance(document.get("blockdevices"), list):
        file.refuse(1, "has no list 'blockdevices'", "write it with lsblk --json -O")
    devices: dict[str, Device] = {}
    for table, parent in _tables(file, document["blockdevices"], None, 0):
        one = _device(file, table, parent)
        known = devices.get(one.name)
        below = tuple(dict.fromkeys([*(known.below if known else ()), *one.below]))
        mounts = tuple(dict.fromkeys([*(known.mounts if known else ()), *one.mounts]))
        devices[one.name] = one.model_copy(update={"below": below, "mounts": mounts})
    return BlockDevices(source=file.name, devices=devices)


def _tables(
    file: Given, entries: Any, parent: str | None, depth: int
) -> Iterator[tuple[Mapping[str, Any], str | None]]:
    if not isinstance(entries, list):
        file.refuse(1, "'children' is not a list")
    if depth > DEEPEST:
        file.refuse(1, f"more than {DEEPEST} devices are stacked on each other")
    for entry in entries:
        if not isinstance(entry, dict):
            file.refuse(1, f"a block device is not an object: {shortened(repr(entry))}")
        table = {str(key).lower(): value for key, value in entry.items()}
        yield table, parent
        name = table.get("name") or table.get("kname")
        yield from _tables(file, table.get("children", []), str(name), depth + 1)


def _device(file: Given, table: Mapping[str, Any], parent: str | None) -> Device:
    name = _text(table, "name") or _text(table, "kname")
    if not name:
        file.refuse(1, "a block device has no NAME", "write it with lsblk --json -O")
    name = name.removeprefix("/dev/").removeprefix("mapper/")
    parents = [parent.removeprefix("/dev/").removeprefix("mapper/") if parent else None, _text(table, "pkname")]
    rota = table.get("rota")
    return Device(
        name=name,
        kernel_name=(_text(table, "kname") or name).removeprefix("/dev/"),
        type=_text(table, "type"),
        size=_size(file, table.get("size")),
        rotational=None if rota is None else str(rota).strip().lower() in _TRUE,
        model=_text(table, "model"),
        vendor=_text(table, "vendor"),
        transport=_text(table, "tran"),
        filesystem=_text(table, "fstype"),
        label=_text(table, "label"),
        uuid=_text(table, "uuid"),
        part_uuid=_text(table, "partuuid"),
        mounts=_mounts(table),
        below=tuple(one for one in dict.fromkeys(parents) if one and one != name),
    )


def _mounts(table: Mapping[str, Any]) -> tuple[str, ...]:
    several = table.get("mountpoints")
    every = several if isinstance(several, list) else []
    found = [*every, table.get("mountpoint")]
    return tuple(dict.fromkeys(plain(one) for one in found if isinstance(one, str) and one.startswith("/")))


def _text(table: Mapping[str, Any], key: str) -> str | None:
    value = table.get(key)
    return plain(value).strip()[:200] or None if isinstance(value, str) else None


def _size(file: Given, value: Any) -> int | None:
    """Return a size in bytes; lsblk prints a number, digits, or a rounded value with a unit: ``3.6T``, ``3,6T``."""
    if value is None or isinstance(value, bool):
        return None
    found = re.fullmatch(r"([0-9]{1,20}(?:[.,][0-9]{1,6})?)\s*([BKMGTPE]?)", str(value).strip())
    if found is None:
        file.refuse(1, f"not a size: {shortened(repr(value))}")
    return int(float(found[1].replace(",", ".")) * _UNITS[found[2]])
