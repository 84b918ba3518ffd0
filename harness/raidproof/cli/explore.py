"""`raidproof explore`: check the possible crash states of a recorded crash test."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from raidproof.cli.options import RESULTS, Results, StoredRun
from raidproof.core.errors import RequestError, Status

if TYPE_CHECKING:
    from raidproof.record.outcome import Outcome
    from raidproof.run.exploration import Source

TEARS = (512, 4096)
DEFAULT_STATES = 1000
OF_MANY = ("states", "minutes", "seed", "checkers", "tear", "resume", "at_replies")
"""Options that select the states of an exploration."""


def explore(
    asked: typer.Context,
    run: StoredRun,
    cycle: Annotated[
        str | None, typer.Option(help="The crash test to explore; required if the run has several.")
    ] = None,
    states: Annotated[
        int | None, typer.Option(min=1, help="Number of crash states (default 1000; unlimited with --minutes).")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0.1, help="Time budget in minutes; one third is reserved for shrinking failures."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random choices.")] = 1,
    checkers: Annotated[int, typer.Option(min=1, max=64, help="Machines that check crash states in parallel.")] = 2,
    tear: Annotated[int, typer.Option(help="Bytes of a write that a power cut cannot tear: 512 or 4096.")] = TEARS[0],
    at_replies: Annotated[
        bool,
        typer.Option("--at-replies", help="Cut only at acknowledgements, and drop all volatile caches."),
    ] = False,
    starts_dirty: Annotated[
        bool,
        typer.Option(
            "--starts-dirty", help="Also start arrays that are dirty and degraded, which md refuses by default."
        ),
    ] = False,
    state: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Check this one crash state again; its ID is on the report's page."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="With --state: keep the lab that holds it, for `raidproof shell`.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the newest exploration of this crash test.")
    ] = False,
    results: Results = RESULTS,
) -> None:
    """Check the crash states that a recorded run could have had against the acknowledgements of its clients."""
    from raidproof.core.log import progress  # noqa: PLC0415
    from raidproof.provider.registry import prepare  # noqa: PLC0415
    from raidproof.record import RunStore  # noqa: PLC0415
    from raidproof.run.doctor import require_host  # noqa: PLC0415
    from raidproof.run.exploration import source_of  # noqa: PLC0415

    if tear not in TEARS:
        raise RequestError(f"--tear {tear}: a disk writes 512 or 4096 bytes atomically")
    if keep and state is None:
        raise RequestError("--keep keeps the lab of one crash state", remedy="name the state with --state")
    sources = {name: asked.get_parameter_source(name) for name in OF_MANY}
    said = [
        f"--{name.replace('_', '-')}" for name, by in sources.items() if by is not None and by.name == "COMMANDLINE"
    ]
    if state is not None and said:
        raise RequestError(
            f"--state checks one given state: {', '.join(said)} would have no effect",
            remedy="omit one or the other",
        )
    source = source_of(RunStore.find(run, results), cycle, starts_dirty=starts_dirty)
    require_host()
    with progress("preparing kernel and image"):
        prepare(source.topology)
        if state is not None:
            raise typer.Exit(Status[show_state(source, state, keep=keep).name])
        from raidproof.crash.exploration import Budget  # noqa: PLC0415
        from raidproof.run.exploration import Options, explore_cycle  # noqa: PLC0415

        wanted = DEFAULT_STATES if states is None and minutes is None else states
        budget = Budget(states=wanted, minutes=minutes)
        options = Options(budget=budget, seed=seed, tear=tear, checkers=checkers, resume=resume, at_replies=at_replies)
        record, page = explore_cycle(source, options)
    from raidproof.report.exploration import show_exploration  # noqa: PLC0415

    show_exploration(record, Console(), page)
    raise typer.Exit(Status[record.outcome.name])


def show_state(source: "Source", name: str, *, keep: bool) -> "Outcome":
    """Check one crash state again and print the result and the next commands."""
    from raidproof.run.exploration import find, replay  # noqa: PLC0415

    shown = replay(source, find(source, name), source.store.directory(f"explore-{source.cycle.name}"), keep=keep)
    for line in shown.lines:
        print(line)  # noqa: T201
    return shown.judgements[0].outcome
