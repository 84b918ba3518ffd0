"""The command line. Each command imports its modules only when it runs, so that help appears at once."""

import configparser
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from raidproof import __version__
from raidproof.cli import explore as cli_explore
from raidproof.cli import findings as cli_findings
from raidproof.cli import hosts as cli_hosts
from raidproof.cli.options import (
    RESULTS,
    Base,
    DryRun,
    Image,
    Keep,
    Kernel,
    Modules,
    New,
    Package,
    PlanFile,
    Repeats,
    Results,
    Seed,
    Select,
    StoredRun,
    with_platform,
)
from raidproof.core.errors import (
    ControlFailed,
    Inconclusive,
    ProductError,
    RaidproofError,
    RequestError,
    RequirementMissing,
    Status,
    nearest,
)
from raidproof.core.waiting import interrupted, unwind_on_signals

if TYPE_CHECKING:
    from raidproof.core.topology import Platform
    from raidproof.plan.cell import Matrix
    from raidproof.plan.plan import Plan

HOME = Path(__file__).resolve().parents[3]
"""The folder of the clone, if raidproof runs from a clone."""
app = typer.Typer(
    name="raidproof",
    help="Build an NFS server on Linux RAID, measure it, cut its power, and check every promise.",
    epilog="Exit status: 0 PASS, 1 FAIL, 2 bad request, 3 ERROR of the rig, 4 INVALID, 5 INCONCLUSIVE, "
    "6 requirement missing, 130 interrupted.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def export_log(
    run: StoredRun,
    disk: Annotated[str, typer.Argument(help="serial number of the disk: disk0, disk1, ...")],
    file: Annotated[Path, typer.Argument(help="file to create; it must not exist")],
    cycle: Annotated[str | None, typer.Option(help="Name of the crash test; required if the run has several.")] = None,
    results: Results = RESULTS,
) -> None:
    """Write the recorded requests of a disk to a file.

    The file has the requests up to the power cut, in the format of the kernel's target dm-log-writes.
    """
    from raidproof.disk.replay import export_dm_log_writes  # noqa: PLC0415
    from raidproof.disk.writelog import LogError, WriteLog  # noqa: PLC0415
    from raidproof.record import RunStore  # noqa: PLC0415
    from raidproof.run.exploration import choose_cycle, recorded  # noqa: PLC0415

    if file.exists():
        raise RequestError(f"{file} already exists", remedy="give another name, or remove the file")
    store = RunStore.find(run, results)
    chosen = choose_cycle(store.load(), store.path, cycle)
    # Under another name until complete, so that a partial file is not mistaken for a whole log.
    partial = file.with_name(f"{file.name}.partial")
    try:
        entries = export_dm_log_writes(WriteLog(store.path / recorded(chosen)), disk, partial)
        partial.rename(file)
    except LogError as error:
        raise RequestError(f"{chosen.name}: {error}") from error
    except OSError as error:
        remedy = "free some space" if error.errno == errno.ENOSPC else "name a file in a folder that you can write to"
        raise RequestError(f"cannot write {file}: {error.strerror}", remedy=remedy) from error
    finally:
        partial.unlink(missing_ok=True)
    print(f"{chosen.name}, {disk}: {entries:,} entries in {file}")  # noqa: T201


app.add_typer(cli_findings.app)
app.add_typer(cli_hosts.app)
app.command()(cli_explore.explore)
app.command()(export_log)


def show_version(asked: bool) -> None:
    """Print the version and exit, if ``--version`` is given."""
    if asked:
        print(f"raidproof {__version__}")  # noqa: T201
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=show_version)
    ] = False,
) -> None:
    """Define the options of every command; `main` reads --debug, which then covers errors of the command line too."""


@app.command("test")
def run_tests(
    parts: Annotated[
        list[str] | None, typer.Argument(help="lint, type, unit, scenarios (default: all four), or fuzz")
    ] = None,
) -> None:
    """Run linter, type checker, unit tests, then the scenarios."""
    require_clone()
    from tox.run import main as tox  # noqa: PLC0415

    arguments = tox_arguments(parts or [], *tox_environments((HOME / "tox.ini").read_text()))
    # In this process, so that SIGTERM interrupts tox as Ctrl-C does, and tox ends the programs that it runs.
    failed = tox(arguments) != Status.PASS
    raise typer.Exit(Status.INTERRUPTED if interrupted() else Status.FAIL if failed else Status.PASS)


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []})
def scenarios(arguments: Annotated[list[str] | None, typer.Argument(help="pytest's arguments")] = None) -> None:
    """Run the end-to-end scenarios. All arguments are passed to pytest."""
    require_clone()
    os.chdir(HOME)
    # Replace this process, so that signals and the exit status are pytest's own.
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *pytest_arguments(arguments or [])])  # noqa: S606


@app.command()
@with_platform(before="seed")
def demo(
    asked: typer.Context,
    seed: Annotated[int, typer.Option(help="Seed of all random choices.")] = 1,
    results: Results = RESULTS,
    keep: Keep = False,
) -> None:
    """Cut the power under a sync export and an async export.

    The command runs controls too, prints a table, and writes a report.
    """
    from raidproof.report.terminal import show  # noqa: PLC0415
    from raidproof.run.demo import run_demo  # noqa: PLC0415

    record, report = run_demo(results, platform=platform_asked(asked), seed=seed, keep=keep)
    show(record, Console(), report)
    raise typer.Exit(Status[record.outcome.name])


@app.command("run")
@with_platform(before="results")
def run(
    asked: typer.Context,
    plan: PlanFile,
    select: Select = None,
    dry_run: DryRun = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the newest run of this plan.")] = False,
    seed: Seed = None,
    repeats: Repeats = None,
    results: Results = RESULTS,
    keep: Keep = False,
) -> None:
    """Measure every configuration of a plan.

    The report names the bottleneck of each configuration, and ranks those with a sync export that lost no data.
    """
    matrix = matrix_asked(plan, select, seed=seed, repeats=repeats)
    platform = platform_asked(asked, matrix.plan)
    if dry_run:
        return
    from raidproof.report.terminal import show  # noqa: PLC0415
    from raidproof.run.plan_runner import newest_of, run_plan  # noqa: PLC0415

    stored = newest_of(matrix.plan.name, results) if resume else None
    record, report = run_plan(matrix, plan, results, platform=platform, resumed=stored, keep=keep)
    show(record, Console(), report)
    raise typer.Exit(Status[record.outcome.name])


@app.command("ab")
@with_platform(before="results")
def compare_sides(
    asked: typer.Context,
    plan: PlanFile,
    base: Base = None,
    new: New = None,
    select: Select = None,
    dry_run: DryRun = False,
    seed: Seed = None,
    repeats: Repeats = None,
    results: Results = RESULTS,
) -> None:
    """Compare two kernels, images or packages by a plan.

    The command measures the cells of the plan alternately on the two sides.
    """
    from raidproof.run.comparison import announce, run_ab, side_of  # noqa: PLC0415
    from raidproof.run.platform import refuse_unknown  # noqa: PLC0415

    matrix = matrix_asked(plan, select, seed=seed, repeats=repeats)
    common = platform_asked(asked, matrix.plan)
    if not (base or new):
        raise RequestError(
            "neither --base nor --new is given",
            remedy="give for example --base kernel=debian/bookworm --new kernel=debian/trixie; equal sides show noise",
        )
    sides = side_of(base or (), common), side_of(new or (), common)
    for side in sides:
        refuse_unknown(side)
    for line in announce(matrix, *sides):
        Console().print(line, markup=False, highlight=False, soft_wrap=True)
    if dry_run:
        return
    from raidproof.report.comparison import show_comparison  # noqa: PLC0415

    comparison, page = run_ab(matrix, plan, results, base=sides[0], new=sides[1])
    show_comparison(comparison, Console(), page)
    raise typer.Exit(Status[comparison.outcome.name])


@app.command("box")
def make_box(kernel: Kernel = None, modules: Modules = None, image: Image = None, package: Package = None) -> None:
    """Build the box that provider vagrant boots, and print its path.

    The box contains raidproof's image and kernel.
    """
    from raidproof.core.log import progress  # noqa: PLC0415
    from raidproof.core.topology import SoftwareSpec  # noqa: PLC0415
    from raidproof.image import image as images  # noqa: PLC0415
    from raidproof.image import kernel as kernels  # noqa: PLC0415
    from raidproof.provider.vagrant import box, libvirt  # noqa: PLC0415

    libvirt.require()
    software = SoftwareSpec(kernel=kernel, modules=modules, image=image, packages=tuple(package or ()))
    with progress("preparing kernel and image"):
        boots = kernels.get(software.kernel, modules=software.modules, provider="vagrant")
        made = box.get(images.get(software), boots)
    print(f"{made.name}: {made.file}")  # noqa: T201


@app.command()
def judge(
    run: StoredRun,
    results: Results = RESULTS,
) -> None:
    """Compute the verdicts of a stored run again, without machines."""
    from raidproof.record import RunStore  # noqa: PLC0415
    from raidproof.report.terminal import show  # noqa: PLC0415
    from raidproof.run.run import write_report  # noqa: PLC0415
    from raidproof.verdict.crash_test import judge_run  # noqa: PLC0415

    store = RunStore.find(run, results)
    record = store.load()
    judge_run(record, store.path)
    show(record, Console(), write_report(record, store))
    raise typer.Exit(Status[record.outcome.name])


@app.command()
def shell(
    machine: Annotated[str, typer.Argument(help="name of a machine: server, client1, ...")],
    lab: Annotated[
        str | None, typer.Option("--lab", help="Name of the kept lab; required if several labs are kept.")
    ] = None,
) -> None:
    """Open a shell in a machine of a kept lab.

    Without a terminal, the machine runs the commands on standard input.
    """
    from raidproof.run.shell import enter  # noqa: PLC0415

    raise typer.Exit(enter(machine, lab))


@app.command()
def gc(
    kept: Annotated[bool, typer.Option("--kept", help="Also end running labs that were kept with --keep.")] = False,
) -> None:
    """Remove the processes, namespaces and files of killed runs."""
    from raidproof.lab.lab_directory import collect  # noqa: PLC0415

    found = False
    for line in collect(kept=kept):
        found = True
        print(line)  # noqa: T201
    if not found:
        print("found nothing to remove")  # noqa: T201


@app.command()
def doctor(json: Annotated[bool, typer.Option("--json", help="Print the findings as a JSON array.")] = False) -> None:
    """Report what this host can and cannot do, with remedies."""
    from raidproof.run import doctor as diagnosis  # noqa: PLC0415

    findings = diagnosis.examine()
    diagnosis.show(findings, json=json)
    if diagnosis.missing(findings):
        raise typer.Exit(Status.REQUIREMENT_MISSING)


def matrix_asked(path: Path, select: str | None, **changes: int | None) -> "Matrix":
    """Return the selected cells of a plan, and print their description.

    ``changes`` replace values of the plan's table ``run``, for example its seed.
    """
    from raidproof.plan.cell import matrix_of  # noqa: PLC0415
    from raidproof.plan.forecast import describe  # noqa: PLC0415
    from raidproof.plan.plan import load_plan  # noqa: PLC0415

    given = {name: value for name, value in changes.items() if value is not None}
    matrix = matrix_of(load_plan(path, given)).select(select)
    Console().print(describe(matrix))
    return matrix


def platform_asked(asked: typer.Context, plan: "Plan | None" = None) -> "Platform":
    """Return the provider and the software that a command's options and its plan request."""
    from raidproof.run.platform import platform_for  # noqa: PLC0415

    return platform_for(asked.params, plan.run if plan else None)


def require_clone() -> None:
    """Check that raidproof runs from a clone of the project, which has the project's tests.

    Raises:
        RequestError: raidproof runs from an installed package.
    """
    if not (HOME / "tox.ini").is_file():
        remedy = "run ./raidproof in a clone of the project; for your own tests, run pytest, which loads the plugin"
        raise RequestError("the project's tests and scenarios are not part of an installed raidproof", remedy=remedy)


def tox_environments(ini: str) -> tuple[list[str], list[str]]:
    """Return the names of the tox environments that run by default, and of all environments that tox.ini defines."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(ini)
    listed = [name.strip() for name in parser["tox"]["env_list"].replace(",", "\n").splitlines() if name.strip()]
    return listed, [name.removeprefix("testenv:") for name in parser.sections() if name.startswith("testenv:")]


def tox_arguments(parts: Sequence[str], listed: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the arguments with which tox runs these parts in the current Python environment.

    Raises:
        RequestError: tox.ini does not define an environment with the name of a part.
    """
    for part in parts:
        if part not in known:
            raise RequestError(f"unknown part of the tests: {part!r}", remedy=nearest(part, known))
    config = ["--conf", str(HOME / "tox.ini")]
    return ["run", "--current-env", *config, "-e", ",".join(parts or listed)]


def pytest_arguments(arguments: Sequence[str]) -> list[str]:
    """Return pytest's arguments, with ``scenarios`` added unless an argument names a path there or in ``findings``."""
    tests = ("scenarios", "findings")
    named = any(not argument.startswith("-") and any(one in argument for one in tests) for argument in arguments)
    return [*arguments] if named else ["scenarios", *arguments]


def status_of(error: BaseException) -> Status:
    """Return the exit status of a command that an error ended."""
    match error:
        case KeyboardInterrupt():
            return Status.INTERRUPTED
        case RequestError():
            return Status.BAD_REQUEST
        case ControlFailed():
            return Status.INVALID
        case Inconclusive():
            return Status.INCONCLUSIVE
        case BaseExceptionGroup():
            return max(status_of(one) for one in error.exceptions)
        case RequirementMissing():
            return Status.REQUIREMENT_MISSING
        case ProductError():
            return Status.FAIL
        case _:
            return Status.ERROR


def cause_of(error: BaseException) -> str:
    """Return the message for users about an error, without a traceback."""
    match error:
        case KeyboardInterrupt():
            return "interrupted (./raidproof gc removes processes and files that remain)"
        case RaidproofError():
            return str(error)
        case BaseExceptionGroup():
            return "; ".join(cause_of(one) for one in error.exceptions)
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            where = f": {error.filename}" if error.filename else ""
            return f"disk full or quota exceeded{where} (remove files; ./raidproof doctor prints the required space)"
        case OSError(strerror=str(reason), filename=name):
            return f"{reason}: {name}" if name else reason
        case _:
            return f"internal error: {type(error).__name__}: {error} (--debug shows the traceback)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, print an error as one line on standard error, and return the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    ours = words[: words.index("--")] if "--" in words else words
    debug = "--debug" in ours
    words = [word for word in ours if word != "--debug"] + words[len(ours) :]
    unwind_on_signals()
    try:
        # In standalone mode, typer would print an error of the command line in ten lines.
        status = app(args=words or ["--help"], prog_name="raidproof", standalone_mode=False) or Status.PASS
        if status == Status.INTERRUPTED:  # typer returns this status after a KeyboardInterrupt
            print(f"raidproof: {cause_of(KeyboardInterrupt())}", file=sys.stderr)  # noqa: T201
        return int(status)
    except typer.TyperException as error:
        print(f"raidproof: {error.format_message()}", file=sys.stderr)  # noqa: T201
        return Status.BAD_REQUEST
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Status.ERROR
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            raise
        print(f"raidproof: {cause_of(error)}", file=sys.stderr)  # noqa: T201
        return status_of(error)
