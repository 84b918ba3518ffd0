"""ext4: its request, its commands, and parsers for the output of e2fsprogs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import Machine, Value, found_in, power_of_two, uuid_of
from raidproof.core.units import MIB, Size, format_size
from raidproof.storage.array import Geometry, disk_path
from raidproof.storage.filesystem.filesystem import FREE, OWNER_DEADLINE_S, UNKNOWN, FilesystemSpec, Owner
from raidproof.storage.filesystem.placement import Extent
from raidproof.storage.filesystem.state import FilesystemCheck, FilesystemState, Mounted, Superblock, few, state_of
from raidproof.storage.member import kernel_name

# Smallest and largest size of a journal in blocks (mke2fs(8)).
_LEAST_JOURNAL, _MOST_JOURNAL = 1024, 10_240_000
# Bits of the exit status of e2fsck: errors left uncorrected; and the check did not complete.
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

# Magic numbers in the kernel's include/linux/jbd2.h and fs/ext4/ext4.h.
_JOURNAL = rb"\xc0\x3b\x39\x98\x00\x00\x00"
_STRUCTURES = {
    _JOURNAL + rb"\x01": "ext4 journal descriptor block",
    _JOURNAL + rb"\x02": "ext4 journal commit block",
    _JOURNAL + rb"[\x03\x04]": "ext4 journal superblock",
    _JOURNAL + rb"\x05": "ext4 journal revoke block",
    rb".{1080}\x53\xef": "ext4 superblock",
}


class Ext4Spec(FilesystemSpec):
    """The requested ext4 file system. Its stride (mkfs.ext4 -E) is su, and its stripe width su * sw, in blocks."""

    own_options: ClassVar[frozenset[str]] = frozenset(
        {"data", "stripe", "noload", "norecovery", "journal_path", "journal_dev"}
    )
    structures: ClassVar[Mapping[bytes, str]] = _STRUCTURES
    # journal_submit_commit_record in the kernel's fs/jbd2/commit.c.
    barriers: ClassVar[frozenset[str]] = frozenset({"ext4 journal commit block"})
    axes: ClassVar[Mapping[str, str]] = {
        "journal": "whether ext4 has a journal",
        "data": "data mode of ext4",
        "fast_commit": "whether ext4 has fast commits (mke2fs(8))",
        "inline_data": "whether ext4 has the data of tiny files in their inodes (mke2fs(8))",
        "orphan_file": "whether ext4 has a file with the orphan inodes (ext4(5))",
        "cluster_size": "bytes of a cluster of ext4, in which it allocates blocks (bigalloc)",
    }
    features: ClassVar[Mapping[str, str]] = {name: name for name in ("fast_commit", "inline_data", "orphan_file")}
    forcing: ClassVar[frozenset[str]] = frozenset({"-F", "-q"})
    # A message of ext4_feature_set_ok in the kernel.
    refused_features: ClassVar[str] = "unsupported optional features"
    damage: ClassVar[str] = (
        r"EXT4-fs error|EXT4-fs.*(?:Delayed block allocation failed|Data will be lost|potential data loss"
        r"|Remounting filesystem read-only|mounting fs with errors|error recorded from previous mount)"
        r"|JBD2: (?:Detected IO errors|Invalid checksum|recovery failed)|Aborting journal on device"
    )
    packages: ClassVar[tuple[str, ...]] = ("e2fsprogs",)

    type: Literal["ext4"] = "ext4"
    data: Literal["journal", "ordered", "writeback"] = "ordered"
    """The data mode: the mount option ``data`` of ext4(5)."""
    lazy_init: bool = False
    """Whether a kernel thread initializes inode tables and journal after the mount, also during a measurement."""
    journal: bool = True
    """Whether the file system has a journal."""
    inodes: Annotated[int, Field(ge=64, lt=2**32)] | None = None
    """Least number of inodes. mke2fs rounds up to whole blocks of inode tables, equally in each block group."""
    fast_commit: bool | None = None
    """Whether the journal has an area for fast commits; None leaves the choice to mke2fs, as for all features."""
    inline_data: bool | None = None
    """Whether the data of tiny files is in their inodes."""
    orphan_file: bool | None = None
    """Whether the orphan inodes are in a file; e2fsprogs 1.47 and newer enable it."""
    cluster_size: Size | None = None
    """Bytes of a cluster, a multiple of the block size in which blocks are allocated; None: without bigalloc."""

    @model_validator(mode="after")
    def _possible_journal(self) -> Self:
        if self.log_size is not None and not _LEAST_JOURNAL <= self.log_size // self.block_size <= _MOST_JOURNAL:
            raise RequestError(
                f"log_size {format_size(self.log_size)}: a journal of ext4 has {_LEAST_JOURNAL} to {_MOST_JOURNAL} "
                f"blocks of {format_size(self.block_size)}"
            )
        if self.log is None and self.log_size is not None and self.log_size % MIB:
            raise RequestError(
                f"log_size {format_size(self.log_size)} does not consist of whole MiB, in which mkfs.ext4 counts"
            )
        if not self.journal and (self.log or self.log_size or self.data != "ordered"):
            raise RequestError(
                "log, log_size, data = journal and data = writeback need a journal, but journal = false is requested"
            )
        if not self.journal and (self.fast_commit or self.orphan_file):
            raise RequestError("fast_commit and orphan_file need a journal, but journal = false is requested")
        cluster = self.cluster_size
        if cluster is not None and (cluster <= self.block_size or not power_of_two(cluster)):
            raise RequestError(
                f"cluster_size {format_size(cluster)} is not a power of two above the block size, "
                f"{format_size(self.block_size)}"
            )
        return self

    def least_size(self, _geometry: Geometry | None) -> int:
        """Return the smallest size in bytes of a file system in which the journal has space."""
        # mke2fs refuses a journal of more than half of the blocks.
        return max(8 * MIB, 2 * (self.log_size or 0) + 8 * MIB if not self.log else 0)

    def journal_command(self) -> list[str] | None:
        """Return the command that creates the external journal, to run before mkfs; None without one."""
        if self.log is None:
            return None
        size = [str(self.log_size // self.block_size)] if self.log_size else []
        return [
            "mke2fs",
            "-F",
            "-q",
            "-O",
            "journal_dev",
            "-U",
            uuid_of(self.log),
            # The block size of the journal must equal the block size of the file system.
            "-b",
            str(self.block_size),
            disk_path(self.log),
            *size,
        ]

    def mkfs_command(self, device: str, geometry: Geometry | None) -> list[str]:
        """Return the command that creates the file system, with the requested alignment, over any old content."""
        alignment = self.alignment(geometry)
        stride = alignment.su // self.block_size if alignment else 0
        width = stride * alignment.sw if alignment else 0
        lazy = int(self.lazy_init)
        extended = [
            "discard" if self.discard else "nodiscard",
            f"lazy_itable_init={lazy}",
            f"lazy_journal_init={lazy}",
            # Without these options mke2fs takes the values from the device. 0 requests no alignment.
            f"stride={stride}",
            f"stripe_width={width}",
        ]
        features = [
            *([] if self.journal else ["^has_journal"]),
            *(name if wanted else f"^{name}" for name, wanted in self.asked_features().items()),
            *(["bigalloc"] if self.cluster_size else []),
        ]
        journal: list[str] = []
        if self.log:
            journal = ["-J", f"device={disk_path(self.log)}"]
        elif self.log_size:
            journal = ["-J", f"size={self.log_size // MIB}"]
        inodes = ["-N", str(self.inodes)] if self.inodes else []
        clusters = ["-C", str(self.cluster_size)] if self.cluster_size else []
        return [
            "mkfs.ext4",
            "-F",
            "-q",
            "-b",
            str(self.block_size),
            *inodes,
            "-E",
            ",".join(extended),
            *(["-O", ",".join(features)] if features else []),
            *clusters,
            *journal,
            device,
        ]

    def create_commands(self, machine: Machine, device: str, geometry: Geometry | None) -> Iterable[list[str]]:  # noqa: ARG002
        """Generate the commands that create the external journal, if requested, and the file system."""
        if journal := self.journal_command():
            yield journal
        yield self.mkfs_command(device, geometry)
        if self.log:
            # mke2fs 1.47.2 writes the file system's UUID into the journal and leaves it in the page cache. Without
            # sync, a power cut could lose the UUID, and every mount would fail.
            yield ["sync", disk_path(self.log)]

    def all_mount_options(self) -> tuple[str, ...]:
        """Return all mount options: the requested ones, the data mode, and the path of an external journal."""
        if not self.journal:
            # The kernel refuses the option data without a journal.
            return self.mount_options
        # The superblock names the journal's disk by its device number, which another disk may have after a reboot.
        path = [f"journal_path={disk_path(self.log)}"] if self.log else []
        return (*self.mount_options, f"data={self.data}", *path)

    @property
    def names_caveat(self) -> str:
        """The reason why ext4 may lose changes of directories without a journal; empty with one.

        It explains no loss of synced data: fsync(2) writes the file, its inode and its directories out at once.
        """
        if self.journal:
            return ""
        return (
            "ext4 has no journal: a power cut may leave inconsistent metadata, which the kernel mounts and only "
            "e2fsck repairs, and acknowledged changes of directories may be lost"
        )

    @property
    def shows_old_data(self) -> bool:
        """Whether a file may be longer than its data, as with ``data=writeback`` (ext4(5)) or without a journal."""
        return self.data == "writeback" or not self.journal or super().shows_old_data

    def caveats(self) -> tuple[str, ...]:
        """Return the promises that ext4 does not keep without a journal, or with ``data=writeback``."""
        if not self.journal or self.data != "writeback":
            return super().caveats()
        return (
            *super().caveats(),
            "ext4 with data=writeback commits the size of a file before its data: after a power cut, blocks "
            "without fsync may have old content of the disk",
        )

    def check_command(self, device: str) -> list[str]:
        """Return the command that checks the unmounted file system without changing it."""
        return ["e2fsck", "-f", "-n", device]

    def parse_check(self, ended: Completed) -> FilesystemCheck:
        """Parse the output and exit status of ``e2fsck -fn``.

        Raises:
            RigError: e2fsck did not complete its check, or its output is truncated.
        """
        output = f"{ended.stdout}\n{ended.stderr}"
        if "Bad magic number in super-block" in output:
            return FilesystemCheck(
                outcome="corrupt", status=ended.status, reasons=("the device has no ext4 superblock",)
            )
        if ended.status & _FAILED or "is mounted" in output.lower() or "Pass 1" not in output:
            raise RigError(
                f"e2fsck did not complete its check, exit status {ended.status}: "
                f"{output.strip()[-500:] or 'no output'}"
            )
        if "skipping journal recovery" in output:
            return FilesystemCheck(outcome="dirty", status=ended.status, reasons=("the journal was not replayed",))
        if ended.status == 0:
            if "Pass 5" not in output:
                raise RigError(f"the output of e2fsck is truncated: {output.strip()[-500:]}")
            return FilesystemCheck(outcome="clean", status=0)
        if not ended.status & _UNCORRECTED:
            raise RigError(
                f"e2fsck -n changes nothing, but its exit status {ended.status} reports corrected errors: "
                f"{output.strip()[-500:]}"
            )
        reasons = few(
            line.strip() for line in ended.stdout.splitlines() if line.strip() and not line.startswith("Pass ")
        )
        return FilesystemCheck(outcome="corrupt", status=ended.status, reasons=reasons)

    def state(self, machine: Machine, device: str, mounted: Mounted) -> FilesystemState:
        """Read the effective state of the mounted file system from dumpe2fs, and the mount options from the kernel.

        Raises:
            RigError: an output is truncated or malformed.
        """
        superblock = parse_info(machine.succeed(info_command(device)))
        # The mount table leaves out default options; this file lists them.
        effective = machine.get(f"/proc/fs/ext4/{kernel_name(machine, device)}/options")
        data = None if superblock.log == "none" else found_in(r"^data=(\w+)$", effective, "ext4: data mode")
        return state_of(mounted, superblock, effective.split(), data=data)

    def asked(self, geometry: Geometry | None) -> dict[str, Value]:
        """Return the requested values of the file system, with inodes, journal and data mode."""
        clusters = self.cluster_size or self.block_size
        asked = {**super().asked(geometry), "inodes": self.inodes, "cluster_size": clusters}
        if not self.journal:
            return {**asked, "log": "none"}
        # The superblock does not have the size of an external journal.
        return {**asked, "log_size": None if self.log else self.log_size, "data": self.data}

    def found(self, state: FilesystemState) -> dict[str, Value]:
        """Return the effective values; the number of inodes is the requested one if mke2fs only rounded it up."""
        found, asked, inodes = super().found(state), self.inodes, state.inodes
        if asked and inodes and enough_inodes(asked, inodes, state.size, state.block_size):
            found["inodes"] = asked
        return found

    @staticmethod
    def commit_s(options: Sequence[str], files: Sequence[float]) -> float:  # noqa: ARG004
        """Return the seconds between two commits of the journal, from the effective mount options."""
        return commit_of(options)

    def log_place(self, machine: Machine, device: str) -> Extent | None:
        """Return the place of the internal journal, which is the file with inode 8; None without a journal."""
        if not self.journal:
            return None
        return parse_journal(machine.succeed(["debugfs", "-R", "stat <8>", device]), self.block_size)

    def log_writes(self, state: FilesystemState | None, geometry: Geometry | None) -> tuple[int, ...]:  # noqa: ARG002
        """Return the bytes of the writes to the journal: descriptor and block of the inode, then the commit block.

        jbd2 issues the commit block after the other two (Documentation/filesystems/ext4/journal.rst of the kernel).
        """
        return (2 * self.block_size, self.block_size) if self.journal else ()

    def owner(self, machine: Machine, device: str, directory: str, offset: int) -> Owner:  # noqa: ARG002
        """Return the owner of the byte at an offset of the device, from debugfs, or dumpe2fs for metadata."""
        block = offset // self.block_size

        def debugfs(request: str) -> str:
            return machine.run(["debugfs", "-R", request, device], deadline_s=OWNER_DEADLINE_S).stdout

        inode = parse_icheck(debugfs(f"icheck {block}"), block)
        if inode is None:
            groups = machine.run(["dumpe2fs", device], deadline_s=OWNER_DEADLINE_S).stdout
            return Owner(parse_groups(groups, block) or UNKNOWN)
        if inode in _INODES:
            return Owner(_INODES[inode])
        path, status = parse_ncheck(debugfs(f"ncheck {inode}"), inode), debugfs(f"stat <{inode}>")
        if re.search(r"Type: directory", status):
            return Owner("data", inode, f"directory {path or '<' + str(inode) + '>'}")
        logical = parse_extents(status, block)
        if logical is None:
            return Owner("block map", inode, path)
        return Owner("data", inode, path, logical * self.block_size + offset % self.block_size)


def enough_inodes(asked: int, found: int, size: int, block_size: int) -> bool:
    """Return whether a file system of ``size`` bytes has the requested inodes, and no more than rounding adds.

    A block group has as many blocks as a block has bits. mke2fs rounds up its inodes to a whole block of the inode
    table, with at least 128 bytes per inode, and to a multiple of eight (ext2fs_initialize in libext2fs).
    """
    groups = -(-size // (8 * block_size * block_size))
    return asked <= found < asked + groups * (block_size // 128 + 8 + 1)


def info_command(device: str) -> list[str]:
    """Return the command that prints the superblock of the ext4 on a device."""
    return ["dumpe2fs", "-h", device]


def parse_info(text: str) -> Superblock:
    """Parse the output of ``dumpe2fs -h``.

    Raises:
        RigError: a value is missing, so that the output is truncated or malformed.
    """
    block_size = int(found_in(r"^Block size:\s+(\d+)$", text, "dumpe2fs: block size"))
    blocks = int(found_in(r"^Block count:\s+(\d+)$", text, "dumpe2fs: block count"))
    features = found_in(r"^Filesystem features:\s+(.+)$", text, "dumpe2fs: features").split()
    log, log_size = "none", None
    if "has_journal" not in features:
        # Require the checksum's line, which follows all lines that are read here: without it the output is truncated.
        found_in(r"^Checksum:\s+(0x[0-9a-f]{8})$", text, "dumpe2fs: checksum")
    elif uuid := _optional(r"^Journal UUID:\s+(\S+)$", text, ""):
        log = uuid
        found_in(r"^Checksum:\s+(0x[0-9a-f]{8})$", text, "dumpe2fs: checksum")
    else:
        log = "internal"
        log_size = block_size * int(
            # e2fsprogs before 1.46 prints "Journal length".
            found_in(r"^(?:Total journal blocks|Journal length):\s+(\d+)$", text, "dumpe2fs: journal")
        )
    stride = int(_optional(r"^RAID stride:\s+(\d+)$", text, "0"))
    width = int(_optional(r"^RAID stripe width:\s+(\d+)$", text, "0"))
    return Superblock.in_blocks(
        block_size,
        blocks,
        stride,
        width,
        log=log,
        log_size=log_size,
        cluster_size=int(_optional(r"^Cluster size:\s+(\d+)$", text, "0")) or block_size,
        inodes=int(found_in(r"^Inode count:\s+(\d+)$", text, "dumpe2fs: inode count")),
        features=tuple(features),
    )


def _optional(pattern: str, text: str, otherwise: str) -> str:
    try:
        return found_in(pattern, text, "")
    except RigError:
        return otherwise


def commit_of(options: Sequence[str]) -> float:
    """Return the seconds between two commits of ext4's journal, from the effective mount options.

    Raises:
        RigError: no option ``commit=`` with a number is in effect.
    """
    commits = [one.removeprefix(_COMMIT) for one in options if one.startswith(_COMMIT)]
    if not commits or not commits[-1].isdigit():
        raise RigError(f"the effective mount options of ext4 have no {_COMMIT}NUMBER: {', '.join(options)}")
    return float(commits[-1])


def parse_icheck(text: str, block: int) -> int | None:
    """Return the inode of a block, from the output of ``icheck`` of debugfs; None if the block has no inode."""
    found = re.search(rf"^{block}\t(\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else None


def parse_ncheck(text: str, inode: int) -> str | None:
    """Return the path of an inode, from the output of ``ncheck`` of debugfs; None if the inode has no path."""
    found = re.search(rf"^{inode}\t(/.*)$", text, re.MULTILINE)
    return re.sub(r"^/+", "/", found[1]) if found else None


def parse_extents(text: str, block: int) -> int | None:
    """Return which block of a file a block of the device is, from the output of ``stat`` of debugfs.

    None means that the block does not hold data of the file.
    """
    for first, _, begin, end in _EXTENT.findall(text):
        if first.isdigit() and int(begin) <= block <= int(end or begin):
            return int(first) + block - int(begin)
    return None


def parse_journal(text: str, block_size: int) -> Extent:
    """Return the place of the first extent of the journal, from the output of ``stat <8>`` of debugfs.

    Raises:
        RigError: the output has no extent.
    """
    extents = [(int(begin), int(end or begin)) for first, _, begin, end in _EXTENT.findall(text) if first.isdigit()]
    if not extents:
        raise RigError(f"debugfs should print the extents of the journal, printed: {text.strip()[-200:]!r}")
    begin, end = extents[0]
    return Extent(offset=begin * block_size, length=(end + 1 - begin) * block_size)


def parse_groups(text: str, block: int) -> str | None:
    """Return the kind of metadata in a block without an inode, from the output of dumpe2fs; None if not listed."""
    for what, first, last in _GROUP_AREA.findall(text):
        if int(first) <= block <= int(last or first):
            return str(what).lower()
    return FREE if any(_holds(line, block) for line in _FREE_BLOCKS.findall(text)) else None


def _holds(ranges: str, block: int) -> bool:
    pairs: Sequence[list[str]] = [one.split("-") for one in ranges.split(", ")]
    return any(int(pair[0]) <= block <= int(pair[-1]) for pair in pairs)
