"""The cells of a plan on a terminal: the ranking, what has no rank and why, and the cause of each figure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raidproof.record.cell import CellRecord
from raidproof.record.run import RunRecord
from raidproof.report import cells
from raidproof.report.cells import Ranking
from raidproof.report.figures_table import comparison_table, published_figures
from raidproof.report.words import UNKNOWN, count, number, plural, printable
from raidproof.verdict.safe_configurations import safety_in

ROOMY = 120
"""Columns of text from which there is room for the words of a flag."""
SAFETY = "safety"
MOST_NAMES = 3
"""Names of impossible cells after a reason; the report has all."""


@dataclass(frozen=True)
class Field:
    """One column: numbers stand to the right and are never broken."""

    title: str
    text: Callable[[CellRecord], str]
    right: bool = True
    whole: bool = True
    """Whether a cell must stay on one line."""


def show_cells(record: RunRecord, console: Console) -> None:
    """Print the tables of a plan's run, one a workload, then what the run cost and what could not be."""
    say(console, f"{cells.visited(record)}; {cells.promises(record)}")
    safety = safety_fields(record)
    for ranking in cells.rankings(record):
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
    say(console, cells.overhead(record))
    for reason, names in cells.impossible(record):
        more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
        say(console, f"left out, {plural(len(names), 'cell')}: {reason} ({'; '.join(names[:MOST_NAMES])}{more})")
    console.print()


def say(console: Console, sentence: str) -> None:
    """Print a line; where there is no terminal it is not broken."""
    console.print(Text(printable(sentence)), soft_wrap=not console.is_terminal)


def safety_fields(record: RunRecord) -> list[Field]:
    """Return the column that says whether each cell is safe; none where no power was cut."""
    if not any(one.lost for one in record.cells):
        return []
    return [Field(SAFETY, lambda cell: safety_in(record, cell).brief, right=False, whole=False)]


def ranked_table(ranking: Ranking, width: int, safety: Sequence[Field]) -> Table:
    """Return the cells that may be compared, the fastest first."""
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
    """Return the cells that cannot be compared, and why."""
    fields = [
        Field("no rank", lambda cell: cell.name, right=False, whole=False),
        *figures(ranking, ends=width >= ROOMY),
        *safety,
        Field("why", lambda cell: cell.why_not or "it was not measured", right=False, whole=False),
    ]
    return draw(fields, ranking.unranked, width, wide=("no rank", SAFETY, "why"))


def figures(ranking: Ranking, *, ends: bool) -> list[Field]:
    """Return the columns of what was measured."""
    unit = f"\n[{ranking.unit}]" if ranking.unit else ""
    return [
        Field(f"median{unit}", lambda cell: number(cell.median)),
        *([Field(f"spread{unit}", cells.spread)] if ends else []),
        Field("n", lambda cell: count(len(cell.measured))),
        *([Field("of expected\n[%]", cells.of_expected)] if ends else []),
    ]


def draw(fields: Sequence[Field], rows: Sequence[CellRecord], width: int, wide: Sequence[str]) -> Table:
    """Return a table no wider than asked; the wide columns share what the others leave."""
    texts = {field: [printable(field.text(cell)) for cell in rows] for field in fields}
    widths = {field: narrowest(field, texts[field]) for field in fields if field.title not in wide}
    flexible = [field for field in fields if field.title in wide]
    room = width - sum(widths.values()) - (len(fields) - 1)
    wishes = [max(map(len, [field.title, *texts[field]])) for field in flexible]
    widths |= dict(zip(flexible, shares(wishes, room), strict=True))
    # Gaps are 2 wide where that breaks no cell.
    gap = 1 if room - (len(fields) - 1) < sum(wishes) else 2
    drawn = Table(box=box.SIMPLE_HEAD, padding=(0, gap - 1, 0, 0), pad_edge=False, show_edge=False)
    for field in fields:
        drawn.add_column(Text(field.title), justify="right" if field.right else "left", width=widths[field])
    for place in range(len(rows)):
        drawn.add_row(*(Text(texts[field][place], overflow="fold") for field in fields))
    return drawn


def shares(wishes: Sequence[int], room: int) -> list[int]:
    """Divide the room: whoever wants less than an even part gets all of it, and the others the rest."""
    given = [0] * len(wishes)
    order = sorted(range(len(wishes)), key=lambda place: wishes[place])
    for turn, place in enumerate(order):
        even = max(room // (len(order) - turn), 1)
        given[place] = min(wishes[place], even)
        room -= given[place]
    return given


def narrowest(field: Field, texts: Sequence[str]) -> int:
    """Return the width that breaks no word of the header, and no cell that must stay whole."""
    pieces = texts if field.whole else [word for text in texts for word in text.split()]
    return max(map(len, [*field.title.split(), *pieces, ""]))


def explained(cell: CellRecord, width: int) -> str:
    """Say why a cell is as fast as it is, and what is odd about its figure unless the table has said that."""
    flag = cell.flag if width < ROOMY or cell.rank is None else None
    said = [one for one in (cell.cause, flag and f"! {flag}") if one]
    return f"{cell.rank or UNKNOWN} {cell.name}: {'; '.join(said)}" if said else ""
