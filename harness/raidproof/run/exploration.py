"""From a stored cycle to the record and the page of its exploration; and one state of it in a kept lab."""

import math
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from raidproof.core.errors import RequestError, RigError
from raidproof.core.log import logger, say, step
from raidproof.core.waiting import wall_clock
from raidproof.crash.exploration import FSCK_EVERY, NFSD_EVERY, Budget, Exploration
from raidproof.crash.journal import Begun, Journal, digest_of
from raidproof.crash.shrink.failures import explain, plain
from raidproof.crash.shrink.replayer import Replayer
from raidproof.crash.states.sampler import Choices
from raidproof.crash.stats import ExplorationStats
from raidproof.crash.write_owner import WriteOwners
from raidproof.record.cell import Explored
from raidproof.record.exploration import ExplorationRecord, Possible, StoppedBy, stage_times
from raidproof.record import RunStore
from raidproof.report.exploration_html import write_exploration
from raidproof.run.campaign import command_line
from raidproof.run.source import LOG, Source, source_of
from raidproof.verdict.exploration import conclude_exploration

STEM = "explore-"
STATES = "states.jsonl"
RESULTS = Path("results")
"""Where runs are kept if nothing else is said."""
EXACT_BELOW = 10**9
UNDATED = "Acknowledgements are dated by the clients' reports: a reply given milliseconds too early does not show"
INTERRUPTED = "interrupted; the same command with --resume goes on"
LIMITS = (
    "Each state is one crash at one instant; a second crash during the recovery from it is not tried.",
    "Of the subsets of what the disks' caches may have kept, a sample drawn from the seed is looked at, not all.",
    "What the clients would have done in another order or at another speed is another run.",
    "The disks keep or lose what was not flushed, whole or torn at whole units; they do not change what they hold.",
    f"States are read before any resync begins; of the different ones one in {NFSD_EVERY} through nfsd, too.",
    f"The file system's own checker looks at one in {FSCK_EVERY} of the different ones, and at each that is broken.",
)


@dataclass(frozen=True)
class Options:
    """How a cycle is explored."""

    budget: Budget = field(default_factory=Budget)
    seed: int = 1
    tear: int = 512
    """Bytes that a disk writes whole."""
    checkers: int = 2
    resume: bool = False
    at_replies: bool = False
    """Whether the power goes only at instants of acknowledgements, and the caches keep nothing."""


def explore_cycle(source: Source, options: Options) -> tuple[ExplorationRecord, Path]:
    """Explore a cycle; return the record and the page.

    Raises:
        RequestError: it is to be gone on with, and cannot be.
        RigError: no checker boots.
        KeyboardInterrupt: record and page of what was looked at until then are written.
    """
    stem = stem_of(source, resume=options.resume)
    begun = Begun(
        cycle=source.cycle.name,
        log_digest=digest_of(source.log),
        seed=options.seed,
        tear=options.tear,
        starts_dirty=source.starts_dirty,
    )
    step(f"{source.cycle.title}: reading {len(source.recording.records):,} requests, and proposing states")
    choices = Choices(
        source.recording,
        options.seed,
        first=source.first,
        unit=options.tear,
        replies=acknowledged_at(source),
        only_replies=options.at_replies,
    )
    tally = ExplorationStats(source.recording, source.oracle)
    folder = source.store.directory(stem)
    journal = Journal(folder / STATES, begun)
    record = new_record(source, options, choices, begun)
    seconds, timed = spent_before(source, stem)
    with ExitStack() as undo:
        undo.callback(journal.close)
        exploration = Exploration(choices, tally, journal, source.boots(folder), checkers=options.checkers)
        # Of the states that a killed attempt has left, nobody knows how long they took.
        untimed = tally.judged - timed
        try:
            with exploration:
                look(exploration, options.budget, record)
                step("all judged")
                explain_failures(record, source, exploration)
        except RigError as error:
            logger.exception("exploring %s", source.cycle.name)
            record.stopped_by, record.ended_early = StoppedBy.RIG, f"the rig failed: {error}"
        except KeyboardInterrupt:
            record.stopped_by, record.ended_early = StoppedBy.USER, INTERRUPTED
            raise
        finally:
            record.seconds, record.timed = seconds + exploration.seconds, tally.judged - untimed
            finish(record, exploration, source)
            page = write_exploration(record, source.store, stem)
            if record.stopped_by is StoppedBy.USER:
                say(f"{tally.judged:,} states were judged and are kept, {tally.broken:,} of them broken: {page}")
                say("the same command with --resume goes on")
    return record, page


def explored(store: RunStore, cycle: str, states: int, seed: int) -> Explored:
    """Explore a cycle of a run, go on with it, or return what came of it already.

    Raises:
        RequestError: it cannot be explored.
    """
    path = store.path / f"{STEM}{cycle}.json"
    record = ExplorationRecord.model_validate_json(path.read_text()) if path.is_file() else None
    if record is None or record.ended_early is not None:
        resume = (store.path / f"{STEM}{cycle}" / STATES).exists()
        options = Options(Budget(states), seed=seed, resume=resume)
        record, _ = explore_cycle(source_of(store, cycle), options)
    return Explored(
        file=path.name, judged=record.judged, broken=record.broken, outcome=record.outcome, reason=record.reason
    )


def look(exploration: Exploration, budget: Budget, record: ExplorationRecord) -> None:
    """Look at states until the budget is used up, and note why it ended before all were."""
    exploration.run(budget)
    if exploration.out_of_time:
        kept = ", a third of them kept for what broke" if exploration.tally.broken else ""
        record.stopped_by = StoppedBy.TIME
        record.ended_early = f"the time was up after {budget.minutes:g} min{kept}"


def explain_failures(record: ExplorationRecord, source: Source, exploration: Exploration) -> None:
    """Repeat, shrink and name the failures that were found; what is known of them is in the record at any time."""
    replayer = Replayer(exploration.benches[0], exploration.roller, exploration.tally)
    belongs = WriteOwners(exploration.benches[0], exploration.roller)
    explain(record.failures, replayer, belongs, replay_of(source), until=exploration.deadline)


def replay_of(source: Source) -> Callable[[str], list[str]]:
    """Return what gives the command that shows a state of this name."""
    # By its name it is found in the default place alone.
    path = source.store.path
    run = source.run.run if path.parent == RESULTS else str(path)
    words = ["./raidproof", "explore", run, "--cycle", source.cycle.name]
    words += ["--starts-dirty"] if source.starts_dirty else []
    return lambda name: [*words, "--state", name, "--keep"]


def stem_of(source: Source, *, resume: bool) -> str:
    """Return the name of an exploration's files: a new one, or the newest that there is.

    Raises:
        RequestError: there is none to go on with.
    """
    before = ""
    for attempt in count(1):
        stem = f"{STEM}{source.cycle.name}" + (f"-{attempt}" if attempt > 1 else "")
        if not (source.store.path / stem / STATES).exists():
            break
        before = stem
    if resume and not before:
        raise RequestError(f"{source.cycle.name} has not been explored yet", remedy="leave --resume out")
    return before if resume else stem


def spent_before(source: Source, stem: str) -> tuple[float, int]:
    """Return the seconds that earlier attempts of an exploration have told of, and the states judged in them."""
    path = source.store.path / f"{stem}.json"
    if not path.is_file():
        return 0.0, 0
    record = ExplorationRecord.model_validate_json(path.read_text())
    return record.seconds, record.timed


def new_record(source: Source, options: Options, choices: Choices, begun: Begun) -> ExplorationRecord:
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
        log=source.cycle.files[LOG],
        log_digest=begun.log_digest,
        seed=options.seed,
        tear=options.tear,
        asked=options.budget.states,
        requests=len(recording.records),
        cuts=len(cuts),
        possible=Possible(
            log10=_log10(choices.possible), exact=choices.possible if choices.possible < EXACT_BELOW else None
        ),
        candidates=len(choices.order),
        acknowledged_s=sorted(
            (at_ns - opened) / 1e9 for of_kind in acknowledged_at(source).values() for at_ns in of_kind
        ),
        span_s=((instants[0] - opened) / 1e9, (instants[1] - opened) / 1e9),
        checkers=options.checkers,
        cannot_prove=[*LIMITS, *undated(source), *(environment.cannot_prove if environment else ())],
    )


def acknowledged_at(source: Source) -> dict[str, list[int]]:
    """Return when the operations of each kind were acknowledged, up to the last instant of the write log."""
    instants: dict[str, list[int]] = {}
    for one in source.oracle.history.acknowledged(source.recording.end_ns):
        if one.promised_ns is not None:
            instants.setdefault(one.kind, []).append(one.promised_ns)
    return instants


def undated(source: Source) -> list[str]:
    """Say what goes unnoticed where the server's replies were to be captured, and it did not come to that."""
    why = source.cycle.checks.get("replies", {}).get("why_not")
    return [f"{UNDATED} ({why})"] if why and "replies" not in source.cycle.files else []


def finish(record: ExplorationRecord, exploration: Exploration, source: Source) -> None:
    """Enter what was looked at, and how it ended."""
    tally = exploration.tally
    record.ended = wall_clock()
    record.judged, record.distinct, record.checked = tally.judged, len(tally.digests), tally.checked
    record.broken, record.wedged, record.loss, record.cold = tally.broken, tally.wedged, tally.loss, tally.cold
    record.undecided, record.tested = tally.undecided, dict(sorted(tally.tested.items()))
    record.through_nfsd, record.filesystems = tally.through_nfsd, tally.filesystems
    record.notes = [
        f"A look came to no good end for no known reason, and was taken once more: {one}" for one in tally.hung
    ]
    record.redundancy = tally.redundancy
    record.marks = sorted(tally.marks, key=lambda mark: (mark.at_s, mark.name))
    record.policies = dict(sorted(tally.policies.items()))
    record.stages = stage_times(tally.ms)
    if record.seconds and record.timed:
        record.states_per_minute = record.timed / record.seconds * 60
        record.checked_per_minute = record.states_per_minute * tally.checked / tally.judged
    if not record.failures:
        record.failures = [plain(group, tally, replay_of(source)) for group in tally.failures()]
    record.outcome, record.reason = conclude_exploration(record)


def _log10(value: int) -> float:
    # math.log10 takes integers beyond the range of a float.
    return math.log10(value) if value > 0 else 0.0
