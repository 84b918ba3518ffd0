"""The proof of a checker: it finds a loss in a state that has one, and none in a state that has none.

The states are made from the recording that is explored. At the first cut no operation has been acknowledged, so that
nothing can be missing. The same content at a later instant is what disks leave that acknowledge flushes and store
nothing: every operation acknowledged until then is missing. The content with all requests up to this instant has the
operations.
"""

from typing import NamedTuple

from raidproof.core.errors import RequestError
from raidproof.crash.checker_worker import CheckerWorker, RecordingCursor
from raidproof.crash.states import CrashState, Survivor
from raidproof.crash.stats import ExplorationStats
from raidproof.record.exploration import End, Observation

OPERATIONS = 50
"""Number of acknowledged operations, if the recording has so many, whose loss must be found. More operations would
take longer, because more content must be copied."""


class Unsound(Exception):
    """The checker's answers are wrong; its verdicts must not be used."""


class Points(NamedTuple):
    """The two cuts of a proof."""

    before: int
    """Cut before the first acknowledgement."""
    after: int
    """Cut after the first acknowledgements."""


def points_of(stats: ExplorationStats) -> Points:
    """Return the cuts of the proof for a recording.

    Raises:
        RequestError: the recording has no acknowledged operation.
    """
    recording, oracle = stats.recording, stats.oracle
    instants = sorted(
        one.promised_ns for one in oracle.history.acknowledged(recording.end_ns) if one.promised_ns is not None
    )
    first = recording.place(oracle.created_ns)
    cuts = [cut for cut in recording.cuts if cut >= first]
    if not instants or not cuts:
        raise RequestError(
            "no operation was acknowledged in this crash test: no state can prove that a worker finds a loss",
            remedy="explore it without --cluster",
        )
    wanted_ns = instants[:OPERATIONS][-1]
    after = next((cut for cut in cuts if recording.instant_ns(cut) > wanted_ns), cuts[-1])
    return Points(cuts[0], after)


def prove(worker: CheckerWorker, cursor: RecordingCursor, stats: ExplorationStats, points: Points) -> None:
    """Check the states of the proof on a checker.

    Raises:
        Unsound: an answer is wrong.
        RigError: a check failed twice.
    """
    empty, kept_before = _checked(worker, cursor, points.before)
    clean = stats.judge(kept_before, empty)
    if empty.end is not End.READ or clean.broken or clean.missing:
        raise Unsound(f"a clean state is not clean: {clean.reason}")
    full, kept_after = _checked(worker, cursor, points.after)
    lying = stats.judge(kept_after, empty)
    if not lying.missing:
        raise Unsound("the loss of all operations, as by lying disks, was not found")
    if full.end is not End.READ or len(stats.judge(kept_after, full).missing) >= len(lying.missing):
        raise Unsound("operations are missing in the state in which all requests survived")


def _checked(worker: CheckerWorker, cursor: RecordingCursor, cut: int) -> tuple[Observation, CrashState]:
    cursor.go(cut)
    state = CrashState(cut, tuple(map(Survivor, cursor.window.open)))
    return worker.submit(cursor.job(state)).result().observation, state
