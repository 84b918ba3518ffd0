"""A cache on a separate disk (bcache), with make-bcache(8) and the files of bcache in sysfs.

In the mode ``writeback``, a cached block may be newer than the array; in the mode ``writethrough``, each write goes to
the array too. Source: the kernel's Documentation/admin-guide/bcache.rst.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from raidproof.core.errors import RigError
from raidproof.core.layer import Machine, Value
from raidproof.core.units import GIB, KIB, MIB, SECTOR
from raidproof.guest import release
from raidproof.guest.assembled import BLOCK
from raidproof.storage.member import Assembly, disk_path
from raidproof.storage.volume.volume import Reading, Serial, VolumeSpec, erase_command, wipe_command

DEVICE = "bcache0"
"""The kernel's name of the first device of bcache."""
SET = "6d1b3f0e-52a7-4c0e-8a35-9f3a7c7d4b21"
"""The UUID of the set of caches, by which the kernel names its directory in sysfs. A server has one set."""
REGISTER = "/usr/lib/udev/bcache-register"
"""The program of bcache-tools that makes the kernel read the superblock of a device."""
RELEASE = "/run/raidproof/release.py"
"""Path of `raidproof.guest.release` in the machine: bcache stops in the background, long after the request."""
BUCKET = 128 * KIB
"""Bytes of a bucket, in which bcache allocates the cache disk. make-bcache's own default needs larger disks."""
FILES = f"/sys/block/{DEVICE}/bcache"
_MODE = re.compile(r"\[(\w+)\]")
_SIZE = re.compile(r"(\d+)\.(\d)([kMG]?)")
_UNITS = {"": 1, "k": KIB, "M": MIB, "G": GIB}
_ATTACHED = {"clean", "dirty"}


class BcacheVolume(VolumeSpec):
    """bcache with one cache disk, and blocks of one sector."""

    axes: ClassVar[Mapping[str, str]] = {"bcache_mode": "mode of bcache: writeback or writethrough"}
    further_disks: ClassVar[tuple[str, ...]] = ("cache_disk",)
    damage: ClassVar[str] = r"bcache: .*(?:error on |IO error|inconsistent|corrupt)"
    packages: ClassVar[tuple[str, ...]] = ("bcache-tools",)
    in_place: ClassVar[bool] = False
    forcing: ClassVar[frozenset[str]] = frozenset({"--force", "--cset-uuid", SET})
    device: ClassVar[str | None] = f"/dev/{DEVICE}"
    parameters: ClassVar[tuple[tuple[str, str], ...]] = ((RELEASE, Path(release.__file__).read_text()),)

    type: Literal["bcache"] = "bcache"
    cache_disk: Serial
    """The serial of the disk with the cache."""
    bcache_mode: Literal["writeback", "writethrough"] = "writeback"

    @property
    def data_offset(self) -> int:
        """Bytes of the superblock, and of what make-bcache leaves free behind it."""
        return 16 * SECTOR

    @property
    def least_disk(self) -> int:
        """The smallest size in bytes of the cache disk: 513 buckets (cache_alloc in drivers/md/bcache/super.c)."""
        return 513 * BUCKET

    def format_commands(self, below: str) -> list[list[str]]:
        """Return the commands that erase earlier metadata, and write superblocks to the array and the cache disk."""
        mode = ["--writeback"] if self.bcache_mode == "writeback" else []
        disk = disk_path(self.cache_disk)
        return [
            wipe_command(below),
            erase_command(self.cache_disk),
            ["make-bcache", "-C", disk, "-B", below, "--bucket", f"{BUCKET // KIB}k", "--cset-uuid", SET, *mode],
        ]

    def assembly(self, below: str) -> tuple[Assembly, ...]:
        """Return how the module is loaded, and how the cache and then the array are registered."""
        commands = (["modprobe", "bcache"], [REGISTER, disk_path(self.cache_disk)], [REGISTER, below])
        return tuple(Assembly(self.path(below), tuple(words), BLOCK, DEVICE) for words in commands)

    def close_commands(self, below: str) -> list[list[str]]:
        """Return the command that stops the set of caches with its device, and waits until the kernel has done so."""
        return [["python3", RELEASE, f"/sys/fs/bcache/{SET}/stop", *self.inputs(below)]]

    def inputs(self, below: str) -> tuple[str, ...]:
        """Return the array and the cache disk."""
        return (below, disk_path(self.cache_disk))

    def asked(self) -> dict[str, Value]:
        """Return the mode, and that the cache is attached to the array."""
        return {"mode": self.bcache_mode, "attached": True}

    def read(self, machine: Machine, below: str) -> Reading:  # noqa: ARG002
        """Read mode, state and counters in sysfs."""
        files = [f"{FILES}/{name}" for name in ("cache_mode", "state", "dirty_data", "stats_total/bypassed")]
        found = machine.read_files(files)
        mode, state, dirty, bypassed = (found.get(file, "") for file in files)
        if (marked := _MODE.search(mode)) is None:
            raise RigError(f"{FILES}/cache_mode: expected one word in brackets, found {mode!r}")
        slaves = tuple(sorted(machine.succeed(["ls", f"/sys/block/{DEVICE}/slaves"]).split()))
        settings: dict[str, Value] = {"mode": marked[1], "attached": state in _ATTACHED, "inputs": slaves}
        return Reading(settings, {"dirty": parse_size(dirty), "bypassed": parse_size(bypassed)})


def parse_size(text: str) -> int:
    """Return the bytes of a size in sysfs, of which the kernel prints one decimal place: ``7.0M``.

    Raises:
        RigError: the text is no such size.
    """
    if (found := _SIZE.fullmatch(text)) is None:
        raise RigError(f"{FILES}: expected a size such as 7.0M, found {text!r}")
    return (int(found[1]) * 10 + int(found[2])) * _UNITS[found[3]] // 10
