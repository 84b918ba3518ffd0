"""The page of a comparison as one self-contained HTML file."""

from pathlib import Path

from raidproof.record.store import RunStore
from raidproof.report import comparison
from raidproof.report.html import SIGNS, templates
from raidproof.verdict.comparison import ComparisonRecord

COMPARISON = "comparison.json"
PAGE = "comparison.html"


def write_comparison(compared: ComparisonRecord, store: RunStore) -> Path:
    """Write the record and the page of a comparison, each atomically; return the path of the page."""
    store.write_text(COMPARISON, compared.model_dump_json(indent=1) + "\n")
    return store.write_text(PAGE, render_comparison(compared))


def render_comparison(compared: ComparisonRecord) -> str:
    """Return the HTML of a comparison."""
    return (
        templates()
        .get_template("comparison.html.j2")
        .render(run=compared, signs=SIGNS, sides=comparison, chart=comparison, groups=comparison.groups(compared))
    )
