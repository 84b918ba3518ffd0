"""The owner of a byte of the array (a file, a directory, metadata), and of the requests of a crash state."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from raidproof.core.command import CommandFailed
from raidproof.core.errors import RaidproofError
from raidproof.core.layer import Machine
from raidproof.core.log import logger
from raidproof.core.units import SECTOR
from raidproof.crash.checker import Checker
from raidproof.crash.checker_worker import CheckerWorker, Checks, RecordingCursor
from raidproof.crash.states import CrashState, DiskStates, Recording, Survivor
from raidproof.record.exploration import WriteRecord
from raidproof.storage.array.state import Place, place_of
from raidproof.storage.array.superblock import superblock_of
from raidproof.storage.filesystem import DIRECTORY, FilesystemSpec

MOST_OWNERS = 12
"""Requests of one state whose owners are looked up: each lookup takes a process or two in the machine."""


def owner(machine: Machine, filesystem: FilesystemSpec, device: str, directory: str, offset: int) -> str:
    """Return a description of a byte's owner; ``directory`` is the mount point of the file system, if mounted."""
    return str(filesystem.owner(machine, device, directory, offset))


class Piece(NamedTuple):
    """The place where a request, or a part of one, begins."""

    member: int
    start: int
    """Offset in bytes on the member."""


class WriteOwner(NamedTuple):
    """The stripe and the owner that a piece is part of; None where unknown."""

    stripe: int | None = None
    owner: str | None = None


Belongs = Callable[[CrashState, Iterable[Piece]], Mapping[Piece, WriteOwner]]
"""Looks up the owners of pieces in a state."""


class WriteOwners:
    """Looks up owners from the superblocks of a state, and with a checker that has the state on its disks."""

    def __init__(self, worker: CheckerWorker, cursor: RecordingCursor) -> None:
        self.worker = worker
        self.cursor = cursor

    def __call__(self, state: CrashState, pieces: Iterable[Piece]) -> Mapping[Piece, WriteOwner]:
        """Return the owners of pieces; fields that cannot be determined are None."""
        self.cursor.go(state.cut)
        places = {piece: placed(self.cursor.window, state, piece) for piece in dict.fromkeys(pieces)}
        offsets = {one.array_offset for one in places.values() if one is not None and one.array_offset is not None}
        try:
            # In the state in which all open requests survived: a broken state may not even mount.
            full = CrashState(state.cut, tuple(map(Survivor, self.cursor.window.open)))
            self.worker.submit(self.cursor.job(full)).result()
            owners = self.worker.use(lambda checker: owners_of(checker, sorted(offsets)[:MOST_OWNERS])).result()
        except RaidproofError:
            logger.exception("owners in state %s", state.name)
            owners = {}
        return {piece: belonging(place, owners) for piece, place in places.items()}


def placed(window: DiskStates, state: CrashState, piece: Piece) -> Place | None:
    """Return the place of a byte in the array; None where the member has no superblock that defines it."""
    superblock = superblock_of(lambda offset, length: window.read(state, piece.member, offset, length))
    if superblock is None:
        return None
    try:
        return place_of(superblock, piece.start)
    except RaidproofError:
        return None


def belonging(place: Place | None, owners: Mapping[int, str]) -> WriteOwner:
    """Combine a place with the owners of array offsets."""
    if place is None:
        return WriteOwner()
    if place.array_offset is None:
        return WriteOwner(place.stripe, place.area.value)
    return WriteOwner(place.stripe, owners.get(place.array_offset, place.area.value))


def owners_of(checker: Checks, offsets: Iterable[int]) -> dict[int, str]:
    """Return the owners of bytes of the array that a checker checked last and whose state its disks still hold."""
    # For an array of arrays the superblocks describe the inner one, whose offsets are not the file system's.
    if not isinstance(checker, Checker) or len(checker.stack.array.devices) > 1:
        return {}
    device = checker.stack.array.devices[0].device
    with _up(checker):
        return {
            offset: owner(checker.machine, checker.stack.filesystem, device, DIRECTORY, offset) for offset in offsets
        }


@contextmanager
def _up(checker: Checker) -> Iterator[None]:
    machine, config = checker.machine, checker.config
    for _, argv in config["assemble"]:
        machine.succeed(argv)
    mounted = False
    try:
        try:
            machine.succeed(config["mount"])
            mounted = True
        except CommandFailed:
            logger.info("state does not mount: owners are looked up without a mount")
        yield
    finally:
        if mounted:
            machine.succeed(config["unmount"])
        machine.succeed(config["stop"])


class Part(NamedTuple):
    """A request of a state, or a part of one, as a byte range on its member."""

    request: int
    start: int
    end: int
    member: int

    @property
    def at(self) -> Piece:
        """The place where it begins."""
        return Piece(self.member, self.start)

    def record(self, recording: Recording, known: Mapping[Piece, WriteOwner]) -> WriteRecord:
        """Return its record with the owner, if known."""
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
    """Return the state of a cut in which these requests survived as a whole."""
    return CrashState(cut, tuple(map(Survivor, requests)))


def pieces_of(recording: Recording, state: CrashState) -> list[Part]:
    """Return the survivors of a state; each part of a torn one separately."""
    parts = []
    for number, spans in state.survivors:
        request = recording.request(number)
        for start, end in spans or ((request.offset, request.offset + request.length),):
            parts.append(Part(number, start, end, request.member))
    return parts
