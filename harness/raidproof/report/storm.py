"""The report of a storm, on the terminal and as HTML: seeds, failures with their scenarios, and covered pairs."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from raidproof.record.outcome import Outcome
from raidproof.record.storm import StormRecord, StormRow
from raidproof.report.charts import Chart, Figures, drawing, pairs
from raidproof.report.html import templates
from raidproof.report.table import Cell, Field, Table, say
from raidproof.report.words import number, plural
from raidproof.verdict.storm import faults_in_phases, pairs_of_faults

PHASES = ("work", "boot", "assemble", "mount", "grace", "recovery")
"""The phases in which a fault is injected: the work of the clients, a stage of the server's recovery after a power
cut, the beginning of the grace period, and the work after a recovery."""
LIMITS = (
    "Random schedules show failures; that none failed does not show that no schedule fails.",
    "Two runs of one seed have the same schedule, stack and workers. The operations of the clients and the instants "
    "of the faults differ.",
    "No crash states are explored; of each crash test only the cuts that occurred are judged.",
)


def summary(record: StormRecord) -> str:
    """Return the numbers of seeds by outcome as a clause."""
    counted = Counter(row.outcome for row in record.rows)
    by_outcome = ", ".join(f"{count:,} {outcome.value}" for outcome, count in sorted(counted.items()))
    return f"{plural(len(record.rows), 'seed')} of {record.first:,} to {record.last:,}: {by_outcome or 'none was run'}"


def table_of(rows: Sequence[StormRow]) -> Table[StormRow]:
    """Return the table of seeds."""
    return Table(
        [
            Field("seed", lambda row: str(row.seed), "number", names_row=True),
            Field("outcome", lambda row: Cell(verdict=row.outcome), "word"),
            Field("stack", lambda row: row.drawn.array),
            Field("faults", lambda row: "; ".join(row.drawn.faults)),
            Field("workers", lambda row: " ".join(row.drawn.kinds), page_only=True),
            Field("reason", lambda row: "" if row.outcome is Outcome.PASS else row.reason),
            Field("s", lambda row: number(row.seconds), "number"),
        ],
        rows,
    )


def told(row: StormRow) -> list[str]:
    """Return sentences about a failing seed: whether it failed again, and its smallest schedule."""
    if row.repeated is False:
        return [f"The failure did not occur again in {len(row.cycles) - 1} repetitions."]
    if row.shrunk is None:
        return []
    small = row.shrunk.case
    return [
        f"The failure occurred again. The smallest failing schedule of {plural(row.shrunk.tried, 'smaller case')}: "
        f"{'; '.join(small.faults)}, on {small.array}, with workers {' '.join(small.kinds)}.",
        f"Scenario: {row.shrunk.scenario}; crash test {row.shrunk.cycle}.",
    ]


def charts_of(record: StormRecord) -> tuple[list[Chart], Figures]:
    """Return the charts of the covered pairs."""
    faults = sorted({name for row in record.rows for name in row.drawn.names})
    figures = Figures()
    charts = []
    for id_, found, across, titles, title in (
        ("pairs", pairs_of_faults(record.rows), faults, ("first fault", "later fault"), "Two faults in sequence"),
        ("phases", faults_in_phases(record.rows), PHASES, ("fault", "phase"), "Faults in phases"),
    ):
        figures.hold(id_, pairs.rows_of(found, faults, across))
        most = max(found.values(), default=0)
        figures.specifications[id_] = pairs.specification(id_, faults, across, titles, most)
        said = ", ".join(f"{one} and {other}: {count}" for (one, other), count in sorted(found.items()))
        charts.append(Chart(id_, id_, title, said or "no pair was covered"))
    return charts, figures


def render_storm(record: StormRecord) -> str:
    """Return the HTML report of a storm."""
    charts, figures = charts_of(record)
    return (
        templates()
        .get_template("storm.html.j2")
        .render(
            run=record,
            summary=summary(record),
            failed=[row for row in record.rows if row.outcome is Outcome.FAIL],
            table=table_of(record.rows),
            told=told,
            limits=LIMITS,
            charts=charts,
            figures=figures,
            script=drawing.script(),
        )
    )


def show_storm(record: StormRecord, page: Path, console: Console) -> None:
    """Print the seeds that did not pass, the scenarios of failures, the outcome, and the path of the page."""
    if shown := [row for row in record.rows if row.outcome is not Outcome.PASS]:
        console.print(table_of(shown).drawn(console.width))
        console.print()
    for row in shown:
        for line in told(row):
            say(console, f"seed {row.seed}: {line}")
        if row.shrunk is not None:
            console.print(row.shrunk.text, markup=False, highlight=False, soft_wrap=True)
    covered = len(pairs_of_faults(record.rows)), len(faults_in_phases(record.rows))
    say(console, f"covered: {covered[0]} pairs of faults in sequence, {covered[1]} pairs of a fault and a phase")
    say(console, summary(record))
    say(console, f"{record.outcome.value}: {record.reason}")
    say(console, f"report: {page}")
