"""The stage of second power cuts: recoveries of judged crash states are recorded, and cut at other instants.

Its input is `FirstCuts`, an exploration that has ended its checks; its output is `SecondCuts`. A recovery is a
recording like that of a run: its states are chosen, checked, judged and shrunk as those of the first cut.
"""

from contextlib import closing
from dataclasses import replace
from functools import partial

from raidproof.core.log import step
from raidproof.core.waiting import Deadline, now_ns
from raidproof.crash.exploration import Budget, Exploration
from raidproof.crash.journal import Journal
from raidproof.crash.recovery import Recovery, SecondChoices, second_name
from raidproof.crash.shrink import plain
from raidproof.crash.stats import ExplorationStats
from raidproof.record.exploration import (
    LossRecord,
    SecondCutsRecord,
    UndecidedRecord,
)
from raidproof.record.failure import FailureRecord
from raidproof.record.recovery import Phase, PhaseCount, RecoveryRecord
from raidproof.run.crash_states import Options, begun_of
from raidproof.run.recoveries import FirstCuts, Recorded, Recoveries, source_of_recovery
from raidproof.run.source import Source
from raidproof.verdict.damage import Damage


class SecondCuts:
    """The output of the stage: what second power cuts showed until now, as an interruption keeps it."""

    def __init__(self, options: Options) -> None:
        self.record = SecondCutsRecord(asked=options.second_cuts, states_each=options.second_states)
        self.failures: dict[Damage, FailureRecord] = {}
        """Failures that show after a recovery, or after a second cut during it."""
        self.out_of_time = False
        """Whether the time limit ended the second cuts."""
        self.minutes = options.budget.minutes
        """The time limit of the whole exploration."""
        self.loss: LossRecord | None = None
        """The largest loss that the requested options permit; None without any."""
        self.notes: list[str] = []
        self.phases = {phase: PhaseCount(phase=phase) for phase in Phase}

    def add_failure(self, failure: FailureRecord) -> None:
        """Add a failure; if it is known, only the number of its states."""
        damage = Damage(failure.promise, failure.damage, failure.end)
        if damage in self.failures:
            self.failures[damage].states += failure.states
        else:
            self.failures[damage] = failure

    def add(self, record: RecoveryRecord, stats: ExplorationStats) -> None:
        """Add the states of one recovery, whose record is ``record``, to the totals."""
        total, name = self.record, record.state
        record.judged, record.distinct, record.states_broken = stats.judged, len(stats.digests), stats.broken
        total.judged += stats.judged
        total.distinct += len(stats.digests)
        total.checked += stats.checked
        total.broken += stats.broken
        total.cold.checked += stats.cold.checked
        total.cold.differing += [second_name(name, one) for one in stats.cold.differing]
        total.undecided = added(total.undecided, stats.undecided, name)
        total.unchecked = added(total.unchecked, stats.unchecked, name)
        if stats.loss is not None and (self.loss is None or stats.loss.operations > self.loss.operations):
            self.loss = stats.loss.model_copy(update={"state": second_name(name, stats.loss.state)})
        self.notes += [
            f"A check failed without a diagnosable cause and was repeated: {second_name(name, one)}"
            for one in stats.hung
        ]

    def add_phases(self, recovery: Recovery, stats: ExplorationStats) -> None:
        """Count the states of a recovery by its phases."""
        opened_ns = stats.recording.log.opened_ns
        for mark in stats.marks:
            count = self.phases[recovery.phase(opened_ns + round(mark.at_s * 1e9))]
            count.judged += 1
            count.broken += mark.broken


def added(total: UndecidedRecord | None, of_one: UndecidedRecord | None, recovery: str) -> UndecidedRecord | None:
    """Return the record of states without a verdict, with those of one recovery added."""
    if of_one is None:
        return total
    if total is None:
        return of_one.model_copy(update={"state": second_name(recovery, of_one.state)})
    return total.model_copy(update={"states": total.states + of_one.states})


def cut_again(first: FirstCuts, options: Options, deadline: Deadline | None, found: SecondCuts) -> None:
    """Record recoveries, and explore them, up to the limits of the options; ``found`` gets the results.

    Raises:
        RequestError: a stored recovery is damaged.
        RigError: a recovery or a check failed twice for a reason other than the state.
        KeyboardInterrupt: the user pressed Ctrl-C.
    """
    begun = now_ns()
    try:
        step("choosing crash states for a second power cut")
        with Recoveries(first) as recoveries:
            recovered = recoveries.record(options.second_cuts, options.seed, deadline)
            for number, one in enumerate(recovered, start=1):
                if deadline is not None and deadline.passed:
                    break
                step(
                    f"second power cut during recovery {number} of {len(recovered)}: state {one.candidate.crash.name}"
                )
                _cut_recovery(recoveries, one, options, deadline, found)
            found.out_of_time |= deadline is not None and deadline.passed
    finally:
        found.record.seconds = (now_ns() - begun) / 1e9


def _cut_recovery(
    recoveries: Recoveries, one: Recorded, options: Options, deadline: Deadline | None, found: SecondCuts
) -> None:
    """Judge a recovery, and explore the power cuts during it unless the recovery itself breaks a promise."""
    source = source_of_recovery(recoveries.first.source, one.candidate.crash)
    begun = begun_of(source, replace(options, all_losses=None, epochs=None))
    found.record.recoveries.append(record := one.record(source))
    with closing(Journal(one.journal, begun)) as journal:
        for failure in recoveries.failures(one):
            record.broken = True
            found.add_failure(failure)
        if not record.broken:
            states = SecondChoices(
                source.recording, one.recovery, options.seed, unit=options.tear, by_interest=not options.uniform
            )
            read = partial(recoveries.checkers.read, source.recording)
            again = Exploration(states, source.oracle, journal, read, cold=options.cold)
            _explore(again, source, one.recovery, record, options, deadline, found)


def _explore(
    again: Exploration,
    source: Source,
    recovery: Recovery,
    record: RecoveryRecord,
    options: Options,
    deadline: Deadline | None,
    found: SecondCuts,
) -> None:
    """Check states of a power cut during a recovery; explain the failures that no earlier recovery has shown."""
    stats = again.stats
    explained: list[FailureRecord] = []
    try:
        again.run(Budget(options.second_states, deadline.remaining_s / 60 if deadline is not None else None))
        if options.explained:
            again.explain(explained, source.replay, options.explained, known=found.failures)
    finally:
        found.out_of_time |= again.out_of_time
        found.add(record, stats)
        found.add_phases(recovery, stats)
        known = {Damage(failure.promise, failure.damage, failure.end): failure for failure in explained}
        for damage, group in stats.groups.items():
            failure = known.get(damage) or plain(group, stats, source.replay)
            found.add_failure(of_recovery(failure, source, recovery))


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
