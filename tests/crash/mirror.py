"""A mirror whose requests are made up: what became durable on which of its two members, and what its bitmap said."""

import struct
from pathlib import Path

from raidproof.crash.disk_states import DiskStates
from raidproof.crash.redundancy import MAGIC, Redundancy
from raidproof.crash.states import CrashState, Recording, Survivor
from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import Flag, Kind, LogWriter, MemberInfo, WriteLog
from raidproof.storage.array.striping import ROW, Striping
from raidproof.storage.array.superblock import HEADER, OFFSET, Feature
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.oracle import Oracle
from raidproof.workload.history import History
from tests.crash.made_up import MadeUp, told
from tests.crash.md_members import packed, superblock

MIRROR = Striping(1, 0, 16 * ROW, 2, 16 * ROW)
DATA = 16384
PAGE = b"x" * ROW
BITMAP_AT = 8192
CHUNK = 4 * ROW


class MirrorRun:
    """A mirror that is written: requests complete one after the other."""

    def __init__(self, path: Path, *, old: bool = False) -> None:
        infos = [
            MemberInfo(f"disk{number}", DATA + 16 * ROW, CacheMode.VOLATILE, CacheMode.VOLATILE, old=old)
            for number in range(2)
        ]
        self._path = path
        self._log = LogWriter(path, infos, 0)
        self._at = 0

    def write(self, member: int, offset: int, data: bytes, flags: int = 0) -> None:
        self._at += 1000
        self._log.write(flags, member, offset, (self._at - 500, self._at), data)

    def flush(self, member: int) -> None:
        self._at += 1000
        self._log.note(Kind.FLUSH, 0, member, (0, 0), (self._at - 500, self._at))

    def wait(self, ns: int) -> None:
        self._at += ns
        self.flush(0)

    def create(self, resync_offset: int = 0, letter: bytes = b"a", **changes: object) -> None:
        for number in range(2):
            made = superblock(MIRROR, number, resync_offset=resync_offset, **changes)
            self.write(number, OFFSET, packed(made, letter * 16), Flag.FUA)

    def create_with_bitmap(self, *marked: int) -> None:
        self.create(features=Feature.BITMAP, bitmap_offset=BITMAP_AT)
        self.mark(*marked)

    def mark(self, *chunks: int, members: tuple[int, ...] = (0, 1)) -> None:
        head = struct.pack("<II16sQQQIIIIII", MAGIC, 4, b"a" * 16, 7, 0, MIRROR.size // 512, 0, CHUNK, 5, 0, 0, 0)
        bits = sum(1 << chunk for chunk in chunks).to_bytes(8, "little")
        for number in members:
            self.write(number, BITMAP_AT, (head.ljust(HEADER, b"\0") + bits).ljust(ROW, b"\0"), Flag.FUA)

    def recording(self) -> Recording:
        self._log.close(self._at)
        return Recording(WriteLog(self._path))

    def judged(self, cut: int | None = None, *survivors: int, steps: bool = True) -> list[int]:
        """Return the rows that differ in a state, looking at each cut on the way or at the last one only."""
        self.window = DiskStates(self.recording())
        self.redundancy = Redundancy(self.window)
        last = len(self.window.recording.records) if cut is None else cut
        for place in range(last + 1) if steps else [last]:
            self.redundancy.moved(self.window.move(place))
        self.state = CrashState(last, tuple(map(Survivor, survivors)))
        return [one.row for one in self.redundancy.accuracy(self.state).differ]


def mirrored(folder: Path, *marked: int) -> MadeUp:
    """Return a run whose clients were told nothing, and which leaves one row of a mirror different for a while."""
    made_up = MadeUp(folder, [], told(0))
    run = MirrorRun(folder / "mirror.log")
    run.create_with_bitmap(*marked)
    run.write(0, DATA, PAGE)
    run.flush(0)
    run.write(1, DATA, PAGE)
    run.flush(1)
    made_up.recording = run.recording()
    made_up.oracle = Oracle((), History([]), Conditions(export_sync=True), created_ns=0)
    return made_up
