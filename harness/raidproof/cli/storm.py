"""`raidproof storm`: random schedules of faults from seeds, judged by the same promises; a failure is shrunk."""

import re
from typing import Annotated

import typer

from raidproof.cli.config_files import split
from raidproof.cli.options import Json, PlanFile, Results, Select, with_platform
from raidproof.cli.output import emit
from raidproof.core.errors import RequestError, Status
from raidproof.run.options import RESULTS


@with_platform(before="results")
def storm(
    asked: typer.Context,
    plan: PlanFile,
    select: Select = None,
    seeds: Annotated[
        str, typer.Option(metavar="FIRST-LAST", help="The seeds: one crash test each; or a single number.")
    ] = "1-20",
    minutes: Annotated[
        float | None, typer.Option("--minutes", help="Begin no further seed after this time.", min=0.1)
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="Draw only this kind of fault; may be given several times."),
    ] = None,
    beyond: Annotated[
        bool, typer.Option("--beyond", help="Also lose more members than the level of the array survives.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the newest storm of the same request.")] = False,
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Run crash tests with random schedules of faults on the stacks of a plan.

    A seed draws a stack of the plan, the workers of the clients, and up to four faults with their moments. A crash
    test that fails is repeated; if it fails again, the command searches a smaller one, and writes a scenario of it.
    """
    from raidproof.fault import FAULTS  # noqa: PLC0415
    from raidproof.plan.cell import matrix_of  # noqa: PLC0415
    from raidproof.plan.plan import load_plan  # noqa: PLC0415
    from raidproof.report.storm import show_storm  # noqa: PLC0415
    from raidproof.run.platform import platform_for  # noqa: PLC0415
    from raidproof.run.storm.storm import run_storm  # noqa: PLC0415

    given, defaults = split(asked)
    numbers = seeds_of(seeds)
    kinds = sorted({one for one in fault or () if FAULTS[one]})
    matrix = matrix_of(load_plan(plan)).select(select)
    platform = platform_for(given, matrix.plan.run, defaults)
    record, page = run_storm(
        matrix, results, numbers, platform=platform, minutes=minutes, kinds=kinds, beyond=beyond, resume=resume
    )
    emit(record, json, lambda console: show_storm(record, page, console))
    raise typer.Exit(Status[record.outcome.name])


def seeds_of(text: str) -> range:
    """Return the seeds that an option requests.

    Raises:
        RequestError: the text is neither a number nor two numbers, the first one not the greater one.
    """
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", text.strip())
    if found is None or int(found[1]) > int(found[2] or found[1]):
        raise RequestError(f"--seeds {text!r}: not seeds", remedy="write for example 1-200, or 17")
    return range(int(found[1]), int(found[2] or found[1]) + 1)
