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
from raidproof.crash.recording import Recording
from raidproof.crash.states import CrashState, DiskStates, Survivor
from raidproof.record.exploration import WriteRecord
from raidproof.storage.array.state import Place, place_of
from raidproof.storage.array.superblock import superblock_of
from raidproof.storage.filesystem import DIRECTORY, FilesystemSpec

MOST_OWNERS = 12
"""Requests of one state whose owners are asked for: each takes a process or two in the machine."""


def owner(machine: Machine, filesystem: FilesystemSpec, device: str, directory: str, offset: int) -> str:
    """Return whose a byte of an array is, in words; ``directory`` is where its file system is mounted, if it is."""
    return str(filesystem.owner(machine, device, directory, offset))


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

    def __init__(self, bench: CheckerWorker, cursor: RecordingCursor) -> None:
        self.bench = bench
        self.cursor = cursor

    def __call__(self, state: CrashState, pieces: Iterable[Piece]) -> Mapping[Piece, WriteOwner]:
        """Tell of some pieces; what cannot be found out is left open."""
        self.cursor.go(state.cut)
        places = {piece: placed(self.cursor.window, state, piece) for piece in dict.fromkeys(pieces)}
        offsets = {one.array_offset for one in places.values() if one is not None and one.array_offset is not None}
        try:
            # Where all that was asked is there: a broken state may not even mount.
            full = CrashState(state.cut, tuple(map(Survivor, self.cursor.window.open)))
            self.bench.submit(self.cursor.job(full)).result()
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
