"""`raidproof history`: a cell of a plan over all stored runs, with the changes of its level."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from raidproof.cli.options import Json, Results
from raidproof.cli.output import emit
from raidproof.run.options import RESULTS


class By(StrEnum):
    """The order of the runs in a history; the values of `raidproof.verdict.change.history.Order`."""

    DATE = "date"
    KERNEL = "kernel"


def history(
    cell: Annotated[str, typer.Argument(help="name of a cell, or a pattern: 'level=5*'")],
    plan: Annotated[str | None, typer.Option(help="Only runs of the plan with this name.")] = None,
    by: Annotated[By, typer.Option(help="Order of the runs.")] = By.DATE,
    output: Annotated[Path | None, typer.Option(help="HTML file to write.")] = None,
    json: Json = False,
    results: Results = RESULTS,
) -> None:
    """Show a cell over all stored runs, with the changes of its level.

    Runs with other hardware, other settings or another host are shown apart.
    """
    from raidproof.record.results.stored_runs import stored_runs  # noqa: PLC0415
    from raidproof.report.results.history import show_histories, write_history  # noqa: PLC0415
    from raidproof.verdict.change.history import Order, histories  # noqa: PLC0415

    found = histories(stored_runs(results, plan), cell, Order(by.value))
    if output is not None:
        write_history(found, cell, results, output)
    emit(found, json, lambda console: show_histories(found, console, output))
