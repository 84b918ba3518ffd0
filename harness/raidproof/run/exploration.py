"""The exploration of a stored crash test: its crash states, its record and HTML report, replay of single states."""

import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

from raidproof.core.errors import RequestError, RigError
from raidproof.core.log import logger, say, step
from raidproof.core.memory import release
from raidproof.core.waiting import wall_clock
from raidproof.crash.checker import Held
from raidproof.crash.checker_worker import repeat_if_silent
from raidproof.crash.checkers import CheckersOf, LocalCheckers
from raidproof.crash.exhaustive import AllLosses
from raidproof.crash.exploration import Budget, Exploration
from raidproof.crash.journal import Begun, Journal, digest_of, find_state
from raidproof.crash.owner import pieces_of
from raidproof.crash.recovery import SECOND, journal_of, second_name
from raidproof.crash.sampler import NOTHING_SURVIVES, Choice, Chosen
from raidproof.crash.shrink import plain
from raidproof.crash.states import CrashState
from raidproof.crash.stats import ExplorationStats
from raidproof.record import RunStore
from raidproof.record.cell import Explored
from raidproof.record.exploration import ExplorationRecord, StoppedBy, stage_times
from raidproof.record.results.index import update
from raidproof.record.results.names import JOURNAL
from raidproof.record.results.progress import end_progress
from raidproof.record.sensitivity import Sensitivity
from raidproof.report.exploration import write
from raidproof.report.html import write_exploration
from raidproof.run.crash_page import try_write_page
from raidproof.run.crash_states import Options, acknowledged_at, all_losses_of, begun_of, chosen, possible_of, resumed
from raidproof.run.named import name_failures
from raidproof.run.options import RESULTS
from raidproof.run.run import command_line, count_explorations
from raidproof.run.second_cuts import SecondCuts, source_of_recovery
from raidproof.run.source import Source, application_of, recorded, source_of
from raidproof.verdict.exploration import conclude_exploration
from raidproof.verdict.oracle import Judgement
from raidproof.verdict.sensitivity import of_data_and_names
from raidproof.verdict.solo import solo_operations

UNDATED = (
    "The time of an acknowledgement is that at which the client's report reaches the harness: a reply that the server "
    "sends milliseconds too early is not detected"
)
INTERRUPTED = "interrupted; the same command with --resume continues the exploration"
MOST_WRITES = 20
"""Greatest number of surviving writes that the replay of a state prints."""


def explore_cycle(
    source: Source, options: Options, checkers_of: CheckersOf | None = None
) -> tuple[ExplorationRecord, Path]:
    """Explore a crash test; return the exploration's record and the path of its HTML report.

    ``checkers_of`` returns who checks the states; None: machines of this host.

    Raises:
        RequestError: the exploration cannot be resumed; or the requested states do not exist, or are too many.
        RigError: no checker boots.
        KeyboardInterrupt: the user interrupted; record and HTML report contain the states judged until then.
    """
    stem = stem_of(source, options)
    folder = source.store.directory(stem)
    options = resumed(options, folder / JOURNAL)
    begun = begun_of(source, options, digest_of(source.log))
    choices = chosen(source, options)
    journal = Journal(folder / JOURNAL, begun)
    record = new_record(source, options, choices, begun)
    seconds, timed = spent_before(source, stem)
    with ExitStack() as undo:
        undo.callback(journal.close)
        exploration = Exploration(
            choices, source.oracle, journal, checkers_of or _here(source, folder, options), cold=options.cold
        )
        stats = exploration.stats
        second = SecondCuts(source, exploration, options, replay_of)
        # The time that a killed attempt spent on its states is unknown.
        untimed = stats.judged - timed
        try:
            with exploration:
                look(exploration, options.first_budget, record)
                step("the checks of crash states have ended")
                if options.explained:
                    most, until = options.explained, exploration.deadline
                    exploration.checkers.explain(record.failures, stats, replay_of(source), most, until)
                second.run()
        except RigError as error:
            logger.exception("exploring %s", source.cycle.name)
            record.stopped_by, record.ended_early = StoppedBy.RIG, f"the rig failed: {error}"
        except KeyboardInterrupt:
            record.stopped_by, record.ended_early = StoppedBy.USER, INTERRUPTED
            raise
        finally:
            record.seconds, record.timed = seconds + exploration.seconds, stats.judged - untimed
            finish(record, exploration, source)
            record.sensitivity = sensitivity_of_states(source, exploration.done)
            second.enter(record)
            name_failures(record.failures, source.run, source.stack)
            record.outcome, record.reason = conclude_exploration(record)
            page = write_exploration(record, source.store, stem)
            count_explorations(source.store)
            end_progress(source.store.path)
            update(source.store.path)
            if record.stopped_by is StoppedBy.USER:
                say(f"{stats.judged:,} states were judged and are kept, {stats.broken:,} of them broken: {page}")
                say("the same command with --resume continues the exploration")
    del exploration, second, stats, choices
    release()
    # The crash page shows all members, and what md makes of them.
    if options.crash_page and source.lost_member is None and (record.broken or not options.only_directed):
        try_write_page(source, stem)
        release()
    return record, page


def _here(source: Source, folder: Path, options: Options) -> CheckersOf:
    """Return the function that makes the checkers of this host; ``folder``: the folder of their logs."""
    return partial(
        LocalCheckers,
        source.recording,
        source.boots(folder),
        checkers=options.checkers,
        smallest=options.smallest,
        cold=options.cold,
    )


def explored(store: RunStore, cycle: str, states: int, seed: int, *, scrub: bool = False) -> Explored:
    """Return the result of a crash test's exploration; begin or resume the exploration unless it has already ended.

    ``scrub``: see `Source.scrub`.

    Raises:
        RequestError: the crash test cannot be explored.
    """
    record, page = exploration_of(source_of(store, cycle, scrub=scrub), Options(Budget(states), seed=seed))
    return Explored(
        file=page.with_suffix(".json").name,
        judged=record.judged,
        broken=record.broken,
        lost=record.loss.operations if record.loss is not None else 0,
        noticed=record.noticed,
        outcome=record.outcome,
        reason=record.reason,
    )


def exploration_of(source: Source, options: Options) -> tuple[ExplorationRecord, Path]:
    """Return the record and the HTML report of an exploration; begin or resume it unless it has already ended.

    Raises:
        RequestError: as for `explore_cycle`.
    """
    first = first_stem(source, options)
    path = source.store.path / f"{first}.json"
    record = ExplorationRecord.model_validate_json(path.read_text()) if path.is_file() else None
    if record is not None and record.ended_early is None:
        return record, path.with_suffix(".html")
    resume = (source.store.path / first / JOURNAL).exists()
    return explore_cycle(source, replace(options, resume=resume))


def look(exploration: Exploration, budget: Budget, record: ExplorationRecord) -> None:
    """Check states up to the budget (number, minutes); record the reason if the time limit ends the exploration."""
    exploration.run(budget)
    if exploration.out_of_time:
        kept = ", one third of it reserved for shrinking failures" if exploration.stats.broken else ""
        record.stopped_by = StoppedBy.TIME
        record.ended_early = f"the time limit of {budget.minutes:g} min was reached{kept}"
    elif exploration.enough_broken:
        record.stopped_by = StoppedBy.BROKEN
        record.ended_early = "no further states were checked, as enough of them broke a promise"


def replay_of(source: Source) -> Callable[[str], list[str]]:
    """Return a function that returns, for a state's name, the command line that replays the state."""
    # The command line finds a run by its name only in the default directory.
    path = source.store.path
    run = source.run.run if path.parent == RESULTS else str(path)
    words = ["./raidproof", "explore", run, "--cycle", source.cycle.name]
    words += ["--starts-dirty"] if source.starts_dirty else []
    words += ["--lost-member", source.lost_member] if source.lost_member is not None else []
    return partial(replay_command, words, source.recovery)


def replay_command(words: Sequence[str], recovery: str | None, name: str) -> list[str]:
    """Return the words of the command that replays the state with a name.

    ``words``: begin of the command. ``recovery``: name of the recovered state, for a state of a second cut.
    """
    return [*words, "--state", second_name(recovery, name), "--keep"]


def first_stem(source: Source, options: Options) -> str:
    """Return the beginning of the names of the files of a crash test's first exploration with these options."""
    return f"{source.stem}-directed" if options.only_directed else source.stem


def stem_of(source: Source, options: Options) -> str:
    """Return the beginning of the names of an exploration's files; to resume, that of the newest exploration.

    Raises:
        RequestError: the exploration is to be resumed, but the crash test has none.
    """
    before = ""
    for attempt in count(1):
        stem = first_stem(source, options) + (f"-{attempt}" if attempt > 1 else "")
        if not (source.store.path / stem / JOURNAL).exists():
            break
        before = stem
    if options.resume and not before:
        raise RequestError(f"crash test {source.cycle.name} has not been explored yet", remedy="leave --resume out")
    return before if options.resume else stem


def spent_before(source: Source, stem: str) -> tuple[float, int]:
    """Return the seconds that earlier attempts of an exploration took, and the number of states judged in them."""
    path = source.store.path / f"{stem}.json"
    if not path.is_file():
        return 0.0, 0
    record = ExplorationRecord.model_validate_json(path.read_text())
    return record.seconds, record.timed


def new_record(source: Source, options: Options, choices: Chosen, begun: Begun) -> ExplorationRecord:
    """Return the record of an exploration that has not begun."""
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
        log=recorded(source.cycle),
        log_digest=begun.log_digest,
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
            (at_ns - opened) / 1e9 for of_kind in acknowledged_at(source).values() for at_ns in of_kind
        ),
        span_s=((instants[0] - opened) / 1e9, (instants[1] - opened) / 1e9),
        checkers=options.checkers,
        cannot_prove=[
            *options.limits(scans=source.stack.export.scans, encrypts=source.stack.encrypts),
            *undated(source),
            *(environment.cannot_prove if environment else ()),
        ],
    )


def undated(source: Source) -> list[str]:
    """Return what an exploration cannot prove if the capture dated fewer than half of the operations; else empty."""
    if application_of(source.cycle) is not None:
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


def finish(record: ExplorationRecord, exploration: Exploration, source: Source) -> None:
    """Fill in the results and the outcome in the record of an exploration."""
    stats = exploration.stats
    record.ended = wall_clock()
    record.judged, record.distinct, record.checked = stats.judged, len(stats.digests), stats.checked
    record.broken, record.wedged, record.loss, record.cold = stats.broken, stats.wedged, stats.loss, stats.cold
    record.undecided, record.unchecked = stats.undecided, stats.unchecked
    record.counterfactual = dict(sorted(exploration.counterfactual.items()))
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
        record.failures = [plain(group, stats, replay_of(source)) for group in stats.failures()]


def sensitivity_of_states(source: Source, judged: Iterable[Choice]) -> list[Sensitivity]:
    """Return how many instances of each defect the judged states of an exploration would have shown.

    Only states count in which nothing volatile survived.
    """
    if source.cycle.control is not None or source.lost_member is not None:
        return []
    checked_ns = {source.recording.instant_ns(one.cut) for one in judged if one.policy in NOTHING_SURVIVES}
    solo = solo_operations(source.oracle.history, source.cycle.observed.solo)
    return of_data_and_names(source.data.requests, source.data.blocks, solo, None, checked_ns)


class Replayed(NamedTuple):
    """The result of the replay of a state."""

    state: CrashState
    judgements: tuple[Judgement, ...]
    lines: tuple[str, ...]
    """Lines to print for the user."""


def find(source: Source, name: str) -> CrashState:
    """Return the crash state of this name from the explorations of a crash test.

    Raises:
        RequestError: no exploration of the crash test has a state of this name.
    """
    run, stem = source.store.path, source.stem
    paths = [*sorted(run.glob(f"{stem}*.json")), *sorted(run.glob(f"{stem}*/{journal_of(source.recovery)}"))]
    found = find_state(iter(paths), name)
    if found is None:
        raise RequestError(
            f"no exploration of crash test {source.cycle.name} has a state {second_name(source.recovery, name)!r}",
            remedy=f"names of states are in the HTML report {run / stem}.html"
            if paths
            else "explore the crash test first: the same command without --state",
        )
    return found


def locate(source: Source, name: str) -> tuple[Source, CrashState]:
    """Return the crash state of this name with its recording, which is that of a recovery after a second cut.

    Raises:
        RequestError: no exploration of the crash test has a state of this name, or the log of the recovery is missing.
    """
    *recovered, last = name.split(SECOND)
    for first in recovered:
        source = source_of_recovery(source, find(source, first))
    return source, find(source, last)


def replay(source: Source, state: CrashState, logs: Path, *, times: int = 1, keep: bool = False) -> Replayed:
    """Check and judge a crash state ``times`` times; with ``keep``, keep the lab running with the state on its disks.

    Raises:
        RigError: the checker does not boot, or fails.
    """
    cursor, stats = source.stages()
    job = source.job_of(state, cursor)
    held: Held | None = None
    judgements = []
    with source.checker(0, logs=logs) as checker:
        checker.advance(job.base.after(None))
        for turn in range(1, times + 1):
            step(f"checking state {state.name}, repetition {turn} of {times}")
            seen = repeat_if_silent(lambda: checker.check(job.patch, nfsd=True, fsck=True))
            judgements.append(stats.judge(state, job.seen(seen)))
        if keep:
            held = checker.hold(job.patch)
    lines = (*description(source, state, stats, judgements), *instructions(held))
    return Replayed(state, tuple(judgements), lines)


def description(
    source: Source, state: CrashState, stats: ExplorationStats, judgements: Sequence[Judgement]
) -> list[str]:
    """Return lines for the user about a crash state, its surviving writes and its verdict."""
    first = judgements[0]
    alike = sum((one.outcome, one.damages) == (first.outcome, first.damages) for one in judgements)
    again = f", {alike} of {len(judgements)} times" if len(judgements) > 1 else ""
    log = "the log" if source.recovery is None else f"the log of the recovery of {source.recovery}"
    lines = [
        f"state {second_name(source.recovery, state.name)}: power cut {stats.at_s(state.cut):.3f} s after {log} "
        f"began, at request {state.cut:,}; {len(state.survivors):,} unflushed requests survived"
    ]
    lines += [
        f"  {write(piece.record(source.recording, {}))}" for piece in pieces_of(source.recording, state)[:MOST_WRITES]
    ]
    lines.append(
        f"{first.outcome.value}{again}: {first.reason}" + (f"; blamed on {first.blame}" if first.blame else "")
    )
    return [*lines, *(f"  {example}" for example in first.examples)]


def instructions(held: Held | None) -> list[str]:
    """Return lines for the user about the use of a kept lab; none if no lab was kept."""
    if held is None:
        return []
    return [
        "the state is on the disks of a lab that is still running; no array is assembled, nothing is mounted:",
        f"  ./raidproof shell server --lab {held.lab}",
        *(f"    {shlex.join(argv)}" for argv in held.commands),
        "  ./raidproof gc --kept   ends the lab",
    ]
