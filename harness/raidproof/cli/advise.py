"""`raidproof advise`: search a faster configuration that loses nothing, within a budget of time."""

from typing import Annotated

import typer

from raidproof.cli.config_files import split
from raidproof.cli.options import DryRun, Json, PlanFile, Results, Seed, with_platform
from raidproof.cli.output import emit, say, screen
from raidproof.core.errors import Status
from raidproof.run.options import RESULTS


@with_platform(before="results")
def advise(
    asked: typer.Context,
    plan: PlanFile,
    # Not named after the option: the key `minutes` of a file of defaults is that of explorations.
    budget: Annotated[
        float, typer.Option("--minutes", help="Time for the search and the power cuts.", min=0.1)
    ] = 40.0,
    vary: Annotated[
        str | None,
        typer.Option(metavar="AXIS,...", help="Vary these axes; default: those of the plan, or usual ones."),
    ] = None,
    keep: Annotated[
        str | None, typer.Option(metavar="AXIS,...", help="Keep the first value of these axes of the plan.")
    ] = None,
    workload: Annotated[
        str | None, typer.Option(help="Name of the workload; required if the plan has several.")
    ] = None,
    dry_run: DryRun = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the newest search for this plan.")] = False,
    seed: Seed = None,  # noqa: ARG001  read from the context
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Recommend a configuration of a plan that is fast and loses no acknowledged work.

    The first value of each axis is the current configuration. The command measures promising configurations, cuts the
    power of the fastest, and prints the lines for the server and its clients.
    """
    from raidproof.plan.free_axes import free_of  # noqa: PLC0415
    from raidproof.plan.plan import load_plan  # noqa: PLC0415
    from raidproof.record import RunStore  # noqa: PLC0415
    from raidproof.report.advice import describe, show_advice  # noqa: PLC0415
    from raidproof.run.advise.advisor import WHAT, axis_records, run_advise, written  # noqa: PLC0415
    from raidproof.run.advise.dry_run import dry_run as planned  # noqa: PLC0415
    from raidproof.run.advise.dry_run import lines  # noqa: PLC0415
    from raidproof.run.platform import platform_for  # noqa: PLC0415

    given, defaults = split(asked)
    changes, usual = ({"seed": one["seed"]} if one.get("seed") is not None else {} for one in (given, defaults))
    read = load_plan(plan, changes, usual)
    free = free_of(read, names_of(vary), names_of(keep) or (), workload)
    platform = platform_for(given, read.run, defaults)
    say(screen(json), describe(axis_records(free), written(free), free.left, len(free.matrix.cells)))
    if dry_run:
        found = planned(free, budget, platform)
        emit(found, json, lambda console: say(console, lines(found)))
        return
    stored = RunStore.newest(results, f"{read.name}-{WHAT}") if resume else None
    record, page = run_advise(free, plan, results, budget, platform=platform, resumed=stored)
    emit(record, json, lambda console: show_advice(record, console, page))
    raise typer.Exit(Status[record.outcome.name])


def names_of(words: str | None) -> tuple[str, ...] | None:
    """Return the names in a list with commas; None without a list."""
    return None if words is None else tuple(word.strip() for word in words.split(",") if word.strip())
