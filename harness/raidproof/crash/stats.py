"""Statistics of the judged crash states of an exploration: counts, and failures grouped by damage."""

from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from heapq import heappush, heappushpop
from threading import Lock
from typing import NamedTuple
from zlib import crc32

from raidproof.crash.sampler import Choice
from raidproof.crash.states import CrashState, Recording, Torn
from raidproof.guest.ledger_format import HOLDERS
from raidproof.record.exploration import (
    ColdRecord,
    CounterfactualRecord,
    End,
    LossRecord,
    Observation,
    RedundancyRecord,
    Rows,
    ScrubRecord,
    StateMark,
    ThroughNfsd,
    UndecidedRecord,
)
from raidproof.verdict.blame import Lies, Lost
from raidproof.verdict.checks.crash_state import NFSD
from raidproof.verdict.damage import Damage
from raidproof.verdict.oracle import Judgement, Oracle
from raidproof.workload.history import Operation

KEPT = 5
"""Number of states whose names are kept for each failure."""
MOST_MARKS = 20_000
"""Limit of the marks of broken states, and of the marks of other states."""


class Judged(NamedTuple):
    """One judged crash state."""

    choice: Choice
    state: CrashState
    judgement: Judgement


class Group:
    """The crash states that show one failure."""

    def __init__(self, damage: Damage) -> None:
        self.damage = damage
        self.count = 0
        self._first: list[Judged] = []

    def add(self, judged: Judged) -> None:
        """Count a state; keep the states with the earliest cuts, and among equal cuts with the fewest survivors."""
        self.count += 1
        self._first = sorted([*self._first, judged], key=_earliest)[:KEPT]

    @property
    def first(self) -> Judged:
        """The state with the earliest cut, which represents the failure in reports."""
        return self._first[0]

    @property
    def names(self) -> list[str]:
        """Names of the kept states."""
        return [one.state.name for one in self._first]


def _earliest(one: Judged) -> tuple[int, int, str]:
    return one.state.cut, len(one.state.survivors), one.state.name


class Marks:
    """Keeps up to `MOST_MARKS` marks of each kind: which ones depends on their names alone, not on their order."""

    def __init__(self, most: int = MOST_MARKS) -> None:
        self.count = 0
        """Number of marks that were added."""
        self._most = most
        # Heaps with the mark that is left out next in front.
        self._kept: dict[bool, list[tuple[int, float, str, str, bool, int, StateMark]]] = {False: [], True: []}

    def add(self, mark: StateMark) -> None:
        """Count a mark; keep it, or leave one out."""
        self.count += 1
        heap, entry = self._kept[mark.broken], (-crc32(mark.name.encode()), *_key(mark), self.count, mark)
        if len(heap) < self._most:
            heappush(heap, entry)
        else:
            heappushpop(heap, entry)

    def kept(self) -> list[StateMark]:
        """Return the kept marks, in the order of their cuts."""
        return sorted((entry[-1] for heap in self._kept.values() for entry in heap), key=_key)


def _key(mark: StateMark) -> tuple[float, str, str, bool]:
    # Several policies may choose the same state.
    return mark.at_s, mark.name, mark.policy, mark.checked


class ExplorationStats:
    """Judges each crash state at its cut, and counts the results."""

    def __init__(self, recording: Recording, oracle: Oracle) -> None:
        self.recording = recording
        self.oracle = oracle
        self._marks = Marks()
        self.policies: Counter[str] = Counter()
        """Number of judged states by policy."""
        self.digests: set[str] = set()
        """Digests of the different disk contents among the judged states."""
        self.groups: dict[Damage, Group] = {}
        """The crash states that show each failure, by kind of damage."""
        self.broken = 0
        """Number of states that break a promise."""
        self.checked = 0
        """Number of states that a machine has checked."""
        self.wedged = 0
        """Number of checks in which the kernel died, logged a bug, or gave no answer in time (`End.WEDGED`)."""
        self.hung: list[str] = []
        """Checks that hung, and did not hang when they were repeated: name of the state and message."""
        self.through_nfsd = 0
        """Number of checks that scanned the ledger through nfsd."""
        self.loss: LossRecord | None = None
        """The largest loss that the requested options permit; None if no state shows a permitted loss."""
        self.undecided: UndecidedRecord | None = None
        """The states without a verdict; None if each state has a verdict."""
        self.unchecked: UndecidedRecord | None = None
        """The states in which the check command of an application gave no result; None without any."""
        self.tested: Counter[str] = Counter()
        """Number of operations by kind whose loss a judged state could have shown: the maximum over the cuts."""
        self.idle = {worker.group for worker in oracle.workers if worker.kind not in HOLDERS}
        """Clients and kinds of worker (`WorkerSpec.group`) of which no judged state could have shown a loss.

        Workers that only hold locks and open files promise nothing that a crash state could lack.
        """
        self.ms: dict[str, array[float]] = {}
        """Durations in ms of each stage of the checks."""
        self.cold = ColdRecord()
        self.redundancy = RedundancyRecord()
        self.refused = 0
        """Number of judged states whose array the kernel refused to start before it was permitted."""
        self.losing = 0
        """Number of broken states that lack acknowledged operations."""
        self.silent = 0
        """Number of these states in which nothing reported an error."""
        self.scrub = ScrubRecord()
        self.filesystems = 0
        """Number of checks in which the file system's checker (fsck) gave a result."""
        self.counterfactual: dict[str, CounterfactualRecord] = {}
        """The counterfactual states by kind of operation."""
        self._judged: dict[tuple[CrashState, int], tuple[Observation, Judgement]] = {}
        """Judgements that `breaks` has made, reused by the next `judge` of the same state and observation.

        The second part of a key is the id of the observation: at the same time, several checkers may have the same
        state, chosen for several reasons.
        """
        self._lock = Lock()
        """Serializes the use of `Lies`, which computes the data lost by lying disks for one cut at a time."""
        self._lies = Lies(recording.records, recording.members)
        self._torn = Torn(recording)

    @property
    def judged(self) -> int:
        """Number of judged states."""
        return self._marks.count

    @property
    def marks(self) -> list[StateMark]:
        """Marks of the judged states, for the chart of the report, in the order of their cuts; see `Marks`."""
        return self._marks.kept()

    def at_s(self, cut: int) -> float:
        """Return the instant of a cut in seconds since the begin of the write log."""
        since_ns: int = self.recording.instant_ns(cut) - self.recording.log.opened_ns
        return since_ns / 1e9

    def judge(self, state: CrashState, observation: Observation) -> Judgement:
        """Return the judgement of a state with an observation, without counting the state."""
        if (known := self._judged.pop((state, id(observation)), None)) is not None:
            return known[1]
        with self._lock:
            return self.oracle.judge(
                observation,
                self.recording.acknowledged_ns(state.cut),
                torn=self.torn_in(state),
                torn_blocks=self.torn_blocks(state),
                lost=self._lost_by_lies(state),
            )

    def count_counterfactual(self, following: Iterable[Operation], seen: Observation) -> None:
        """Count whether the check reports the solo operations that follow a directed state, which the state lacks."""
        for operation in following:
            record = self.counterfactual.setdefault(operation.kind, CounterfactualRecord())
            record.states += 1
            with self._lock:
                missing = self.oracle.judge(seen, (operation.promised_ns or 0) + 1).missing
            record.reported += any(one.operation == operation for one in missing)

    def moment(self, state: CrashState) -> Hashable | None:
        """Return what the judgement of a state depends on beside the observation, unless operations are missing.

        None: the judgement depends on the state itself, because disks lied.
        """
        if self._lies.lied:
            return None
        instant_ns = self.recording.acknowledged_ns(state.cut)
        return self.oracle.moment(instant_ns), self.torn_in(state), self.torn_blocks(state)

    def torn_in(self, state: CrashState) -> bool:
        """Return whether a request survived in part in a state."""
        return self._torn.within(state)

    def torn_blocks(self, state: CrashState) -> frozenset[tuple[int, int]]:
        """Return the file number and the offset of each block of the ledger in a request that survived in part."""
        return self._torn.blocks(state)

    @property
    def lied(self) -> bool:
        """Whether a disk acknowledged a flush that it did not execute."""
        return self._lies.lied

    def breaks(self, state: CrashState, observation: Observation) -> bool:
        """Return whether an observation of a state breaks a promise; thread-safe."""
        judgement = self.judge(state, observation)
        # `add` reuses this judgement.
        self.expect(state, observation, judgement)
        return judgement.broken

    def expect(self, state: CrashState, observation: Observation, judgement: Judgement) -> None:
        """Note a judgement that was made elsewhere; the next `judge` of the state with this observation returns it."""
        self._judged[state, id(observation)] = observation, judgement

    def _lost_by_lies(self, state: CrashState) -> Lost | None:
        if not self._lies.lied:
            return None
        self._lies.go(state.cut)
        return self._lies.lost(state.whole)

    def add(
        self, choice: Choice, state: CrashState, digest: str, observation: Observation, *, checked: bool
    ) -> Judgement:
        """Judge a state and count the result; return the judgement.

        ``checked``: a machine has checked this state; False: the observation is that of another state with the same
        content.
        """
        judgement = self.judge(state, observation)
        self.digests.add(digest)
        self.policies[choice.policy.value] += 1
        if observation.rows is not None:
            self._count_rows(observation.rows)
        if checked:
            self.checked += 1
            for stage, ms in observation.ms.items():
                self.ms.setdefault(stage, array("f")).append(ms)
            self.wedged += observation.end is End.WEDGED
            self._record_hung(state, observation)
            self.filesystems += observation.filesystem is not None
            if observation.scrubbed is not None:
                self._count_scrub(sum(observation.scrubbed.values()))
            self.through_nfsd += observation.through_nfsd is not ThroughNfsd.NOT_TRIED
        mark = StateMark(
            name=state.name,
            policy=choice.policy.value,
            at_s=self.at_s(state.cut),
            checked=checked,
            broken=judgement.broken,
        )
        self._marks.add(mark)
        self.broken += judgement.broken
        self.losing += judgement.loses
        self.silent += judgement.silent
        self.refused += bool(observation.refused)
        for damage in judgement.damages:
            self._add_to_group(damage, Judged(choice, state, judgement))
        for kind, count in judgement.judged.items():
            self.tested[kind] = max(count, self.tested[kind])
        self.idle -= judgement.shown
        if judgement.excused:
            self._record_loss(state, judgement)
        elif judgement.undecided:
            self.undecided = _one_more(self.undecided, state, judgement)
        elif judgement.unchecked:
            self.unchecked = _one_more(self.unchecked, state, judgement)
        return judgement

    def compare_cold(self, choice: Choice, state: CrashState, warm: Observation, cold: Observation) -> None:
        """Compare the observations of a state on a running checker (warm) and on a newly booted machine (cold).

        A failure that only the cold check shows through nfsd is counted as a failure of the state.
        """
        self.cold.checked += 1
        self._record_hung(state, cold)
        if not warm.same_as(cold):
            self.cold.differing.append(state.name)
        # `add` has counted the warm observation, including its result through nfsd.
        if cold.through_nfsd is ThroughNfsd.DIFFERENT is not warm.through_nfsd:
            judgement = self.judge(state, cold)
            self.broken += not self.judge(state, warm).broken
            for damage in judgement.damages:
                if damage.promise == NFSD:
                    self._add_to_group(damage, Judged(choice, state, judgement))

    def absorb(self, groups: dict[Damage, Group], cold: ColdRecord, hung: list[str], broken: int) -> None:
        """Add what checks elsewhere found while they shrank the failures: groups replace those of this object."""
        self.groups = groups
        self.cold.checked += cold.checked
        self.cold.differing += cold.differing
        self.hung += hung
        self.broken += broken

    def _record_hung(self, state: CrashState, observation: Observation) -> None:
        if observation.hung:
            self.hung.append(f"{state.name}: {observation.hung}")

    def _count_rows(self, rows: Rows) -> None:
        record = self.redundancy
        if rows.unchecked is not None:
            record.unchecked[rows.unchecked] = record.unchecked.get(rows.unchecked, 0) + 1
            return
        record.checked += 1
        record.differing += rows.differ > 0
        record.unmarked += rows.unmarked > 0
        record.uneven += rows.uneven > 0 and not rows.unmarked
        record.changed += rows.changed > 0
        record.all_marked += rows.all_marked

    def _count_scrub(self, sectors: int) -> None:
        self.scrub.states += 1
        self.scrub.differing += sectors > 0
        self.scrub.most_sectors = max(self.scrub.most_sectors, sectors)

    def _add_to_group(self, damage: Damage, judged: Judged) -> None:
        self.groups.setdefault(damage, Group(damage)).add(judged)

    def _record_loss(self, state: CrashState, judgement: Judgement) -> None:
        lost = len(judgement.missing)
        if self.loss is None or (lost, state.name) > (self.loss.operations, self.loss.state):
            self.loss = LossRecord(
                operations=lost,
                of=judgement.acknowledged,
                bytes=judgement.lost_bytes,
                seconds=judgement.lost_s(self.recording.acknowledged_ns(state.cut)),
                state=state.name,
            )

    def failures(self) -> Iterator[Group]:
        """Yield the states of each distinct failure, the most frequent failure first."""
        yield from sorted(self.groups.values(), key=lambda one: (-one.count, str(one.damage)))


def _one_more(record: UndecidedRecord | None, state: CrashState, judgement: Judgement) -> UndecidedRecord:
    """Return the record of states of one kind with one more state; it names the first of them."""
    record = record or UndecidedRecord(state=state.name, reason=judgement.reason)
    record.states += 1
    return record
