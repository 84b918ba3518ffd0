"""The page of an exploration as one self-contained HTML file, and the update of the run's page."""

from pathlib import Path

from raidproof.record.exploration import ExplorationRecord
from raidproof.record.store import RunStore
from raidproof.report import exploration
from raidproof.report.html import SIGNS, templates, write_html


def write_exploration(record: ExplorationRecord, store: RunStore, stem: str) -> Path:
    """Write record and page of an exploration and update the run's page, each atomically; return the page's path."""
    store.write_text(f"{stem}.json", record.model_dump_json(indent=1) + "\n")
    page = store.write_text(f"{stem}.html", render_exploration(record))
    write_html(store.load(), store.path / "report.html")
    return page


def render_exploration(record: ExplorationRecord) -> str:
    """Return the HTML of an exploration."""
    return (
        templates()
        .get_template("exploration.html.j2")
        .render(
            run=record,
            signs=SIGNS,
            words=exploration,
            chart=exploration,
            figure=exploration.figure(record),
        )
    )
