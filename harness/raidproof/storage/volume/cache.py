"""A cache on a separate disk (dm-cache with the policy smq), with dmsetup(8).

The disk has the metadata first, and then the cached blocks. In the mode ``writeback``, a cached block may be newer
than the array; in the mode ``writethrough``, each write goes to the array too. Source: the kernel's
Documentation/admin-guide/device-mapper/cache.rst.
"""

import re
from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import model_validator

from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import Value
from raidproof.core.units import GIB, KIB, MIB, SECTOR, Size, format_size
from raidproof.storage.member import Assembly, disk_path
from raidproof.storage.volume.mapper import NAME, NO_UDEV, PATH, MappedVolume, create_line, remove_command
from raidproof.storage.volume.volume import Serial, erase_command

META, FAST = f"{PATH}-meta", f"{PATH}-fast"
"""Paths of the two parts of the disk."""
POLICY = "smq"
_LEAST_BLOCK = 32 * KIB
_TABLE = re.compile(r"\d+ \d+ cache \S+ \S+ \S+ (\d+) \d+((?: \S+)*) (\S+) \d+(?: \S+)*\s*")
_STATUS = re.compile(r"\d+ \d+ cache \d+ \d+/\d+ (\d+) (\d+)/(\d+) \d+ \d+ \d+ \d+ (\d+) (\d+) (\d+) (.*)")
_MODES = {"writeback", "writethrough", "passthrough"}


class CacheVolume(MappedVolume):
    """dm-cache with the policy smq, the kernel's default."""

    axes: ClassVar[Mapping[str, str]] = {
        "cache_mode": "mode of dm-cache: writeback or writethrough",
        "cache_size": "bytes of the cache of dm-cache",
        "cache_block": "bytes of a block of dm-cache",
    }
    further_disks: ClassVar[tuple[str, ...]] = ("cache_disk",)
    damage: ClassVar[str] = r"device-mapper: cache(?: metadata)?: .*(?:aborting|failed|needs_check|error)"
    packages: ClassVar[tuple[str, ...]] = ("dmsetup",)
    in_place: ClassVar[bool] = False
    forcing: ClassVar[frozenset[str]] = frozenset({NO_UDEV})

    type: Literal["cache"] = "cache"
    cache_disk: Serial
    """The serial of the disk with the cache and its metadata."""
    cache_mode: Literal["writeback", "writethrough"] = "writeback"
    cache_size: Size = 128 * MIB
    """Bytes of the cached blocks."""
    cache_block: Size = 64 * KIB
    """Bytes of a block, in which data is copied to the cache and back."""

    @model_validator(mode="after")
    def _possible(self) -> "CacheVolume":
        block = self.cache_block
        if block % _LEAST_BLOCK or not _LEAST_BLOCK <= block <= GIB:
            raise RequestError(f"cache_block {format_size(block)} is not a multiple of 32KiB from 32KiB to 1GiB")
        if self.cache_size < block or self.cache_size % block:
            raise RequestError(
                f"cache_size {format_size(self.cache_size)} does not consist of blocks of {format_size(block)}"
            )
        return self

    @property
    def metadata_size(self) -> int:
        """The bytes for the metadata: 16 bytes for each block (lvmcache(7)), and room for the tree itself."""
        return 8 * MIB + -(-16 * (self.cache_size // self.cache_block) // MIB) * MIB

    @property
    def least_disk(self) -> int:
        """The smallest size in bytes of the cache disk."""
        return self.metadata_size + self.cache_size

    def format_commands(self, below: str) -> list[list[str]]:  # noqa: ARG002
        """Return the command that erases the metadata; the kernel then makes an empty cache."""
        return [erase_command(self.cache_disk)]

    def assembly(self, below: str) -> tuple[Assembly, ...]:
        """Return how the two parts of the disk and the target are made."""
        disk, first = disk_path(self.cache_disk), self.metadata_size // SECTOR
        words = ["cache", META, FAST, below, str(self.cache_block // SECTOR), "1", self.cache_mode, POLICY, "0"]
        return (
            create_line(META, f"0 {first} linear {disk} 0"),
            create_line(FAST, f"0 {self.cache_size // SECTOR} linear {disk} {first}"),
            create_line(PATH, " ".join(words), of=below),
        )

    def close_commands(self, below: str) -> list[list[str]]:  # noqa: ARG002
        """Return the commands that remove the devices."""
        return [remove_command(path) for path in (PATH, FAST, META)]

    def inputs(self, below: str) -> tuple[str, ...]:
        """Return the array and the two parts of the disk."""
        return (below, META, FAST)

    def asked(self) -> dict[str, Value]:
        """Return mode, block size in bytes, and policy."""
        return {"mode": self.cache_mode, "block_size": self.cache_block, "policy": POLICY}

    def found(self, table: str) -> dict[str, Value]:
        """Parse ``dmsetup table``: ``0 1173504 cache 252:0 252:1 9:0 128 1 writeback smq 0``."""
        match = _TABLE.fullmatch(table)
        mode = _MODES.intersection(match[2].split()) if match else set()
        if match is None or len(mode) != 1:
            raise RigError(f"dmsetup table {NAME}: expected a line of dm-cache, found {table.strip()!r}")
        return {"mode": mode.pop(), "block_size": int(match[1]) * SECTOR, "policy": match[3]}

    def counters(self, status: str) -> dict[str, int]:
        """Parse ``dmsetup status``: used blocks, demotions, promotions and dirty blocks, and whether it failed."""
        match = _STATUS.fullmatch(status.strip())
        if match is None or len(match[7].split()) < len(["1", "mode", "0", POLICY, "0", "rw", "-"]):
            raise RigError(f"dmsetup status {NAME}: expected a line of dm-cache, found {status.strip()!r}")
        *_, mode, check = match[7].split()
        block = int(match[1]) * SECTOR
        return {
            "errors": int(mode != "rw" or check != "-"),
            "size": int(match[3]) * block,
            "used": int(match[2]) * block,
            "demotions": int(match[4]),
            "promotions": int(match[5]),
            "dirty": int(match[6]) * block,
        }
