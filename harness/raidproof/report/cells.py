"""The report of a plan's cells: rankings, sentences, and the tables on a terminal."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raidproof.record.cell import CellRecord
from raidproof.record.environment import flat
from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord, RunRecord
from raidproof.report.configuration import value
from raidproof.report.figures_table import comparison_table, published_figures
from raidproof.report.words import UNKNOWN, count, data, number, plural, printable
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
"""Width in characters from which tables have a column for flags."""
SAFETY = "safety"
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


def spread(cell: CellRecord) -> str:
    """Return the least and the greatest value of the repetitions."""
    return UNKNOWN if cell.spread is None else f"{number(cell.spread[0])}-{number(cell.spread[1])}"


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


def visited(record: RunRecord) -> str:
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
    visits = [dict(flat(getattr(repeat, part) or {})) for repeat in cell.repeats]
    fields = dict.fromkeys(field for visit in visits for field in visit)
    return [
        (field.replace("_", " "), [written(field, visit[field]) if field in visit else UNKNOWN for visit in visits])
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
    """Yield name and value of each leaf of a record as text."""
    for field, leaf in flat(content or {}):
        yield field.replace("_", " "), written(field, leaf)


def value_names(cell: CellRecord) -> list[str]:
    """Return the names of all values that any repetition measured, the primary one first."""
    names = dict.fromkeys(name for repeat in cell.repeats for name in repeat.values)
    return [*(name for name in names if name == cell.unit), *(name for name in names if name != cell.unit)]


def note(record: RunRecord, cycle: CrashTestRecord) -> str:
    """Return a remark without which a verdict could be misread; empty if none is needed."""
    if cycle.control is not None:
        return {Outcome.PASS: "control behaved", Outcome.INVALID: "control misbehaved"}.get(cycle.outcome, "control")
    if record.outcome is Outcome.INVALID and cycle.outcome in (Outcome.PASS, Outcome.FAIL):
        return "does not count"
    return ""


def blames(cycle: CrashTestRecord) -> list[str]:
    """Return the distinct blames in a crash test's verdicts, except those that its reason already contains."""
    named = (str(verdict.blame) for verdict in cycle.verdicts if verdict.blame is not None)
    return [blame for blame in dict.fromkeys(named) if blame not in cycle.reason]


def losses(cycle: CrashTestRecord) -> str:
    """Return the numbers of lost files and bytes; empty if the server was not scanned."""
    balance = cycle.on_server
    if balance is None:
        return ""
    if not balance.lost_total and not balance.lost_files:
        return "no file, no byte lost"
    return f"{plural(balance.lost_files, 'whole file')} and {data(balance.lost_bytes)} lost"


def happening(cycle: CrashTestRecord) -> str:
    """Return the fault, the policy of the disks' caches if there is one, and faults in effect from the beginning."""
    named = f"{cycle.fault}, caches: {cycle.policy}" if cycle.policy else cycle.fault
    return named + "".join(f"; while {one.fault} ({one.target})" for one in cycle.during)


def conditions(cycle: CrashTestRecord) -> str:
    """Return the faults in effect from the beginning, with their proofs; empty if none."""
    return "; ".join(
        f"{one.fault} ({one.target}): {one.proof}" + (f", {one.lasted}" if one.lasted else "") for one in cycle.during
    )


@dataclass(frozen=True)
class Field:
    """One column; numbers are right-aligned and never broken."""

    title: str
    text: Callable[[CellRecord], str]
    right: bool = True
    whole: bool = True
    """Whether the text must stay on one line."""


def show_cells(record: RunRecord, console: Console) -> None:
    """Print the tables of a plan's run for each workload, then the overhead and the impossible cells."""
    say(console, f"{visited(record)}; {promises(record)}")
    safety = safety_fields(record)
    for ranking in rankings(record):
        console.print()
        console.print(Text(printable(ranking.title), style="bold"))
        if ranking.ranked:
            console.print(ranked_table(ranking, console.width, safety))
        else:
            console.print("No cell has a rank.")
        if ranking.unranked:
            console.print()
            console.print(unranked_table(ranking, console.width, safety))
        console.print()
        for cell in ranking.cells:
            if sentence := explained(cell, console.width):
                say(console, sentence)
    console.print()
    if figures := published_figures(record):
        console.print(Text("published figures beside ours", style="bold"))
        console.print(comparison_table(figures))
        console.print()
    say(console, overhead(record))
    for reason, names in impossible(record):
        more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
        say(console, f"left out, {plural(len(names), 'cell')}: {reason} ({'; '.join(names[:MOST_NAMES])}{more})")
    console.print()


def say(console: Console, sentence: str) -> None:
    """Print a line, broken only on a terminal."""
    console.print(Text(printable(sentence)), soft_wrap=not console.is_terminal)


def safety_fields(record: RunRecord) -> list[Field]:
    """Return the safety column; none without power cuts."""
    if not any(one.lost for one in record.cells):
        return []
    return [Field(SAFETY, lambda cell: safety_in(record, cell).brief, right=False, whole=False)]


def ranked_table(ranking: Ranking, width: int, safety: Sequence[Field]) -> Table:
    """Return the table of ranked cells, the fastest first."""
    fields = [
        Field("#", lambda cell: str(cell.rank)),
        Field("cell", lambda cell: cell.name, right=False, whole=False),
        *figures(ranking, ends=True),
        *safety,
        Field("limit", lambda cell: cell.limit, right=False, whole=False),
    ]
    if width >= ROOMY:
        fields.append(Field("flag", lambda cell: cell.flag or "", right=False, whole=False))
    else:
        fields.append(Field("", lambda cell: "!" if cell.flag else " "))
    return draw(fields, ranking.ranked, width, wide=("cell", SAFETY, "flag"))


def unranked_table(ranking: Ranking, width: int, safety: Sequence[Field]) -> Table:
    """Return the table of unranked cells, with the reasons."""
    fields = [
        Field("no rank", lambda cell: cell.name, right=False, whole=False),
        *figures(ranking, ends=width >= ROOMY),
        *safety,
        Field("why", lambda cell: cell.why_not or "it was not measured", right=False, whole=False),
    ]
    return draw(fields, ranking.unranked, width, wide=("no rank", SAFETY, "why"))


def figures(ranking: Ranking, *, ends: bool) -> list[Field]:
    """Return the columns of measured values."""
    unit = f"\n[{ranking.unit}]" if ranking.unit else ""
    return [
        Field(f"median{unit}", lambda cell: number(cell.median)),
        *([Field(f"spread{unit}", spread)] if ends else []),
        Field("n", lambda cell: count(len(cell.measured))),
        *([Field("of expected\n[%]", of_expected)] if ends else []),
    ]


def draw(fields: Sequence[Field], rows: Sequence[CellRecord], width: int, wide: Sequence[str]) -> Table:
    """Return a table at most ``width`` wide; the columns in ``wide`` share the space that the others leave."""
    texts = {field: [printable(field.text(cell)) for cell in rows] for field in fields}
    widths = {field: narrowest(field, texts[field]) for field in fields if field.title not in wide}
    flexible = [field for field in fields if field.title in wide]
    room = width - sum(widths.values()) - (len(fields) - 1)
    wishes = [max(map(len, [field.title, *texts[field]])) for field in flexible]
    widths |= dict(zip(flexible, shares(wishes, room), strict=True))
    # Gaps are 2 wide where no cell is broken by that.
    gap = 1 if room - (len(fields) - 1) < sum(wishes) else 2
    drawn = Table(box=box.SIMPLE_HEAD, padding=(0, gap - 1, 0, 0), pad_edge=False, show_edge=False)
    for field in fields:
        drawn.add_column(Text(field.title), justify="right" if field.right else "left", width=widths[field])
    for place in range(len(rows)):
        drawn.add_row(*(Text(texts[field][place], overflow="fold") for field in fields))
    return drawn


def shares(wishes: Sequence[int], room: int) -> list[int]:
    """Return widths that share the room: wishes below an even share are granted, the others divide the rest."""
    given = [0] * len(wishes)
    order = sorted(range(len(wishes)), key=lambda place: wishes[place])
    for turn, place in enumerate(order):
        even = max(room // (len(order) - turn), 1)
        given[place] = min(wishes[place], even)
        room -= given[place]
    return given


def narrowest(field: Field, texts: Sequence[str]) -> int:
    """Return the least width that breaks no word of the header, and no cell that must stay whole."""
    pieces = texts if field.whole else [word for text in texts for word in text.split()]
    return max(map(len, [*field.title.split(), *pieces, ""]))


def explained(cell: CellRecord, width: int) -> str:
    """Return a line with a cell's cause, and its flag unless the table has a column for it."""
    flag = cell.flag if width < ROOMY or cell.rank is None else None
    said = [one for one in (cell.cause, flag and f"! {flag}") if one]
    return f"{cell.rank or UNKNOWN} {cell.name}: {'; '.join(said)}" if said else ""
