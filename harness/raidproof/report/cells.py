"""The report of a plan's cells: rankings, sentences, tables, and published figures beside measured values."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from rich.console import Console
from rich.text import Text

from raidproof.record.cell import CellRecord
from raidproof.record.environment import flat
from raidproof.record.run import RunRecord
from raidproof.report.configuration import value
from raidproof.report.table import Cell, Field, Table, say
from raidproof.report.words import UNKNOWN, count, data, number, plural, printable, some, span
from raidproof.verdict.cell import safety_in

_UNITS = {
    "mb_s": "MB/s",
    "kb_s": "kB/s",
    "mib_s": "MiB/s",
    "kib_s": "KiB/s",
    "iops": "1/s",
    "per_s": "1/s",
    "ns": "ns",
    "us": "us",
    "ms": "ms",
    "s": "s",
}
"""Units by the suffix of a value's name; longer suffixes come before those that they end with."""

ROOMY = 120
"""Width of a terminal, in characters, from which the ranking has a column of remarks."""
MOST_NAMES = 3
"""Number of impossible cells named after a reason; the page has all."""


@dataclass(frozen=True)
class Ranking:
    """The cells of one workload, which can be compared with each other."""

    place: int
    """Number of the workload from 1, in order of appearance."""
    workload: str
    measure: str
    """The measured quantity, for example ``write``."""
    unit: str
    ranked: list[CellRecord]
    """Ranked cells, the fastest first."""
    unranked: list[CellRecord]
    """Cells without a rank, the fastest first, then those without a value."""

    @property
    def cells(self) -> list[CellRecord]:
        """All cells, those with a rank first."""
        return [*self.ranked, *self.unranked]

    @property
    def title(self) -> str:
        """The workload and the measured quantity."""
        measured = f"{self.measure} [{self.unit}]" if self.unit else self.measure
        return f"{self.workload}: {measured}" if measured else self.workload


def rankings(record: RunRecord) -> list[Ranking]:
    """Return one ranking for each workload."""
    groups: dict[str, list[CellRecord]] = {}
    for cell in record.cells:
        groups.setdefault(cell.compared_with, []).append(cell)
    titles = workload_titles([cells[0].workload for cells in groups.values()])
    found = []
    for place, (title, cells) in enumerate(zip(titles, groups.values(), strict=True), start=1):
        what, unit = measure(next((cell.unit for cell in cells if cell.unit), ""))
        ranked = sorted((cell for cell in cells if cell.rank is not None), key=lambda cell: cell.rank or 0)
        rest = sorted((cell for cell in cells if cell.rank is None), key=lambda cell: -(cell.median or 0.0))
        found.append(Ranking(place, title, what, unit, ranked, rest))
    return found


def workload_titles(workloads: Sequence[dict[str, Any]]) -> list[str]:
    """Return a title for each workload: its tool, and the settings that differ from other workloads of the tool."""
    fields = [dict(flat(workload)) for workload in workloads]
    titles = []
    for mine in fields:
        tool = mine.get("tool")
        alike = [other for other in fields if other.get("tool") == tool]
        apart = [
            f"{field.replace('_', ' ')} {value(field, content)}"
            for field, content in mine.items()
            if any(field not in other or other[field] != content for other in alike)
        ]
        titles.append(", ".join([str(tool or "workload"), *apart]))
    return titles


def measure(name: str) -> tuple[str, str]:
    """Return quantity and unit from the name of a value: ``write_mb_s`` is (``write``, ``MB/s``)."""
    for ending, unit in _UNITS.items():
        if name == ending or name.endswith(f"_{ending}"):
            return name.removesuffix(ending).replace("_", " ").strip(), unit
    return name.replace("_", " "), ""


def with_unit(name: str) -> str:
    """Return the name of a value with its unit for readers: ``write [MB/s]``."""
    what, unit = measure(name)
    return f"{what} [{unit}]".strip() if unit else what


def of_expected(cell: CellRecord) -> str:
    """Return the measured over the expected value, in percent."""
    return UNKNOWN if cell.ratio is None else f"{100 * cell.ratio:.0f}"


def expected_value(cell: CellRecord) -> float | None:
    """Return the value expected of the hardware, in the cell's unit."""
    found = (cell.expected or {}).get("value")
    return float(found) if isinstance(found, int | float) else None


def costs(cell: CellRecord) -> bool:
    """Return whether a power cut is known to have lost data."""
    return cell.lost_everything or bool(cell.lost_operations)


def promises(record: RunRecord) -> str:
    """Return a sentence on how many cells' promises were tested."""
    plan = record.plan
    if plan is None or plan.cut is None:
        return "promises were not tested: without a power cut, a rank does not imply safety"
    cut = sum(cell.lost_everything or cell.lost_operations is not None for cell in record.cells)
    return f"promises of {cut} of {plural(len(record.cells), 'cell')} were tested by a power cut"


def repetitions(record: RunRecord) -> str:
    """Return a sentence on the numbers of cells and repetitions."""
    made = sum(len(cell.repeats) for cell in record.cells)
    measured = sum(len(cell.measured) for cell in record.cells)
    planned = len(record.plan.order) if record.plan else 0
    said = f"{plural(len(record.cells), 'cell')}, {plural(made, 'repetition')}"
    if planned > made:
        said += f" of {planned:,}"
    return said if measured == made else f"{said}, of which {made - measured:,} measured nothing"


def overhead(record: RunRecord) -> str:
    """Return a sentence on the harness's share of the repetitions' wall time."""
    plan = record.plan
    if plan is None or plan.overhead is None:
        return "no repetition was timed"
    timed, whole = number(plan.timed_s), number(plan.visits_s)
    share = f"{plan.overhead:.0%} of the repetitions' wall time"
    return f"the harness itself took {share} ({timed} s of {whole} s were timed)"


def impossible(record: RunRecord) -> list[tuple[str, list[str]]]:
    """Return the reasons for which combinations were left out, each with their names."""
    reasons: dict[str, list[str]] = {}
    for name, reason in record.plan.impossible if record.plan else ():
        reasons.setdefault(reason, []).append(name)
    return list(reasons.items())


def seen(cell: CellRecord, part: str) -> list[tuple[str, list[str]]]:
    """Return rows of one part of the repetitions' records (``derived``, ``engine``, ...): a value per repetition."""
    figures = [dict(flat(getattr(repeat, part) or {})) for repeat in cell.repeats]
    fields = dict.fromkeys(field for one in figures for field in one)
    return [
        (field.replace("_", " "), [written(field, one[field]) if field in one else UNKNOWN for one in figures])
        for field in fields
    ]


def written(field: str, content: Any) -> str:
    """Return a value as text: measured with three digits, bytes with a unit, others as in the configuration."""
    if isinstance(content, float):
        return number(content)
    if isinstance(content, int) and field.endswith(("bytes", "working_set")):
        return data(content)
    return value(field, content)


def pairs(content: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Yield the name and the formatted value of each leaf of a nested record."""
    for field, leaf in flat(content or {}):
        yield field.replace("_", " "), written(field, leaf)


def value_names(cell: CellRecord) -> list[str]:
    """Return the names of all values that any repetition measured, the primary one first."""
    names = dict.fromkeys(name for repeat in cell.repeats for name in repeat.values)
    return [*(name for name in names if name == cell.unit), *(name for name in names if name != cell.unit)]


def ranking_table(record: RunRecord, ranking: Ranking) -> Table[CellRecord]:
    """Return the table of a workload's cells: those with a rank, the fastest first, then the others."""
    numbers = {cell.name: place for place, cell in enumerate(record.cells, start=1)}
    cuts = {cycle.name: place for place, cycle in enumerate(record.cycles, start=1)}

    def name(cell: CellRecord) -> Cell:
        return Cell(cell.name, tag=str(numbers[cell.name]), link=f"#cell-{numbers[cell.name]}")

    def safety(cell: CellRecord) -> Cell:
        found = safety_in(record, cell)
        link = f"#cycle-{cuts[cell.cycle]}" if cell.cycle in cuts else ""
        return Cell(found.size, found.word, short=found.brief.partition(": ")[2], link=link)

    def remark(cell: CellRecord) -> Cell:
        if cell.rank is not None:
            return Cell(cell.flag or "")
        return Cell(cell.why_not or "it was not measured", more=[cell.flag or ""])

    return Table(
        [
            Field("rank", lambda cell: count(cell.rank), "number", alone="#"),
            Field("cell", name, names_row=True),
            Field("median", lambda cell: number(cell.median), "number", ranking.unit),
            Field("spread", lambda cell: span(cell.spread), "number", ranking.unit),
            Field("n", lambda cell: count(len(cell.measured)), "number"),
            Field("of expected", of_expected, "number", "%"),
            *([Field("safety", safety)] if any(one.lost for one in record.cells) else []),
            Field("limit", lambda cell: Cell(cell.limit, more=[cell.cause])),
            Field("remark", remark),
        ],
        ranking.ranked,
        {"Without a rank": ranking.unranked} if ranking.unranked else {},
        "The number in front of a name is the cell's number in this report; - is not known. Median and spread (least "
        "to greatest) of n repetitions. Of expected: the median in percent of the value expected of the hardware. "
        "Remark: a flag, or the reason why the cell has no rank.",
    )


def show_cells(record: RunRecord, console: Console) -> None:
    """Print the tables of a plan's run for each workload, then the overhead and the impossible cells."""
    say(console, f"{repetitions(record)}; {promises(record)}")
    roomy = console.width >= ROOMY
    for ranking in rankings(record):
        table = ranking_table(record, ranking)
        said = ["median", "spread", "n", "of expected"]
        console.print()
        console.print(Text(printable(ranking.title), style="bold"))
        if ranking.ranked:
            shown = table.only("rank", "cell", *said, "safety", "limit", *(["remark"] if roomy else []))
            marked = shown if roomy else replace(shown, fields=[*shown.fields, FLAGGED])
            console.print(marked.drawn(console.width))
        else:
            console.print("No cell has a rank.")
        if ranking.unranked:
            console.print("\nWithout a rank")
            shown = table.only(
                "cell", *(said if roomy else ["median", "n"]), "safety", "remark", rows=ranking.unranked
            )
            console.print(shown.drawn(console.width))
        console.print()
        for cell in ranking.cells:
            if sentence := explained(cell, console.width):
                say(console, sentence)
    console.print()
    if figures := published_figures(record):
        console.print(Text("Published figures beside measured values", style="bold"))
        console.print(figure_table(figures).drawn(console.width))
        console.print()
    say(console, overhead(record))
    for reason, names in impossible(record):
        say(console, f"left out, {plural(len(names), 'cell')}: {reason} ({some(names, MOST_NAMES)})")
    console.print()


FLAGGED: Field[CellRecord] = Field("", lambda cell: "!" if cell.flag else " ", "word")
"""A mark for flags, where the table has no room for remarks."""


def explained(cell: CellRecord, width: int) -> str:
    """Return a line with a cell's cause, and its flag unless the table has a column for it."""
    flag = cell.flag if width < ROOMY or cell.rank is None else None
    said = [one for one in (cell.cause, flag and f"! {flag}") if one]
    return f"{cell.rank or UNKNOWN} {cell.name}: {'; '.join(said)}" if said else ""


@dataclass(frozen=True)
class PublishedFigure:
    """One published figure, with the values measured here."""

    name: str
    published: float
    unit: str
    """Name of the value, which ends with its unit: ``write_mb_s``."""
    measured: float | None
    """Median of the values measured here; None if nothing was measured."""
    spread: tuple[float, float] | None = None
    """Least and greatest value measured here."""
    n: int = 0
    used_to_calibrate: bool = False
    """Whether the figure calibrated a parameter of the hardware, so that agreement proves nothing."""
    note: str = ""

    @property
    def deviation(self) -> float | None:
        """Measured value over published figure, minus one; None where undefined."""
        return None if self.measured is None or not self.published else self.measured / self.published - 1

    @property
    def remark(self) -> str:
        """Remarks on the deviation."""
        said = ["used to calibrate"] if self.used_to_calibrate else []
        said += ["not measured"] if self.measured is None else []
        return "; ".join([*said, *([self.note] if self.note else [])])


def published_figures(record: RunRecord) -> list[PublishedFigure]:
    """Return the figures of a run's plan, each with the values of the cell that re-enacts it."""
    cells = {cell.name: cell for cell in record.cells}
    rows = []
    for figure in record.plan.figures if record.plan else ():
        cell = cells.get(figure.cell)
        values = [] if cell is None else [one.values[figure.unit] for one in cell.repeats if figure.unit in one.values]
        rows.append(
            PublishedFigure(
                name=figure.name,
                published=figure.published,
                unit=figure.unit,
                measured=median(values) if values else None,
                spread=(min(values), max(values)) if values else None,
                n=len(values),
                used_to_calibrate=figure.places_limit,
                note=figure.note,
            )
        )
    return rows


def figure_table(figures: Sequence[PublishedFigure]) -> Table[PublishedFigure]:
    """Return a table of all figures in their order; every deviation is shown."""
    return Table(
        [
            Field("figure", lambda one: one.name, names_row=True),
            Field("value", lambda one: with_unit(one.unit), "word"),
            Field("published", lambda one: number(one.published), "number"),
            Field("median", lambda one: number(one.measured), "number"),
            Field("spread", lambda one: span(one.spread), "number"),
            Field("n", lambda one: count(one.n), "number"),
            Field("deviation", deviation, "number", "%"),
            Field("remark", lambda one: one.remark),
        ],
        figures,
        note="Median and spread (least to greatest) of n repetitions measured here; deviation of the median from the "
        "published figure.",
    )


def deviation(figure: PublishedFigure) -> str:
    """Return the deviation from a published figure, in percent."""
    return UNKNOWN if figure.deviation is None else f"{100 * figure.deviation:+.1f}"


def figure_text(figures: Sequence[PublishedFigure], width: int = 120) -> str:
    """Return the table as plain text, ``width`` characters wide at most."""
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=False, color_system=None)
    console.print(figure_table(figures).drawn(width))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"
