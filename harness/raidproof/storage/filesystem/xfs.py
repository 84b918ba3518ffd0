"""XFS: its request, its commands, and parsers for the output of xfsprogs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Literal, Self

from pydantic import field_validator, model_validator

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import Machine, Value, found_in, power_of_two, uuid_of
from raidproof.core.units import GIB, KIB, MIB, SECTOR, Size, format_size
from raidproof.storage.array import Geometry, disk_path
from raidproof.storage.filesystem.filesystem import (
    FREE,
    MKFS_DEADLINE_S,
    OWNER_DEADLINE_S,
    UNKNOWN,
    FilesystemSpec,
    Owner,
    named,
)
from raidproof.storage.filesystem.placement import Extent
from raidproof.storage.filesystem.state import (
    FilesystemCheck,
    FilesystemState,
    Mounted,
    Superblock,
    few,
    state_of,
)

SYNC = "/proc/sys/fs/xfs/xfssyncd_centisecs"
"""The file with the interval at which XFS flushes its log, in 1/100 s."""

_LEAST_LOG = 64 * MIB
_MOST_LOG_UNIT = 256 * KIB
_USUAL_LOG_UNIT = 32 * KIB

# Output of xfs_repair, whose exit status is 1 both for damage and for a device that it cannot read.
_DIRTY = "valuable metadata changes in a log"
_NO_ANSWER = re.compile(
    r"contains a mounted.*filesystem|couldn't initialize XFS library|fatal error -- "
    r"|(?:cannot|couldn't|could not) open|has an external log\.",
    re.IGNORECASE,
)
_ROUTINE = re.compile(
    r"^\s*(Phase \d|- |No modify flag|Cannot get host filesystem geometry|Repair may fail if there is|the image and|$)"
)

# Features that newer versions of mkfs.xfs enable by default. For each feature: the first kernel that supports it
# without an "experimental" warning, and the mkfs.xfs option that disables it (XFS_SB_FEAT_* in the kernel's
# fs/xfs/libxfs/xfs_format.h; lts_*.conf of xfsprogs).
_SINCE = {
    "parent": ((6, 10), "-n"),
    "exchange": ((6, 10), "-i"),
    "nrext64": ((6, 5), "-i"),
    "bigtime": ((5, 10), "-m"),
    "inobtcount": ((5, 10), "-m"),
}

# Output of xfs_io and xfs_db about the owner of a byte.
_FSMAP = re.compile(r"^\s*\d+: \d+:\d+ \[(\d+)\.\.(\d+)\]: (.*) \d+$", re.MULTILINE)
_FSMAP_INODE = re.compile(r"inode (\d+) (.*?)(?: (\d+)\.\.\d+)?$")
_BLOCKUSE = re.compile(r"^block \d+ \(\d+/\d+\) type (\S+)(?: inode (\d+)(?: (.*))?)?$", re.MULTILINE)
_WORDS = {"journalling log": "XFS log", "log": "XFS log", "sb": "XFS superblock", "inode": "inodes"}
_FREE = frozenset({FREE, "free1", "free2"})

# Magic numbers in the kernel's fs/xfs/libxfs: xfs_format.h, xfs_da_format.h and xfs_log_format.h.
_STRUCTURES = {
    rb"XFSB.{508}XAGF": "XFS superblock and headers of an allocation group (AGF, AGI, AGFL)",
    rb"XFSB": "XFS superblock",
    rb"XAGF": "XFS header of an allocation group's free space (AGF)",
    rb"XAGI": "XFS header of an allocation group's inodes (AGI)",
    rb"XAFL": "XFS free list of an allocation group (AGFL)",
    rb"IN..\x03": "XFS inodes",
    rb"AB3[BC]": "XFS btree of free space",
    rb"(IAB3|FIB3)": "XFS btree of inodes",
    rb"RMB3": "XFS reverse mapping btree",
    rb"R3FC": "XFS reference count btree",
    rb"BMA3": "XFS btree of a file's extents",
    rb"XD[BDF]3": "XFS directory block",
    rb".{8}(\x3d\xf1|\x3d\xff)": "XFS directory block",
    rb".{8}\x3e\xbe": "XFS node of a directory or of extended attributes",
    rb".{8}\x3b\xee": "XFS extended attributes",
    rb"\xfe\xed\xba\xbe": "XFS log record",
}


class XfsSpec(FilesystemSpec):
    """The requested XFS file system."""

    own_options: ClassVar[frozenset[str]] = frozenset({"logdev", "sunit", "swidth", "noalign", "nouuid", "norecovery"})
    axes: ClassVar[Mapping[str, str]] = {
        "sector_size": "sector size of XFS",
        "log_su": "stripe unit of the log of XFS",
        "rmapbt": "whether XFS has a reverse mapping btree (mkfs.xfs(8))",
        "reflink": "whether files on XFS may share blocks (mkfs.xfs(8))",
    }
    features: ClassVar[Mapping[str, str]] = {"rmapbt": "rmapbt=1", "reflink": "reflink=1"}
    operations: ClassVar[frozenset[str]] = frozenset({"clone"})
    structures: ClassVar[Mapping[bytes, str]] = _STRUCTURES
    # xlog_write_iclog in the kernel's fs/xfs/xfs_log.c.
    barriers: ClassVar[frozenset[str]] = frozenset({"XFS log record"})
    forcing: ClassVar[frozenset[str]] = frozenset({"-f"})
    # A message of xfs_sb_validate_mount in the kernel.
    refused_features: ClassVar[str] = "has unknown incompatible features"
    damage: ClassVar[str] = (
        r"XFS.*(?:Internal error|Corruption|CRC error|[Ss]hut(?:ting)? ?down|log mount/recovery failed"
        r"|failed to locate log tail|run xfs_repair|Please unmount|page discard)|: writeback error on inode"
        r"|XFS.*writeback error"
    )
    commit_files: ClassVar[tuple[str, ...]] = (SYNC,)
    packages: ClassVar[tuple[str, ...]] = ("xfsprogs",)

    type: Literal["xfs"] = "xfs"
    sector_size: Size = SECTOR
    """Sector size of the file system in bytes (mkfs.xfs -s size)."""
    log_su: Size | None = None
    """Stripe unit of the log in bytes: each write to the log is a multiple of it. None leaves the choice to mkfs."""
    rmapbt: bool | None = None
    """Whether the file system has a reverse mapping btree; None leaves the choice to mkfs."""
    reflink: bool | None = None
    """Whether files may share blocks; None leaves the choice to mkfs, which enables it since xfsprogs 5.1."""

    @field_validator("mount_options", mode="after")
    @classmethod
    def _as_listed(cls, options: tuple[str, ...]) -> tuple[str, ...]:
        """Return the mount options with sizes in KiB, as the kernel lists them (xfs_fs_show_options)."""
        return tuple(map(in_kib, options))

    @model_validator(mode="after")
    def _possible_sector(self) -> Self:
        sector = self.sector_size
        if sector < SECTOR or not power_of_two(sector):
            raise RequestError(f"sector size {format_size(sector)} is not a power of two from 512 bytes on")
        if sector > self.block_size:
            raise RequestError(
                f"sector size {format_size(sector)} is larger than the block size, {format_size(self.block_size)}"
            )
        self._refuse_log()
        return self

    def _refuse_log(self) -> None:
        if self.log_size is not None and not _LEAST_LOG <= self.log_size < 2 * GIB:
            raise RequestError(
                f"log_size {format_size(self.log_size)} of XFS is not in the supported range, from 64MiB to below 2GiB"
            )
        unit = self.log_su
        if unit is None:
            return
        if unit < 1 or unit % self.block_size or unit > _MOST_LOG_UNIT:
            raise RequestError(
                f"log_su {format_size(unit)} is not a multiple of the block size, {format_size(self.block_size)}, "
                "from one block up to 256KiB"
            )
        if self.log_size is not None and self.log_size % unit:
            raise RequestError(
                f"log_size {format_size(self.log_size)} is not a multiple of log_su, {format_size(unit)}"
            )

    def least_size(self, geometry: Geometry | None) -> int:
        """Return the smallest size in bytes that mkfs.xfs 5.19 and later accept on an array of this geometry."""
        if self.log:
            return 300 * MIB
        # mkfs.xfs creates 8 allocation groups if aligned to stripes, else 4. The log must fit into one of them.
        aligned = self.alignment(geometry) is not None
        return max(513 * MIB if aligned else 300 * MIB, (8 if aligned else 4) * (self.log_size or 0) + MIB)

    def mkfs_command(self, device: str, geometry: Geometry | None) -> list[str]:
        """Return the command that creates the file system, with the requested alignment, over any old content."""
        alignment = self.alignment(geometry)
        log = [
            *([f"logdev={disk_path(self.log)}"] if self.log else []),
            *([f"size={self.log_size}"] if self.log_size else []),
            *([f"su={self.log_su}"] if self.log_su else []),
        ]
        metadata = [
            # XFS requires the same UUID in the file system and its external log.
            *([f"uuid={uuid_of(self.log)}"] if self.log else []),
            *(f"{name}={int(wanted)}" for name, wanted in self.asked_features().items()),
        ]
        return [
            "mkfs.xfs",
            "-f",
            *([] if self.discard else ["-K"]),
            "-b",
            f"size={self.block_size}",
            "-s",
            f"size={self.sector_size}",
            "-d",
            f"su={alignment.su},sw={alignment.sw}" if alignment else "noalign",
            *(["-l", ",".join(log)] if log else []),
            *(["-m", ",".join(metadata)] if metadata else []),
            device,
        ]

    def create_commands(self, machine: Machine, device: str, geometry: Geometry | None) -> Iterable[list[str]]:
        """Return the mkfs.xfs command, with options that disable features that the machine's kernel cannot mount."""
        command = self.mkfs_command(device, geometry)
        features = beyond(machine.get("/proc/sys/kernel/osrelease").strip())
        if not features:
            return [command]
        planned = machine.succeed([command[0], "-N", *command[1:]], deadline_s=MKFS_DEADLINE_S)
        return [[*command, *without(planned, features)]]

    def all_mount_options(self) -> tuple[str, ...]:
        """Return all mount options: the requested ones, and the path of an external log."""
        return (*self.mount_options, *([f"logdev={disk_path(self.log)}"] if self.log else []))

    def check_command(self, device: str) -> list[str]:
        """Return the command that checks the unmounted file system without changing it."""
        return ["xfs_repair", "-n", *(["-l", disk_path(self.log)] if self.log else []), device]

    def parse_check(self, ended: Completed) -> FilesystemCheck:
        """Parse the output and exit status of ``xfs_repair -n``.

        Raises:
            RigError: xfs_repair did not complete its check, or its output is truncated.
        """
        output = f"{ended.stdout}\n{ended.stderr}"
        if ended.status not in {0, 1, 2} or "Phase 1" not in output or _NO_ANSWER.search(output):
            raise RigError(
                f"xfs_repair did not complete its check, exit status {ended.status}: "
                f"{output.strip()[-500:] or 'no output'}"
            )
        if ended.status == 2 or _DIRTY in output:
            return FilesystemCheck(outcome="dirty", status=ended.status, reasons=("the log was not replayed",))
        if ended.status == 0:
            if "No modify flag set, skipping filesystem flush and exiting" not in output:
                raise RigError(f"the output of xfs_repair is truncated: {output.strip()[-500:]}")
            return FilesystemCheck(outcome="clean", status=0)
        reasons = few(line.strip() for line in output.splitlines() if not _ROUTINE.match(line))
        return FilesystemCheck(outcome="corrupt", status=ended.status, reasons=reasons or ("xfs_repair: status 1",))

    def state(self, machine: Machine, device: str, mounted: Mounted) -> FilesystemState:  # noqa: ARG002
        """Read the effective state of the mounted file system from xfs_info. Raises as `parse_info`."""
        return state_of(mounted, parse_info(machine.succeed(info_command(mounted.directory))))

    def asked(self, geometry: Geometry | None) -> dict[str, Value]:
        """Return the requested values of the file system, with the log's stripe unit and the sector size."""
        return {**super().asked(geometry), "sector_size": self.sector_size, "log_su": self.log_su}

    @property
    def shares_blocks(self) -> bool:
        """Whether files may share blocks: not with ``reflink = false``."""
        return self.reflink is not False

    @staticmethod
    def commit_s(options: Sequence[str], files: Sequence[float]) -> float:  # noqa: ARG004
        """Return the seconds between two flushes of the XFS log; the kernel has one interval for all XFS mounts."""
        return files[0]

    def log_place(self, machine: Machine, device: str) -> Extent | None:
        """Return the place of the internal log, which the superblock has."""
        fields = "blocksize logstart agblocks logblocks agblklog"
        return parse_log(machine.succeed(["xfs_db", "-r", "-c", "sb 0", "-c", f"print {fields}", device]))

    def log_writes(self, state: FilesystemState | None, geometry: Geometry | None) -> tuple[int, ...]:
        """Return the bytes of the one write to the log: a record's header and one sector, or the log's stripe unit.

        Without ``log_su``, mkfs.xfs takes the stripe unit of the data, or 32 KiB if that is more than 256 KiB.
        """
        unit = self.log_su if state is None else state.log_su
        if state is None and unit is None and (alignment := self.alignment(geometry)) is not None and not self.log:
            unit = alignment.su if alignment.su <= _MOST_LOG_UNIT else _USUAL_LOG_UNIT
        return (max(unit or 0, SECTOR + max(SECTOR, self.sector_size)),)

    def owner(self, machine: Machine, device: str, directory: str, offset: int) -> Owner:
        """Return the owner of the byte at an offset of the device.

        xfs_io reads the reverse mapping of the mounted file system. If it does not find the owner, xfs_db reads the
        device, which needs a clean log.
        """
        sector = str(offset // SECTOR)
        mounted = machine.run(["findmnt", "--noheadings", "--output", "SOURCE", "--mountpoint", directory])
        if mounted.ok and mounted.stdout.strip() == device:
            command = ["xfs_io", "-c", f"fsmap -d {sector} {sector}", directory]
            ended = machine.run(command, deadline_s=OWNER_DEADLINE_S)
            found = parse_fsmap(ended.stdout, offset)
            if found is not None and found.what != "unknown":
                return named(machine, directory, found)
        commands = ["-c", "blockget -n", "-c", f"daddr {sector}", "-c", "blockuse -n"]
        ended = machine.run(["xfs_db", "-r", *commands, device], deadline_s=OWNER_DEADLINE_S)
        return parse_blockuse(ended.stdout) or Owner(UNKNOWN)


def in_kib(option: str) -> str:
    """Return a mount option, with a size in KiB: ``allocsize=65536k`` for ``allocsize=64m``."""
    found = re.fullmatch(r"(allocsize|logbsize)=(\d{1,9})([kmg]?)", option, re.IGNORECASE)
    if found is None:
        return option
    size = int(found[2]) * {"": 1, "k": KIB, "m": MIB, "g": GIB}[found[3].lower()]
    return option if size % KIB else f"{found[1]}={size // KIB}k"


def beyond(kernel: str) -> dict[str, str]:
    """Return the features of `_SINCE` that a kernel release does not support, each with the option of mkfs.xfs.

    Raises:
        RigError: the string is not a kernel release.
    """
    number = re.match(r"(\d+)\.(\d+)", kernel)
    if number is None:
        raise RigError(f"/proc/sys/kernel/osrelease contains no kernel release such as 6.12.1: {kernel!r}")
    release = (int(number.group(1)), int(number.group(2)))
    return {name: option for name, (since, option) in _SINCE.items() if release < since}


def without(planned: str, features: Mapping[str, str]) -> list[str]:
    """Return the mkfs.xfs options that disable features.

    ``planned`` is the output of ``mkfs.xfs -N``. Only features that it would enable are disabled.
    """
    return [
        word
        for name, option in features.items()
        if re.search(rf"\b{name}=1\b", planned)
        for word in (option, f"{name}=0")
    ]


def info_command(directory: str) -> list[str]:
    """Return the command that prints the settings of the XFS that is mounted on a directory."""
    # The shell script xfs_info runs this command.
    return ["xfs_spaceman", "-p", "xfs_info", "-c", "info", directory]


def parse_info(text: str) -> Superblock:
    """Parse the output of xfs_info or mkfs.xfs.

    Raises:
        RigError: a value is missing, so that the output is truncated or malformed.
    """
    block_size = int(found_in(r"^data\s.*?\bbsize=(\d+)", text, "xfs_info: block size"))
    blocks = int(found_in(r"^data\s.*?\bblocks=(\d+)", text, "xfs_info: blocks"))
    sector_size = int(found_in(r"^meta-data=[^\n]*\n\s+=\s+sectsz=(\d+)", text, "xfs_info: sector size"))
    sunit = int(found_in(r"^data\s[^\n]*\n\s+=\s+sunit=(\d+)\s", text, "xfs_info: sunit"))
    swidth = int(found_in(r"^data\s[^\n]*\n\s+=\s+sunit=\d+\s+swidth=(\d+) blks", text, "xfs_info: swidth"))
    log = found_in(r"^log\s+=(\S+)", text, "xfs_info: log")
    log_bytes = int(found_in(r"^log\s+=.*?\bbsize=(\d+)", text, "xfs_info: block size of the log"))
    log_blocks = int(found_in(r"^log\s+=.*?\bblocks=(\d+)", text, "xfs_info: blocks of the log"))
    log_unit = int(found_in(r"^log\s[^\n]*\n\s+=.*?\bsunit=(\d+) blks", text, "xfs_info: sunit of the log"))
    # Require the last line: without it the output is truncated.
    found_in(r"^realtime\s+=.*\brtextents=(\d+)", text, "xfs_info: realtime")
    return Superblock.in_blocks(
        block_size,
        blocks,
        sunit,
        swidth,
        sector_size=sector_size,
        log=log,
        log_size=log_bytes * log_blocks,
        log_su=log_bytes * log_unit,
        # Flags have the value 0 or 1. In the first paragraph, only flags have; the flag `parent` is in another line.
        features=tuple(
            re.findall(r"\b[a-z0-9]+=[01]\b", re.split(r"^data", text, flags=re.MULTILINE)[0])
            + re.findall(r"^naming.*\b(parent=[01])\b", text, re.MULTILINE)
        ),
    )


def parse_log(text: str) -> Extent | None:
    """Return the place of the internal log of XFS, from the superblock that xfs_db prints; None if it is external.

    A block's number in XFS has the number of its allocation group in the high bits (fs/xfs/libxfs/xfs_format.h).

    Raises:
        RigError: a value is missing.
    """
    names = ("blocksize", "logstart", "agblocks", "logblocks", "agblklog")
    block, start, group, blocks, bits = (
        int(found_in(rf"^{name} = (\d+)$", text, f"xfs_db: {name} of the superblock")) for name in names
    )
    if start == 0:
        return None
    number, inside = start >> bits, start & ((1 << bits) - 1)
    return Extent(offset=(number * group + inside) * block, length=blocks * block)


def parse_fsmap(text: str, offset: int) -> Owner | None:
    """Return the owner of the byte at an offset, from the output of ``fsmap`` of xfs_io; None if it is not listed."""
    sector = offset // SECTOR
    for first, last, words in _FSMAP.findall(text):
        if not int(first) <= sector <= int(last):
            continue
        if not (inode := _FSMAP_INODE.fullmatch(words)):
            return Owner(_WORDS.get(words, words))
        number, what, begin = inode.groups()
        if what != "data" or begin is None:
            return Owner(what, int(number))
        return Owner(what, int(number), None, int(begin) * SECTOR + offset - int(first) * SECTOR)
    return None


def parse_blockuse(text: str) -> Owner | None:
    """Return the owner of a block, from the output of ``blockuse -n`` of xfs_db; None if the output lacks it."""
    found = _BLOCKUSE.search(text)
    if found is None:
        return None
    what, inode, path = found.groups()
    if what in _FREE:
        return Owner(FREE)
    if inode is None or what not in {"data", "dir"}:
        return Owner(_WORDS.get(what, what))
    name = f"/{path}" if path else None
    return Owner("data", int(inode), f"directory {name or '/'}" if what == "dir" else name)
