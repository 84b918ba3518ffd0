"""The owner of a byte of the array (a file, a directory, metadata), and of the requests of a crash state."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from raidproof.core.command import CommandFailed
from raidproof.core.errors import RaidproofError
from raidproof.core.layer import Machine
from raidproof.core.log import logger
from raidproof.core.units import SECTOR
from raidproof.crash.checker import Checker
from raidproof.crash.checker_worker import CheckerWorker, Checks, RecordingCursor
from raidproof.crash.recording import Recording
from raidproof.crash.states import BLOCK, CrashState, DiskStates, Survivor
from raidproof.record.exploration import WriteRecord
from raidproof.storage.array.state import Place, place_of
from raidproof.storage.array.superblock import superblock_of
from raidproof.storage.filesystem import DIRECTORY, FilesystemSpec, XfsSpec

FREE = "free space"
UNKNOWN = "nobody could be found that it belongs to"
DEADLINE_S = 120.0

_FSMAP = re.compile(r"^\s*\d+: \d+:\d+ \[(\d+)\.\.(\d+)\]: (.*) \d+$", re.MULTILINE)
_FSMAP_INODE = re.compile(r"inode (\d+) (.*?)(?: (\d+)\.\.\d+)?$")
_BLOCKUSE = re.compile(r"^block \d+ \(\d+/\d+\) type (\S+)(?: inode (\d+)(?: (.*))?)?$", re.MULTILINE)
_EXTENT = re.compile(r"\((\w+)(?:-(\d+))?\):(\d+)(?:-(\d+))?")
_GROUP_AREA = re.compile(
    r"(Primary superblock|Backup superblock|Group descriptors|Reserved GDT blocks|Block bitmap|Inode bitmap"
    r"|Inode table) at (\d+)(?:-(\d+))?"
)
_FREE_BLOCKS = re.compile(r"^  Free blocks: (.+)$", re.MULTILINE)
_EXT4_INODES = {1: "list of bad blocks", 2: "root directory", 7: "reserved group descriptors", 8: "ext4 journal"}
_XFS_WORDS = {"journalling log": "XFS log", "log": "XFS log", "sb": "XFS superblock", "inode": "inodes"}
_XFS_FREE = frozenset({FREE, "free1", "free2"})

MOST_OWNERS = 12
"""Requests of one state whose owners are asked for: each takes a process or two in the machine."""


class Owner(NamedTuple):
    """Whose a block is."""

    what: str
    """``data``, or what else of a file it is; or which metadata of the file system."""
    inode: int | None = None
    path: str | None = None
    """Below the file system's root."""
    file_offset: int | None = None
    """Of the byte that was asked for, in bytes."""

    def __str__(self) -> str:
        if self.inode is None:
            return self.what
        name = f"{self.path}" if self.path else f"inode {self.inode}"
        if self.what != "data":
            return f"{self.what} of {name}"
        if self.file_offset is None:
            return name if name.startswith("directory") else f"file {name}"
        begin = self.file_offset // BLOCK * BLOCK
        return f"file {name}, bytes {begin}-{begin + BLOCK - 1}"


def owner(machine: Machine, filesystem: FilesystemSpec, device: str, directory: str, offset: int) -> str:
    """Return whose a byte of an array is, in words; ``directory`` is where its file system is mounted, if it is."""
    if isinstance(filesystem, XfsSpec):
        return str(_xfs(machine, device, directory, offset))
    return str(_ext4(machine, device, filesystem.block_size, offset))


def _xfs(machine: Machine, device: str, directory: str, offset: int) -> Owner:
    sector = str(offset // SECTOR)
    mounted = machine.run(["findmnt", "--noheadings", "--output", "SOURCE", "--mountpoint", directory])
    if mounted.ok and mounted.stdout.strip() == device:
        said = machine.run(["xfs_io", "-c", f"fsmap -d {sector} {sector}", directory], deadline_s=DEADLINE_S)
        found = parse_fsmap(said.stdout, offset)
        if found is not None and found.what != "unknown":
            return _named(machine, directory, found)
    words = ["-c", "blockget -n", "-c", f"daddr {sector}", "-c", "blockuse -n"]
    said = machine.run(["xfs_db", "-r", *words, device], deadline_s=DEADLINE_S)
    return parse_blockuse(said.stdout) or Owner(UNKNOWN)


def _named(machine: Machine, directory: str, found: Owner) -> Owner:
    if found.inode is None:
        return found
    words = ["-xdev", "-inum", str(found.inode), "-printf", r"%y %P\n", "-quit"]
    said = machine.run(["find", directory, *words], deadline_s=DEADLINE_S)
    kind, _, path = said.stdout.partition("\n")[0].partition(" ")
    if not kind:
        return found
    if kind == "d":
        return Owner(found.what, found.inode, f"directory /{path}")
    return found._replace(path=f"/{path}")


def parse_fsmap(text: str, offset: int) -> Owner | None:
    """Read what ``fsmap`` says of a byte; None if it says nothing of it."""
    sector = offset // SECTOR
    for first, last, words in _FSMAP.findall(text):
        if not int(first) <= sector <= int(last):
            continue
        if not (inode := _FSMAP_INODE.fullmatch(words)):
            return Owner(_XFS_WORDS.get(words, words))
        number, what, begin = inode.groups()
        if what != "data" or begin is None:
            return Owner(what, int(number))
        return Owner(what, int(number), None, int(begin) * SECTOR + offset - int(first) * SECTOR)
    return None


def parse_blockuse(text: str) -> Owner | None:
    """Read what ``blockuse -n`` says of a block; None if it says nothing."""
    found = _BLOCKUSE.search(text)
    if found is None:
        return None
    what, inode, path = found.groups()
    if what in _XFS_FREE:
        return Owner(FREE)
    if inode is None or what not in {"data", "dir"}:
        return Owner(_XFS_WORDS.get(what, what))
    name = f"/{path}" if path else None
    return Owner("data", int(inode), f"directory {name or '/'}" if what == "dir" else name)


def _ext4(machine: Machine, device: str, block_size: int, offset: int) -> Owner:
    block = offset // block_size

    def ask(question: str) -> str:
        return machine.run(["debugfs", "-R", question, device], deadline_s=DEADLINE_S).stdout

    inode = parse_icheck(ask(f"icheck {block}"), block)
    if inode is None:
        return Owner(parse_groups(machine.run(["dumpe2fs", device], deadline_s=DEADLINE_S).stdout, block) or UNKNOWN)
    if inode in _EXT4_INODES:
        return Owner(_EXT4_INODES[inode])
    path, said = parse_ncheck(ask(f"ncheck {inode}"), inode), ask(f"stat <{inode}>")
    if re.search(r"Type: directory", said):
        return Owner("data", inode, f"directory {path or '<' + str(inode) + '>'}")
    logical = parse_extents(said, block)
    if logical is None:
        return Owner("block map", inode, path)
    return Owner("data", inode, path, logical * block_size + offset % block_size)


def parse_icheck(text: str, block: int) -> int | None:
    """Return the inode that ``icheck`` names for a block, or None if it has none."""
    found = re.search(rf"^{block}\t(\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else None


def parse_ncheck(text: str, inode: int) -> str | None:
    """Return the path that ``ncheck`` names for an inode, or None if it has none."""
    found = re.search(rf"^{inode}\t(/.*)$", text, re.MULTILINE)
    return re.sub(r"^/+", "/", found[1]) if found else None


def parse_extents(text: str, block: int) -> int | None:
    """Return which block of a file, by debugfs' ``stat``, a block of the device is; None if it holds no data."""
    for first, _, begin, end in _EXTENT.findall(text):
        if first.isdigit() and int(begin) <= block <= int(end or begin):
            return int(first) + block - int(begin)
    return None


def parse_groups(text: str, block: int) -> str | None:
    """Return what dumpe2fs says that a block is that no inode has."""
    for what, first, last in _GROUP_AREA.findall(text):
        if int(first) <= block <= int(last or first):
            return str(what).lower()
    return FREE if any(_holds(line, block) for line in _FREE_BLOCKS.findall(text)) else None


def _holds(ranges: str, block: int) -> bool:
    pairs: Sequence[list[str]] = [one.split("-") for one in ranges.split(", ")]
    return any(int(pair[0]) <= block <= int(pair[-1]) for pair in pairs)


class Piece(NamedTuple):
    """A part of a request, or all of it."""

    member: int
    start: int
    """Its first byte on the member."""


class WriteOwner(NamedTuple):
    """What it is part of."""

    stripe: int | None = None
    owner: str | None = None


Belongs = Callable[[CrashState, Iterable[Piece]], Mapping[Piece, WriteOwner]]
"""Tells it of some pieces in a state."""


class WriteOwners:
    """Asks the superblocks of a state, and a checker on whose disks it is."""

    def __init__(self, bench: CheckerWorker, roller: RecordingCursor) -> None:
        self.bench = bench
        self.roller = roller

    def __call__(self, state: CrashState, pieces: Iterable[Piece]) -> Mapping[Piece, WriteOwner]:
        """Tell of some pieces; what cannot be found out is left open."""
        self.roller.go(state.cut)
        places = {piece: placed(self.roller.window, state, piece) for piece in dict.fromkeys(pieces)}
        offsets = {one.array_offset for one in places.values() if one is not None and one.array_offset is not None}
        try:
            # Where all that was asked is there: a broken state may not even mount.
            full = CrashState(state.cut, tuple(map(Survivor, self.roller.window.open)))
            self.bench.submit(self.roller.job(full)).result()
            owners = self.bench.use(lambda checker: owners_of(checker, sorted(offsets)[:MOST_OWNERS])).result()
        except RaidproofError:
            logger.exception("owners in state %s", state.name)
            owners = {}
        return {piece: belonging(place, owners) for piece, place in places.items()}


def placed(window: DiskStates, state: CrashState, piece: Piece) -> Place | None:
    """Return what a byte is to md in a state; None where the member has no superblock that says so."""
    superblock = superblock_of(lambda offset, length: window.read(state, piece.member, offset, length))
    if superblock is None:
        return None
    try:
        return place_of(superblock, piece.start)
    except RaidproofError:
        return None


def belonging(place: Place | None, owners: Mapping[int, str]) -> WriteOwner:
    """Put together what is known."""
    if place is None:
        return WriteOwner()
    if place.array_offset is None:
        return WriteOwner(place.stripe, place.area.value)
    return WriteOwner(place.stripe, owners.get(place.array_offset, place.area.value))


def owners_of(checker: Checks, offsets: Iterable[int]) -> dict[int, str]:
    """Ask a checker, whose disks still hold what it looked at last, for the owners of bytes of its array."""
    # Of an array of arrays the superblocks tell of the inner one, whose bytes are not the file system's.
    if not isinstance(checker, Checker) or len(checker.stack.array.devices) > 1:
        return {}
    device = checker.stack.array.devices[0].device
    with _up(checker):
        return {
            offset: owner(checker.machine, checker.stack.filesystem, device, DIRECTORY, offset) for offset in offsets
        }


@contextmanager
def _up(checker: Checker) -> Iterator[None]:
    machine, orders = checker.machine, checker.orders
    for _, argv in orders["assemble"]:
        machine.succeed(argv)
    mounted = False
    try:
        try:
            machine.succeed(orders["mount"])
            mounted = True
        except CommandFailed:
            logger.info("state does not mount: its owners are read without")
        yield
    finally:
        if mounted:
            machine.succeed(orders["unmount"])
        machine.succeed(orders["stop"])


class Part(NamedTuple):
    """A part of a request of a state, or all of it."""

    request: int
    start: int
    end: int
    member: int

    @property
    def at(self) -> Piece:
        """Where it begins."""
        return Piece(self.member, self.start)

    def record(self, recording: Recording, known: Mapping[Piece, WriteOwner]) -> WriteRecord:
        """Name it."""
        belonging = known.get(self.at, WriteOwner())
        return WriteRecord(
            request=self.request,
            kind=recording.request(self.request).kind.name.lower(),
            member=recording.members[self.member].serial,
            lba=self.start // SECTOR,
            sectors=(self.end - self.start) // SECTOR,
            stripe=belonging.stripe,
            owner=belonging.owner,
        )


def whole(requests: Iterable[int], cut: int) -> CrashState:
    """Return the state in which these have survived."""
    return CrashState(cut, tuple(map(Survivor, requests)))


def pieces_of(recording: Recording, state: CrashState) -> list[Part]:
    """Return the survivors of a state, each part of one by itself."""
    parts = []
    for number, spans in state.survivors:
        request = recording.request(number)
        for start, end in spans or ((request.offset, request.offset + request.length),):
            parts.append(Part(number, start, end, request.member))
    return parts
