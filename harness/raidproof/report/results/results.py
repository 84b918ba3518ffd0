"""The page of a results directory, which `raidproof serve` shows: its runs, their verdicts and the running run."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from raidproof.core.errors import RequestError
from raidproof.record.results.entry import RunEntry, State
from raidproof.record.results.names import COMPARISON, CRASH_PAGE
from raidproof.record.results.progress import PROGRESS, progress_of
from raidproof.record.results.store import RunStore
from raidproof.report.html import templates


def pages_of(run: Path) -> list[tuple[str, str]]:
    """Return name and title of each HTML page of a run, the report first."""
    names = sorted((path.name for path in run.glob("*.html")), key=lambda name: (name != "report.html", name))
    return [(name, _title(name)) for name in names]


def _title(name: str) -> str:
    if name in {"report.html", Path(COMPARISON).with_suffix(".html").name}:
        return Path(name).stem
    kind = "crash page" if name.endswith(CRASH_PAGE) else "exploration"
    cycle = name.removesuffix(CRASH_PAGE).removesuffix(".html").removeprefix("explore-")
    return f"{kind}: {cycle}"


def render_results(results: Path, runs: Sequence[RunEntry], total: int) -> str:
    """Return the HTML page of a results directory; ``runs``: the newest of ``total`` runs."""
    script = (files("raidproof.report") / "page" / "results.js").read_text()
    return (
        templates()
        .get_template("results.html.j2")
        .render(
            results=results.absolute(),
            runs=[(run, pages_of(results / run.folder)) for run in runs],
            total=total,
            live=live(results, runs),
            script=Markup(script),  # noqa: S704  a file of this package
        )
    )


def live(results: Path, runs: Sequence[RunEntry]) -> list[dict[str, Any]]:
    """Return name and progress of the runs in progress, and of the runs of which an exploration is in progress."""
    found = []
    for run in runs:
        if run.state is State.RUNNING or (run.state is State.ENDED and _explored(results / run.folder)):
            progress = progress_of(results / run.folder)
            found.append({"run": run.folder, "progress": progress and progress.model_dump(mode="json")})
    return found


def _explored(run: Path) -> bool:
    """Return whether an exploration of an ended run is in progress; a killed one leaves its progress, and no lock."""
    if not (run / PROGRESS).exists():
        return False
    try:
        RunStore(run).refuse_in_use()
    except RequestError:
        return True
    return False
