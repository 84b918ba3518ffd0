"""btrfs on one device or with its own RAID: its request, its commands, and parsers for the output of btrfs-progs."""

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple, Self

from pydantic import model_validator

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import Machine, Value, found_in, power_of_two
from raidproof.core.units import GIB, KIB, MIB, Size, format_size
from raidproof.storage.array import Geometry
from raidproof.storage.filesystem.filesystem import FREE, OWNER_DEADLINE_S, UNKNOWN, FilesystemSpec, Owner, drop_pages
from raidproof.storage.filesystem.placement import Extent
from raidproof.storage.filesystem.state import FilesystemCheck, FilesystemState, Mounted, Superblock, few, state_of

COMMIT_S = 30.0
"""Seconds between two commits without the mount option ``commit`` (BTRFS_DEFAULT_COMMIT_INTERVAL in fs/btrfs/fs.h)."""

SUPERBLOCKS = (64 * KIB, 64 * MIB, 256 * GIB)
"""Offsets of the copies of the superblock on each device (btrfs_sb_offset in fs/btrfs/disk-io.h)."""
SUPERBLOCK_SIZE = 4 * KIB
RESERVED = MIB
"""Bytes at the beginning of a device that btrfs leaves to boot loaders (BTRFS_DEVICE_RANGE_RESERVED)."""
_LEAST = {("single", "single"): 45 * MIB, ("single", "dup"): 109 * MIB}
"""Smallest sizes that mkfs.btrfs 6.14 accepts, by profiles of data and metadata, with nodes of any size."""
_LEAST_WITH_TWO_COPIES = 229 * MIB
_COPIES = {"raid1": 2, "raid10": 4, "raid1c3": 3, "raid5": 3, "raid6": 4}
"""The profiles of several devices, each with the smallest number of devices that is accepted here."""
_SAFE_METADATA = {"6": "raid1c3"}
"""The usual profile of metadata by RAID level of the data, so that metadata survives as many lost devices."""
_ALGORITHMS = {"xxhash64": "xxhash", "blake2b": "blake2"}
"""Names of algorithms for mkfs.btrfs, by the name in the superblock, where they differ."""
_COMMIT = "commit="
_COMPRESS = "compress="

# Output of btrfs check, whose exit status is 1 both for damage and for a device that it cannot read.
_CHECKED = re.compile(r"^found \d+ bytes used, (no error found|error\(s\) found)$", re.MULTILINE)
_LAST = re.compile(r"^ ?referenced \d+$", re.MULTILINE)
_NO_BTRFS = "No valid Btrfs found"
_UNREADABLE = "cannot open file system"
_ROUTINE = re.compile(
    r"^\s*(\[\d/\d\] |Opening filesystem|Checking filesystem|UUID: |total |btree |file data |referenced |found |$)"
)

# Output of dump-tree about the owner of a byte.
_CHUNK = re.compile(
    r"key \(FIRST_CHUNK_TREE CHUNK_ITEM (\d+)\)[^\n]*\n\s+length (\d+) owner \d+ stripe_len \d+ type (\S+)"
    r"((?:\n(?!\s+item )[^\n]*)*)"
)
_STRIPE = re.compile(r"stripe \d+ devid \d+ offset (\d+)")
_ITEM = re.compile(r"^\s+item \d+ key \((\d+) (\w+) (\d+)\)[^\n]*\n((?:\t\t[^\n]*\n)*)", re.MULTILINE)
_BACKREF = re.compile(r"tree block backref root (\w+)")
_REGULAR = re.compile(r"extent data disk byte (\d+) nr (\d+)\s+extent data offset (\d+) nr (\d+)")
_NAME = re.compile(r"namelen \d+ name: (.*)")
_BLOCK_OWNER = re.compile(r"^(?:leaf|node) \d+ .*\bowner (\w+)$", re.MULTILINE)
_ENDED = re.compile(r"^total bytes \d+$", re.MULTILINE)
_TOP = 256
"""Inode number of the root directory of each tree of files (BTRFS_FIRST_FREE_OBJECTID)."""


Profile = Literal["single", "dup", "raid1", "raid1c3", "raid10", "raid5", "raid6"]
"""A profile of data or metadata (mkfs.btrfs(8)); raid1c3 stores three copies on three devices."""


class Profiles(NamedTuple):
    """The profiles of a file system."""

    data: str
    metadata: str


class Chunk(NamedTuple):
    """A chunk: a range of btrfs' logical addresses, and the places of its copies on the device."""

    logical: int
    length: int
    kind: str
    """The use and the profile, as dump-tree prints them: ``METADATA|DUP``."""
    places: tuple[int, ...]
    """Offset on the device of each copy."""

    @property
    def on_several(self) -> bool:
        """Whether the chunk has parts on several devices, so that an offset alone is no place."""
        return "RAID" in self.kind


class BtrfsSpec(FilesystemSpec):
    """The requested btrfs. ``block_size`` is its sector size (mkfs.btrfs -s)."""

    page_size_reason: ClassVar[str] = (
        "btrfs with sectors larger than the page size, 4KiB, is not mounted by the kernel"
    )
    least_block_size: ClassVar[int] = 4 * KIB
    in_place: ClassVar[bool] = False
    unsupported: ClassVar[frozenset[str]] = frozenset({"su", "sw", "aligned", "log", "log_size"})
    own_options: ClassVar[frozenset[str]] = frozenset(
        {
            *("nodatacow", "datacow", "nodatasum", "datasum", "flushoncommit", "noflushoncommit"),
            *("compress", "compress-force", "device", "degraded", "rescue", "norecovery", "nologreplay"),
        }
    )
    axes: ClassVar[Mapping[str, str]] = {
        "node_size": "size of a block of metadata of btrfs",
        "data_profile": "profile of data of btrfs; default: single, with raid = btrfs that of the level",
        "metadata_profile": "profile of metadata of btrfs; default: dup, with raid = btrfs raid1, for level 6 raid1c3",
        "checksum": "algorithm of the checksums of btrfs",
        "nodatacow": "whether btrfs overwrites data in place, without checksums",
        "flushoncommit": "whether each commit of btrfs writes all dirty data first",
        "compress": "algorithm by which btrfs compresses data",
    }
    operations: ClassVar[frozenset[str]] = frozenset({"clone"})
    forcing: ClassVar[frozenset[str]] = frozenset({"-f", "-q"})
    # Messages of open_ctree and btrfs_check_features in the kernel.
    refused_features: ClassVar[str] = r"BTRFS.*cannot mount.*because of un(?:known|supported)"
    # Levels of btrfs_printk, and messages of __btrfs_handle_fs_error and btrfs_print_data_csum_error in the kernel.
    damage: ClassVar[str] = (
        # Linux 7 logs at each mount of RAID5 or 6 that these profiles are experimental.
        r"BTRFS:? (?:error|critical|alert(?!.*is EXPERIMENTAL)|emergency)"
        r"|BTRFS warning.*(?:csum (?:failed|hole)|checksum)|BTRFS.*forced readonly"
    )
    packages: ClassVar[tuple[str, ...]] = ("btrfs-progs",)

    type: Literal["btrfs"] = "btrfs"
    aligned: bool = False
    """Always false: btrfs does not align files to the stripes of an array."""
    node_size: Size = 16 * KIB
    """Bytes of a block of metadata (mkfs.btrfs -n)."""
    data_profile: Profile | None = None
    """Profile of data (mkfs.btrfs -d). None: single on one device; on several devices, that of the RAID level."""
    metadata_profile: Profile | None = None
    """Profile of metadata (mkfs.btrfs -m). None: dup on one device; on several devices raid1, for RAID6 raid1c3."""
    checksum: Literal["crc32c", "xxhash", "sha256", "blake2"] = "crc32c"
    """Algorithm of the checksums of data and metadata (mkfs.btrfs --csum)."""
    nodatacow: bool = False
    """Whether btrfs overwrites data in place, without checksums: the mount option ``nodatacow`` of btrfs(5)."""
    flushoncommit: bool = False
    """Whether each commit writes all dirty data first: the mount option ``flushoncommit`` of btrfs(5)."""
    compress: Literal["none", "zlib", "lzo", "zstd"] = "none"
    """Algorithm by which btrfs compresses data: the mount option ``compress`` of btrfs(5)."""

    @model_validator(mode="after")
    def _possible_nodes(self) -> Self:
        node = self.node_size
        if not power_of_two(node) or not self.block_size <= node <= 64 * KIB:
            raise RequestError(
                f"node_size {format_size(node)} is not a power of two from the block size, "
                f"{format_size(self.block_size)}, to 64KiB"
            )
        if self.nodatacow and self.compress != "none":
            raise RequestError("nodatacow disables compression (btrfs(5)), but compress requests it")
        return self

    def profiles(self, geometry: Geometry | None) -> Profiles:
        """Return the profiles of data and metadata on an array of this geometry."""
        separate = geometry.separate if geometry else None
        if separate is None:
            return Profiles(self.data_profile or "single", self.metadata_profile or "dup")
        usual = _SAFE_METADATA.get(separate.level, "raid1")
        return Profiles(self.data_profile or f"raid{separate.level}", self.metadata_profile or usual)

    def refuse_devices(self, geometry: Geometry | None) -> None:
        """Check that the profiles are possible on these devices.

        Raises:
            RequestError: a profile needs several devices or only one, or is not that of the RAID level.
        """
        data, metadata = self.profiles(geometry)
        separate = geometry.separate if geometry else None
        for field, profile in (("data_profile", data), ("metadata_profile", metadata)):
            if separate is None and profile in _COPIES:
                raise RequestError(
                    f"{field} {profile} needs several devices, but the array is one device; write raid = "
                    f'"{self.type}" and a level, or choose single or dup'
                )
            if separate is not None and profile not in _COPIES:
                raise RequestError(
                    f"{field} {profile} keeps no copy on another device; leave {field} out, or choose one of "
                    f"{', '.join(_COPIES)}"
                )
        if separate is None:
            return
        if data != f"raid{separate.level}":
            raise RequestError(
                f"data_profile {data} is not that of level {separate.level}; leave data_profile out, or write level = "
                f"{data.removeprefix('raid')}"
            )
        if metadata == "raid6" and separate.level != "6":
            raise RequestError(f"metadata_profile raid6 is possible only with level 6, not {separate.level}")
        if len(separate.devices) < _COPIES[metadata]:
            raise RequestError(
                f"metadata_profile {metadata} needs at least {_COPIES[metadata]} members, not {len(separate.devices)}"
            )

    def least_size(self, geometry: Geometry | None) -> int:
        """Return the smallest size in bytes that mkfs.btrfs accepts with these profiles."""
        return _LEAST.get(self.profiles(geometry), _LEAST_WITH_TWO_COPIES)

    def mkfs_command(self, device: str, geometry: Geometry | None) -> list[str]:
        """Return the command that creates the file system over any old content, on all its devices."""
        profiles = self.profiles(geometry)
        return [
            "mkfs.btrfs",
            "-f",
            "-q",
            *([] if self.discard else ["-K"]),
            "-s",
            str(self.block_size),
            "-n",
            str(self.node_size),
            "-d",
            profiles.data,
            "-m",
            profiles.metadata,
            "--csum",
            self.checksum,
            *(geometry.separate.devices if geometry and geometry.separate else [device]),
        ]

    def all_mount_options(self) -> tuple[str, ...]:
        """Return all mount options: the requested ones, and those of the fields."""
        return (
            *self.mount_options,
            *(["nodatacow"] if self.nodatacow else []),
            *(["flushoncommit"] if self.flushoncommit else []),
            *([f"{_COMPRESS}{self.compress}"] if self.compress != "none" else []),
        )

    def check_command(self, device: str) -> list[str]:
        """Return the command that checks the unmounted file system without changing it."""
        return ["btrfs", "check", "--readonly", device]

    def parse_check(self, ended: Completed) -> FilesystemCheck:
        """Parse the output and exit status of ``btrfs check --readonly``.

        Raises:
            RigError: btrfs check did not complete its check, or its output is truncated.
        """
        output = f"{ended.stdout}\n{ended.stderr}"
        reasons = few(line.strip() for line in output.splitlines() if not _ROUTINE.match(line))
        if ended.status and (_NO_BTRFS in output or _UNREADABLE in output):
            return FilesystemCheck(outcome="corrupt", status=ended.status, reasons=reasons)
        checked = _CHECKED.search(output)
        if ended.status not in {0, 1} or checked is None or not _LAST.search(output):
            raise RigError(
                f"btrfs check did not complete its check, exit status {ended.status}: "
                f"{output.strip()[-500:] or 'no output'}"
            )
        if ended.status == 0 and checked[1] == "no error found":
            return FilesystemCheck(outcome="clean", status=0)
        return FilesystemCheck(
            outcome="corrupt", status=ended.status, reasons=reasons or (f"btrfs check: {checked[1]}",)
        )

    def state(self, machine: Machine, device: str, mounted: Mounted) -> FilesystemState:
        """Read the effective state of the mounted file system: its superblock, the profiles, and the mount options.

        Raises:
            RigError: an output is truncated or malformed.
        """
        superblock = parse_super(machine.succeed(["btrfs", "inspect-internal", "dump-super", device]))
        usage = machine.succeed(["btrfs", "filesystem", "usage", "--raw", mounted.directory])
        # The mount table leaves out the default interval.
        commit = [] if any(one.startswith(_COMMIT) for one in mounted.options) else [f"{_COMMIT}{COMMIT_S:g}"]
        return state_of(
            mounted,
            Superblock(block_size=int(superblock["sectorsize"]), size=int(superblock["total_bytes"]), su=0, sw=0),
            commit,
            node_size=int(superblock["nodesize"]),
            checksum=superblock["csum_type"],
            data_profile=parse_profile(usage, "Data"),
            metadata_profile=parse_profile(usage, "Metadata"),
            nodatacow="nodatacow" in mounted.options,
            flushoncommit="flushoncommit" in mounted.options,
            compress=compression(mounted.options),
        )

    def asked(self, geometry: Geometry | None) -> dict[str, Value]:
        """Return the requested values of the file system, with all fields that only btrfs has."""
        data, metadata = self.profiles(geometry)
        own = {name: getattr(self, name) for name in self.axes}
        return {**super().asked(geometry), **own, "data_profile": data, "metadata_profile": metadata}

    @staticmethod
    def commit_s(options: Sequence[str], files: Sequence[float]) -> float:  # noqa: ARG004
        """Return the seconds between two commits of a transaction, from the effective mount options.

        Raises:
            RigError: no option ``commit=`` with a number is in effect.
        """
        commits = [one.removeprefix(_COMMIT) for one in options if one.startswith(_COMMIT)]
        if not commits or not commits[-1].isdigit():
            raise RigError(f"the effective mount options of btrfs have no {_COMMIT}NUMBER: {', '.join(options)}")
        return float(commits[-1])

    def file_extents(self, machine: Machine, device: str, listed: Sequence[Extent]) -> tuple[Extent, ...]:
        """Return the extents of files on the device: filefrag prints logical addresses of btrfs.

        On several devices the result is empty: no offset on one device says where a file is.
        """
        drop_pages(machine, device)
        chunks = self._chunks(machine, device)
        if any(chunk.on_several for chunk in chunks):
            return ()
        return tuple(place for one in listed for place in on_device(chunks, one))

    def owner(self, machine: Machine, device: str, directory: str, offset: int) -> Owner:  # noqa: ARG002
        """Return the owner of the byte at an offset of the device, from the last commit, mounted or not."""
        drop_pages(machine, device)
        if any(start <= offset < start + SUPERBLOCK_SIZE for start in SUPERBLOCKS):
            return Owner("btrfs superblock")
        if offset < RESERVED:
            return Owner("reserved for boot loaders")
        chunks = self._chunks(machine, device)
        if any(chunk.on_several for chunk in chunks):
            return Owner(UNKNOWN)
        found = logical_of(chunks, offset)
        if found is None:
            return Owner(FREE)
        logical, kind = found
        if kind.startswith("DATA"):
            return parse_file(_dump(machine, device, "-t", "5"), logical) or Owner(FREE)
        extents = _dump(machine, device, "-t", "extent")
        if not _ENDED.search(extents):
            return Owner(UNKNOWN)
        if tree := parse_tree_block(extents, logical, self.node_size):
            return Owner(tree)
        # The blocks of log trees are not in the tree of extents.
        block = logical - logical % self.node_size
        return Owner(parse_log_block(_dump(machine, device, "-b", str(block))))

    def _chunks(self, machine: Machine, device: str) -> tuple[Chunk, ...]:
        return parse_chunks(_dump(machine, device, "-t", "chunk"))


def _dump(machine: Machine, device: str, *what: str) -> str:
    command = ["btrfs", "inspect-internal", "dump-tree", *what, device]
    return machine.run(command, deadline_s=OWNER_DEADLINE_S).stdout


def parse_super(text: str) -> dict[str, str]:
    """Return the values of a superblock by name, from the output of ``btrfs inspect-internal dump-super``.

    The value of ``csum_type`` is the name of the algorithm.

    Raises:
        RigError: a value is missing, so that the output is truncated or malformed.
    """
    names = ("total_bytes", "sectorsize", "nodesize", "generation")
    found = {name: found_in(rf"^{name}\s+(\d+)$", text, f"dump-super: {name}") for name in names}
    algorithm = found_in(r"^csum_type\s+\d+ \(([a-z0-9]+)\)$", text, "dump-super: csum_type")
    # Require the last line: without it the output is truncated.
    found_in(r"^dev_item\.generation\s+(\d+)$", text, "dump-super: dev_item.generation")
    return {**found, "csum_type": _ALGORITHMS.get(algorithm, algorithm)}


def parse_profile(text: str, what: str) -> str:
    """Return the profile of ``Data`` or ``Metadata``, from the output of ``btrfs filesystem usage --raw``.

    Several profiles at the same time are joined by a plus sign.

    Raises:
        RigError: the output has no such profile, or is truncated.
    """
    found_in(r"^Unallocated:\n\s+\S+\s+(\d+)$", text, "btrfs filesystem usage: unallocated bytes")
    profiles = re.findall(rf"^{what},(\w+): Size:\d+, Used:", text, re.MULTILINE)
    if not profiles:
        raise RigError(f"btrfs filesystem usage should print the profile of {what}, printed: {text.strip()[-300:]}")
    return "+".join(dict.fromkeys(one.lower() for one in profiles))


def compression(options: Sequence[str]) -> str:
    """Return the algorithm of the mount option ``compress=ALGORITHM:LEVEL``; ``none`` without this option."""
    found = [one.removeprefix(_COMPRESS).partition(":")[0] for one in options if one.startswith(_COMPRESS)]
    return found[-1] if found else "none"


def parse_chunks(text: str) -> tuple[Chunk, ...]:
    """Return the chunks, from the output of ``dump-tree -t chunk``; none if the device is damaged."""
    return tuple(
        Chunk(int(logical), int(length), kind, tuple(map(int, _STRIPE.findall(rest))))
        for logical, length, kind, rest in _CHUNK.findall(text)
    )


def logical_of(chunks: Sequence[Chunk], offset: int) -> tuple[int, str] | None:
    """Return btrfs' logical address of a byte of the device, and the kind of its chunk; None if no chunk has it."""
    for chunk in chunks:
        for place in chunk.places:
            if place <= offset < place + chunk.length:
                return chunk.logical + offset - place, chunk.kind
    return None


def on_device(chunks: Sequence[Chunk], extent: Extent) -> tuple[Extent, ...]:
    """Return the places on the device of an extent in logical addresses: those of the first copy, without holes."""
    places = []
    for chunk in chunks:
        begin = max(extent.offset, chunk.logical)
        end = min(extent.offset + extent.length, chunk.logical + chunk.length)
        if begin < end and chunk.places:
            places.append(Extent(offset=chunk.places[0] + begin - chunk.logical, length=end - begin))
    return tuple(places)


def parse_tree_block(text: str, logical: int, node_size: int) -> str | None:
    """Return the tree of a block of metadata, from the output of ``dump-tree -t extent``; None if it is not listed."""
    for start, kind, _, rest in _ITEM.findall(text):
        if kind == "METADATA_ITEM" and int(start) <= logical < int(start) + node_size:
            found = _BACKREF.search(rest)
            return f"btrfs {_words(found[1])}" if found else None
    return None


def parse_log_block(text: str) -> str:
    """Return the owner of a block that is not in the tree of extents, from the output of ``dump-tree -b``.

    The block is free, even if it has the header of an earlier use, unless the header is that of a log tree.
    """
    found = _BLOCK_OWNER.search(text)
    return f"btrfs {_words(found[1])}" if found is not None and found[1] == "TREE_LOG" else FREE


def _words(tree: str) -> str:
    return tree.lower().replace("_", " ")


def parse_file(text: str, logical: int) -> Owner | None:
    """Return the owner of a byte of data, from the output of ``dump-tree -t 5``; None if the byte is free."""
    items = [(int(number), kind, int(offset), rest) for number, kind, offset, rest in _ITEM.findall(text)]
    for inode, kind, begin, rest in items:
        found = _REGULAR.search(rest) if kind == "EXTENT_DATA" else None
        if found is None:
            continue
        disk, length, skipped, used = map(int, found.groups())
        if disk and disk <= logical < disk + length:
            at = logical - disk - skipped
            # In a compressed extent, the offset on the device is not the offset in the file.
            inside = begin + at if 0 <= at < used and "compression 0" in rest else None
            return Owner("data", inode, _path(items, inode), inside)
    return None


def _path(items: Sequence[tuple[int, str, int, str]], inode: int) -> str | None:
    """Return the path of an inode from the root directory; None if a name is missing."""
    refs: dict[int, tuple[int, str]] = {}
    for number, kind, parent, rest in items:
        if kind == "INODE_REF" and (name := _NAME.search(rest)):
            refs.setdefault(number, (parent, name[1]))
    names: list[str] = []
    while inode != _TOP:
        if inode not in refs or len(names) > len(refs):
            return None
        inode, last = refs[inode]
        names.append(last)
    return "/" + "/".join(reversed(names))
