"""A made-up run on an array with parity or copies: random writes, flushes and updates of superblocks."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from raidproof.core.waiting import wall_clock
from raidproof.crash.disk_states import DiskStates
from raidproof.crash.journal import Line
from raidproof.crash.page.data import Explored
from raidproof.crash.sampler import Choices
from raidproof.crash.states import CrashState, Recording
from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import Flag, Kind, LogWriter, MemberInfo, WriteLog
from raidproof.record.exploration import End, ExplorationRecord, Observation, Possible
from raidproof.storage.array.striping import ROW, Striping
from raidproof.storage.array.superblock import OFFSET
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.oracle import Oracle
from raidproof.workload.history import Ended, History, Operation, WorkerSpec
from tests.crash.md_members import Disks, packed, superblock

DATA = 16384
RAID5 = Striping(5, 2, 4 * ROW, 4, 16 * ROW)
RAID6 = Striping(6, 2, 2 * ROW, 5, 8 * ROW)
RAID1 = Striping(1, 0, 16 * ROW, 2, 16 * ROW)
RAID10 = Striping(10, 0x102, 2 * ROW, 3, 8 * ROW)
WORKERS = tuple(WorkerSpec(number=n, client="client1", kind="fsync", path=f"f{n}", file=n, blocks=8) for n in range(2))


class StripedRun:
    """A run on an array: random writes of pages and sectors, with and without the parity that belongs to them."""

    def __init__(self, path: Path, striping: Striping, *, seed: int = 1, requests: int = 120) -> None:
        self._striping, self._draw, self._disks = striping, Random(seed), Disks(striping, seed)
        members = range(striping.members)
        infos = [MemberInfo(f"disk{n}", DATA + striping.size, CacheMode.VOLATILE, CacheMode.VOLATILE) for n in members]
        self._log = LogWriter(path, infos, 0)
        self._at = self._number = 0
        for member in members:
            made = superblock(striping, member)
            self._disks.disks[member][OFFSET : OFFSET + 4096] = packed(made)
            self._write(member, 0, bytes(self._disks.disks[member]), Flag.FUA)
        self.first = self._number
        events = 7
        while self._number < requests:
            events += self._step(events)
        self._log.close(self._at)
        self.recording = Recording(WriteLog(path))

    def _write(self, member: int, offset: int, data: bytes, flags: int = 0) -> None:
        self._at, self._number = self._at + 1000, self._number + 1
        issued = max(1, self._at - 500 - 1000 * self._draw.randrange(3))
        self._log.write(flags, member, offset, (issued, self._at), data)

    def _step(self, events: int) -> int:
        draw, member = self._draw, self._draw.randrange(self._striping.members)
        match draw.randrange(10):
            case 0 | 1:
                self._at, self._number = self._at + 1000, self._number + 1
                self._log.note(Kind.FLUSH, 0, member, (0, 0), (self._at - 500, self._at))
            # A RAID10 whose members are present in some states only keeps differing rows of another set of members.
            case 2 if self._striping.level != 10:
                for one in range(self._striping.members):
                    made = replace(superblock(self._striping, one), events=events + 1)
                    self._write(one, OFFSET, packed(made))
                return 1
            case 3:
                start = draw.randrange(self._striping.size // 512) * 512
                self._write(member, DATA + start, draw.randbytes(min(512 * draw.randrange(1, 20), 512)))
            case 4:
                self._at, self._number = self._at + 1000, self._number + 1
                span = (DATA + draw.randrange(self._striping.size // ROW) * ROW, ROW)
                self._log.note(Kind.DISCARD, 0, member, span, (self._at - 500, self._at))
            case _:
                self._stripe_write(draw.randrange(self._striping.capacity // ROW) * ROW)
        return 0

    def _stripe_write(self, offset: int) -> None:
        """Write a page of the array with its copies or parity, as md does."""
        page, flags = self._draw.randbytes(ROW), self._draw.choice([0, 0, 0, Flag.FUA])
        places = self._striping.places(offset)
        for role, at in places:
            self._disks.page(role, at, page)
            self._write(role, DATA + at, page, flags)
        if self._striping.raid.parity:
            number = places[0][1] // ROW
            row = self._striping.raid.row(number * ROW // self._striping.chunk_size)
            values = [int.from_bytes(disk[DATA + number * ROW :][:ROW]) for disk in self._disks.disks]
            for role, parity in self._striping.raid.parities(row, values).items():
                self._disks.page(role, number * ROW, parity.to_bytes(ROW))
                self._write(role, DATA + number * ROW, parity.to_bytes(ROW), flags)

    def history(self) -> History:
        """Return operations of two workers that are acknowledged at even intervals."""
        return History(
            Operation(n % 2, n // 2, "fsync", n // 2 % 8, 1 + n // 16, at - 900, at, Ended.OK, 0)
            for n, at in enumerate(range((self.first + 1) * 1000, self._at, 3700))
        )

    def states(self, count: int, seed: int = 1) -> list[CrashState]:
        """Return so many crash states, chosen as in an exploration."""
        choices, window = Choices(self.recording, seed, first=self.first), DiskStates(self.recording)
        found = []
        for choice in sorted(choices.order[:count]):
            window.move(choice.cut)
            found.append(choices.state(choice, window.open))
        return found

    def explored(self, states: Sequence[CrashState]) -> Explored:
        """Return an exploration of these states, in which a machine read random generations of the files."""
        draw, oracle = Random(9), Oracle(WORKERS, self.history(), Conditions(export_sync=True), created_ns=0)
        lines = []
        for number, state in enumerate(states):
            lost = number % 3 == 0
            found = {
                f"{worker.path}@0": {
                    "blocks": [draw.randrange(1 + lost, 20) for _ in range(8)],
                    "names": [worker.path],
                }
                for worker in WORKERS
            }
            seen = (
                Observation(end=End.READ, found=found) if number % 7 else Observation(end=End.NOT_MOUNTED, said="no")
            )
            lines.append(
                Line(state=state.dump(), policy="random", number=number, digest=str(number), observation=seen)
            )
        record = ExplorationRecord(
            run="run", cycle="striped", title="striped", started=wall_clock(), log="write.log", log_digest="0", seed=1,
            tear=512, possible=Possible(log10=1.0),
        )  # fmt: skip
        return Explored(self.recording, oracle, record, lines, self.first, "explore-striped", "xfs", "sync")
