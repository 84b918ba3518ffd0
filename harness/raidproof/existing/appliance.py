"""The system of network storage whose layout the files of a server have: Synology DSM, QNAP QTS, TrueNAS, ..."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from raidproof.existing.fact import Fact, read
from raidproof.existing.reports import Reports


class _Layout(NamedTuple):
    """What only one system has in its files; a pattern matches a whole text, None: the files do not show it."""

    name: str
    export: str | None = None
    """Pattern of an exported directory."""
    device: str | None = None
    """Pattern of the device of a mount."""
    directory: str | None = None
    """Pattern of the mount point of a file system."""
    option: str | None = None
    """Pattern of an option of a mount."""
    label: str | None = None
    """Pattern of the label of a ZFS pool, or of the name of a volume, in lsblk."""


_LAYOUTS = (
    _Layout("Synology DSM", r"/volume\d+/.+", r"/dev/(mapper/)?vg\d+[-/]volume_\d+", r"/volume\d+", "synoacl"),
    _Layout("QNAP QTS", r"/share/(MD\d+_DATA|CACHEDEV\d+_DATA|NFSv=?4)(/.*)?", None, r"/share/(MD|CACHEDEV)\d+_DATA"),
    _Layout("OpenMediaVault", None, None, r"/srv/dev-disk-by-.+"),
    _Layout("Proxmox VE", r"/rpool/data(/.*)?", r"/dev/(mapper/)?pve[-/].+", r"/mnt/pve/.+|/etc/pve", None, "pve-.+"),
    _Layout("TrueNAS", None, r"(boot-pool|freenas-boot)(/.*)?", None, None, r"boot-pool|freenas-boot"),
)


def appliance_of(reports: Reports) -> Fact[str] | None:
    """Return the name of the system whose layout the files have, with the first place that shows it; else None."""
    return next((read(layout.name, source) for layout in _LAYOUTS for source in _places(layout, reports)), None)


def _places(layout: _Layout, reports: Reports) -> Iterator[str]:
    """Yield where the files have something that only this system has."""
    for entry in reports.mounts:
        if _fits(layout.device, entry.device) or _fits(layout.directory, entry.directory):
            yield f"{entry.source}: {entry.device} on {entry.directory}"
        yield from (
            f"{entry.source}: mount option {option}" for option in entry.options if _fits(layout.option, option)
        )
    for exported in reports.exports or ():
        if _fits(layout.export, exported.path):
            yield f"{exported.source}: {exported.path}"
    if reports.devices is not None:
        for device in reports.devices.devices.values():
            for name in filter(None, (device.name, device.label)):
                if _fits(layout.label, name):
                    yield f"{reports.devices.source}: {name}"


def _fits(pattern: str | None, text: str) -> bool:
    return pattern is not None and re.fullmatch(pattern, text) is not None
