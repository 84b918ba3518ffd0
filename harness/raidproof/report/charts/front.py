"""The chart of the configurations that `raidproof advise` compared: speed against acknowledged work lost."""

from raidproof.record.advice import AdviceRecord, Configuration
from raidproof.report.cells import measure
from raidproof.report.charts import tradeoff
from raidproof.report.charts.figure import Chart, Figures, Row
from raidproof.report.charts.tradeoff import Tradeoff
from raidproof.report.words import plural, titled

ID = "front-chart"


def chart_of(record: AdviceRecord, figures: Figures) -> Chart | None:
    """Add the chart to the figures of a page and return it; None if no configuration has both values."""
    what, unit = measure(record.unit)
    rows = [
        row_of(place, one, unit, recommended=one.name == record.recommended)
        for place, one in enumerate(record.configurations, start=1)
        if one.median is not None and one.lost_s is not None
    ]
    if not rows:
        return None
    figures.hold("points", rows)
    figures.specifications[ID] = tradeoff.specification(rows, titled(what, unit))
    return Chart(
        id=ID,
        drawn_as=ID,
        title="Speed against acknowledged work lost",
        description=Tradeoff(rows, []).description,
        params={"points": len(rows)},
    )


def row_of(place: int, one: Configuration, unit: str, *, recommended: bool) -> Row:
    """Return the point of one configuration; its name is that of its changes."""
    return {
        "number": place,
        "name": " ".join(f"{axis}={value}" for axis, value in one.changes.items()) or "current",
        "link": "report.html",
        "export": None,
        "lost_s": one.lost_s,
        "lost": one.lost,
        "acknowledged": one.acknowledged,
        "speed": one.median,
        "low": one.median if one.least is None else one.least,
        "high": one.median if one.greatest is None else one.greatest,
        "n": one.repetitions,
        "unit": unit,
        "safety": one.safety,
        "rank": None,
        "workload": 0,
        "kind": "recommended" if recommended else "",
    }


def caption(figures: Figures) -> str:
    """Return the caption of the chart in these figures."""
    rows = figures.data["points"]
    return f"Speed of {plural(len(rows), 'configuration')} against acknowledged work lost at the power cut. " + (
        tradeoff.caption(rows)
    )
