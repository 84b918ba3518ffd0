"""The workers of a cluster that made a run, and the variation of values between and within workers."""

from collections.abc import Sequence

from rich.console import Console

from raidproof.record.cell import CellRecord
from raidproof.record.comparison import SideCell
from raidproof.record.worker import WorkerRecord
from raidproof.report.table import Field, Table, say
from raidproof.report.words import UNKNOWN, count


def spreads(measured: CellRecord | SideCell) -> str:
    """Return the variation of values between and within workers as text; empty with one worker, or if not known."""
    between, within = measured.between_workers, measured.within_workers
    if between is None or within is None:
        return ""
    return f"between workers {100 * between:.2g} %, within {100 * within:.2g} %"


def spread_fields(cells: Sequence[CellRecord]) -> list[Field[CellRecord]]:
    """Return the column with the variation between and within workers; none if the variation of no cell is known."""
    if not any(map(spreads, cells)):
        return []
    return [Field("variation", lambda cell: spreads(cell) or UNKNOWN)]


def worker_table(workers: Sequence[WorkerRecord]) -> Table[WorkerRecord]:
    """Return the table of the workers that made a run."""
    return Table(
        [
            Field("worker", lambda one: one.name, names_row=True),
            Field("host", lambda one: one.host),
            Field("CPU", lambda one: one.cpu),
            Field("cores", lambda one: count(one.cores), "number"),
            Field("kernel", lambda one: one.kernel),
            Field("load", lambda one: f"{one.load:.2g}", "number"),
            Field("results", lambda one: count(one.done), "number"),
            Field("left out", lambda one: one.left_out or ""),
        ],
        workers,
        note="Load: load average of the host over 1 min when the worker began. Results: number of repetitions and "
        "power cuts in this run. Left out: why the worker got no further work.",
    )


def tell_workers(workers: Sequence[WorkerRecord], console: Console) -> None:
    """Print a line for each worker."""
    for one in workers:
        out = f"; left out: {one.left_out}" if one.left_out else ""
        say(console, f"worker {one.name} on {one.host}, {one.cores} cores: {one.done:,} results{out}")
