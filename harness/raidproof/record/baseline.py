"""Baselines: names for stored runs that later runs are compared with, each a file in ``results/baselines/``."""

import re
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from raidproof.core.errors import RequestError, nearest
from raidproof.core.files import make_directory, sync_directory, write_durably
from raidproof.core.waiting import wall_clock
from raidproof.record.cell import Strict
from raidproof.record.store import RECORD, RunStore

SCHEMA = 1
FOLDER = "baselines"
"""Folder in the directory of stored runs; one file for each baseline, so that several writers do not interfere."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
RESERVED = ("latest",)
"""Names that mean a run by themselves."""


class Baseline(Strict):
    """A name for a stored run."""

    name: str
    run: str
    """Name of the run, which is that of its directory in the directory of stored runs."""
    since: datetime
    """When the name was given to this run."""


def set_baseline(name: str, store: RunStore, results: Path) -> Baseline:
    """Give a run the name of a baseline, durably; a baseline of this name then means this run.

    Raises:
        RequestError: the name is malformed, the run is not in ``results``, or it is not the run of a plan.
    """
    if not NAME.fullmatch(name) or name in RESERVED:
        raise RequestError(
            f"not the name of a baseline: {name!r}",
            remedy=f"use letters, digits, dots, dashes and underscores; not: {', '.join(RESERVED)}",
        )
    if store.path.resolve().parent != results.resolve():
        raise RequestError(
            f"{store.path} is not in {results}: only a run in the directory of stored runs can be a baseline",
            remedy="give its directory with --results",
        )
    if store.load().plan is None:
        raise RequestError(f"{store.path} is not the run of a plan: it has no cells to compare with")
    baseline = Baseline(name=name, run=store.path.resolve().name, since=wall_clock())
    folder = results / FOLDER
    make_directory(folder, exist_ok=True)
    write_durably(folder / f"{name}.json", baseline.model_dump_json(indent=1) + "\n")
    return baseline


def remove_baseline(name: str, results: Path) -> Baseline:
    """Remove the name of a baseline, durably; its run stays. Return the removed baseline.

    Raises:
        RequestError: no baseline has this name.
    """
    baseline = baseline_named(name, results)
    (results / FOLDER / f"{name}.json").unlink(missing_ok=True)
    sync_directory(results / FOLDER)
    return baseline


def baselines_of(results: Path) -> list[Baseline]:
    """Return the baselines in a directory of stored runs, by name. Their runs must not be removed.

    Raises:
        RequestError: the file of a baseline is malformed.
    """
    return [_read(path) for path in sorted((results / FOLDER).glob("*.json"))]


def baseline_named(name: str, results: Path) -> Baseline:
    """Return the baseline of this name.

    Raises:
        RequestError: no baseline has this name.
    """
    known = {one.name: one for one in baselines_of(results)}
    if name not in known:
        remedy = nearest(name, known) if known else "`raidproof baseline set NAME RUN` makes one"
        raise RequestError(f"{results} has no baseline {name!r}", remedy=remedy)
    return known[name]


def run_named(name: str, results: Path) -> RunStore:
    """Return the stored run that a baseline's name, a run's name, or the path of a run's directory means.

    Raises:
        RequestError: no baseline and no run has this name, or the run of the baseline is missing.
    """
    known = {one.name: one for one in baselines_of(results)}
    if name not in known:
        return RunStore.find(name, results)
    run = known[name].run
    if not (results / run / RECORD).is_file():
        raise RequestError(
            f"baseline {name!r} means run {run}, which is not in {results}",
            remedy=f"`raidproof baseline set {name} RUN` chooses another run",
        )
    return RunStore(results / run)


def refuse_removal_of_baselines(store: RunStore) -> None:
    """Verify that a stored run may be removed: that it is not the run of a baseline.

    Raises:
        RequestError: a baseline means this run.
    """
    run = store.path.resolve()
    names = [one.name for one in baselines_of(run.parent) if one.run == run.name]
    if names:
        raise RequestError(
            f"run {run.name} is kept, because it is the run of baseline {', '.join(map(repr, names))}",
            remedy="`raidproof baseline rm NAME` removes the name of a baseline",
        )


def _read(path: Path) -> Baseline:
    try:
        return Baseline.model_validate_json(path.read_text())
    except ValidationError as error:
        raise RequestError(f"{path}: not the file of a baseline: {error.errors()[0]['msg']}") from error
