"""A made-up run: a client that overwrites four blocks and waits for each, on a disk with one block for each of them.

Block ``i`` of the ledger is block ``i`` of member 0; its generation is the byte that fills it. A state mounts unless
block 0 of member 1 holds 7 and block 1 of it does not hold 8.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from raidproof.crash.checker import Recovered
from raidproof.crash.checker_worker import Factory
from raidproof.crash.checkers import LocalCheckers
from raidproof.crash.directed import Directed
from raidproof.crash.exploration import Budget, Exploration
from raidproof.crash.journal import Begun, Journal
from raidproof.crash.sampler import Choices
from raidproof.crash.shrink import Replayer
from raidproof.crash.states import Patch, Recording
from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import Flag, Kind, data_of
from raidproof.record.exploration import End, Observation, ThroughNfsd
from raidproof.storage.filesystem.state import FilesystemCheck
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.damage import Damage
from raidproof.verdict.oracle import Oracle
from raidproof.workload.history import Ended, History, Operation, WorkerSpec
from tests.crash.conftest import Did, write_log

WORKER = WorkerSpec(number=0, client="client1", kind="fsync", path="f", file=0, blocks=4)
ROUNDS = 6
CLEAN = FilesystemCheck(outcome="clean", status=0)
STALE = Damage("write + fsync", "the block has an older generation", "read")
FLUSH = Did(Kind.FLUSH)
LIE = Did(Kind.FLUSH, flags=int(Flag.LIED))


def held(patch: Patch) -> dict[tuple[int, int], bytes]:
    """Return the blocks of a patch with their data."""
    return {place: data_of(data) for place, data in patch.blocks.items()}


def written(rounds: int = ROUNDS, *, lies_from: int = ROUNDS) -> list[Did]:
    """Return the requests of so many overwrites; each is flushed, and the disk lies from one of them on."""
    done = []
    for turn in range(rounds):
        done += [Did(Kind.WRITE, 1, 8192 + 4096 * turn), Did(Kind.WRITE, 0, 4096 * (turn % 4), byte=1 + turn // 4)]
        done.append(LIE if turn >= lies_from else FLUSH)
    return done


def told(rounds: int = ROUNDS) -> History:
    """Return what the client was told of them: each when its flush had completed, at 3000, 6000, ... ns."""
    return History(
        Operation(0, turn, "fsync", turn % 4, 1 + turn // 4, 3000 * turn + 100, 3000 * turn + 3100, Ended.OK, 0)
        for turn in range(rounds)
    )


def rewriting(generation: int) -> list[Did]:
    """Return the requests of a recovery that writes the first block of the ledger with its content again."""
    return [Did(Kind.WRITE, 0, 0, byte=generation), FLUSH, Did(Kind.WRITE, 1, 65536), FLUSH]


def careless(generation: int) -> list[Did]:
    """Return the requests of a recovery that first erases the block: only a power cut in between shows it."""
    return [Did(Kind.WRITE, 0, 0, byte=0), FLUSH, *rewriting(generation)]


class FakeChecker:
    """Knows what its disks hold, and reads the ledger from it."""

    def __init__(self) -> None:
        self.base: dict[tuple[int, int], bytes] = {}
        self.checks = 0
        self.before_check: Callable[[int], None] = lambda _: None
        self.cold_differs = False
        self.nfsd: Callable[[int], ThroughNfsd] = lambda _: ThroughNfsd.SAME
        self.forgives = False
        self.degraded: Callable[[int], dict[str, int]] = lambda _: {}
        self.fsck: Callable[[int], FilesystemCheck] = lambda _: CLEAN
        self.silent: tuple[int, ...] = ()
        self.unseen: Collection[int] = ()
        self.recovery: Callable[[int], list[Did]] = rewriting
        self.recoveries = 0
        self.after_recovery: Callable[[Observation], Observation] = lambda seen: seen

    def advance(self, patch: Patch) -> None:
        self.base |= held(patch)

    def check(self, patch: Patch, *, nfsd: bool = False, fsck: bool = False) -> Observation:
        self.checks += 1
        self.before_check(self.checks)
        if self.checks in self.silent:
            return Observation(end=End.WEDGED, said="mount: no answer in time", silent=True)
        disks = self.base | held(patch)
        first, second = (disks.get((1, block), b"\0")[0] for block in (0, 1))
        if first == 7 and second != 8 and not self.forgives:
            return Observation(end=End.NOT_MOUNTED, said="no such superblock", ms={"mount": 1.0})
        blocks = [disks.get((0, block), b"\0")[0] for block in range(4)]
        blocks = [1 + (ROUNDS - 1 - block) // 4 if block in self.unseen else blocks[block] for block in range(4)]
        return Observation(
            end=End.READ,
            found={"f@0": {"blocks": blocks, "names": ["f"]}},
            through_nfsd=self.nfsd(blocks[0]) if nfsd else ThroughNfsd.NOT_TRIED,
            degraded=self.degraded(blocks[0]),
            filesystem=self.fsck(blocks[0]) if fsck else None,
            ms={"verify": 2.0},
        )

    def recover(self, patch: Patch, modes: Sequence[CacheMode], log: Path, *, resync_first_s: float) -> Recovered:
        first = (self.base | held(patch)).get((0, 0), b"\0")[0]
        write_log(log, self.recovery(first), len(modes), modes[0], blank=False)
        self.recoveries += 1
        stages = (("assemble", 0), ("resync", 1500), ("mount", 2500), ("verify", 4500), ("settle", 4500))
        return Recovered(self.after_recovery(self.check(patch)), stages, settled=not resync_first_s)

    def cold(self, patch: Patch) -> Observation:
        seen = self.check(patch, nfsd=True)
        return seen.model_copy(update={"end": End.NOT_MOUNTED, "found": None}) if self.cold_differs else seen


class MadeUp:
    """One exploration of a made-up run."""

    def __init__(self, folder: Path, done: list[Did], history: History, *, sync: bool = True) -> None:
        folder.mkdir(exist_ok=True)
        log = folder / "write.log"
        log.unlink(missing_ok=True)
        self.folder = folder
        self.recording = Recording(write_log(log, done))
        self.oracle = Oracle((WORKER,), history, Conditions(export_sync=sync), created_ns=0)
        self.checkers: list[FakeChecker] = []
        self.before_check: Callable[[int], None] = lambda _: None
        self.cold_differs = False
        self.nfsd: Callable[[int], ThroughNfsd] = lambda _: ThroughNfsd.SAME
        """What nfsd gives of a state with such a first block."""
        self.degraded: Callable[[int], dict[str, int]] = lambda _: {}
        """Which arrays go on without members in a state with such a first block."""
        self.fsck: Callable[[int], FilesystemCheck] = lambda _: CLEAN
        """What the file system's own checker says of one."""
        self.solo: Sequence[Operation] = ()
        """The operations that are solo operations."""
        self.unseen: Collection[int] = ()
        """The blocks of the ledger that the check takes for those that the client wrote last."""
        self.silent: tuple[int, ...] = ()
        """The checks, counted from 1 and of each checker, that come to no end."""

    def boots(self) -> Factory:
        @contextmanager
        def boot(_: int) -> Iterator[FakeChecker]:
            checker = FakeChecker()
            checker.before_check, checker.cold_differs, checker.nfsd = self.before_check, self.cold_differs, self.nfsd
            checker.silent, checker.degraded, checker.fsck = self.silent, self.degraded, self.fsck
            checker.unseen = self.unseen
            self.checkers.append(checker)
            yield checker

        return boot

    def begin(self, *, seed: int = 1, checkers: int = 1, cold: bool = True) -> Exploration:
        """Return an exploration that has not begun, or one that goes on."""
        choices = Choices(self.recording, seed, directed=Directed.of(self.recording, self.solo))
        begun = Begun(cycle="made-up", log_digest="0", seed=seed, tear=512)
        journal = Journal(self.folder / "states.jsonl", begun)
        here = partial(LocalCheckers, self.recording, self.boots(), checkers=checkers)
        return Exploration(choices, self.oracle, journal, here, cold=cold)

    def explore(self, states: int | None = None, *, seed: int = 1, checkers: int = 1) -> Exploration:
        """Look at so many states, or at all."""
        exploration = self.begin(seed=seed, checkers=checkers)
        with closing(exploration.journal), exploration:
            exploration.run(Budget(states))
        return exploration

    @property
    def checks(self) -> int:
        """What all checkers together have done."""
        return sum(one.checks for one in self.checkers)


def half_written() -> list[Did]:
    """Return a run in which, after a flush, two requests belong together and one of them alone does not mount."""
    pair = [Did(Kind.WRITE, 1, 0, byte=7), Did(Kind.WRITE, 1, 4096, byte=8)]
    noise = [Did(Kind.WRITE, 1, 16384 + 4096 * place) for place in range(6)]
    return [*written(2), *noise, *pair, FLUSH]


def replayer_of(exploration: Exploration) -> Replayer:
    """Return the replayer that checks states on the first checker of an exploration."""
    assert isinstance(exploration.checkers, LocalCheckers)
    return Replayer(exploration.checkers.seats[0], exploration.checkers.cursor, exploration.stats)
