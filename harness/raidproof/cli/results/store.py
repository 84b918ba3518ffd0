"""`raidproof ls`, `show`, `rm` and `export`: the stored runs."""

import re
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raidproof.cli.options import Json, Results, StoredRun
from raidproof.cli.output import emit, screen
from raidproof.core.errors import RequestError, nearest
from raidproof.core.waiting import wall_clock
from raidproof.run.options import RESULTS

if TYPE_CHECKING:
    from raidproof.record.outcome import Outcome
    from raidproof.record.run import RunRecord

MOST = 50
"""Number of runs that `raidproof ls` lists by default."""
StoredRuns = Annotated[list[str], typer.Argument(metavar="RUN...", help="names or directories of stored runs")]


class Format(StrEnum):
    """A format of `raidproof export`."""

    CSV = "csv"
    PARQUET = "parquet"
    OPENMETRICS = "openmetrics"


class Rows(StrEnum):
    """The table that `raidproof export` writes."""

    CELLS = "cells"
    CRASH_TESTS = "crash-tests"


def ls(
    plan: Annotated[str | None, typer.Option(help="Only runs of the plan with this name.")] = None,
    kernel: Annotated[
        str | None,
        typer.Option(help="Only runs whose requested or effective kernel of the server contains this text."),
    ] = None,
    provider: Annotated[str | None, typer.Option(help="Only runs on this provider.")] = None,
    cell: Annotated[str | None, typer.Option(help="Only runs with a cell whose name contains this text.")] = None,
    outcome: Annotated[str | None, typer.Option(help="Only runs with this outcome: PASS, FAIL, ...")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="DATE|AGE", help="Only runs since a date, 2026-11-22, or of the last 7d or 12h."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=0, help="Greatest number of runs; 0: all (default 50; all with --json).", show_default=False),
    ] = None,
    json: Json = False,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Create the index of the runs anew.")] = False,
    results: Results = RESULTS,
) -> None:
    """List stored runs, the newest first."""
    from raidproof.record.results.entry import RunFilter  # noqa: PLC0415
    from raidproof.record.results.index import Index  # noqa: PLC0415

    wanted = RunFilter(
        plan=plan,
        kernel=kernel,
        provider=provider,
        cell=cell,
        outcome=None if outcome is None else _outcome(outcome),
        since=None if since is None else begin_of(since),
    )
    with Index.open(results, rebuild=rebuild) as index:
        most = (None if json else MOST) if limit is None else limit or None
        runs = index.runs(wanted, most)
        total = index.count(wanted)
    if json:
        emit(runs, json)
        return
    if not runs:
        print(f"{results.absolute()} has {'no runs yet' if wanted == RunFilter() else 'no such run'}")  # noqa: T201
        return
    from raidproof.report.results.run_list import show_list  # noqa: PLC0415

    show_list(runs, screen(json))
    if len(runs) < total:
        print(f"the newest {len(runs):,} of {total:,} runs; --limit 0 lists all")  # noqa: T201


def show(
    run: StoredRun,
    crash: Annotated[
        bool,
        typer.Option("--crash", help="Write the crash page of each exploration of the run, and print their paths."),
    ] = False,
    json: Json = False,
    results: Results = RESULTS,
) -> None:
    """Show the report of a stored run, as at its end; or write the crash pages of its explorations."""
    from raidproof.record.results.store import RunStore  # noqa: PLC0415

    if crash:
        if json:
            raise RequestError("--crash writes pages and prints no JSON", remedy="omit --json or --crash")
        from raidproof.run.crash_page import write_pages  # noqa: PLC0415

        for page in write_pages(RunStore.find(run, results)):
            print(page)  # noqa: T201
        return
    from raidproof.report import terminal  # noqa: PLC0415

    store = RunStore.find(run, results)
    record = store.load()
    page = store.path / "report.html"
    emit(record, json, lambda console: terminal.show(record, console, page if page.is_file() else None))


def rm(
    runs: StoredRuns,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove without a question.")] = False,
    results: Results = RESULTS,
) -> None:
    """Remove stored runs with all their files. A run in progress, and the run of a baseline, are refused."""
    from raidproof.record.results.baseline import refuse_removal_of_baselines  # noqa: PLC0415
    from raidproof.record.results.index import update  # noqa: PLC0415
    from raidproof.record.results.store import RunStore  # noqa: PLC0415

    stores = {path: RunStore(path) for path in (removable(run, results) for run in runs)}
    for store in stores.values():
        store.refuse_in_use()
        refuse_removal_of_baselines(store)
    names = ", ".join(path.name for path in stores)
    if not yes:
        if not sys.stdin.isatty():
            raise RequestError(f"{names}: the removal is not confirmed", remedy="add --yes")
        if input(f"Remove {names} with all files? [y/N] ").strip().lower() not in {"y", "yes"}:
            print("removed nothing")  # noqa: T201
            return
    for path, store in stores.items():
        store.remove()
        update(path)
        print(f"removed {path}")  # noqa: T201


def export(
    runs: StoredRuns,
    form: Annotated[Format, typer.Option("--format", help="Format of the file.")] = Format.CSV,
    table: Annotated[
        Rows, typer.Option(help="With csv and parquet: a row for each repetition of a cell, or for each crash test.")
    ] = Rows.CELLS,
    output: Annotated[Path | None, typer.Option(help="File to write; without it, standard output.")] = None,
    results: Results = RESULTS,
) -> None:
    """Write the values of stored runs for other programs."""
    from raidproof.core.files import write_durably  # noqa: PLC0415
    from raidproof.record.results.store import RunStore  # noqa: PLC0415

    records = [RunStore.find(run, results).load() for run in runs]
    content = _exported(records, form, table)
    if output is not None:
        write_durably(output, content)
        print(f"wrote {output}")  # noqa: T201
    elif isinstance(content, str):
        sys.stdout.write(content)
    elif sys.stdout.isatty():
        raise RequestError(f"{form.value} is not text", remedy="name a file with --output")
    else:
        sys.stdout.buffer.write(content)


def begin_of(since: str) -> datetime:
    """Return the instant of ``--since``: a date or time, in the zone of this host, or an age such as 7d, 12h or 30m.

    Raises:
        RequestError: the text has another form.
    """
    if age := re.fullmatch(r"(\d{1,6})([dhm])", since):
        unit = {"d": "days", "h": "hours", "m": "minutes"}[age[2]]
        return wall_clock() - timedelta(**{unit: int(age[1])})
    try:
        return datetime.fromisoformat(since).astimezone()
    except (ValueError, OverflowError) as error:
        raise RequestError(
            f"--since: not a date or an age: {since!r}", remedy="write for example 2026-11-22 or 7d"
        ) from error


def _outcome(word: str) -> "Outcome":
    from raidproof.record.outcome import Outcome  # noqa: PLC0415

    if word.upper() not in Outcome.__members__:
        raise RequestError(f"--outcome: unknown outcome: {word!r}", remedy=nearest(word.upper(), Outcome.__members__))
    return Outcome[word.upper()]


def removable(run: str, results: Path) -> Path:
    """Return the directory of a run or comparison, also if it has no record or one that cannot be read.

    Raises:
        RequestError: no directory of a run has this name, or it is a symbolic link.
    """
    from raidproof.record.results.index import folder_of  # noqa: PLC0415
    from raidproof.record.results.store import RunStore  # noqa: PLC0415

    named = (path for path in (Path(run), results / run) if folder_of(path) is not None)
    path = next(named, None) or RunStore.find(run, results).path
    if path.is_symlink():
        raise RequestError(f"{path} is a symbolic link", remedy="name the directory to which it leads")
    return path.resolve()


def _exported(records: "Sequence[RunRecord]", form: Format, table: Rows) -> str | bytes:
    from raidproof.report.results import export as tables  # noqa: PLC0415

    if form is Format.OPENMETRICS:
        return tables.as_openmetrics(records)
    rows = list(tables.cell_rows(records) if table is Rows.CELLS else tables.crash_test_rows(records))
    if not rows:
        what = "repetition of a cell" if table is Rows.CELLS else "crash test"
        other = Rows.CRASH_TESTS if table is Rows.CELLS else Rows.CELLS
        raise RequestError(f"the runs have no {what}", remedy=f"try --table {other.value}")
    return tables.as_csv(rows) if form is Format.CSV else tables.as_parquet(rows)
