"""The recoveries of judged crash states: each is recorded once, and is a source of crash states like a run.

`FirstCuts` is an exploration whose states may be recovered, `Recoveries` records them, and each becomes a `Recorded`.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Self

from raidproof.core.errors import RequestError
from raidproof.core.log import step
from raidproof.core.waiting import Deadline
from raidproof.crash.checker import Recovered
from raidproof.crash.checkers import LocalCheckers
from raidproof.crash.exploration import Exploration
from raidproof.crash.recovery import (
    Candidate,
    Recovery,
    RecoveryFiles,
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
from raidproof.record.failure import FailureRecord
from raidproof.record.outcome import Outcome
from raidproof.record.recovery import RecoveryRecord
from raidproof.run.source import Source


class FirstCuts(NamedTuple):
    """An exploration that has ended its checks, and whose states may be recovered."""

    source: Source
    exploration: Exploration
    here: Callable[[ExplorationStats], LocalCheckers]
    """Returns checkers on this host: a recovery needs the machines themselves."""


class Recorded(NamedTuple):
    """The recorded recovery of one judged crash state."""

    candidate: Candidate
    recovery: Recovery
    journal: Path
    """Path of the journal of the states of a power cut during the recovery."""

    def record(self, source: Source) -> RecoveryRecord:
        """Return the record of the recovery without second cuts; ``source``: that of the recovery."""
        recording, stages = source.recording, self.recovery.stages
        return RecoveryRecord(
            state=str(source.recovery),
            log=str(recording.log.path.relative_to(source.store.path)),
            log_digest=self.recovery.log_digest,
            requests=len(recording.records) - recording.first_cut,
            seconds=(recording.end_ns - stages[0][1]) / 1e9 if stages else 0.0,
            resync_first_s=self.recovery.resync_first_s,
            settled=self.recovery.settled,
        )


@dataclass
class Recoveries:
    """Records recoveries of the states of an exploration, on checkers of this host. A context manager."""

    first: FirstCuts

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            checkers, stats = self.first.exploration.checkers, self.first.exploration.stats
            here = checkers if isinstance(checkers, LocalCheckers) else undo.enter_context(self.first.here(stats))
            self.checkers = here
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._undo.close()

    def record(self, number: int, seed: int, deadline: Deadline | None) -> list[Recorded]:
        """Return the recoveries of ``number`` judged states, in the order of their cuts; record those not stored.

        ``deadline``: the end of the recording; states that are not recovered by then are left out.

        Raises:
            RequestError: the files of a stored recovery are damaged.
            RigError: a recovery failed twice for a reason other than the state.
        """
        source = self.first.source
        ordered = sorted(islice(self._candidates(seed), number))
        found = {one.dump: files_of(source, one.crash).read(one.crash, source.log_digest) for one in ordered}
        missing = [one.crash for one in ordered if found[one.dump] is None]
        found |= self._recorded(missing, deadline)
        whole = ((one, found[one.dump]) for one in ordered)
        return [Recorded(one, recovery, self._journal(one)) for one, recovery in whole if recovery is not None]

    def _candidates(self, seed: int) -> Iterator[Candidate]:
        """Yield the states that keep every promise, first those that this exploration has recovered before."""
        journal, stats = self.first.exploration.journal, self.first.exploration.stats
        order = by_recovery(journal.stored(), seed, self.first.source.first)
        for one in sorted(order, key=lambda one: not self._journal(one).exists()):
            # Any later loss is then due to the second cut.
            judgement = stats.judge(one.crash, journal.observation(one.digest))
            if judgement.outcome is Outcome.PASS and not judgement.missing:
                yield one

    def _journal(self, one: Candidate) -> Path:
        name = journal_of(second_name(self.first.source.recovery, one.crash.name))
        return self.first.exploration.journal.path.with_name(name)

    def _recorded(self, states: Sequence[CrashState], deadline: Deadline | None) -> dict[str, Recovery]:
        """Record the recoveries of states in the order of their cuts; return them by the state's dump."""
        source = self.first.source
        running: list[tuple[CrashState, Future[Recovered]]] = []
        found = {}
        try:
            for number, state in enumerate(states):
                running.append((state, self._begin(state, number)))
            for number, (state, future) in enumerate(running, start=1):
                if deadline is not None and deadline.passed:
                    break
                step(f"recording the recovery of crash state {state.name}: {number} of {len(running)}")
                recovered, first_s = future.result(), resync_first_s(state.name)
                found[state.dump()] = files_of(source, state).keep(state, source.log_digest, first_s, recovered)
        finally:
            for _, future in running:
                future.cancel()
            wait([future for _, future in running])
            for state, _ in running:
                files_of(source, state).drop()
        return found

    def _begin(self, state: CrashState, number: int) -> "Future[Recovered]":
        """Begin to record the recovery of a state on one of the checkers; the cursor moves forward only."""
        self.checkers.cursor.go(state.cut)
        job, seats = self.checkers.cursor.job(state), self.checkers.seats
        modes = self.first.source.recording.modes(state.cut)
        log = files_of(self.first.source, state).begin()
        return seats[number % len(seats)].recover(job, modes, log, resync_first_s(state.name))

    def failures(self, one: Recorded) -> list[FailureRecord]:
        """Judge what the machine read after a recovery without a second cut; repeat a recovery that fails once.

        Raises:
            RigError: the recovery failed twice for a reason other than the state.
        """
        stats, source, state = self.first.exploration.stats, self.first.source, one.candidate.crash
        judgement = stats.judge(state, one.recovery.observation)
        if not judgement.broken:
            return []
        again = stats.judge(state, self._again(state).observation)
        failures = []
        for damage in judgement.damages:
            group = Group(damage)
            group.add(Judged(one.candidate.choice, state, judgement))
            failure = plain(group, stats, source.replay)
            failure.recovery = second_name(source.recovery, state.name)
            failure.repeated, failure.confirmed = 1, int(damage in again.damages)
            failures.append(failure)
        return failures

    def _again(self, state: CrashState) -> Recovered:
        """Recover a state again, and drop the recording."""
        self.checkers.read(self.first.source.recording, self.first.exploration.stats)
        try:
            return self._begin(state, 0).result()
        finally:
            files_of(self.first.source, state).drop()


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
    try:
        if files.read(state, source.log_digest) is None:
            raise RequestError(
                f"no recovery of state {files.name} is stored in {files.folder}",
                remedy="explore the crash test with --second-cuts first",
            )
        recording = recording_of(files.log, source.recording, state)
    except LogError as error:
        raise RequestError(f"the recovery of state {files.name} cannot be read: {error}") from error
    return replace(source, recording=recording, recovery=files.name)
