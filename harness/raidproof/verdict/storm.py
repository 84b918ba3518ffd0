"""The verdict on a storm, and which pairs of faults, and of faults and phases, its crash tests covered."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations

from raidproof.record.outcome import Outcome
from raidproof.record.storm import StormRow
from raidproof.verdict.conclusion import Part, concluded

SHOWN = frozenset({Outcome.PASS, Outcome.FAIL})
"""Outcomes of a crash test that shows whether its promises were kept."""
RIG = frozenset({Outcome.ERROR, Outcome.INVALID})


def conclude_storm(rows: Sequence[StormRow]) -> tuple[Outcome, str]:
    """Return the outcome of a storm, and the reason.

    A seed whose crash test shows nothing is not counted as one that held; an error of the rig is reported.
    """
    failed = [one for one in rows if one.outcome is Outcome.FAIL]
    held = sum(one.outcome is Outcome.PASS for one in rows)
    rig = [one for one in rows if one.outcome in RIG]
    nothing = len(rows) - held - len(failed) - len(rig)
    parts = [Part(one.outcome, f"{_seeds(failed or rig)}: {one.reason}") for one in [*failed, *rig]]
    silent = f"; {nothing:,} showed nothing" if nothing else ""
    return concluded(
        parts,
        f"every promise held in {held:,} random schedules of faults{silent}",
        nothing="" if held else "no seed showed whether promises are kept",
    )


def _seeds(rows: Sequence[StormRow]) -> str:
    named = ", ".join(str(one.seed) for one in rows[:5])
    more = f" and {len(rows) - 5:,} more" if len(rows) > 5 else ""
    return f"seed{'s' if len(rows) > 1 else ''} {named}{more}"


def pairs_of_faults(rows: Iterable[StormRow]) -> Counter[tuple[str, str]]:
    """Return how many crash tests had two faults, the first one earlier than the second one."""
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row.outcome in SHOWN:
            found.update(set(combinations(row.drawn.names, 2)))
    return found


def faults_in_phases(rows: Iterable[StormRow]) -> Counter[tuple[str, str]]:
    """Return how many crash tests had a fault in a phase."""
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row.outcome in SHOWN:
            found.update(set(zip(row.drawn.names, row.drawn.phases, strict=True)))
    return found
