"""The command line. Each command imports its modules only when it runs, so that help appears at once."""

import errno
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from raidproof import __version__
from raidproof.cli import advise as cli_advise
from raidproof.cli import bisect as cli_bisect
from raidproof.cli import build as cli_build
from raidproof.cli import cluster as cli_cluster
from raidproof.cli import config as cli_config
from raidproof.cli import explore as cli_explore
from raidproof.cli import findings as cli_findings
from raidproof.cli import hosts as cli_hosts
from raidproof.cli import import_server as cli_import
from raidproof.cli import profile as cli_profile
from raidproof.cli import project_tests as cli_tests
from raidproof.cli import recover as cli_recover
from raidproof.cli import selftest as cli_selftest
from raidproof.cli import storm as cli_storm
from raidproof.cli import teach as cli_teach
from raidproof.cli.completion import register_shells, show_completion
from raidproof.cli.config_files import split, use_defaults
from raidproof.cli.options import (
    Base,
    Cluster,
    DryRun,
    Image,
    Json,
    Keep,
    Kernel,
    Margin,
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
from raidproof.cli.output import emit, say, screen
from raidproof.cli.reference import man as cli_man
from raidproof.cli.reference import schema as cli_schema
from raidproof.cli.reference import version as cli_version
from raidproof.cli.results import compare as cli_compare
from raidproof.cli.results import history as cli_history
from raidproof.cli.results import serve as cli_serve
from raidproof.cli.results import store as cli_store
from raidproof.cli.results import summary as cli_summary
from raidproof.core.errors import (
    ControlFailed,
    Inconclusive,
    ProductError,
    RaidproofError,
    RequestError,
    RequirementMissing,
    Status,
)
from raidproof.core.waiting import unwind_on_signals
from raidproof.run.options import RESULTS, STATES

if TYPE_CHECKING:
    from rich.console import Console

    from raidproof.core.topology import Platform
    from raidproof.plan.cell import Matrix
    from raidproof.plan.plan import Plan

ORDER = (
    *("demo", "teach", "import", "run", "advise", "ab", "explore", "storm", "recover"),
    *("ls", "show", "serve", "compare", "baseline", "history", "summary", "export", "export-log", "judge", "rm"),
    *("bisect", "bisect-run", "findings"),
    *("doctor", "selftest", "profile", "kernel", "package", "box", "hosts", "cluster", "worker", "shell", "gc"),
    *("schema", "config", "man", "version"),
    *("scenarios", "test"),
)
"""The order of the commands in the help: by purpose, as in the launcher's."""


class InOrder(TyperGroup):
    """The group of all commands, in the order of `ORDER`."""

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002
        """Return the names of the commands."""
        return sorted(self.commands, key=ORDER.index)


app = typer.Typer(
    name="raidproof",
    cls=InOrder,
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
    cycle: Annotated[
        str | None, typer.Option(help="Name, number or title of the crash test; required if the run has several.")
    ] = None,
    results: Results = RESULTS,
) -> None:
    """Write the recorded requests of a disk to a file.

    The file has the requests up to the power cut, in the format of the kernel's target dm-log-writes.
    """
    from raidproof.disk.replay import export_dm_log_writes  # noqa: PLC0415
    from raidproof.disk.writelog import LogError, WriteLog  # noqa: PLC0415
    from raidproof.record import RunStore  # noqa: PLC0415
    from raidproof.run.source import choose_cycle, recorded  # noqa: PLC0415

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
app.add_typer(cli_profile.app)
app.add_typer(cli_cluster.app)
app.command()(cli_cluster.worker)
app.add_typer(cli_build.kernel)
app.add_typer(cli_build.package)
app.add_typer(cli_compare.baselines)
app.command()(cli_compare.compare)
app.command()(cli_history.history)
app.command()(cli_advise.advise)
app.command()(cli_explore.explore)
app.command()(cli_storm.storm)
app.command()(cli_recover.recover)
app.command()(cli_bisect.bisect)
app.command("import")(cli_import.import_server)
app.command("bisect-run")(cli_bisect.bisect_run)
app.command()(export_log)
for stored_runs in (cli_store.ls, cli_store.show, cli_store.rm, cli_store.export):
    app.command()(stored_runs)
app.command()(cli_serve.serve)
app.command()(cli_schema.schema)
app.command()(cli_version.version)
app.command()(cli_man.man)
app.command()(cli_config.config)
app.command()(cli_summary.summary)
app.command()(cli_teach.teach)
app.command()(cli_selftest.selftest)
app.command("test")(cli_tests.run_tests)
app.command(context_settings=cli_tests.TO_PYTEST)(cli_tests.scenarios)


def show_version(asked: bool) -> None:
    """Print the version and exit, if ``--version`` is given."""
    if asked:
        print(f"raidproof {__version__}")  # noqa: T201
        raise typer.Exit


@app.callback()
def options(
    asked: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=show_version)
    ] = False,
    completion: Annotated[
        str | None,
        typer.Option(
            "--show-completion",
            metavar="SHELL",
            help="Print the completion script of bash, zsh or fish.",
            is_eager=True,
            callback=show_completion,
        ),
    ] = None,
) -> None:
    """Define the options of every command; `main` reads --debug, which then covers errors of the command line too.

    Raises:
        RequestError: a file of defaults is invalid.
    """
    use_defaults(asked)


@app.command()
@with_platform(before="seed")
def demo(
    asked: typer.Context,
    seed: Annotated[int, typer.Option(help="Seed of all random choices.")] = 1,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="AXIS=VALUE",
            help="Setting of array, file system, server or mounts, as in a plan; repeatable.",
        ),
    ] = None,
    states: Annotated[
        int | None,
        typer.Option(
            min=0, help="Crash states of the sync export to check after its power cut, at most (default 60; 0: none)."
        ),
    ] = None,
    results: Results = RESULTS,
    keep: Keep = False,
    json: Json = False,
) -> None:
    """Cut the power under a sync export and an async export.

    The command runs controls too, prints a table, and writes a report.
    """
    from raidproof.report.terminal import show  # noqa: PLC0415
    from raidproof.run.demo import read_settings, run_demo  # noqa: PLC0415

    record, report = run_demo(
        results,
        platform=platform_asked(asked),
        seed=seed,
        keep=keep,
        settings=read_settings(settings or []),
        states=STATES if states is None else states,
    )
    emit(record, json, lambda console: show(record, console, report))
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
    against: cli_compare.Against = None,
    known: cli_compare.Known = None,
    cluster: Cluster = None,
    results: Results = RESULTS,
    keep: Keep = False,
    json: Json = False,
) -> None:
    """Measure every configuration of a plan.

    The report names the bottleneck of each configuration, and ranks those with a sync export that lost no data.
    """
    matrix = matrix_asked(asked, plan, select, screen(json), in_full=dry_run)
    platform = platform_asked(asked, matrix.plan)
    from raidproof.record.known import load_known  # noqa: PLC0415

    base, expected = cli_compare.base_of(against, results), load_known(known)
    if dry_run:
        from raidproof.plan.dry_run import dry_run as described  # noqa: PLC0415

        emit(described(matrix, platform), json)
        return
    from raidproof.record import RunStore  # noqa: PLC0415
    from raidproof.report.terminal import show  # noqa: PLC0415
    from raidproof.run.plan_runner import run_plan  # noqa: PLC0415

    if cluster is not None and keep:
        raise RequestError("--keep has no effect with --cluster: the labs run on the workers", remedy="omit --keep")
    stored = RunStore.newest(results, matrix.plan.name) if resume else None
    carry_out = run_plan
    if cluster is not None:
        from raidproof.cluster.plans import run_plan_on  # noqa: PLC0415
        from raidproof.cluster.spec import ClusterSpec  # noqa: PLC0415

        carry_out = partial(run_plan_on, ClusterSpec.read(cluster))
    record, report = carry_out(matrix, plan, results, platform=platform, resumed=stored, keep=keep, known=expected)
    emit(record, json, lambda console: show(record, console, report))
    outcome = cli_compare.show_against(base, record, results, expected, screen(json)) if base else record.outcome
    raise typer.Exit(Status[outcome.name])


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
    known: cli_compare.Known = None,
    margin: Margin = 3.0,
    until_decided: Annotated[
        bool, typer.Option("--until-decided", help="Add repetitions of undecided cells, up to --max-repeats.")
    ] = False,
    max_repeats: Annotated[
        int, typer.Option(help="Greatest number of repetitions of each side with --until-decided.", min=2, max=1000)
    ] = 30,
    minutes: Annotated[
        float | None, typer.Option(help="With --until-decided: add no repetition after this time.", min=0)
    ] = None,
    cluster: Cluster = None,
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Compare two kernels, images or packages by a plan.

    The command measures the cells of the plan alternately on the two sides. Exit status 1: a cell is slower on new, or
    new breaks a promise. Exit status 5: a cell is undecided.
    """
    from raidproof.run.comparison import Effort, announce, run_ab, side_of, with_enough_repeats  # noqa: PLC0415
    from raidproof.run.platform import refuse_unknown  # noqa: PLC0415

    effort = Effort(margin / 100, max_repeats if until_decided else None, minutes)
    on_workers = cluster is not None
    enough = partial(with_enough_repeats, most=effort.most_repeats, on_workers=on_workers)
    matrix = matrix_asked(asked, plan, select, screen(json), ready=enough, in_full=dry_run)
    common = platform_asked(asked, matrix.plan)
    if not (base or new):
        raise RequestError(
            "neither --base nor --new is given",
            remedy="give for example --base kernel=debian/bookworm --new kernel=debian/trixie; equal sides show noise",
        )
    sides = side_of(base or (), common), side_of(new or (), common)
    for side in sides:
        refuse_unknown(side)
    say(screen(json), announce(matrix, *sides, effort, results, on_workers=on_workers))
    from raidproof.record.known import load_known  # noqa: PLC0415

    expected = load_known(known)
    if dry_run:
        from raidproof.plan.dry_run import dry_run_of_sides  # noqa: PLC0415

        emit(dry_run_of_sides(matrix, *sides), json)
        return
    from raidproof.report.comparison import show_comparison  # noqa: PLC0415

    carry_out = run_ab
    if cluster is not None:
        from raidproof.cluster.plans import run_ab_on  # noqa: PLC0415
        from raidproof.cluster.spec import ClusterSpec  # noqa: PLC0415

        carry_out = partial(run_ab_on, ClusterSpec.read(cluster))
    comparison, page = carry_out(matrix, plan, results, base=sides[0], new=sides[1], effort=effort, known=expected)
    emit(comparison, json, lambda console: show_comparison(comparison, console, page))
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
def judge(run: StoredRun, results: Results = RESULTS, json: Json = False) -> None:
    """Compute the verdicts of a stored run again, without machines."""
    from raidproof.record import RunStore  # noqa: PLC0415
    from raidproof.report.terminal import show  # noqa: PLC0415
    from raidproof.run.run import write_report  # noqa: PLC0415
    from raidproof.verdict.run import judge_run  # noqa: PLC0415

    store = RunStore.find(run, results)
    record = store.load()
    judge_run(record, store.path)
    report = write_report(record, store)
    emit(record, json, lambda console: show(record, console, report))
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


def matrix_asked(
    asked: typer.Context,
    path: Path,
    select: str | None,
    console: "Console",
    *,
    ready: "Callable[[Matrix], Matrix] | None" = None,
    in_full: bool = False,
) -> "Matrix":
    """Return the selected cells of a plan, and print their description on a console.

    The options ``seed`` and ``repeats`` replace values of the plan's table ``run``; a file's defaults do not.
    ``ready`` changes the selected cells before. ``in_full``: with ceilings, and all of each warning.
    """
    from raidproof.plan.cell import matrix_of  # noqa: PLC0415
    from raidproof.plan.forecast import describe  # noqa: PLC0415
    from raidproof.plan.plan import load_plan  # noqa: PLC0415

    given, defaults = (
        {name: options[name] for name in ("seed", "repeats") if options.get(name) is not None}
        for options in split(asked)
    )
    matrix = matrix_of(load_plan(path, given, defaults)).select(select)
    if ready is not None:
        matrix = ready(matrix)
    console.print(describe(matrix, in_full=in_full))
    return matrix


def platform_asked(asked: typer.Context, plan: "Plan | None" = None) -> "Platform":
    """Return the provider and the software that a command's options, its plan and the files of defaults request."""
    from raidproof.run.platform import platform_for  # noqa: PLC0415

    given, defaults = split(asked)
    return platform_for(given, plan.run if plan else None, defaults)


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
            where = error.filename or fullest()
            return f"disk full or quota exceeded: {where} (remove files; ./raidproof doctor prints the required space)"
        case OSError(strerror=str(reason), filename=name):
            return f"{reason}: {name}" if name else reason
        case _:
            return f"internal error: {type(error).__name__}: {error} (--debug shows the traceback)"


def fullest() -> str:
    """Return the folder with the least free space, of those for results, the cache, labs and the machines' memory."""
    from raidproof.core.units import MIB  # noqa: PLC0415
    from raidproof.image import cache  # noqa: PLC0415
    from raidproof.run.doctor import SHARED_MEMORY, free_bytes  # noqa: PLC0415

    free = {path: free_bytes(path) for path in (Path.cwd(), cache.root(), Path(gettempdir()), SHARED_MEMORY)}
    least = min(free, key=lambda path: free[path])
    return f"{least} has the least free space, {free[least] // MIB} MiB"


def complain(message: str) -> None:
    """Print a message on standard error."""
    from raidproof.core.terminal import printable  # noqa: PLC0415

    print(f"raidproof: {printable(message)}", file=sys.stderr)  # noqa: T201


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, print an error as one line on standard error, and return the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    ours = words[: words.index("--")] if "--" in words else words
    debug = "--debug" in ours
    words = [word for word in ours if word != "--debug"] + words[len(ours) :]
    sys.audit("raidproof.command", *words)  # for programs that observe which commands run: sys.addaudithook
    unwind_on_signals()
    register_shells()
    try:
        # In standalone mode, typer would print an error of the command line in ten lines.
        status = app(args=words or ["--help"], prog_name="raidproof", standalone_mode=False) or Status.PASS
        if status == Status.INTERRUPTED:  # typer returns this status after a KeyboardInterrupt
            complain(cause_of(KeyboardInterrupt()))
        return int(status)
    except typer.TyperException as error:
        complain(error.format_message())
        return Status.BAD_REQUEST
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Status.ERROR
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            raise
        complain(cause_of(error))
        return status_of(error)
