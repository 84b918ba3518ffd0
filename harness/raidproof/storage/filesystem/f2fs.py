"""F2FS: its request, its commands, and parsers for the output of f2fs-tools."""

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from raidproof.core.command import Completed
from raidproof.core.errors import RigError
from raidproof.core.layer import Machine, Value, found_in, whole_number
from raidproof.core.units import KIB, MIB
from raidproof.storage.array import Geometry
from raidproof.storage.filesystem.filesystem import (
    FREE,
    OWNER_DEADLINE_S,
    UNKNOWN,
    FilesystemSpec,
    Owner,
    drop_pages,
    named,
)
from raidproof.storage.filesystem.state import FilesystemCheck, FilesystemState, Mounted, Superblock, few, state_of
from raidproof.storage.member import kernel_name

BLOCK = 4 * KIB
"""Bytes of a block: F2FS has blocks of the page size only."""
_INTERVAL = "cp_interval="

# Output of fsck.f2fs.
_NO_SUPERBLOCK = "Can't find a valid F2FS superblock"
_LAST = "[FSCK] other corrupted bugs "
_BAD = re.compile(r"\[Fail\]|^\[ASSERT\]|unreachable|^\tError:", re.MULTILINE)

# Output of dump.f2fs -b.
_AREA = re.compile(r"^FS (\w+) Area[^:]*: (.*)$", re.MULTILINE)
_AREAS = {"Reserved": "F2FS superblock", "Metadata": "F2FS checkpoint"}
"""Names of areas, by the word of dump.f2fs; other areas keep their word."""
_INODE = re.compile(r"^ - Inode block +: id = 0x([0-9a-f]+) ", re.MULTILINE)
_OFFSET = re.compile(r"^ - Data offset +: .*, (\d+) \(bytes\)$", re.MULTILINE)
_NOT_USED = "Obsolete block"


class F2fsSpec(FilesystemSpec):
    """The requested F2FS."""

    least_block_size: ClassVar[int] = BLOCK
    in_place: ClassVar[bool] = False
    unsupported: ClassVar[frozenset[str]] = frozenset({"su", "sw", "aligned", "log", "log_size"})
    own_options: ClassVar[frozenset[str]] = frozenset({"fsync_mode", "mode", "barrier", "nobarrier", "norecovery"})
    axes: ClassVar[Mapping[str, str]] = {
        "fsync_mode": "what fsync of F2FS makes durable: posix, strict (also the names of the file), or nobarrier",
        "allocation": "where F2FS writes changed blocks: adaptive (also in place), or lfs (in a log only)",
    }
    forcing: ClassVar[frozenset[str]] = frozenset({"-f", "-q"})
    # Messages of f2fs_handle_error, f2fs_stop_checkpoint and verify_blkaddr in the kernel.
    damage: ClassVar[str] = (
        r"F2FS-fs.*(?:[Ii]nconsistent|[Cc]orrupted|access invalid blkaddr|Stopped filesystem|run fsck to fix|"
        r"Bitmap was wrongly)"
    )
    packages: ClassVar[tuple[str, ...]] = ("f2fs-tools",)

    type: Literal["f2fs"] = "f2fs"
    aligned: bool = False
    """Always false: F2FS does not align files to the stripes of an array."""
    fsync_mode: Literal["posix", "strict", "nobarrier"] = "posix"
    """What fsync makes durable: the mount option ``fsync_mode`` (Documentation/filesystems/f2fs.rst of the kernel)."""
    allocation: Literal["adaptive", "lfs"] = "adaptive"
    """Where changed blocks are written: the mount option ``mode``."""

    def least_size(self, geometry: Geometry | None) -> int:  # noqa: ARG002
        """Return a size in bytes that mkfs.f2fs accepts; 40 MiB are too small for version 1.16."""
        return 50 * MIB

    def mkfs_command(self, device: str, geometry: Geometry | None) -> list[str]:  # noqa: ARG002
        """Return the command that creates the file system over any old content."""
        return ["mkfs.f2fs", "-f", "-q", "-t", str(int(self.discard)), device]

    def all_mount_options(self) -> tuple[str, ...]:
        """Return all mount options: the requested ones, and those of the fields."""
        return (*self.mount_options, f"fsync_mode={self.fsync_mode}", f"mode={self.allocation}")

    @property
    def fsync_caveat(self) -> str:
        """The reason why F2FS keeps no acknowledged fsync without flushes; else that of the base class."""
        if self.fsync_mode != "nobarrier":
            return super().fsync_caveat
        return "F2FS with fsync_mode=nobarrier does not flush the disks' caches: a power cut may lose what was fsynced"

    def check_command(self, device: str) -> list[str]:
        """Return the command that checks the unmounted file system without changing it."""
        return ["fsck.f2fs", "--dry-run", device]

    def parse_check(self, ended: Completed) -> FilesystemCheck:
        """Parse the output and exit status of ``fsck.f2fs --dry-run``.

        Raises:
            RigError: fsck.f2fs did not complete its check, or its output is truncated.
        """
        output = f"{ended.stdout}\n{ended.stderr}"
        reasons = few(line.strip() for line in output.splitlines() if _BAD.search(line) or _NO_SUPERBLOCK in line)
        if _NO_SUPERBLOCK in output or (_LAST in output and reasons):
            return FilesystemCheck(outcome="corrupt", status=ended.status, reasons=reasons)
        if ended.status or not re.search(rf"^{re.escape(_LAST)}.*\n(?:.*\n)*Done: ", output, re.MULTILINE):
            raise RigError(
                f"fsck.f2fs did not complete its check, exit status {ended.status}: "
                f"{output.strip()[-500:] or 'no output'}"
            )
        return FilesystemCheck(outcome="clean", status=0)

    def state(self, machine: Machine, device: str, mounted: Mounted) -> FilesystemState:
        """Read the effective state of the mounted file system: its superblock, and the mount options.

        Raises:
            RigError: an output is truncated or malformed.
        """
        superblock = parse_super(machine.succeed(["dump.f2fs", "-d", "1", device]))
        path = f"/sys/fs/f2fs/{kernel_name(machine, device)}/cp_interval"
        interval = whole_number(machine.get(path).strip(), path)
        chosen = dict(one.split("=", 1) for one in mounted.options if "=" in one)
        return state_of(
            mounted,
            superblock,
            [f"{_INTERVAL}{interval}"],
            fsync_mode=chosen.get("fsync_mode"),
            allocation=chosen.get("mode"),
        )

    def asked(self, geometry: Geometry | None) -> dict[str, Value]:
        """Return the requested values of the file system, with the fields that only F2FS has."""
        return {**super().asked(geometry), **{name: getattr(self, name) for name in self.axes}}

    @staticmethod
    def commit_s(options: Sequence[str], files: Sequence[float]) -> float:  # noqa: ARG004
        """Return the seconds between two checkpoints, from the options to which `state` adds cp_interval of sysfs.

        Raises:
            RigError: the options lack the interval.
        """
        found = [one.removeprefix(_INTERVAL) for one in options if one.startswith(_INTERVAL)]
        if not found:
            raise RigError(f"the state of F2FS has no {_INTERVAL}NUMBER: {', '.join(options)}")
        return float(whole_number(found[-1], "cp_interval of F2FS"))

    def owner(self, machine: Machine, device: str, directory: str, offset: int) -> Owner:
        """Return the owner of the byte at an offset of the device, from dump.f2fs, and its path if it is mounted."""
        drop_pages(machine, device)
        command = ["dump.f2fs", "-b", str(offset // BLOCK), device]
        found = parse_owner(machine.run(command, deadline_s=OWNER_DEADLINE_S).stdout, offset)
        mounted = machine.run(["findmnt", "--noheadings", "--output", "SOURCE", "--mountpoint", directory])
        return named(machine, directory, found) if mounted.stdout.strip() == device else found


def parse_super(text: str) -> Superblock:
    """Parse the output of ``dump.f2fs -d 1``.

    Raises:
        RigError: a value is missing, so that the output is truncated or malformed.
    """
    values = {
        name: int(found_in(rf"^{name}\s+\[0x\s*[0-9a-f]+ : (\d+)\]$", text, f"dump.f2fs: {name}"))
        for name in ("log_blocksize", "block_count", "checkpoint_ver")
    }
    found_in(r"^(Done): ", text, "dump.f2fs: the last line")
    return Superblock.in_blocks(1 << values["log_blocksize"], values["block_count"], 0, 0)


def parse_owner(text: str, offset: int) -> Owner:
    """Return the owner of the byte at an offset of the device, from the output of ``dump.f2fs -b``."""
    area = _AREA.search(text)
    if area is None:
        return Owner(UNKNOWN)
    if area[1] != "Userdata":
        return Owner(_AREAS.get(area[1], f"F2FS {area[1]}"))
    if _NOT_USED in area[2]:
        return Owner(FREE)
    inode, at = _INODE.search(text), _OFFSET.search(text)
    if inode is None:
        return Owner(UNKNOWN)
    if at is None:
        return Owner("node" if "Node" in area[2] else "data", int(inode[1], 16))
    return Owner("data", int(inode[1], 16), None, int(at[1]) + offset % BLOCK)
