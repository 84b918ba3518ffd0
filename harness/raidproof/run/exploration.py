"""The exploration of a stored crash test: the stages from its recording to the stored record, put together."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

from raidproof.core.errors import RequestError, RigError
from raidproof.core.log import logger, say, step
from raidproof.core.memory import release
from raidproof.crash.checkers import CheckersOf, LocalCheckers
from raidproof.crash.exploration import Budget, Exploration
from raidproof.crash.journal import Journal
from raidproof.crash.stats import ExplorationStats
from raidproof.record import RunStore
from raidproof.record.cell import Explored
from raidproof.record.exploration import ExplorationRecord, StoppedBy
from raidproof.record.results.index import update
from raidproof.record.results.names import JOURNAL
from raidproof.record.results.progress import end_progress
from raidproof.report.html import write_exploration
from raidproof.run.crash_page import try_write_page
from raidproof.run.crash_states import Options, begun_of, chosen, resumed
from raidproof.run.exploration_record import complete, new_record
from raidproof.run.recoveries import FirstCuts
from raidproof.run.run import count_explorations
from raidproof.run.second_cuts import SecondCuts, cut_again
from raidproof.run.source import Source, source_of

INTERRUPTED = "interrupted; the same command with --resume continues the exploration"


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
    record = _explored(source, options, stem, checkers_of)
    release()
    # The crash page shows all members, and what md makes of them.
    if options.crash_page and source.lost_member is None and (record.broken or not options.only_directed):
        try_write_page(source, stem)
        release()
    return record, source.store.path / f"{stem}.html"


def _explored(source: Source, options: Options, stem: str, checkers_of: CheckersOf | None) -> ExplorationRecord:
    """Lead the recording through the stages, up to the stored record."""
    folder, before = source.store.directory(stem), stored(source, stem)
    here = here_of(source, folder, options)
    options = resumed(options, folder / JOURNAL)
    begun = begun_of(source, options)
    states = chosen(source, options)
    with closing(Journal(folder / JOURNAL, begun)) as journal:
        record = new_record(source, options, states, before)
        exploration = Exploration(states, source.oracle, journal, checkers_of or here, cold=options.cold)
        second = SecondCuts(options)
        try:
            with exploration:
                exploration.run(options.first_budget)
                step("the checks of crash states have ended")
                if options.explained:
                    exploration.explain(record.failures, source.replay, options.explained)
                if options.second_cuts:
                    cut_again(FirstCuts(source, exploration, here), options, options.second_deadline(), second)
        except RigError as error:
            logger.exception("exploring %s", source.cycle.name)
            record.stopped_by, record.ended_early = StoppedBy.RIG, f"the rig failed: {error}"
        except KeyboardInterrupt:
            record.stopped_by, record.ended_early = StoppedBy.USER, INTERRUPTED
            raise
        finally:
            complete(record, source, exploration, second)
            publish(record, source.store, stem)
    return record


def publish(record: ExplorationRecord, store: RunStore, stem: str) -> None:
    """Store the record of an exploration with its HTML report, and count it in the run and in the index."""
    page = write_exploration(record, store, stem)
    count_explorations(store)
    end_progress(store.path)
    update(store.path)
    if record.stopped_by is StoppedBy.USER:
        say(f"{record.judged:,} states were judged and are kept, {record.broken:,} of them broken: {page}")
        say("the same command with --resume continues the exploration")


def here_of(source: Source, folder: Path, options: Options) -> Callable[[ExplorationStats], LocalCheckers]:
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
    record = stored(source, first)
    if record is not None and record.ended_early is None:
        return record, source.store.path / f"{first}.html"
    resume = (source.store.path / first / JOURNAL).exists()
    return explore_cycle(source, replace(options, resume=resume))


def stored(source: Source, stem: str) -> ExplorationRecord | None:
    """Return the stored record of an exploration; None without one. ``stem``: that of the exploration's files."""
    path = source.store.path / f"{stem}.json"
    return ExplorationRecord.model_validate_json(path.read_text()) if path.is_file() else None


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
