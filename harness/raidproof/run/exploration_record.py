"""The record of an exploration: what is asked for and possible before it, and what was found in the end."""

import math
import sys
from collections.abc import Iterable

from raidproof.core.waiting import wall_clock
from raidproof.crash.exhaustive import MOST_STATES, AllLosses
from raidproof.crash.exploration import FSCK_EVERY, NFSD_EVERY, Exploration
from raidproof.crash.sampler import NOTHING_SURVIVES, Choice, Chosen
from raidproof.crash.shrink import plain
from raidproof.record.exploration import (
    AllLossesRecord,
    ExplorationDryRun,
    ExplorationRecord,
    Possible,
    StoppedBy,
    stage_times,
)
from raidproof.record.sensitivity import Sensitivity
from raidproof.run.crash_states import Options, chosen
from raidproof.run.named import name_failures
from raidproof.run.run import command_line
from raidproof.run.second_cuts import SecondCuts
from raidproof.run.source import Source
from raidproof.verdict.exploration import conclude_exploration
from raidproof.verdict.sensitivity import of_data_and_names
from raidproof.verdict.solo import solo_operations

UNDATED = (
    "The time of an acknowledgement is that at which the client's report reaches the harness: a reply that the server "
    "sends milliseconds too early is not detected"
)
SAMPLE = "Only a random sample (by the seed) of the possible subsets of surviving requests is checked."
ALL_LOSSES = (
    "States with more lost requests than the given number, and states with torn requests, are not checked.",
    "Each state is judged at the last instant at which it is possible; earlier instants promise less.",
)
WHOLE = "No request is torn: the stack encrypts, so that the host cannot read which blocks a torn request has."
ONE_CUT = "Each state is one power cut at one instant; a second power cut during the recovery is not tried."
TWO_CUTS = (
    "A second power cut is tried during the recovery of a few states only, each recovery executed once: another "
    "recovery of the same state may write in another order. A third power cut is not tried.",
    "During a recorded recovery no client works. The disks have the cache modes of the run, but not its disk faults.",
)
OF_ALL = (
    "Other orders or speeds of the clients' operations are not tried; another run has other orders and speeds.",
    "A disk keeps or loses unflushed requests, whole or torn at multiples of --tear bytes; it corrupts no content.",
    "States are read before any resync begins.",
    f"The file system's checker (fsck) runs on one in {FSCK_EVERY} distinct states, and on each broken state.",
)

SCANNED = f"One in {NFSD_EVERY} distinct states is also read through the NFS server."
NOT_SCANNED = "States are read from the file system on the server's machine, never through the NFS server."
EXACT_BELOW = 10**9
"""Number of possible states below which the record stores the exact number."""


def new_record(
    source: Source, options: Options, choices: Chosen, before: ExplorationRecord | None
) -> ExplorationRecord:
    """Return the record of an exploration that has not begun; ``before``: that of the attempt that it resumes."""
    recording, environment = source.recording, source.run.environment
    cuts = choices.cuts
    instants = [recording.instant_ns(cut) for cut in (cuts[0], cuts[-1])] if cuts else [recording.end_ns] * 2
    opened = recording.log.opened_ns
    return ExplorationRecord(
        run=source.run.run,
        cycle=source.cycle.name,
        title=source.cycle.title,
        control=source.cycle.control,
        started=wall_clock(),
        command=command_line(sys.argv),
        log=str(source.log.relative_to(source.store.path)),
        log_digest=source.log_digest,
        seed=options.seed,
        tear=options.tear,
        asked=options.budget.states,
        lost_member=source.lost_member,
        starts_dirty=source.starts_dirty,
        counts=options.counts and source.lost_member is None,
        requests=len(recording.records),
        cuts=len(cuts),
        possible=possible_of(choices),
        candidates=len(choices.order),
        all_losses=all_losses_of(choices),
        acknowledged_s=sorted(
            (at_ns - opened) / 1e9 for of_kind in source.acknowledged_ns.values() for at_ns in of_kind
        ),
        span_s=((instants[0] - opened) / 1e9, (instants[1] - opened) / 1e9),
        checkers=options.checkers,
        seconds=before.seconds if before is not None else 0.0,
        timed=before.timed if before is not None else 0,
        cannot_prove=[
            *limits(options, scans=source.stack.export.scans, encrypts=source.stack.encrypts),
            *undated(source),
            *(environment.cannot_prove if environment else ()),
        ],
    )


def limits(options: Options, *, scans: bool, encrypts: bool = False) -> tuple[str, ...]:
    """Return what an exploration with these options cannot prove.

    ``scans``: whether states are also read through the NFS server (`ServerSpec.scans`). ``encrypts``: whether the
    stack encrypts.
    """
    cuts = TWO_CUTS if options.second_cuts else (ONE_CUT,)
    sample = (SAMPLE,) if options.all_losses is None else ALL_LOSSES
    whole = (WHOLE,) if encrypts and options.all_losses is None else ()
    return (*cuts, *sample, *whole, *OF_ALL, SCANNED if scans else NOT_SCANNED)


def undated(source: Source) -> list[str]:
    """Return what an exploration cannot prove if the capture dated fewer than half of the operations; else empty."""
    if source.application is not None:
        return [f"{UNDATED} (the replies to an application are not captured)"]
    replies = source.cycle.observed.replies
    if replies is None:
        return []
    if replies.why_not is not None and source.cycle.files.replies is None:
        return [f"{UNDATED} ({replies.why_not})"]
    if replies.dated is None or replies.of is None or 2 * replies.dated >= replies.of:
        return []
    dated = f"dated {replies.dated:,} of {replies.of:,} operations"
    return [f"{UNDATED} (the capture of the server's replies {dated})"]


def complete(record: ExplorationRecord, source: Source, exploration: Exploration, second: SecondCuts) -> None:
    """Enter what both stages found into the record of an exploration, and its outcome."""
    enter(record, source, exploration)
    if second.record.asked:
        enter_second(record, second)
    record.sensitivity = sensitivity_of_states(source, exploration.done)
    name_failures(record.failures, source.run, source.stack)
    record.outcome, record.reason = conclude_exploration(record)


def enter(record: ExplorationRecord, source: Source, exploration: Exploration) -> None:
    """Enter the results of the first cuts into the record."""
    stats = exploration.stats
    if record.stopped_by is None and exploration.out_of_time:
        kept = ", one third of it reserved for shrinking failures" if stats.broken else ""
        record.stopped_by = StoppedBy.TIME
        record.ended_early = f"the time limit of {exploration.budget.minutes:g} min was reached{kept}"
    elif record.stopped_by is None and exploration.enough_broken:
        record.stopped_by = StoppedBy.BROKEN
        record.ended_early = "no further states were checked, as enough of them broke a promise"
    record.ended = wall_clock()
    record.seconds += exploration.seconds
    # The time that a killed attempt spent on its states is unknown.
    record.timed += stats.judged - exploration.known
    record.judged, record.distinct, record.checked = stats.judged, len(stats.digests), stats.checked
    record.broken, record.wedged, record.loss, record.cold = stats.broken, stats.wedged, stats.loss, stats.cold
    record.undecided, record.unchecked = stats.undecided, stats.unchecked
    record.counterfactual = dict(sorted(stats.counterfactual.items()))
    record.tested = dict(sorted(stats.tested.items()))
    record.idle = sorted(f"{kind} on {client}" for client, kind in stats.idle)
    record.through_nfsd, record.filesystems = stats.through_nfsd, stats.filesystems
    record.notes = [f"A check failed without a diagnosable cause and was repeated: {one}" for one in stats.hung]
    record.redundancy, record.refused, record.silent = stats.redundancy, stats.refused, stats.silent
    record.losing, record.scrub = stats.losing, stats.scrub if source.scrub else None
    record.marks = stats.marks
    record.workers = list(exploration.checkers.workers)
    record.policies = dict(sorted(stats.policies.items()))
    if record.all_losses is not None and isinstance(exploration.choices, AllLosses):
        record.all_losses.judged = list(exploration.choices.counts_of(exploration.done))
    record.stages = stage_times(stats.ms)
    if record.seconds and record.timed:
        record.states_per_minute = record.timed / record.seconds * 60
        record.checked_per_minute = record.states_per_minute * stats.checked / stats.judged
    if not record.failures:
        record.failures = [plain(group, stats, source.replay) for group in stats.failures()]


def enter_second(record: ExplorationRecord, second: SecondCuts) -> None:
    """Enter the results of the second cuts into the record, which has those of the first cuts."""
    second.record.phases = [one for one in second.phases.values() if one.judged]
    record.second_cuts = second.record
    record.failures = [*record.failures, *second.failures.values()]
    record.notes += second.notes
    record.loss = max(filter(None, (record.loss, second.loss)), key=lambda one: one.operations, default=None)
    if second.out_of_time and record.stopped_by is None:
        record.stopped_by = StoppedBy.TIME
        record.ended_early = f"the time limit of {second.minutes:g} min was reached"


def sensitivity_of_states(source: Source, judged: Iterable[Choice]) -> list[Sensitivity]:
    """Return how many instances of each defect the judged states of an exploration would have shown.

    Only states count in which nothing volatile survived.
    """
    if source.cycle.control is not None or source.lost_member is not None:
        return []
    checked_ns = {source.recording.instant_ns(one.cut) for one in judged if one.policy in NOTHING_SURVIVES}
    solo = solo_operations(source.oracle.history, source.cycle.observed.solo)
    return of_data_and_names(source.data.requests, source.data.blocks, solo, None, checked_ns)


def possible_of(states: Chosen) -> Possible:
    """Return the number of possible crash states as a record."""
    possible = states.possible
    # math.log10 accepts integers beyond the range of a float.
    log10 = math.log10(possible) if possible > 0 else 0.0
    return Possible(log10=log10, exact=possible if possible < EXACT_BELOW else None)


def all_losses_of(states: Chosen) -> AllLossesRecord | None:
    """Return the numbers of states of an exhaustive exploration as a record; None for a sample."""
    if not isinstance(states, AllLosses):
        return None
    low, high = states.epochs
    return AllLossesRecord(
        most=states.most, first_epoch=low, last_epoch=high, of_epochs=states.of_epochs, states=list(states.counts)
    )


def dry_run(source: Source, options: Options) -> ExplorationDryRun:
    """Return the numbers of the crash states that an exploration would check; checks no state.

    Raises:
        RequestError: the recording lacks the requested flush epochs.
    """
    refused = None
    if options.all_losses is None:
        states: Chosen = chosen(source, options)
        candidates = len(states.order)
    else:
        # More states than an exploration accepts are counted, too.
        states = every = AllLosses(source.recording, options.all_losses, first=source.first, epochs=options.epochs)
        candidates = every.total
        refused = every.fewer if every.total > MOST_STATES else None
    return ExplorationDryRun(
        run=source.run.run,
        cycle=source.cycle.name,
        requests=len(source.recording.records),
        possible=possible_of(states),
        candidates=candidates,
        asked=options.budget.states,
        all_losses=all_losses_of(states),
        second_cuts=options.second_cuts,
        second_states=options.second_states if options.second_cuts else 0,
        refused=refused,
    )
