"""A write cache on a separate disk (dm-writecache, SSD mode), with dmsetup(8).

All writes go to the cache disk first. The kernel writes them to the array when the cache is filled to its high
watermark. Source: the kernel's Documentation/admin-guide/device-mapper/writecache.rst.
"""

import re
from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import PAGE_SIZE, Value
from raidproof.core.units import MIB
from raidproof.storage.member import Assembly, disk_path
from raidproof.storage.volume.mapper import NAME, NO_UDEV, PATH, MappedVolume, create_line, remove_command
from raidproof.storage.volume.volume import Serial, erase_command

SSD = "s"
"""The mode of dm-writecache for a cache on a disk; the other mode is for persistent memory."""
_TABLE = re.compile(r"\d+ \d+ writecache ([sp]) \S+ \S+ (\d+) (\d+)((?: \S+)*)\s*")
_STATUS = re.compile(r"\d+ \d+ writecache (\d+) (\d+) (\d+) (\d+)(?: \d+)*\s*")


class WritecacheVolume(MappedVolume):
    """dm-writecache in SSD mode with blocks of 4 KiB, the page size."""

    axes: ClassVar[Mapping[str, str]] = {
        "high_watermark": "percentage of used blocks of the write cache from which the kernel writes to the array",
        "low_watermark": "percentage of used blocks of the write cache below which the kernel stops to write",
    }
    further_disks: ClassVar[tuple[str, ...]] = ("cache_disk",)
    damage: ClassVar[str] = r"device-mapper: writecache: .*(?:error|Error|invalid|Invalid)"
    packages: ClassVar[tuple[str, ...]] = ("dmsetup",)
    in_place: ClassVar[bool] = False
    sector_size: ClassVar[int] = PAGE_SIZE
    forcing: ClassVar[frozenset[str]] = frozenset({NO_UDEV})

    type: Literal["writecache"] = "writecache"
    cache_disk: Serial
    """The serial of the disk with the cache."""
    high_watermark: int | None = Field(default=None, ge=0, le=100)
    """Percentage of used blocks from which the kernel writes to the array; None: the kernel's default, 50."""
    low_watermark: int | None = Field(default=None, ge=0, le=100)
    """Percentage of used blocks below which the kernel stops to write to the array; None: the default, 45."""

    @model_validator(mode="after")
    def _possible(self) -> "WritecacheVolume":
        low, high = (45 if self.low_watermark is None else self.low_watermark), self.high_watermark
        if low > (50 if high is None else high):
            raise RequestError(f"low_watermark {low} % is above high_watermark {50 if high is None else high} %")
        return self

    @property
    def least_disk(self) -> int:
        """The smallest size in bytes of the cache disk."""
        return 16 * MIB

    @property
    def _watermarks(self) -> dict[str, int]:
        asked = {"high_watermark": self.high_watermark, "low_watermark": self.low_watermark}
        return {name: value for name, value in asked.items() if value is not None}

    def format_commands(self, below: str) -> list[list[str]]:  # noqa: ARG002
        """Return the command that erases the superblock; the kernel then makes a new one."""
        return [erase_command(self.cache_disk)]

    def assembly(self, below: str) -> tuple[Assembly, ...]:
        """Return how the target is made."""
        options = [word for name, value in self._watermarks.items() for word in (name, str(value))]
        words = ["writecache", SSD, below, disk_path(self.cache_disk), str(PAGE_SIZE), str(len(options)), *options]
        return (create_line(PATH, " ".join(words), of=below),)

    def close_commands(self, below: str) -> list[list[str]]:  # noqa: ARG002
        """Return the command that removes the device."""
        return [remove_command(PATH)]

    def inputs(self, below: str) -> tuple[str, ...]:
        """Return the array and the cache disk."""
        return (below, disk_path(self.cache_disk))

    def asked(self) -> dict[str, Value]:
        """Return mode, block size in bytes, and watermarks."""
        return {"mode": SSD, "block_size": PAGE_SIZE, **self._watermarks}

    def found(self, table: str) -> dict[str, Value]:
        """Parse ``dmsetup table``: ``0 1173504 writecache s 9:0 254:64 4096 2 high_watermark 2``."""
        match = _TABLE.fullmatch(table)
        words = match[4].split() if match else []
        if match is None or len(words) != int(match[3]):
            raise RigError(f"dmsetup table {NAME}: expected a line of writecache, found {table.strip()!r}")
        return {
            "mode": match[1],
            "block_size": int(match[2]),
            **{name: int(words[words.index(name) + 1]) for name in self._watermarks if name in words[:-1]},
        }

    def counters(self, status: str) -> dict[str, int]:
        """Parse ``dmsetup status``: error, blocks, free blocks, blocks that are being written to the array."""
        match = _STATUS.fullmatch(status)
        if match is None:
            raise RigError(f"dmsetup status {NAME}: expected a line of writecache, found {status.strip()!r}")
        error, blocks, free, writing = map(int, match.groups())
        return {
            "errors": error,
            "size": blocks * PAGE_SIZE,
            "dirty": (blocks - free) * PAGE_SIZE,
            "in_write_back": writing * PAGE_SIZE,
        }
