"""The report of a plan's cells: rankings, sentences, tables, and published figures beside measured values."""

import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from rich.console import Console
from rich.text import Text

from raidproof.core.terminal import Terminal, printable
from raidproof.record.cell import CellRecord
from raidproof.record.environment import flat
from raidproof.record.run import RunRecord
from raidproof.report.configuration import value
from raidproof.report.table import Cell, Field, Table, say
from raidproof.report.words import UNKNOWN, count, data, number, plural, some, span, titled
from raidproof.report.workers import spread_fields, spreads
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
    "seconds": "s",
    "s": "1/s",
}
"""Units by the suffix of a value's name, longer suffixes first: ``mb_s`` also ends with ``s``.

``s`` alone means per second, as in ``operations_s``; the name of a duration ends with ``seconds``.
"""

ROOMY = 120
"""Least width of a terminal, in characters, for a column of remarks in the ranking."""
MOST_NAMES = 3
"""Greatest number of impossible cells that the terminal names after a reason; the HTML report names all."""


@dataclass(frozen=True)
class Ranking:
    """The cells of one workload; only cells of the same ranking can be compared."""

    place: int
    """Number of the workload from 1, in order of appearance."""
    workload: str
    """Title of the workload."""
    measure: str
    """The measured quantity, for example ``write``."""
    unit: str
    """Unit of the measured quantity, for example ``MB/s``."""
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
        """Title of the ranking: the workload, and the measured quantity with its unit."""
        measured = titled(self.measure, self.unit)
        return f"{self.workload}: {measured}" if measured else self.workload


def numbered(record: RunRecord) -> dict[str, int]:
    """Return the number of each cell in the report, by name."""
    return {cell.name: place for place, cell in enumerate(record.cells, start=1)}


def rankings(record: RunRecord) -> list[Ranking]:
    """Return a ranking for each workload of a run, in order of appearance."""
    groups: dict[str, list[CellRecord]] = {}
    for cell in record.cells:
        groups.setdefault(cell.compared_with, []).append(cell)
    titles = workload_titles([cells[0].workload for cells in groups.values()])
    found = []
    for place, (title, cells) in enumerate(zip(titles, groups.values(), strict=True), start=1):
        what, unit = measure(next((cell.unit for cell in cells if cell.unit), ""))
        ranked = sorted(
            (cell for cell in cells if cell.rank is not None),
            key=lambda cell: (cell.rank or 0, (cell.median or 0.0) * (1 if cell.lower_is_better else -1)),
        )
        rest = sorted((cell for cell in cells if cell.rank is None), key=lambda cell: -(cell.median or 0.0))
        found.append(Ranking(place, title, what, unit, ranked, rest))
    return found


def workload_titles(workloads: Sequence[dict[str, Any]]) -> list[str]:
    """Return a title for each workload: the tool, and the settings that differ between workloads with this tool."""
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
    """Return the quantity and the unit in the name of a value: ``write_mb_s`` gives ``write`` and ``MB/s``."""
    for ending, unit in _UNITS.items():
        if name == ending or name.endswith(f"_{ending}"):
            return name.removesuffix(ending).replace("_", " ").strip(), unit
    return name.replace("_", " "), ""


def with_unit(name: str) -> str:
    """Return the name of a value with its unit for readers: ``write [MB/s]``."""
    return titled(*measure(name)).strip()


def of_expected(cell: CellRecord) -> str:
    """Return the median of a cell as text, in percent of the value expected of the hardware."""
    return UNKNOWN if cell.ratio is None else f"{100 * cell.ratio:.0f}"


def expected_value(cell: CellRecord) -> float | None:
    """Return the value expected of the hardware, in the cell's unit; None if no formula applies."""
    found = (cell.expected or {}).get("value")
    return float(found) if isinstance(found, int | float) else None


def costs(cell: CellRecord) -> bool:
    """Return whether the power cut of a cell lost acknowledged operations."""
    return cell.lost_everything or bool(cell.lost_operations)


def promises(record: RunRecord) -> str:
    """Return a clause on the number of cells whose promises a power cut tested."""
    plan = record.plan
    if plan is None or plan.cut is None:
        return "no promise was tested, because the plan has no power cut: a rank does not imply safety"
    cut = sum(cell.lost_everything or cell.lost_operations is not None for cell in record.cells)
    return f"a power cut tested the promises of {cut} of {plural(len(record.cells), 'cell')}"


def repetitions(record: RunRecord) -> str:
    """Return a clause on the numbers of cells and repetitions of a run."""
    made = sum(len(cell.repeats) for cell in record.cells)
    measured = sum(len(cell.measured) for cell in record.cells)
    planned = len(record.plan.order) if record.plan else 0
    said = f"{plural(len(record.cells), 'cell')}, {plural(made, 'repetition')}"
    if planned > made:
        said += f" of {planned:,}"
    return said if measured == made else f"{said}; {plural(made - measured, 'repetition')} without a value"


def overhead(record: RunRecord) -> str:
    """Return a clause on the share of the repetitions' wall time in which no workload was timed."""
    plan = record.plan
    if plan is None or plan.overhead is None:
        return "no repetition was timed"
    timed, whole = number(plan.timed_s), number(plan.visits_s)
    share = f"{plan.overhead:.0%} of the repetitions' wall time"
    return f"building, preparing and checking took {share} ({timed} s of {whole} s were timed)"


def impossible(record: RunRecord) -> list[tuple[str, list[str]]]:
    """Return the reasons why combinations of the plan are impossible, each with the names of its combinations."""
    reasons: dict[str, list[str]] = {}
    for name, reason in record.plan.impossible if record.plan else ():
        reasons.setdefault(reason, []).append(name)
    return list(reasons.items())


def seen(cell: CellRecord, part: str) -> list[tuple[str, list[str]]]:
    """Return the rows of a table of one part of the repetitions' records: a field, and its value in each repetition.

    ``part``: the name of the field of `Repetition`, such as ``derived`` or ``engine``.
    """
    figures = [dict(flat(getattr(repeat, part) or {})) for repeat in cell.repeats]
    fields = dict.fromkeys(field for one in figures for field in one)
    return [
        (field.replace("_", " "), [written(field, one[field]) if field in one else UNKNOWN for one in figures])
        for field in fields
    ]


def written(field: str, content: Any) -> str:
    """Return a value as text: a measured value with three digits, a size with its unit, others unchanged."""
    if isinstance(content, float):
        return number(content)
    if isinstance(content, int) and field.endswith(("bytes", "working_set")):
        return data(content)
    return value(field, content)


def pairs(content: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Yield the name and the value, as text, of each leaf of a nested record."""
    for field, leaf in flat(content or {}):
        yield field.replace("_", " "), written(field, leaf)


def value_names(cell: CellRecord) -> list[str]:
    """Return the names of all values that the repetitions of a cell measured, the primary value first."""
    names = dict.fromkeys(name for repeat in cell.repeats for name in repeat.values)
    return [*(name for name in names if name == cell.unit), *(name for name in names if name != cell.unit)]


def ranking_table(record: RunRecord, ranking: Ranking) -> Table[CellRecord]:
    """Return the table of a workload's cells: cells with a rank, the fastest first, then cells without a rank."""
    numbers = numbered(record)
    cuts = {cycle.name: place for place, cycle in enumerate(record.cycles, start=1)}

    def name(cell: CellRecord) -> Cell:
        return Cell(cell.name, tag=str(numbers[cell.name]), link=f"#cell-{numbers[cell.name]}")

    def safety(cell: CellRecord) -> Cell:
        found = safety_in(record, cell)
        link = f"#cycle-{cuts[cell.cycle]}" if cell.cycle in cuts else ""
        return Cell(found.size, found.word, short=found.brief.partition(": ")[2], link=link)

    def remark(cell: CellRecord) -> Cell:
        if cell.rank is not None:
            return Cell("; ".join(one for one in (tie(cell), cell.flag) if one))
        return Cell(cell.why_not or "not measured", more=[cell.flag or ""])

    shared = Counter(cell.rank for cell in ranking.ranked)

    def rank(cell: CellRecord) -> str:
        return count(cell.rank) + ("=" if shared[cell.rank] > 1 else "")

    return Table(
        [
            Field("rank", rank, "number", alone="#"),
            Field("cell", name, names_row=True),
            Field("median", lambda cell: number(cell.median), "number", ranking.unit),
            Field("spread", lambda cell: span(cell.spread), "number", ranking.unit),
            Field("n", lambda cell: count(len(cell.measured)), "number"),
            Field("of expected", of_expected, "number", "%"),
            *spread_fields(record.cells),
            *([Field("safety", safety)] if any(one.lost for one in record.cells) else []),
            Field("limit", lambda cell: Cell(cell.limit, more=[cell.cause])),
            Field("remark", remark),
        ],
        ranking.ranked,
        {"Without a rank": ranking.unranked} if ranking.unranked else {},
        "Cells whose difference is not settled share a rank, with the sign =. "
        "The number before a name is the cell's number in this report. Median and spread (least to greatest) of n "
        "repetitions. Of expected: the median in percent of the value expected of the hardware. Remark: a caveat "
        "about the value, or the reason why the cell has no rank. The sign - means: not known."
        + (VARIATION if any(map(spreads, record.cells)) else ""),
    )


VARIATION = (
    " Variation: standard deviation of the levels of the workers, and of the values of one worker. Cells are compared "
    "within rounds, which one worker makes, so that the variation between workers has no effect on ranks."
)
"""Addition to the note below a ranking whose cells several workers measured."""


def tie(cell: CellRecord) -> str:
    """Return a clause on the cell with which a cell shares its rank; empty without one."""
    if cell.tied_with is None:
        return ""
    said = f"not distinguishable from {cell.tied_with}"
    if len(cell.measured) < 2:
        return f"{said}: a single repetition settles nothing"
    if cell.parts_at is None:
        return f"{said}: no affordable number of repetitions would part them"
    return f"{said}: about {cell.parts_at:,} repetitions of each would part them"


def show_cells(record: RunRecord, console: Console) -> None:
    """Print the ranking of each workload of a plan's run, then the published figures and the impossible cells."""
    say(console, f"{repetitions(record)}; {promises(record)}")
    roomy = console.width >= ROOMY
    for ranking in rankings(record):
        table = ranking_table(record, ranking)
        values = ["median", "spread", "n", "of expected", "variation"]
        console.print()
        console.print(Text(printable(ranking.title), style="bold"))
        if ranking.ranked:
            shown = table.only("rank", "cell", *values, "safety", "limit", *(["remark"] if roomy else []))
            marked = shown if roomy else replace(shown, fields=[*shown.fields, FLAGGED])
            console.print(marked.drawn(console.width))
        else:
            console.print("No cell has a rank.")
        if ranking.unranked:
            console.print("\nWithout a rank")
            shown = table.only(
                "cell", *(values if roomy else ["median", "n"]), "safety", "remark", rows=ranking.unranked
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
        say(console, f"{plural(len(names), 'impossible cell')}: {reason} ({some(names, MOST_NAMES)})")
    console.print()


FLAGGED: Field[CellRecord] = Field("", lambda cell: "!" if cell.flag else " ", "word")
"""Column with a mark for each cell that has a caveat, if the terminal has no room for the column of remarks."""


def explained(cell: CellRecord, width: int) -> str:
    """Return a line about the limit of a cell, with its caveats if the table on the terminal does not show them.

    The line is empty if the cell has neither a limit nor caveats.
    """
    flag = cell.flag if width < ROOMY or cell.rank is None else None
    tied = tie(cell) if width < ROOMY else ""
    said = [one for one in (cell.cause, tied, flag and f"! {flag}") if one]
    return f"{cell.rank or UNKNOWN} {cell.name}: {'; '.join(said)}" if said else ""


@dataclass(frozen=True)
class PublishedFigure:
    """A published value beside the values that this run measured in the corresponding cell."""

    name: str
    published: float
    unit: str
    """Name of the value, which ends with its unit: ``write_mb_s``."""
    measured: float | None
    """Median of the values that this run measured; None without any."""
    spread: tuple[float, float] | None = None
    """Least and greatest value that this run measured; None without any."""
    n: int = 0
    """Number of values that this run measured."""
    used_to_calibrate: bool = False
    """Whether the figure calibrated the simulated hardware: then agreement of the measured value proves nothing."""
    note: str = ""

    @property
    def deviation(self) -> float | None:
        """Relative deviation of the measured median from the published figure; None without a measured value."""
        return None if self.measured is None or not self.published else self.measured / self.published - 1

    @property
    def remark(self) -> str:
        """Remarks on the deviation, as text."""
        said = ["the figure calibrated the simulated hardware"] if self.used_to_calibrate else []
        said += ["not measured"] if self.measured is None else []
        return "; ".join([*said, *([self.note] if self.note else [])])


def published_figures(record: RunRecord) -> list[PublishedFigure]:
    """Return the published figures in a run's plan, each with the values that the run measured in its cell."""
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
    """Return the table of published figures, with the deviation of each measured value."""
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
        note="Median and spread (least to greatest) of the n repetitions of this run. Deviation: of the median from "
        "the published figure.",
    )


def deviation(figure: PublishedFigure) -> str:
    """Return the deviation of the measured median from a published figure as text, in percent."""
    return UNKNOWN if figure.deviation is None else f"{100 * figure.deviation:+.1f}"


def figure_text(figures: Sequence[PublishedFigure], width: int = 120) -> str:
    """Return the table of published figures as plain text, at most ``width`` characters wide."""
    file = io.StringIO()
    console = Terminal(file=file, width=width, force_terminal=False, color_system=None)
    console.print(figure_table(figures).drawn(width))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"
