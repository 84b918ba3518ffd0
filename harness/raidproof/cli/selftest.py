"""`raidproof selftest`: plant defects in the simulated disks, and show whether raidproof finds each of them."""

from typing import Annotated

import typer

from raidproof.cli.config_files import split
from raidproof.cli.options import Json, Results, with_platform
from raidproof.cli.output import emit
from raidproof.core.errors import Status
from raidproof.run.options import RESULTS


@with_platform(before="seed")
def selftest(
    asked: typer.Context,
    seed: Annotated[int, typer.Option(help="Seed of all random choices.")] = 1,
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Plant defects in the simulated disks one at a time, and check that each is found.

    A crash test with sound disks must pass. The command takes two to three minutes on two cores. Exit status 1: a
    defect was missed, or sound disks were blamed.
    """
    from raidproof.report.selftest import show_selftest  # noqa: PLC0415
    from raidproof.run.platform import platform_for  # noqa: PLC0415
    from raidproof.run.selftest import run_selftest  # noqa: PLC0415

    given, defaults = split(asked)
    record, path = run_selftest(results, platform=platform_for(given, None, defaults), seed=seed)
    emit(record, json, lambda console: show_selftest(record, path, console))
    raise typer.Exit(Status[record.outcome.name])
