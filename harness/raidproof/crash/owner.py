"""The owners of bytes of the array, and of the requests in a crash state.

The owner of a byte is the file, directory or metadata structure of the file system whose block contains the byte.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from raidproof.core.command import CommandFailed
from raidproof.core.errors import RaidproofError
from raidproof.core.layer import Machine
from raidproof.core.log import logger
from raidproof.core.units import SECTOR
from raidproof.crash.checker import Checker
from raidproof.crash.checker_worker import CheckerWorker, Checks, RecordingCursor
from raidproof.crash.disk_states import DiskStates
from raidproof.crash.states import CrashState, Recording
from raidproof.disk.writelog import Flag
from raidproof.record.failure import WriteRecord
from raidproof.storage.array.state import Area, Place, place_of
from raidproof.storage.filesystem import DIRECTORY, FilesystemSpec
from raidproof.storage.member import Assembly
from raidproof.storage.volume import ready

MOST_OWNERS = 12
"""Limit of offsets whose owners are looked up for one state: each lookup runs one or two processes in the machine."""


def owner(machine: Machine, filesystem: FilesystemSpec, device: str, directory: str, offset: int) -> str:
    """Return a description of the owner of the byte at ``offset`` of ``device``.

    ``directory``: mount point of the file system, if the file system is mounted.
    """
    return str(filesystem.owner(machine, device, directory, offset))


class Piece(NamedTuple):
    """The first byte of a request or of a surviving part of a request."""

    member: int
    """Index of the member."""
    start: int
    """Offset in bytes on the member."""


class WriteOwner(NamedTuple):
    """The place in the array and the owner to which a piece of a write belongs; fields that are not known are None."""

    stripe: int | None = None
    """Number of the stripe in the array."""
    owner: str | None = None
    """Description of the file, directory or metadata."""
    area: Area | None = None
    """What md stores there."""
    role: int | None = None
    """The member's slot in the array."""
    chunk: int | None = None
    """Number of the chunk in the array."""


OwnerLookup = Callable[[CrashState, Iterable[Piece]], Mapping[Piece, WriteOwner]]
"""A function that looks up the stripe and owner of each `Piece` in a crash state."""


class WriteOwners:
    """Looks up the owners of pieces in a crash state.

    The members' superblocks give the offset of a piece in the array. The file system's tools, on a checker with the
    state on its disks, give the owner.
    """

    def __init__(self, worker: CheckerWorker, cursor: RecordingCursor) -> None:
        self.worker = worker
        self.cursor = cursor
        self._filesystem: FilesystemSpec | None = None

    def __call__(self, state: CrashState, pieces: Iterable[Piece]) -> Mapping[Piece, WriteOwner]:
        """Return the stripe and owner of each piece; a field that cannot be determined is None."""
        self.cursor.go(state.cut)
        places = {piece: array_place(self.cursor.window, state, piece) for piece in dict.fromkeys(pieces)}
        offsets = {one.array_offset for one in places.values() if one is not None and one.array_offset is not None}
        try:
            # A broken state may fail to mount: look up owners in the state in which all non-durable requests survived.
            full = CrashState.of(state.cut, self.cursor.window.open)
            self.worker.submit(self.cursor.job(full)).result()
            owners = self.worker.use(lambda checker: owners_of(checker, sorted(offsets)[:MOST_OWNERS])).result()
        except RaidproofError:
            logger.exception("the lookup of owners in crash state %s failed", state.name)
            owners = {}
        return {piece: write_owner(place, owners) for piece, place in places.items()}

    def structure_of(self, data: bytes) -> str | None:
        """Return the structure of the checker's file system that data begins with; None without one.

        Raises:
            RigError: the worker has no checker.
        """
        if self._filesystem is None:
            self._filesystem = self.worker.use(filesystem_of).result()
        return self._filesystem.structure_of(data) if self._filesystem else None


def filesystem_of(checker: Checks) -> FilesystemSpec | None:
    """Return the file system of a checker's stack; None if the checker has no stack."""
    return checker.stack.filesystem if isinstance(checker, Checker) else None


def array_place(window: DiskStates, state: CrashState, piece: Piece) -> Place | None:
    """Return the place of a piece in the array, for metadata with the slot of the member too.

    None: no superblock of the member covers the piece.
    """
    superblock = window.recording.superblock(lambda offset, length: window.read(state, piece.member, offset, length))
    if superblock is None:
        return None
    try:
        place = place_of(superblock, piece.start)
    except RaidproofError:
        return None
    return replace(place, role=superblock.role) if superblock.role < superblock.raid_disks else place


def write_owner(place: Place | None, owners: Mapping[int, str]) -> WriteOwner:
    """Return the place and owner of a piece at ``place``; ``owners``: the owners by offset in the array."""
    if place is None:
        return WriteOwner()
    owner = place.area.value if place.array_offset is None else owners.get(place.array_offset, place.area.value)
    return WriteOwner(place.stripe, owner, place.area, place.role, place.chunk)


def owners_of(checker: Checks, offsets: Iterable[int]) -> dict[int, str]:
    """Return the owners of bytes of the array, by offset, in the state that the checker checked last."""
    # In nested arrays the superblocks describe the inner array, whose offsets are not offsets of the file system.
    if not isinstance(checker, Checker) or len(checker.stack.array.device_paths) > 1:
        return {}
    if not checker.stack.volume.keeps_places:
        return {}
    stack, skipped = checker.stack, checker.stack.volume.data_offset
    with _brought_up(checker):
        return {
            offset: owner(checker.machine, stack.filesystem, stack.device, DIRECTORY, offset - skipped)
            for offset in offsets
            if offset >= skipped
        }


@contextmanager
def _brought_up(checker: Checker) -> Iterator[None]:
    machine, config = checker.machine, checker.config
    for command in ready(machine, [Assembly(**one) for one in config["assemble"]]):
        machine.succeed(command)
    mounted = False
    try:
        try:
            machine.succeed(config["mount"])
            mounted = True
        except CommandFailed:
            logger.info("the crash state does not mount: owners are looked up without a mount")
        yield
    finally:
        if mounted:
            machine.succeed(config["unmount"])
        for command in config["stop"]:
            machine.succeed(command)


StructureOf = Callable[[bytes], str | None]
"""A function that names the structure of the file system that data begins with, as `FilesystemSpec.structure_of`."""


def no_structure(_data: bytes) -> None:
    """Return None: nothing is known about the structures of the file system."""
    return


class Part(NamedTuple):
    """A request, or a surviving part of a request, as a byte range on a member."""

    request: int
    """Number of the request in the recording."""
    start: int
    """First byte on the member."""
    end: int
    """End of the range on the member."""
    member: int
    """Index of the member."""

    @property
    def at(self) -> Piece:
        """The first byte of the range."""
        return Piece(self.member, self.start)

    def record(
        self, recording: Recording, known: Mapping[Piece, WriteOwner], structure_of: StructureOf = no_structure
    ) -> WriteRecord:
        """Return the part as a record for the report, with its place and owner if ``known`` has them.

        ``structure_of``: names the structure of the file system that data begins with.
        """
        found, request = known.get(self.at, WriteOwner()), recording.request(self.request)
        data = bytes(request.data[self.start - request.offset : self.end - request.offset])
        holds_files = found.area in {None, Area.DATA}
        return WriteRecord(
            request=self.request,
            kind=request.kind.name.lower(),
            member=recording.members[self.member].serial,
            lba=self.start // SECTOR,
            sectors=(self.end - self.start) // SECTOR,
            stripe=found.stripe,
            owner=found.owner,
            role=found.role,
            area=found.area,
            chunk=found.chunk,
            structure=structure_of(data) if holds_files else None,
            fua=bool(request.flags & Flag.FUA),
            torn=self.end - self.start < request.length,
        )


def pieces_of(recording: Recording, state: CrashState) -> list[Part]:
    """Return the surviving requests of a state as byte ranges; a torn request gives one range for each part."""
    parts = []
    for survivor in state.survivors:
        request = recording.request(survivor.request)
        for start, end in survivor.ranges(request):
            parts.append(Part(survivor.request, start, end, request.member))
    return parts
