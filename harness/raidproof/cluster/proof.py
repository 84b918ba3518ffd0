"""The proof of a checker: it finds a loss in a state that has one, and none in a state that has none.

The states are made from the recording that is explored. Before the first acknowledgement nothing can be missing. The
same content at a later instant is what disks leave that acknowledge flushes and store nothing: the operations
acknowledged until then are missing. The content with all requests up to this instant has at least a part of them.
"""

from typing import NamedTuple

from raidproof.core.errors import RequestError
from raidproof.crash.checker_worker import CheckerWorker, RecordingCursor
from raidproof.crash.states import CrashState
from raidproof.crash.stats import ExplorationStats
from raidproof.record.exploration import End, Observation

OPERATIONS = 50
"""Greatest number of acknowledged operations that are lost in the state with a loss; a shorter recording has fewer.

More operations would take longer, because more content must be copied."""


class Unsound(Exception):
    """The checker's answers are wrong; its verdicts must not be used."""


class Points(NamedTuple):
    """The two cuts of a proof."""

    before: int
    """Cut at which array and file system have been created, and no operation has been acknowledged."""
    before_ns: int
    """The instant of this cut."""
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
    # The first workers of the ledger work while the last ones are started, before the instant `Oracle.created_ns`.
    before_ns = min([oracle.created_ns, *instants[:1]])
    before = recording.place(before_ns)
    cuts = [cut for cut in recording.cuts if cut >= before]
    if not instants or not cuts:
        raise RequestError(
            "no operation was acknowledged in this crash test: no state can prove that a worker finds a loss",
            remedy="explore it without --cluster",
        )
    # An async export acknowledges operations long before the disks get their data.
    wanted_ns = instants[:OPERATIONS][-1] if oracle.conditions.export_sync else instants[-1]
    after = next((cut for cut in cuts if recording.instant_ns(cut) > wanted_ns), cuts[-1])
    return Points(before, before_ns, after)


def prove(worker: CheckerWorker, cursor: RecordingCursor, stats: ExplorationStats, points: Points) -> None:
    """Check the states of the proof on a checker.

    Raises:
        Unsound: an answer is wrong.
        RigError: a check failed twice.
    """
    judge, after_ns = stats.oracle.judge, stats.recording.instant_ns(points.after)
    empty = _checked(worker, cursor, points.before, everything=False)
    clean = judge(empty, points.before_ns)
    if empty.end is not End.READ or clean.broken or clean.missing:
        raise Unsound(f"a clean state is not clean: {clean.reason}")
    full = _checked(worker, cursor, points.after, everything=True)
    lying = judge(empty, after_ns)
    if not lying.missing:
        raise Unsound("the loss of all operations, as by lying disks, was not found")
    if full.end is not End.READ or len(judge(full, after_ns).missing) >= len(lying.missing):
        raise Unsound("operations are missing in the state in which all requests survived")


def _checked(worker: CheckerWorker, cursor: RecordingCursor, cut: int, *, everything: bool) -> Observation:
    """Return the observation of the state in which all volatile requests survived (``everything``), or none."""
    cursor.go(cut)
    state = CrashState.of(cut, cursor.window.open if everything else ())
    return worker.submit(cursor.job(state)).result().observation
