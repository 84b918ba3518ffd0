"""`raidproof bisect`: find the first bad commit, version or value; `raidproof bisect-run`: for `git bisect run`."""

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raidproof.cli.options import Json, Results, Seed, Select, with_platform
from raidproof.cli.output import emit
from raidproof.core.errors import RequestError, Status, nearest
from raidproof.run.options import RESULTS

if TYPE_CHECKING:
    from raidproof.run.candidates import Candidates
    from raidproof.run.predicate import CellPart, Predicate
    from raidproof.verdict.change.bisection import Rule

ANY = "any"
"""The value of --promise that stands for all promises."""
DEFAULT_STATES = 200
"""Number of crash states that a repetition checks without the option ``--states``."""
CANDIDATES = ("tree", "debs", "axis")
PREDICATES = ("scenario", "plan", "words")
PARTS = ("slower_than", "promise", "failure", "more_broken_than")
"""Options of which exactly one must be given: the candidates; the predicate; and with a plan, what is tested."""
_WRITTEN = {"words": "-- COMMAND"}
SHOWN_STATUS = {"GOOD": Status.PASS, "BAD": Status.FAIL}
"""The exit status of --show for a decision; any other decision is INCONCLUSIVE."""


@with_platform(before="error")
def bisect(
    asked: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND...]",
            help="Command whose exit status says whether a candidate is good (0), bad (1) or untestable (125). "
            "{tree}, {commit}, {kernel}, {packages}, {version} and {value} stand for the candidate.",
        ),
    ] = None,
    tree: Annotated[Path | None, typer.Option(help="Git repository whose commits are the candidates.")] = None,
    good: Annotated[str | None, typer.Option(help="With --tree: a good commit.")] = None,
    bad: Annotated[str | None, typer.Option(help="With --tree: a bad commit, later than the good one.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="With --tree: a fragment of the kernels' configuration.", metavar="FRAGMENT")
    ] = None,
    debs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FOLDER|PATTERN",
            help="The .deb files whose versions are the candidates: the oldest is good, the newest bad.",
        ),
    ] = None,
    axis: Annotated[
        str | None,
        typer.Option(metavar="KEY=VALUE,...", help="Values of an axis of the plan: the first is good, the last bad."),
    ] = None,
    scenario: Annotated[
        str | None, typer.Option(metavar="PATH::TEST", help="A candidate is bad if this scenario fails.")
    ] = None,
    plan: Annotated[Path | None, typer.Option(help="A candidate is judged by a cell of this plan.")] = None,
    select: Select = None,
    slower_than: Annotated[
        float | None, typer.Option(help="With --plan: a candidate is bad if the cell's value is below this bound.")
    ] = None,
    promise: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="With --plan: a candidate is bad if a power cut breaks the promise of this kind of operation, for "
            "example fsync; any: any promise.",
        ),
    ] = None,
    failure: Annotated[
        str | None,
        typer.Option(help="With --plan: a candidate is bad if a crash state breaks this promise or has this damage."),
    ] = None,
    more_broken_than: Annotated[
        int | None,
        typer.Option(min=0, help="With --plan: a candidate is bad if more crash states of --states are broken."),
    ] = None,
    states: Annotated[int, typer.Option(min=1, help="Crash states to check in each repetition.")] = DEFAULT_STATES,
    on: Annotated[
        str,
        typer.Option(metavar="MACHINES", help="Machines that have the candidate's software: all, server, clients."),
    ] = "all",
    error: Annotated[
        float, typer.Option(min=1e-9, max=0.5, help="Bound of the error probability of each decision.")
    ] = 0.01,
    repetitions: Annotated[int, typer.Option(min=1, help="Most repetitions on one candidate.")] = 50,
    once: Annotated[
        bool, typer.Option("--once", help="One repetition decides: the failure occurs in each repetition.")
    ] = False,
    show: Annotated[
        str | None, typer.Option(metavar="CANDIDATE", help="Test only this candidate, until it shows the failure.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the newest incomplete bisection of the same request.")
    ] = False,
    seed: Seed = None,
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Find the first bad commit, package version or value of an axis.

    Each candidate is tested repeatedly, until the decision is wrong with at most the probability --error.
    """
    from raidproof.record import RunStore  # noqa: PLC0415
    from raidproof.report.bisection import show_bisection  # noqa: PLC0415
    from raidproof.run.bisection import RECORD, WHAT, Bisection, digest_of, load, new_record, newest_of  # noqa: PLC0415
    from raidproof.run.candidates import BUILT, Commits, Trial, placeholders  # noqa: PLC0415
    from raidproof.run.run import command_line  # noqa: PLC0415

    given = asked.params
    chosen, tested = only_one(given, CANDIDATES), only_one(given, PREDICATES)
    part = only_one(given, PARTS) if tested == "plan" else None
    refuse_without_effect(given, chosen, tested)
    rule = rule_of(given, part)
    candidates = candidates_of(given, chosen, build=tested != "words" or bool(BUILT & placeholders(words or ())))
    asked_for = predicate_of(given, tested, part, Path())
    asked_for.refuse(Trial() if chosen == "tree" else candidates.prepare(len(candidates.listed) - 1))
    digest = digest_of(candidates, asked_for, rule, on, str(config))
    with ExitStack() as undo:
        if isinstance(candidates, Commits):
            undo.enter_context(candidates.locked())
        store = newest_of(digest, results) if resume else RunStore.create(results, WHAT)
        predicate = predicate_of(given, tested, part, store.path)
        if resume:
            record = load(store.path / RECORD)
        else:
            record = new_record(
                candidates, predicate, rule, name=store.path.name, digest=digest, command=command_line(sys.argv),
                error=error,
            )  # fmt: skip
        bisection = Bisection(candidates, predicate, rule, store, record)
        if show is not None:
            shown = bisection.show(show)
            print(f"{show}: {shown.answer}: {shown.reason} (output in {store.path})")  # noqa: T201
            raise typer.Exit(SHOWN_STATUS.get(shown.answer.name, Status.INCONCLUSIVE))
        bisection.run()
    emit(record, json, lambda console: show_bisection(record, console, str(store.path / RECORD)))
    raise typer.Exit(Status.PASS if len(record.first_bad) == 1 else Status.INCONCLUSIVE)


def only_one(given: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Return the name of the only one of several options that is given.

    Raises:
        RequestError: none is given, or more than one.
    """
    found = [name for name in names if given.get(name) not in (None, (), [])]
    if len(found) != 1:
        listed = ", ".join(map(written, names))
        raise RequestError(f"give exactly one of {listed}; found: {', '.join(map(written, found)) or 'none'}")
    return found[0]


def written(name: str) -> str:
    """Return an option as written on the command line."""
    return _WRITTEN.get(name, f"--{name.replace('_', '-')}")


def refuse_without_effect(given: Mapping[str, Any], chosen: str, tested: str) -> None:
    """Check that each given option has an effect with the chosen candidates and predicate.

    Raises:
        RequestError: an option has no effect, or one that is needed is missing.
    """
    needs = {
        "tree": {"good": chosen, "bad": chosen, "config": chosen},
        "plan": dict.fromkeys((*PARTS, "select"), tested),
    }
    for option, names in needs.items():
        for name, actual in names.items():
            if given.get(name) is not None and actual != option:
                raise RequestError(f"{written(name)} has an effect only with {written(option)}")
    if chosen == "tree" and (given["good"] is None or given["bad"] is None):
        raise RequestError("--tree needs --good and --bad", remedy="name a good and a bad commit")
    if chosen == "axis" and tested == "scenario":
        raise RequestError("--axis needs --plan or a command: a scenario has no axes")


def rule_of(given: Mapping[str, Any], part: str | None) -> "Rule":
    """Return the rule that decides about a candidate by its repetitions."""
    from raidproof.verdict.change.bisection import MoreThanShare, Reproduction, SlowerThan  # noqa: PLC0415

    common = {"error": given["error"], "most": given["repetitions"]}
    if part == "slower_than":
        return SlowerThan(given["slower_than"], **common)
    if part == "more_broken_than":
        return MoreThanShare(given["more_broken_than"] / given["states"], **common)
    return Reproduction(once=given["once"], **common)


def candidates_of(given: Mapping[str, Any], chosen: str, *, build: bool) -> "Candidates":
    """Return the candidates that the options name; ``build``: whether the software of each commit is built."""
    from raidproof.core.topology import SoftwareSpec  # noqa: PLC0415
    from raidproof.image import package  # noqa: PLC0415
    from raidproof.image.kernel import source  # noqa: PLC0415
    from raidproof.run.candidates import AxisValues, Commits, DebVersions  # noqa: PLC0415

    if chosen == "debs":
        return DebVersions(given["debs"])
    if chosen == "axis":
        return AxisValues(given["axis"])

    def built(tree: Path) -> SoftwareSpec:
        if (tree / "arch" / "um").is_dir():
            return SoftwareSpec(kernel=str(source.build(tree, given["config"])))
        return SoftwareSpec(packages=tuple(map(str, package.build(tree))))

    return Commits(given["tree"], given["good"], given["bad"], build=built if build else None)


def predicate_of(given: Mapping[str, Any], tested: str, part: str | None, logs: Path) -> "Predicate":
    """Return the predicate that the options describe; ``logs``: the folder for outputs of programs.

    Raises:
        RequestError: the platform, the plan or a name is unknown.
    """
    from raidproof.plan.plan import load_plan  # noqa: PLC0415
    from raidproof.run.platform import platform_for  # noqa: PLC0415
    from raidproof.run.predicate import ROLES, Command, PlannedCell, Scenario  # noqa: PLC0415

    if given["on"] not in ROLES:
        raise RequestError(f"--on {given['on']}", remedy=nearest(given["on"], ROLES))
    if tested == "words":
        return Command(tuple(given["words"]), logs)
    if tested == "scenario":
        return Scenario(given["scenario"], platform_for(given), given["on"], logs)
    plan = load_plan(given["plan"], {} if given["seed"] is None else {"seed": given["seed"]})
    platform = platform_for(given, plan.run)
    cell = part_of(given, part)
    return PlannedCell(plan, given["plan"], given["select"], platform, given["on"], given["results"], cell)


def part_of(given: Mapping[str, Any], part: str | None) -> "CellPart":
    """Return what is tested of a plan's cell.

    Raises:
        RequestError: no kind of operation has the given name.
    """
    from raidproof.run.predicate import CrashStates, Promise, Speed  # noqa: PLC0415
    from raidproof.verdict.contract import PROMISES  # noqa: PLC0415

    if part == "slower_than":
        return Speed(given["slower_than"])
    if part == "promise":
        kind = given["promise"]
        if kind not in {*PROMISES, ANY}:
            raise RequestError(f"--promise {kind}: unknown kind of operation", remedy=nearest(kind, {*PROMISES, ANY}))
        return Promise(None if kind == ANY else kind)
    if part == "failure":
        return CrashStates(given["states"], failure=given["failure"])
    return CrashStates(given["states"], share=given["more_broken_than"] / given["states"])


def bisect_run(
    words: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="a command of raidproof")],
) -> None:
    """Run a command, and end with the exit status that `git bisect run` expects.

    0: the command ended with 0. 1: it ended with 1 (FAIL). 125: it cannot say (3 ERROR, 4 INVALID, 5 INCONCLUSIVE,
    6 requirement missing, 125). 130: interrupted. 128: any other status, which ends `git bisect run`.
    """
    from raidproof.core.command import follow  # noqa: PLC0415
    from raidproof.run.predicate import COMMAND_DEADLINE_S, git_status  # noqa: PLC0415

    ended = follow(words, lambda line: print(line, flush=True), environment={}, deadline_s=COMMAND_DEADLINE_S)  # noqa: T201
    raise typer.Exit(git_status(ended.status))
