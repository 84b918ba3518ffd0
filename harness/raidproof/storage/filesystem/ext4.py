"""ext4: its request, its commands, and the parsers of its tools."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import Machine, Value, found_in, uuid_of
from raidproof.core.units import MIB, format_size
from raidproof.storage.array import Geometry, disk_path
from raidproof.storage.filesystem.filesystem import FREE, OWNER_DEADLINE_S, UNKNOWN, FilesystemSpec, Owner
from raidproof.storage.filesystem.state import FilesystemCheck, FilesystemState, Mounted, Superblock, few, state_of

# In blocks, as in mke2fs.
_LEAST_JOURNAL, _MOST_JOURNAL = 1024, 10_240_000
# Exit statuses of e2fsck.
_UNCORRECTED = 4
_FAILED = 8 | 16 | 32 | 128
_COMMIT = "commit="

# Output of debugfs and dumpe2fs about the owner of a byte.
_EXTENT = re.compile(r"\((\w+)(?:-(\d+))?\):(\d+)(?:-(\d+))?")
_GROUP_AREA = re.compile(
    r"(Primary superblock|Backup superblock|Group descriptors|Reserved GDT blocks|Block bitmap|Inode bitmap"
    r"|Inode table) at (\d+)(?:-(\d+))?"
)
_FREE_BLOCKS = re.compile(r"^  Free blocks: (.+)$", re.MULTILINE)
_INODES = {1: "list of bad blocks", 2: "root directory", 7: "reserved group descriptors", 8: "ext4 journal"}


class Ext4Spec(FilesystemSpec):
    """A requested ext4 filesystem; ``data`` is its data mode. Stride is su, stripe width su x sw."""

    own_options: ClassVar[frozenset[str]] = frozenset(
        {"data", "stripe", "noload", "norecovery", "journal_path", "journal_dev"}
    )
    axes: ClassVar[Mapping[str, str]] = {"journal": "whether ext4 has a journal", "data": "data mode of ext4"}
    # From ext4_feature_set_ok of the kernel.
    refused_features: ClassVar[str] = "unsupported optional features"
    damage: ClassVar[str] = "EXT4-fs error"
    packages: ClassVar[tuple[str, ...]] = ("e2fsprogs",)

    type: Literal["ext4"] = "ext4"
    data: Literal["journal", "ordered", "writeback"] = "ordered"
    lazy_init: bool = False
    """Let a kernel thread initialize inode tables and journal, which then writes during the measurement."""
    journal: bool = True
    inodes: Annotated[int, Field(ge=64, lt=2**32)] | None = None
    """Least number of inodes; mke2fs rounds up to whole blocks of inode tables, equally in each group."""

    @model_validator(mode="after")
    def _possible_journal(self) -> Self:
        if self.log_size is not None and not _LEAST_JOURNAL <= self.log_size // self.block_size <= _MOST_JOURNAL:
            raise RequestError(
                f"log_size {format_size(self.log_size)}: a journal has {_LEAST_JOURNAL} to {_MOST_JOURNAL} blocks"
            )
        if self.log is None and self.log_size is not None and self.log_size % MIB:
            raise RequestError(f"log_size {format_size(self.log_size)}: mkfs.ext4 counts in whole MiB")
        if not self.journal and (self.log or self.log_size or self.data != "ordered"):
            raise RequestError("log, log_size and data = journal or writeback need a journal")
        return self

    def least_size(self, _geometry: Geometry | None) -> int:
        """Return the bytes below which a journal does not fit."""
        # mke2fs refuses a journal of more than half of the blocks.
        return max(8 * MIB, 2 * (self.log_size or 0) + 8 * MIB if not self.log else 0)

    def journal_command(self) -> list[str] | None:
        """Return the command that makes an external journal, to run before mkfs; None without an external journal."""
        if self.log is None:
            return None
        size = [str(self.log_size // self.block_size)] if self.log_size else []
        # The block size of the journal must equal that of the filesystem.
        own = ["-U", uuid_of(self.log)]
        return [
            "mke2fs",
            "-F",
            "-q",
            "-O",
            "journal_dev",
            *own,
            "-b",
            str(self.block_size),
            disk_path(self.log),
            *size,
        ]

    def mkfs_command(self, device: str, geometry: Geometry | None) -> list[str]:
        """Return the command that makes the filesystem, over any existing content."""
        alignment = self.alignment(geometry)
        stride = alignment.su // self.block_size if alignment else 0
        width = stride * alignment.sw if alignment else 0
        lazy = int(self.lazy_init)
        extended = [
            "discard" if self.discard else "nodiscard",
            f"lazy_itable_init={lazy}",
            f"lazy_journal_init={lazy}",
            # mke2fs reads missing values from the device; 0 prevents this.
            f"stride={stride}",
            f"stripe_width={width}",
        ]
        journal: list[str] = []
        if not self.journal:
            journal = ["-O", "^has_journal"]
        elif self.log:
            journal = ["-J", f"device={disk_path(self.log)}"]
        elif self.log_size:
            journal = ["-J", f"size={self.log_size // MIB}"]
        inodes = ["-N", str(self.inodes)] if self.inodes else []
        return [
            "mkfs.ext4",
            "-F",
            "-q",
            "-b",
            str(self.block_size),
            *inodes,
            "-E",
            ",".join(extended),
            *journal,
            device,
        ]

    def create_commands(self, machine: Machine, device: str, geometry: Geometry | None) -> Iterable[list[str]]:  # noqa: ARG002
        """Return the command for an external journal, if there is one, then the one for the filesystem."""
        if journal := self.journal_command():
            yield journal
        yield self.mkfs_command(device, geometry)
        if self.log:
            # mke2fs (1.47.2) leaves the UUID of the journal's filesystem in the page cache: after a power cut no mount
            # would succeed.
            yield ["sync", disk_path(self.log)]

    def all_mount_options(self) -> tuple[str, ...]:
        """Return the mount options."""
        if not self.journal:
            # Without a journal, the kernel refuses a mount with a data mode.
            return self.mount_options
        # By path: the superblock names the journal's disk by a number that the next boot may give to another disk.
        path = [f"journal_path={disk_path(self.log)}"] if self.log else []
        return (*self.mount_options, f"data={self.data}", *path)

    def check_command(self, device: str) -> list[str]:
        """Return the command that looks for damage and changes nothing."""
        return ["e2fsck", "-f", "-n", device]

    def parse_check(self, ended: Completed) -> FilesystemCheck:
        """Parse the verdict of ``e2fsck -fn``.

        Raises:
            RigError: there is no verdict.
        """
        said = f"{ended.stdout}\n{ended.stderr}"
        if "Bad magic number in super-block" in said:
            return FilesystemCheck(outcome="corrupt", status=ended.status, reasons=("the superblock is gone",))
        if ended.status & _FAILED or "is mounted" in said.lower() or "Pass 1" not in said:
            raise RigError(f"e2fsck gave no verdict, status {ended.status}: {said.strip()[-500:]}")
        if "skipping journal recovery" in said:
            return FilesystemCheck(outcome="dirty", status=ended.status, reasons=("the journal was not replayed",))
        if ended.status == 0:
            if "Pass 5" not in said:
                raise RigError(f"e2fsck was cut off: {said.strip()[-500:]}")
            return FilesystemCheck(outcome="clean", status=0)
        if not ended.status & _UNCORRECTED:
            raise RigError(f"e2fsck -n cannot have corrected anything, yet its status is {ended.status}")
        reasons = few(
            line.strip() for line in ended.stdout.splitlines() if line.strip() and not line.startswith("Pass ")
        )
        return FilesystemCheck(outcome="corrupt", status=ended.status, reasons=reasons)

    def state(self, machine: Machine, device: str, mounted: Mounted) -> FilesystemState:
        """Read ``dumpe2fs -h``, and the options in effect."""
        superblock = parse_info(machine.succeed(info_command(device)))
        # The mount table leaves out defaults; this file does not.
        effective = machine.get(f"/proc/fs/ext4/{device.removeprefix('/dev/')}/options")
        data = None if superblock.log == "none" else found_in(r"^data=(\w+)$", effective, "ext4: data mode")
        return state_of(mounted, superblock, effective.split(), data=data)

    def asked(self, geometry: Geometry | None) -> dict[str, Value]:
        """Return the required effective values, including inodes, journal and data mode."""
        asked = {**super().asked(geometry), "inodes": self.inodes}
        if not self.journal:
            return {**asked, "log": "none"}
        # The size of an external journal is not stored in the filesystem.
        return {**asked, "log_size": None if self.log else self.log_size, "data": self.data}

    def found(self, state: FilesystemState) -> dict[str, Value]:
        """Return the effective values; inodes that were added by rounding are not counted."""
        found, asked, inodes = super().found(state), self.inodes, state.inodes
        if asked and inodes and enough_inodes(asked, inodes, state.size, state.block_size):
            found["inodes"] = asked
        return found

    @staticmethod
    def commit_s(options: Sequence[str], files: Sequence[float]) -> float:  # noqa: ARG004
        """Return the seconds between commits of the journal, from the mount options."""
        return commit_of(options)

    def owner(self, machine: Machine, device: str, directory: str, offset: int) -> Owner:  # noqa: ARG002
        """Find the owner with debugfs, or with dumpe2fs for blocks that belong to no inode."""
        block = offset // self.block_size

        def ask(question: str) -> str:
            return machine.run(["debugfs", "-R", question, device], deadline_s=OWNER_DEADLINE_S).stdout

        inode = parse_icheck(ask(f"icheck {block}"), block)
        if inode is None:
            groups = machine.run(["dumpe2fs", device], deadline_s=OWNER_DEADLINE_S).stdout
            return Owner(parse_groups(groups, block) or UNKNOWN)
        if inode in _INODES:
            return Owner(_INODES[inode])
        path, said = parse_ncheck(ask(f"ncheck {inode}"), inode), ask(f"stat <{inode}>")
        if re.search(r"Type: directory", said):
            return Owner("data", inode, f"directory {path or '<' + str(inode) + '>'}")
        logical = parse_extents(said, block)
        if logical is None:
            return Owner("block map", inode, path)
        return Owner("data", inode, path, logical * self.block_size + offset % self.block_size)


def enough_inodes(asked: int, found: int, size: int, block_size: int) -> bool:
    """Return whether a filesystem of ``size`` bytes has the requested inodes, and no more than rounding adds."""
    # A group has as many blocks as a block has bits. mke2fs fills its inode table up to a whole block, with at least
    # 128 bytes per inode, and to a multiple of eight inodes (ext2fs_initialize in libext2fs).
    groups = -(-size // (8 * block_size * block_size))
    return asked <= found < asked + groups * (block_size // 128 + 8 + 1)


def info_command(device: str) -> list[str]:
    """Return the command that describes the filesystem on a device."""
    return ["dumpe2fs", "-h", device]


def parse_info(text: str) -> Superblock:
    """Parse ``dumpe2fs -h``.

    Raises:
        RigError: a value is missing, so the output was cut off.
    """
    block_size = int(found_in(r"^Block size:\s+(\d+)$", text, "dumpe2fs: block size"))
    blocks = int(found_in(r"^Block count:\s+(\d+)$", text, "dumpe2fs: block count"))
    features = found_in(r"^Filesystem features:\s+(.+)$", text, "dumpe2fs: features").split()
    log, log_size = "none", None
    if "has_journal" not in features:
        # This line comes after all others that are read here: without it the output was cut off.
        found_in(r"^Checksum:\s+(0x[0-9a-f]{8})$", text, "dumpe2fs: checksum")
    elif uuid := _optional(r"^Journal UUID:\s+(\S+)$", text, ""):
        log = uuid
        found_in(r"^Checksum:\s+(0x[0-9a-f]{8})$", text, "dumpe2fs: checksum")
    else:
        log = "internal"
        log_size = block_size * int(found_in(r"^Total journal blocks:\s+(\d+)$", text, "dumpe2fs: journal"))
    stride = int(_optional(r"^RAID stride:\s+(\d+)$", text, "0"))
    width = int(_optional(r"^RAID stripe width:\s+(\d+)$", text, "0"))
    return Superblock.in_blocks(
        block_size,
        blocks,
        stride,
        width,
        log=log,
        log_size=log_size,
        inodes=int(found_in(r"^Inode count:\s+(\d+)$", text, "dumpe2fs: inode count")),
        features=tuple(features),
    )


def _optional(pattern: str, text: str, otherwise: str) -> str:
    try:
        return found_in(pattern, text, "")
    except RigError:
        return otherwise


def commit_of(options: Sequence[str]) -> float:
    """Return the interval of ext4's journal commits, in seconds.

    Raises:
        RigError: no option contains it.
    """
    told = [one.removeprefix(_COMMIT) for one in options if one.startswith(_COMMIT)]
    if not told or not told[-1].isdigit():
        raise RigError(f"no {_COMMIT} among the options of ext4: {', '.join(options)}")
    return float(told[-1])


def parse_icheck(text: str, block: int) -> int | None:
    """Return the inode that ``icheck`` prints for a block, or None if there is none."""
    found = re.search(rf"^{block}\t(\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else None


def parse_ncheck(text: str, inode: int) -> str | None:
    """Return the path that ``ncheck`` prints for an inode, or None if there is none."""
    found = re.search(rf"^{inode}\t(/.*)$", text, re.MULTILINE)
    return re.sub(r"^/+", "/", found[1]) if found else None


def parse_extents(text: str, block: int) -> int | None:
    """Return the file block of a device block, from debugfs' ``stat``; None if it holds no data."""
    for first, _, begin, end in _EXTENT.findall(text):
        if first.isdigit() and int(begin) <= block <= int(end or begin):
            return int(first) + block - int(begin)
    return None


def parse_groups(text: str, block: int) -> str | None:
    """Return the use of a block without an inode, from dumpe2fs, or None."""
    for what, first, last in _GROUP_AREA.findall(text):
        if int(first) <= block <= int(last or first):
            return str(what).lower()
    return FREE if any(_holds(line, block) for line in _FREE_BLOCKS.findall(text)) else None


def _holds(ranges: str, block: int) -> bool:
    pairs: Sequence[list[str]] = [one.split("-") for one in ranges.split(", ")]
    return any(int(pair[0]) <= block <= int(pair[-1]) for pair in pairs)
