"""`raidproof compare` and `raidproof run --against`: compare stored runs, and store the comparison."""

import sys
from collections.abc import Sequence
from pathlib import Path

from raidproof.core.errors import RequestError
from raidproof.record import RunRecord, RunStore
from raidproof.record.comparison import MARGIN, ComparisonRecord
from raidproof.record.known import KnownDifference
from raidproof.report.html import write_comparison
from raidproof.run.run import command_line
from raidproof.verdict.known import known_today
from raidproof.verdict.matching import compare_stored


def run_compare(
    base: RunStore, new: RunStore, results: Path, *, margin: float = MARGIN, known: Sequence[KnownDifference] = ()
) -> tuple[ComparisonRecord, Path]:
    """Compare two stored runs of plans; return the comparison and the path of its HTML report, in a new directory.

    Raises:
        RequestError: a run is not the run of a plan, or both are the same run.
    """
    if base.path.resolve() == new.path.resolve():
        raise RequestError(f"both sides are the same run, {base.path}", remedy="name two runs")
    sides = [with_cells(store) for store in (base, new)]
    store = RunStore.create(results, "compare")
    return write(sides[0], sides[1], store, margin=margin, known=known)


def run_against(
    base: RunStore, record: RunRecord, store: RunStore, *, known: Sequence[KnownDifference] = ()
) -> tuple[ComparisonRecord, Path]:
    """Compare a run that has just ended with a stored run; the comparison is stored in the directory of the new run.

    Raises:
        RequestError: the stored run is not the run of a plan.
    """
    return write(with_cells(base), record, store, known=known)


def write(
    base: RunRecord, new: RunRecord, store: RunStore, *, margin: float = MARGIN, known: Sequence[KnownDifference] = ()
) -> tuple[ComparisonRecord, Path]:
    """Compare two runs, and write the record and the HTML report of the comparison; return the record and the path."""
    compared = compare_stored(base, new, name=store.path.name, margin=margin, known=known_today(known))
    compared = compared.model_copy(update={"command": command_line(sys.argv)})
    return compared, write_comparison(compared, store)


def with_cells(store: RunStore) -> RunRecord:
    """Return the record of a stored run of a plan.

    Raises:
        RequestError: the run is not the run of a plan.
    """
    record = store.load()
    if record.plan is None:
        raise RequestError(f"{store.path} is not the run of a plan: it has no cells to compare")
    return record
