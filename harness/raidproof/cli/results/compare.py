"""`raidproof compare` and `raidproof baseline`: comparison of stored runs, and names for runs to compare with."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raidproof.cli.options import Json, Margin, Results
from raidproof.cli.output import emit
from raidproof.core.errors import Status
from raidproof.run.options import RESULTS

if TYPE_CHECKING:
    from rich.console import Console

    from raidproof.record import RunRecord, RunStore
    from raidproof.record.known import KnownDifference
    from raidproof.record.outcome import Outcome

Known = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File of known differences; default: known.toml, if it exists."),
]
"""The option with the failures that are expected; `raidproof.record.known.load_known` reads the file."""
Against = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Compare the run at its end with a baseline or a stored run."),
]
SIDE = "baseline, name or directory of a stored run"

baselines = typer.Typer(
    name="baseline",
    help="Name stored runs that later runs are compared with.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def compare(
    base: Annotated[str, typer.Argument(help=f"base side: {SIDE}")],
    new: Annotated[str, typer.Argument(help=f"new side: {SIDE}")],
    margin: Margin = 3.0,
    known: Known = None,
    json: Json = False,
    results: Results = RESULTS,
) -> None:
    """Compare two stored runs, cell by cell.

    Cells with the same workload and the same values of the axes that both plans have are compared. The runs were not
    measured in turn, as `raidproof ab` does: a difference counts only if the reference measurements of both runs
    show that it is not one of the host's speed.
    """
    from raidproof.record.known import load_known  # noqa: PLC0415
    from raidproof.record.results.baseline import run_named  # noqa: PLC0415
    from raidproof.report.comparison import show_comparison  # noqa: PLC0415
    from raidproof.run.stored_comparison import run_compare  # noqa: PLC0415

    expected = load_known(known)
    sides = run_named(base, results), run_named(new, results)
    comparison, page = run_compare(*sides, results, margin=margin / 100, known=expected)
    emit(comparison, json, lambda console: show_comparison(comparison, console, page))
    raise typer.Exit(Status[comparison.outcome.name])


def base_of(against: str | None, results: Path) -> "RunStore | None":
    """Return the run of the option ``--against``, before the new run begins; None without the option.

    Raises:
        RequestError: no baseline and no run of a plan has this name.
    """
    if against is None:
        return None
    from raidproof.record.results.baseline import run_named  # noqa: PLC0415
    from raidproof.run.stored_comparison import with_cells  # noqa: PLC0415

    store = run_named(against, results)
    with_cells(store)
    return store


def show_against(
    base: "RunStore", record: "RunRecord", results: Path, known: "Sequence[KnownDifference]", console: "Console"
) -> "Outcome":
    """Compare a run that has just ended with a stored run, print the comparison, and return the worse outcome."""
    from raidproof.record import RunStore  # noqa: PLC0415
    from raidproof.record.outcome import worst  # noqa: PLC0415
    from raidproof.report.comparison import show_comparison  # noqa: PLC0415
    from raidproof.run.stored_comparison import run_against  # noqa: PLC0415

    comparison, page = run_against(base, record, RunStore(results / record.run), known=known)
    console.print()
    show_comparison(comparison, console, page)
    return worst([record.outcome, comparison.outcome])


@baselines.command("set")
def set_(
    name: Annotated[str, typer.Argument(help="name of the baseline")],
    run: Annotated[str, typer.Argument(help="name or directory of a stored run")],
    results: Results = RESULTS,
) -> None:
    """Give a stored run of a plan the name of a baseline. `raidproof rm` keeps this run."""
    from raidproof.record import RunStore  # noqa: PLC0415
    from raidproof.record.results.baseline import set_baseline  # noqa: PLC0415

    baseline = set_baseline(name, RunStore.find(run, results), results)
    print(f"baseline {baseline.name}: {baseline.run}")  # noqa: T201


@baselines.command("list")
def list_(
    json: Json = False,
    results: Results = RESULTS,
) -> None:
    """List the baselines and their runs."""
    from raidproof.record.results.baseline import baselines_of  # noqa: PLC0415
    from raidproof.record.results.store import RECORD  # noqa: PLC0415

    found = baselines_of(results)
    if json:
        emit(found, json)
        return
    for one in found:
        missing = "" if (results / one.run / RECORD).is_file() else ", which is missing"
        print(f"{one.name}: {one.run}{missing}, since {one.since:%Y-%m-%d}")  # noqa: T201
    if not found:
        print("no baselines; `raidproof baseline set NAME RUN` makes one")  # noqa: T201


@baselines.command("rm")
def rm(name: Annotated[str, typer.Argument(help="name of the baseline")], results: Results = RESULTS) -> None:
    """Remove the name of a baseline. Its run stays."""
    from raidproof.record.results.baseline import remove_baseline  # noqa: PLC0415

    baseline = remove_baseline(name, results)
    print(f"removed baseline {baseline.name}; its run {baseline.run} stays")  # noqa: T201
