"""Replay of one crash state by its name: the command line for it, its check on a machine, and lines for the user."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from raidproof.core.errors import RequestError
from raidproof.core.log import step
from raidproof.crash.checker import Held
from raidproof.crash.checker_worker import repeat_if_silent
from raidproof.crash.journal import find_state
from raidproof.crash.owner import pieces_of
from raidproof.crash.recovery import SECOND, journal_of, second_name
from raidproof.crash.states import CrashState
from raidproof.crash.stats import ExplorationStats
from raidproof.report.exploration import write
from raidproof.run.recoveries import source_of_recovery
from raidproof.run.source import Source
from raidproof.verdict.oracle import Judgement

MOST_WRITES = 20
"""Greatest number of surviving writes that the replay of a state prints."""


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
