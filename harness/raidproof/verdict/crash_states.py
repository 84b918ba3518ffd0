"""What the explorations of a crash test's states add to the verdict on the crash test."""

from collections.abc import Sequence

from raidproof.record.cell import CellRecord, Explored
from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord
from raidproof.record.sensitivity import Noticed, missing_flushes
from raidproof.verdict.conclusion import Part, concluded

BEGIN = "exploration of crash states: "
"""Beginning of a reason that is the reason of an exploration."""
PROOFS = frozenset({Outcome.FAIL, Outcome.INVALID})
"""Outcomes of an exploration that change the outcome of its crash test: they prove that a result was wrong."""
RECOVERY = "recovery"
"""Checker of a server whose storage did not come up after the fault."""


def explored_of(cell: CellRecord, cycle: CrashTestRecord | None) -> Explored | None:
    """Return the exploration that a plan requested of a cell's power cut, as it ended last; None without one.

    `raidproof explore --resume` may continue an exploration after the run of the plan.
    """
    if cell.explored is None or cycle is None:
        return cell.explored
    return next((one for one in cycle.explored if one.file == cell.explored.file), cell.explored)


def explorations_of(cycle: CrashTestRecord, cell: CellRecord | None = None) -> Sequence[Explored]:
    """Return the explorations of a crash test, with the one that a plan requested of the cell."""
    requested = None if cell is None else explored_of(cell, cycle)
    return [*cycle.explored, *([requested] if requested is not None and requested not in cycle.explored else [])]


def outcome_of(cycle: CrashTestRecord, cell: CellRecord | None = None) -> tuple[Outcome, str]:
    """Return the outcome of a crash test and the reason, with its explorations.

    A promise that is broken in an explored crash state is broken by the configuration. An exploration that proves
    nothing leaves the outcome of the power cut. ``cell``: the cell of a plan whose power cut the crash test is.
    """
    proofs = [one for one in explorations_of(cycle, cell) if one.outcome in PROOFS]
    explored = [Part(one.outcome, f"{BEGIN}{one.reason}") for one in proofs]
    return concluded([Part(cycle.outcome, cycle.reason), *explored], held=cycle.reason)


def noticed_by(cycle: CrashTestRecord | None, cell: CellRecord | None = None) -> Noticed | None:
    """Return how many missing flushes of a member a crash test would have shown; None if not known.

    ``cell``: the cell of a plan whose power cut the crash test is. Of power cut and explorations, that which would
    have shown most counts.
    """
    if cycle is None:
        return None
    found = missing_flushes(cycle.sensitivity)
    if found is None or not found.instances:
        return None
    explored = explorations_of(cycle, cell)
    shown = [found.in_this_cut, *(one.noticed for one in explored)]
    known = [one for one in shown if one is not None]
    if not known:
        return None
    states = sum(one.judged for one in explored)
    return Noticed(noticed=min(max(known), found.instances), of=found.instances, states=states)
