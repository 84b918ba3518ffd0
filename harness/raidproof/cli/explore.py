"""`raidproof explore`: check the possible crash states of a recorded crash test."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raidproof.cli.options import Cluster, Json, Results, StoredRun
from raidproof.cli.output import emit, say
from raidproof.core.errors import RequestError, Status
from raidproof.run.options import RESULTS

if TYPE_CHECKING:
    from raidproof.cluster.spec import ClusterSpec
    from raidproof.record.outcome import Outcome
    from raidproof.run.crash_states import Options
    from raidproof.run.source import Source

TEARS = (512, 4096)
"""Bytes that a disk can write atomically: the sector sizes of drives."""
SECOND_STATES = 10
"""Number of states of a second power cut that are checked for each recovery without the option ``--second-states``."""
DEFAULT_STATES = 1000
"""Number of crash states that an exploration checks without the options ``--states`` and ``--minutes``."""
SAMPLING = (
    "states",
    "minutes",
    "seed",
    "checkers",
    "tear",
    "resume",
    "at_replies",
    "all_losses",
    "epochs",
    "uniform",
    "second_cuts",
    "second_states",
    "dry_run",
    "cluster",
)
"""Options that select the crash states of an exploration; with ``--state`` they have no effect."""
OF_A_SAMPLE = ("seed", "tear", "at_replies", "uniform")
"""Options of a random sample of crash states; with ``--all-losses`` they have no effect."""


def explore(
    asked: typer.Context,
    run: StoredRun,
    cycle: Annotated[
        str | None,
        typer.Option(help="Name, number or title of the crash test to explore; required if the run has several."),
    ] = None,
    states: Annotated[
        int | None, typer.Option(min=1, help="Crash states to check (default 1000; unlimited with --minutes).")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0.1, help="Time budget in minutes; one third is reserved for shrinking failures."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random choices.")] = 1,
    checkers: Annotated[int, typer.Option(min=1, max=64, help="Machines that check crash states in parallel.")] = 2,
    tear: Annotated[int, typer.Option(help="Bytes that a disk writes atomically in a cut: 512 or 4096.")] = TEARS[0],
    at_replies: Annotated[
        bool,
        typer.Option("--at-replies", help="Cut only at acknowledgements, and lose all data in volatile caches."),
    ] = False,
    uniform: Annotated[
        bool, typer.Option("--uniform", help="Sample all cuts with equal chance, not those of greater interest first.")
    ] = False,
    all_losses: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="K", help="Check all crash states with up to K lost requests, instead of a random sample."
        ),
    ] = None,
    epochs: Annotated[
        str | None,
        typer.Option(
            metavar="A-B", help="With --all-losses: only the flush epochs A to B; --dry-run shows the number."
        ),
    ] = None,
    second_cuts: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Recover N crash states, and cut the power a second time during each recovery."
        ),
    ] = 0,
    second_states: Annotated[
        int,
        typer.Option(
            min=1, metavar="M", help="With --second-cuts: crash states of a second cut to check for each recovery."
        ),
    ] = SECOND_STATES,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the number of crash states that would be checked, and check none.")
    ] = False,
    starts_dirty: Annotated[
        bool,
        typer.Option(
            "--starts-dirty", help="Start arrays even if they are dirty and degraded, which md refuses by default."
        ),
    ] = False,
    lost_member: Annotated[
        str | None,
        typer.Option(
            metavar="SERIAL", help="Member that is lost with the power cut; the array starts without it: disk1."
        ),
    ] = None,
    scrub: Annotated[
        bool,
        typer.Option(
            "--scrub", help="With each check by fsck, let the array resync, and count the rows that still differ."
        ),
    ] = False,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Check only this crash state again; the exploration's HTML report shows the IDs."
        ),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="With --state: keep the lab with the crash state running, for `raidproof shell`."),
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --state: write the crash state to a file, for `raidproof recover`; no check."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the newest exploration of this crash test.")
    ] = False,
    cluster: Cluster = None,
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Check crash states of a recorded crash test.

    Each crash state must contain the operations that the server had acknowledged before the cut.
    """
    from raidproof.core.log import progress  # noqa: PLC0415
    from raidproof.crash.exploration import Budget  # noqa: PLC0415
    from raidproof.provider.registry import prepare  # noqa: PLC0415
    from raidproof.record import RunStore  # noqa: PLC0415
    from raidproof.run.crash_states import Options  # noqa: PLC0415
    from raidproof.run.doctor import require_host  # noqa: PLC0415
    from raidproof.run.source import source_of  # noqa: PLC0415

    if tear not in TEARS:
        raise RequestError(f"--tear must be 512 or 4096, the bytes that a disk writes atomically, not {tear}")
    spec = None if cluster is None else cluster_of(cluster, checkers=bool(given_of(asked, ("checkers",))))
    refuse_useless(asked, all_losses=all_losses is not None, second_cuts=second_cuts > 0)
    refuse_beside_state(asked, state=state is not None, keep=keep)
    store = RunStore.find(run, results)
    source = source_of(store, cycle, starts_dirty=starts_dirty, lost_member=lost_member, scrub=scrub)
    unlimited = all_losses is not None or minutes is not None
    options = Options(
        budget=Budget(states=DEFAULT_STATES if states is None and not unlimited else states, minutes=minutes),
        seed=seed,
        tear=tear,
        checkers=checkers,
        resume=resume,
        at_replies=at_replies,
        all_losses=all_losses,
        uniform=uniform,
        epochs=None if epochs is None else range_of(epochs),
        second_cuts=second_cuts,
        second_states=second_states,
    )
    if export is not None and state is not None:
        write_state(source, state, export)
        return
    if dry_run:
        show_dry_run(source, options, as_json=json)
        return
    require_host()
    with progress("preparing kernel and image"):
        prepare(source.topology)
        if state is not None:
            raise typer.Exit(Status[show_state(source, state, keep=keep, as_json=json).name])
        from raidproof.run.exploration import explore_cycle  # noqa: PLC0415

        if spec is None:
            record, page = explore_cycle(source, options)
        else:
            from raidproof.cluster.exploration import explore_on  # noqa: PLC0415

            record, page = explore_on(spec, source, options)
    from raidproof.report.exploration import show_exploration  # noqa: PLC0415

    emit(record, json, lambda console: show_exploration(record, console, page))
    raise typer.Exit(Status[record.outcome.name])


def cluster_of(text: str, *, checkers: bool) -> "ClusterSpec":
    """Return the cluster of the option ``--cluster``; ``checkers``: whether ``--checkers`` is given.

    Raises:
        RequestError: the text names no cluster, or the number of checkers has no effect.
    """
    from raidproof.cluster.spec import ClusterSpec  # noqa: PLC0415

    if checkers:
        raise RequestError(
            "with --cluster, --checkers would have no effect: each worker has its own number",
            remedy="omit --checkers, or give it to `raidproof worker`",
        )
    return ClusterSpec.read(text)


def refuse_useless(asked: typer.Context, *, all_losses: bool, second_cuts: bool) -> None:
    """Refuse options that have no effect beside the others.

    Raises:
        RequestError: an option has no effect.
    """
    if not all_losses and given_of(asked, ("epochs",)):
        raise RequestError("--epochs requires --all-losses", remedy="give --all-losses with a number of lost requests")
    # Seed and unit of atomic writes select the states of second cuts, which are a sample in any case.
    sampling = tuple(one for one in OF_A_SAMPLE if not (second_cuts and one in {"seed", "tear"}))
    if all_losses and (useless := given_of(asked, sampling)):
        raise RequestError(
            f"with --all-losses, which draws no state at random, {', '.join(useless)} would have no effect",
            remedy=f"omit --all-losses, or omit {', '.join(useless)}",
        )
    if not second_cuts and given_of(asked, ("second_states",)):
        raise RequestError(
            "--second-states requires --second-cuts", remedy="give --second-cuts with a number of crash states"
        )


def refuse_beside_state(asked: typer.Context, *, state: bool, keep: bool) -> None:
    """Refuse options that need one given state, without one, and those that select states, beside one.

    Raises:
        RequestError: an option is missing or has no effect.
    """
    exports = bool(given_of(asked, ("export",)))
    for option, is_given in (("--keep", keep), ("--export", exports)):
        if is_given and not state:
            raise RequestError(f"{option} requires --state", remedy="give --state with the ID of a crash state")
    if keep and exports:
        raise RequestError("--export checks no state, so that --keep would have no effect", remedy="omit one of them")
    if state and (given := given_of(asked, SAMPLING)):
        raise RequestError(
            f"with --state, which checks one given crash state, {', '.join(given)} would have no effect",
            remedy=f"omit --state, or omit {', '.join(given)}",
        )


def given_of(asked: typer.Context, names: tuple[str, ...]) -> list[str]:
    """Return those of the options that the command line has."""
    sources = {name: asked.get_parameter_source(name) for name in names}
    return [
        f"--{name.replace('_', '-')}" for name, by in sources.items() if by is not None and by.name == "COMMANDLINE"
    ]


def range_of(text: str) -> tuple[int, int]:
    """Return the first and the last flush epoch of the option ``--epochs``.

    Raises:
        RequestError: the text is no range.
    """
    low, _, high = text.partition("-")
    if not (low.isdecimal() and high.isdecimal()):
        raise RequestError(f"--epochs must be a range like 1-40, not {text!r}")
    return int(low), int(high)


def show_dry_run(source: "Source", options: "Options", *, as_json: bool) -> None:
    """Print the number of crash states that an exploration would check."""
    from raidproof.report.exploration import dry_run as lines_of  # noqa: PLC0415
    from raidproof.run.exploration_record import dry_run  # noqa: PLC0415

    record = dry_run(source, options)
    emit(record, as_json, lambda console: say(console, lines_of(record)))


def write_state(source: "Source", name: str, path: Path) -> None:
    """Write a crash state to a file, and print its size and the command that recovers it."""
    from raidproof.report.words import data  # noqa: PLC0415
    from raidproof.run.crash_file import export  # noqa: PLC0415
    from raidproof.run.replay import locate  # noqa: PLC0415

    written = export(*locate(source, name), path)
    print(f"{written}: {data(written.stat().st_size)}; ./raidproof recover {written} --kernel ...")  # noqa: T201


def show_state(source: "Source", name: str, *, keep: bool, as_json: bool) -> "Outcome":
    """Check one crash state again, print the result and commands for its inspection, and return the outcome."""
    from raidproof.record.exploration import StateRecord  # noqa: PLC0415
    from raidproof.run.replay import locate, replay  # noqa: PLC0415

    found, crash = locate(source, name)
    shown = replay(found, crash, source.store.directory(f"explore-{source.cycle.name}"), keep=keep)
    judged = shown.judgements[0]
    record = StateRecord(
        run=source.run.run,
        cycle=source.cycle.name,
        state=name,
        outcome=judged.outcome,
        reason=judged.reason,
        blame=judged.blame,
        examples=list(judged.examples),
    )
    emit(record, as_json, lambda console: say(console, shown.lines))
    return judged.outcome
