"""One crash state shown again: judged, and if asked left in a lab for whoever wants to look at it himself."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from raidproof.core.errors import RequestError
from raidproof.core.log import step
from raidproof.crash.checker.checker import Held
from raidproof.crash.checker.worker import RecordingCursor, look_at
from raidproof.crash.journal import find_state
from raidproof.crash.judge import Judgement
from raidproof.crash.states.part import pieces_of
from raidproof.crash.states.state import CrashState
from raidproof.crash.stats import ExplorationStats
from raidproof.report.exploration_words import write
from raidproof.run.exploration import STATES, STEM
from raidproof.run.source import Source

MOST_WRITES = 20


class Replayed(NamedTuple):
    """What came of it."""

    state: CrashState
    judgements: tuple[Judgement, ...]
    lines: tuple[str, ...]
    """What to tell the user."""


def find(source: Source, name: str) -> CrashState:
    """Return the state of this name from the explorations of a cycle.

    Raises:
        RequestError: none of them has it.
    """
    run, stem = source.store.path, f"{STEM}{source.cycle.name}"
    paths = [*sorted(run.glob(f"{stem}*.json")), *sorted(run.glob(f"{stem}*/{STATES}"))]
    found = find_state(iter(paths), name)
    if found is None:
        raise RequestError(
            f"no exploration of {source.cycle.name} has a state {name!r}",
            remedy=f"names are on the page {run / stem}.html" if paths else "explore it first, without --state",
        )
    return found


def replay(source: Source, state: CrashState, logs: Path, *, times: int = 1, keep: bool = False) -> Replayed:
    """Show a state so many times, each judged; with ``keep``, the lab goes on with it on its disks.

    Raises:
        RigError: the checker does not boot, or failed.
    """
    tally, roller = ExplorationStats(source.recording, source.oracle), RecordingCursor(source.recording)
    step(f"going to cut {state.cut} of {len(source.recording.records):,}")
    roller.go(state.cut)
    held: Held | None = None
    judgements = []
    with source.checker(0, logs=logs) as checker:
        checker.advance(roller.between(0, len(roller.bases)))
        job = roller.job(state)
        for turn in range(1, times + 1):
            step(f"state {state.name}, {turn} of {times}")
            seen = look_at(lambda: checker.check(job.patch, nfsd=True, fsck=True))
            judgements.append(tally.judge(state, job.seen(seen)))
        if keep:
            held = checker.hold(job.patch)
    lines = (*said_of(source, state, tally, judgements), *told_to(held))
    return Replayed(state, tuple(judgements), lines)


def said_of(source: Source, state: CrashState, tally: ExplorationStats, judgements: Sequence[Judgement]) -> list[str]:
    """Return the state in words, and what it was judged to be."""
    first = judgements[0]
    alike = sum((one.outcome, one.damages) == (first.outcome, first.damages) for one in judgements)
    again = f", {alike} of {len(judgements)} times" if len(judgements) > 1 else ""
    lines = [
        f"state {state.name}: power gone {tally.at_s(state.cut):.3f} s after the log began, at request {state.cut:,}; "
        f"of what nobody had waited for, {len(state.survivors):,} requests survived"
    ]
    lines += [
        f"  {write(piece.record(source.recording, {}))}" for piece in pieces_of(source.recording, state)[:MOST_WRITES]
    ]
    lines.append(
        f"{first.outcome.value}{again}: {first.reason}" + (f"; blamed on {first.blame}" if first.blame else "")
    )
    return [*lines, *(f"  {example}" for example in first.examples)]


def told_to(held: Held | None) -> list[str]:
    """Return what can be done in a lab that was kept."""
    if held is None:
        return []
    return [
        "its disks are in a lab that goes on; nothing of it is assembled or mounted yet:",
        f"  ./raidproof shell server --lab {held.lab}",
        *(f"    {shlex.join(argv)}" for argv in held.commands),
        "  ./raidproof gc --kept   ends it",
    ]
