"""A linear volume of LVM over the whole array, as the installers of Debian and RHEL make it."""

import re
from typing import ClassVar, Literal

from raidproof.core.errors import RigError
from raidproof.core.layer import Machine, Value
from raidproof.core.units import SECTOR
from raidproof.storage.volume.logical import GROUP, VOLUME, LogicalVolume, only
from raidproof.storage.volume.volume import Reading

_TABLE = re.compile(r"0 \d+ linear \S+ (\d+)\s*")


class LinearVolume(LogicalVolume):
    """A linear volume with all extents of the volume group."""

    damage: ClassVar[str] = r"device-mapper: linear: .*(?:error|failed)"

    type: Literal["linear"] = "linear"

    def format_commands(self, below: str) -> list[list[str]]:
        """Return the commands that create the volume group, and the volume with all of its extents."""
        # The file system writes its own first blocks; without udev lvcreate cannot search for signatures.
        options = ["--yes", "--wipesignatures=n", "--zero=n", "--type=linear", "--extents=100%FREE"]
        return [*self.group_commands(below), ["lvcreate", only(below), *options, f"--name={VOLUME}", GROUP]]

    def asked(self) -> dict[str, Value]:
        """Return the place of the first byte on the array, with what LVM must report."""
        return {**super().asked(), "first_byte": self.first_extent, "whole_group": True}

    def read(self, machine: Machine, below: str) -> Reading:
        """Read settings and counters with dmsetup and lvs, and whether the volume has all extents of the group."""
        found = super().read(machine, below)
        return found._replace(settings={**found.settings, "whole_group": found.counters["free"] == 0})

    def found(self, table: str) -> dict[str, Value]:
        """Parse ``dmsetup table``: ``0 1163264 linear 9:0 2048``."""
        if (match := _TABLE.fullmatch(table)) is None:
            raise RigError(f"dmsetup table {self.name}: expected one line of linear, found {table.strip()!r}")
        return {"first_byte": int(match[1]) * SECTOR}
