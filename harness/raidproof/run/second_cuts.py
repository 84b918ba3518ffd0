"""Second power cuts of an exploration: recoveries of crash states are recorded, and cut at other instants.

A source whose recording is that of a recovery is a source like any other: its states can be chosen, checked, shrunk
and recovered again.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

from raidproof.core.errors import RequestError
from raidproof.core.log import step
from raidproof.core.waiting import Deadline, now_ns
from raidproof.crash.checker import Recovered
from raidproof.crash.checkers import LocalCheckers
from raidproof.crash.exploration import Budget, Exploration
from raidproof.crash.journal import Begun, Journal, digest_of, lines_of
from raidproof.crash.recovery import (
    Candidate,
    Recovery,
    RecoveryFiles,
    SecondChoices,
    by_recovery,
    journal_of,
    recording_of,
    resync_first_s,
    second_name,
)
from raidproof.crash.shrink import plain
from raidproof.crash.states import CrashState
from raidproof.crash.stats import ExplorationStats, Group, Judged
from raidproof.disk.writelog import LogError
from raidproof.record.exploration import (
    ExplorationRecord,
    LossRecord,
    SecondCutsRecord,
    StoppedBy,
    UndecidedRecord,
)
from raidproof.record.failure import FailureRecord
from raidproof.record.outcome import Outcome
from raidproof.record.recovery import Phase, PhaseCount, RecoveryRecord
from raidproof.run.crash_states import Options
from raidproof.run.source import Source
from raidproof.verdict.damage import Damage

ReplayOf = Callable[[Source], Callable[[str], list[str]]]
"""A function that returns, for a source, a function that returns the command line that shows a state by its name."""


def files_of(source: Source, state: CrashState) -> RecoveryFiles:
    """Return the directory of the recovery of a crash state of a source."""
    folder = f"recoveries-{source.cycle.name}{'-starts-dirty' if source.starts_dirty else ''}{source.without}"
    return RecoveryFiles(source.store.path / folder, second_name(source.recovery, state.name))


def source_of_recovery(source: Source, state: CrashState) -> Source:
    """Return the source of the states of a power cut during the stored recovery of a crash state of ``source``.

    Raises:
        RequestError: the recovery of the state is not stored, or its files are damaged.
    """
    files = files_of(source, state)
    if files.read(state, digest_of(source.recording.log.path)) is None:
        raise RequestError(
            f"no recovery of state {files.name} is stored in {files.folder}",
            remedy="explore the crash test with --second-cuts first",
        )
    return _source_of(source, state, files)


def _source_of(source: Source, state: CrashState, files: RecoveryFiles) -> Source:
    try:
        recording = recording_of(files.log, source.recording, state)
    except LogError as error:
        raise RequestError(f"the recovery of state {files.name} cannot be read: {error}") from error
    return replace(source, recording=recording, recovery=files.name)


class SecondCuts:
    """Records recoveries of states that an exploration has judged, and explores each of them.

    ``exploration`` must have ended its checks when `run` is called. Its checkers are used if they are machines of this
    host, else machines of this host are booted. `enter` stores the results in the exploration's record.
    """

    def __init__(self, source: Source, exploration: Exploration, options: Options, replay_of: ReplayOf) -> None:
        self.source = source
        self.exploration = exploration
        self.options = options
        self.replay_of = replay_of
        self.record = SecondCutsRecord(asked=options.second_cuts, states_each=options.second_states)
        self.failures: dict[Damage, FailureRecord] = {}
        """Failures that show after a recovery, or after a second cut during it."""
        self.out_of_time = False
        """Whether the time limit ended the second cuts."""
        self._loss: LossRecord | None = None
        self._notes: list[str] = []
        self._phases = {phase: PhaseCount(phase=phase) for phase in Phase}
        self._folder = exploration.journal.path.parent

    def run(self) -> None:
        """Record the recoveries, and explore them, up to the limits of the options.

        Raises:
            RequestError: a stored recovery is damaged.
            RigError: a recovery or a check failed twice for a reason other than the state.
            KeyboardInterrupt: the user pressed Ctrl-C; `enter` stores the results until then.
        """
        if not self.options.second_cuts:
            return
        minutes = self.options.budget.minutes
        deadline = Deadline.after(minutes * 60 / 2) if minutes is not None else None
        begun = now_ns()
        with ExitStack() as undo:
            undo.callback(self._stop_clock, begun)
            step("choosing crash states for a second power cut")
            recoveries = Recoveries(self.source, self.exploration.stats, self._checkers(undo))
            recovered = recoveries.record(self._chosen(), deadline)
            for number, (one, recovery) in enumerate(recovered, start=1):
                if deadline is not None and deadline.passed:
                    break
                step(f"second power cut during recovery {number} of {len(recovered)}: state {one.crash.name}")
                self._cut_again(one, recovery, recoveries, deadline)
            self.out_of_time |= deadline is not None and deadline.passed

    def _stop_clock(self, begun: int) -> None:
        self.record.seconds = (now_ns() - begun) / 1e9

    def _checkers(self, undo: ExitStack) -> LocalCheckers:
        """Return checkers on this host; a recovery needs the machines themselves."""
        checkers = self.exploration.checkers
        if isinstance(checkers, LocalCheckers):
            return checkers
        source, stats, count = self.source, self.exploration.stats, self.options.checkers
        boots = source.boots(self._folder)
        return undo.enter_context(LocalCheckers(source.recording, boots, stats, checkers=count))

    def enter(self, record: ExplorationRecord) -> None:
        """Store the results in the record of the exploration, which has the results of the first cuts."""
        if not self.options.second_cuts:
            return
        self.record.phases = [one for one in self._phases.values() if one.judged]
        record.second_cuts = self.record
        record.failures = [*record.failures, *self.failures.values()]
        record.notes += self._notes
        record.loss = max(filter(None, (record.loss, self._loss)), key=lambda one: one.operations, default=None)
        if self.out_of_time and record.stopped_by is None:
            record.stopped_by = StoppedBy.TIME
            record.ended_early = f"the time limit of {self.options.budget.minutes:g} min was reached"

    def _chosen(self) -> list[Candidate]:
        """Return the states to recover, first those that this exploration has recovered before."""
        lines = lines_of(self.exploration.journal.path)
        order = by_recovery(lines, self.options.seed, self.source.first)
        order.sort(key=lambda one: not self._journal(one).exists())
        return list(islice(filter(self._kept, order), self.options.second_cuts))

    def _journal(self, one: Candidate) -> Path:
        return self._folder / journal_of(second_name(self.source.recovery, one.crash.name))

    def _kept(self, one: Candidate) -> bool:
        """Return whether a judged state keeps every promise: a later loss is then due to the second cut."""
        judgement = self.exploration.stats.judge(one.crash, self.exploration.journal.observation(one.digest))
        return judgement.outcome is Outcome.PASS and not judgement.missing

    def _cut_again(
        self, one: Candidate, recovery: Recovery, recoveries: "Recoveries", deadline: Deadline | None
    ) -> None:
        """Judge a recovery, and explore the power cuts during it unless the recovery itself breaks a promise."""
        source = _source_of(self.source, one.crash, files_of(self.source, one.crash))
        recording = source.recording
        record = RecoveryRecord(
            state=str(source.recovery),
            log=str(recording.log.path.relative_to(source.store.path)),
            log_digest=recovery.log_digest,
            requests=len(recording.records) - recording.first_cut,
            seconds=(recording.end_ns - recovery.stages[0][1]) / 1e9 if recovery.stages else 0.0,
            resync_first_s=recovery.resync_first_s,
            settled=recovery.settled,
        )
        self.record.recoveries.append(record)
        begun = Begun(
            cycle=source.cycle.name,
            log_digest=recovery.log_digest,
            seed=self.options.seed,
            tear=self.options.tear,
            starts_dirty=source.starts_dirty,
            lost_member=source.lost_member,
            scrub=source.scrub,
            uniform=self.options.uniform,
            recovery=source.recovery,
        )
        with closing(Journal(self._journal(one), begun)) as journal:
            if self._fails(one, recovery, recoveries):
                record.broken = True
            else:
                self._explore(source, recovery, record, journal, recoveries.checkers, deadline)

    def _fails(self, one: Candidate, recovery: Recovery, recoveries: "Recoveries") -> bool:
        """Judge what the machine read after a recovery without a second cut; repeat a recovery that fails once."""
        stats, state = self.exploration.stats, one.crash
        judgement = stats.judge(state, recovery.observation)
        if not judgement.broken:
            return False
        again = stats.judge(state, recoveries.again(state).observation)
        for damage in judgement.damages:
            group = Group(damage)
            group.add(Judged(one.choice, state, judgement))
            failure = plain(group, stats, self.replay_of(self.source))
            failure.recovery = second_name(self.source.recovery, state.name)
            failure.repeated, failure.confirmed = 1, int(damage in again.damages)
            if damage in self.failures:
                self.failures[damage].states += 1
            else:
                self.failures[damage] = failure
        return True

    def _explore(
        self,
        source: Source,
        recovery: Recovery,
        record: RecoveryRecord,
        journal: Journal,
        checkers: LocalCheckers,
        deadline: Deadline | None,
    ) -> None:
        """Check states of a power cut during a recovery; explain the failures that no earlier recovery has shown."""
        options = self.options
        choices = SecondChoices(
            source.recording, recovery, options.seed, unit=options.tear, by_interest=not options.uniform
        )
        read = partial(checkers.read, source.recording)
        one = Exploration(choices, source.oracle, journal, read, cold=options.cold)
        stats = one.stats
        groups: dict[Damage, Group] = {}
        explained: list[FailureRecord] = []
        try:
            one.run(Budget(options.second_states, deadline.remaining_s / 60 if deadline is not None else None))
            groups = dict(stats.groups)
            for damage in self.failures.keys() & groups:
                del stats.groups[damage]
            if stats.groups and options.explained:
                checkers.explain(explained, stats, self.replay_of(source), options.explained, deadline)
        finally:
            groups |= stats.groups
            self.out_of_time |= one.out_of_time
            self._count(source, recovery, record, stats)
            known = {Damage(failure.promise, failure.damage, failure.end): failure for failure in explained}
            for damage, group in groups.items():
                if damage in self.failures:
                    self.failures[damage].states += group.count
                else:
                    failure = known.get(damage) or plain(group, stats, self.replay_of(source))
                    self.failures[damage] = of_recovery(failure, source, recovery)

    def _count(self, source: Source, recovery: Recovery, record: RecoveryRecord, stats: ExplorationStats) -> None:
        """Add the results of the states of one recovery to the totals."""
        total, name = self.record, str(source.recovery)
        record.judged, record.distinct, record.states_broken = stats.judged, len(stats.digests), stats.broken
        total.judged += stats.judged
        total.distinct += len(stats.digests)
        total.checked += stats.checked
        total.broken += stats.broken
        for mark in stats.marks:
            count = self._phases[recovery.phase(source.recording.log.opened_ns + round(mark.at_s * 1e9))]
            count.judged += 1
            count.broken += mark.broken
        total.cold.checked += stats.cold.checked
        total.cold.differing += [second_name(name, one) for one in stats.cold.differing]
        total.undecided = added(total.undecided, stats.undecided, name)
        total.unchecked = added(total.unchecked, stats.unchecked, name)
        if stats.loss is not None and (self._loss is None or stats.loss.operations > self._loss.operations):
            self._loss = stats.loss.model_copy(update={"state": second_name(name, stats.loss.state)})
        self._notes += [
            f"A check failed without a diagnosable cause and was repeated: {second_name(name, one)}"
            for one in stats.hung
        ]


def added(total: UndecidedRecord | None, of_one: UndecidedRecord | None, recovery: str) -> UndecidedRecord | None:
    """Return the record of states without a verdict, with those of one recovery added."""
    if of_one is None:
        return total
    if total is None:
        return of_one.model_copy(update={"state": second_name(recovery, of_one.state)})
    return total.model_copy(update={"states": total.states + of_one.states})


def of_recovery(failure: FailureRecord, source: Source, recovery: Recovery) -> FailureRecord:
    """Return the record of a failure after a second cut, with the complete names of its states, and the phase."""

    def full(name: str | None) -> str | None:
        return name and second_name(source.recovery, name)

    shrunk, shortest = failure.shrunk, failure.shortest
    if shrunk is not None:
        shrunk = shrunk.model_copy(update={"state": full(shrunk.state), "lost_state": full(shrunk.lost_state)})
    if shortest is not None:
        shortest = shortest.model_copy(update={"state": full(shortest.state)})
    return failure.model_copy(
        update={
            "state": full(failure.state),
            "examples": [full(one) for one in failure.examples],
            "shrunk": shrunk,
            "shortest": shortest,
            "recovery": source.recovery,
            "phase": recovery.phase(source.recording.instant_ns(failure.cut)),
        }
    )


class Recoveries:
    """The stored recoveries of crash states of a source; ``checkers`` record those that are missing."""

    def __init__(self, source: Source, stats: ExplorationStats, checkers: LocalCheckers) -> None:
        self.source = source
        self.stats = stats
        self.checkers = checkers
        self._digest = digest_of(source.recording.log.path)

    def read(self, state: CrashState) -> Recovery | None:
        """Return the description of the stored recovery of a crash state; None if none is stored.

        Raises:
            RequestError: the files of the recovery are damaged.
        """
        return files_of(self.source, state).read(state, self._digest)

    def record(self, candidates: Sequence[Candidate], deadline: Deadline | None) -> list[tuple[Candidate, Recovery]]:
        """Return the recoveries of judged states, in the order of their cuts; record those that are not stored.

        ``deadline``: the end of the recording; states that are not recovered by then are left out.

        Raises:
            RigError: a recovery failed twice for a reason other than the state.
        """
        ordered = sorted(candidates)
        found = {one.crash: self.read(one.crash) for one in ordered}
        # The cursor moves forward only, while the checkers have jobs.
        missing = [state for state, recovery in found.items() if recovery is None]
        running: list[tuple[CrashState, Future[Recovered]]] = []
        try:
            for number, state in enumerate(missing):
                running.append((state, self._begin(state, number)))
            for number, (state, future) in enumerate(running, start=1):
                if deadline is not None and deadline.passed:
                    break
                step(f"recording the recovery of crash state {state.name}: {number} of {len(running)}")
                recovered = future.result()
                found[state] = files_of(self.source, state).keep(
                    state, self._digest, resync_first_s(state.name), recovered
                )
        finally:
            for _, future in running:
                future.cancel()
            wait([future for _, future in running])
            for state, _ in running:
                files_of(self.source, state).drop()
        return [(one, recovery) for one in ordered if (recovery := found[one.crash]) is not None]

    def again(self, state: CrashState) -> Recovered:
        """Recover a state again, and drop the recording.

        Raises:
            RigError: the recovery failed twice for a reason other than the state.
        """
        self.checkers.read(self.source.recording, self.stats)
        try:
            return self._begin(state, 0).result()
        finally:
            files_of(self.source, state).drop()

    def _begin(self, state: CrashState, number: int) -> "Future[Recovered]":
        """Begin to record the recovery of a state on one of the checkers."""
        self.checkers.cursor.go(state.cut)
        job, seats = self.checkers.cursor.job(state), self.checkers.seats
        modes = self.source.recording.modes(state.cut)
        log = files_of(self.source, state).begin()
        return seats[number % len(seats)].recover(job, modes, log, resync_first_s(state.name))
