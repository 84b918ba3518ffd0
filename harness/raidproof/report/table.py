"""A table as data: `Table.drawn` draws it on a terminal, and the macro ``grid`` of parts.j2 in an HTML report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Generic, Literal, TypeVar

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from raidproof.core.terminal import printable
from raidproof.record.outcome import Outcome
from raidproof.report.looks import colour_of
from raidproof.verdict.cell import SafetyWord

R = TypeVar("R")
"""The type of the object that a row of a table shows."""


@dataclass(frozen=True)
class Cell:
    """The content of one cell of a table."""

    text: str = ""
    verdict: Outcome | SafetyWord | None = None
    """A verdict before the cell's text, in the verdict's colour."""
    plain: bool = False
    """Whether PASS has no colour: a PASS of a configuration that loses data is not green, because green means safe."""
    short: str | None = None
    """Text on a terminal; None: the same as in HTML."""
    aside: str = ""
    """Addition to the text, such as a range: after the text on a terminal, below the text in HTML."""
    below: str = ""
    """A line below the cell's text."""
    more: Sequence[str] = ()
    """Lines below the cell's text, in HTML only."""
    tag: str = ""
    """A label before the cell's text, in HTML only."""
    link: str = ""
    """Target (URL) of a link around the cell's text, in HTML only."""
    loss: bool = False
    """Whether HTML emphasizes the cell's text as a loss."""

    @property
    def small(self) -> list[str]:
        """The lines below the cell's text in HTML."""
        return [line for line in (self.aside, self.below, *self.more) if line]

    @property
    def words(self) -> str:
        """The complete text of the cell on a terminal."""
        return self.drawn().plain

    def drawn(self) -> Text:
        """Return the cell for a terminal, with control characters escaped."""
        said = Text(overflow="fold")
        if self.verdict is not None:
            said.append_text(verdict_text(self.verdict, plain=self.plain))
        text = self.text if self.short is None else self.short
        parts = [printable(one) for one in (text, self.aside) if one]
        said.append(": " if self.verdict is not None and parts else "").append(" ".join(parts))
        return said.append(f"\n{printable(self.below)}") if self.below else said


@dataclass(frozen=True)
class Field(Generic[R]):
    """One column of a table."""

    title: str
    value: Callable[[R], Cell | str]
    """Function that returns the column's cell, or its text, for the object of a row."""
    kind: Literal["number", "word", "text"] = "text"
    """How a terminal aligns the column: numbers right, words and texts left.

    Lines of numbers and words are never broken; texts share the width that these columns leave.
    """
    unit: str = ""
    """Unit of the values, shown with the title; empty without a unit."""
    group: str = ""
    """Heading over several columns, in HTML only."""
    alone: str = ""
    """Title on a terminal, where groups have no heading; if empty, the terminal shows ``title``."""
    names_row: bool = False
    """Whether the cells are the names of the rows."""
    page_only: bool = False
    """Whether the terminal omits the column."""

    def cell(self, row: R) -> Cell:
        """Return the column's cell for the object of a row."""
        value = self.value(row)
        return value if isinstance(value, Cell) else Cell(value)

    @property
    def header(self) -> str:
        """The column's title on a terminal, with its unit."""
        title = self.alone or self.title
        return f"{title}\n[{self.unit}]" if self.unit else title


@dataclass(frozen=True)
class Table(Generic[R]):
    """A table with one column for each item of ``fields`` and one row for each item of ``rows``."""

    fields: Sequence[Field[R]]
    rows: Sequence[R]
    apart: Mapping[str, Sequence[R]] = field(default_factory=dict)
    """Further rows by their heading, which follow the table in HTML only."""
    note: str = ""
    """A remark below the table, in HTML only."""
    marked: Callable[[R], bool] = lambda _: False
    """Function that returns whether HTML emphasizes the row of an object."""

    def only(self, *titles: str, rows: Sequence[R] | None = None) -> "Table[R]":
        """Return the table with only the columns of these titles, in this order; ``rows``: its rows; None: the same.

        A title without a column is ignored.
        """
        by_title = {one.title: one for one in self.fields}
        chosen = [by_title[title] for title in titles if title in by_title]
        return replace(self, fields=chosen, rows=self.rows if rows is None else rows)

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The headings over groups of columns, each with the number of its columns; empty if no column has a group."""
        listed = [(group, len(list(fields))) for group, fields in groupby(one.group for one in self.fields)]
        return listed if any(group for group, _ in listed) else []

    @property
    def edges(self) -> list[bool]:
        """For each column, whether it is the first column of a group."""
        return [False, *(one.group != other.group for one, other in pairwise(self.fields))]

    def narrowest(self, one: Field[R]) -> int:
        """Return the least width of a column that breaks no word of its header, and no line of a number or word."""
        cells = [one.cell(row).words for row in self.rows]
        pieces = [piece for cell in cells for piece in (cell.split() if one.kind == "text" else cell.splitlines())]
        return max(map(len, [*one.header.split(), *pieces, ""]))

    def drawn(self, width: int) -> RichTable:
        """Return the table for a terminal of ``width`` characters; columns of texts share the remaining width."""
        fields = [one for one in self.fields if not one.page_only]
        texts = [one for one in fields if one.kind == "text"]
        widths = {id(one): self.narrowest(one) for one in fields if one.kind != "text"}
        room = width - sum(widths.values()) - (len(fields) - 1)
        wishes = [self._longest(one) for one in texts]
        widths |= {id(one): share for one, share in zip(texts, shares(wishes, room), strict=True)}
        # Gaps between columns are 2 characters wide if that breaks no cell, else 1.
        gap = 1 if room - (len(fields) - 1) < sum(wishes) else 2
        made = RichTable(box=box.SIMPLE_HEAD, padding=(0, gap - 1, 0, 0), pad_edge=False, show_edge=False)
        for one in fields:
            justify = "right" if one.kind == "number" else "left"
            made.add_column(Text(printable(one.header)), justify=justify, width=widths[id(one)])  # type: ignore[arg-type]
        for row in self.rows:
            made.add_row(*(one.cell(row).drawn() for one in fields))
        return made

    def _longest(self, one: Field[R]) -> int:
        lines = [line for row in self.rows for line in one.cell(row).words.splitlines()]
        return max(map(len, [*one.header.splitlines(), *lines]))


def shares(wishes: Sequence[int], room: int) -> list[int]:
    """Return the widths of columns that share ``room`` characters; ``wishes``: the width that each column needs.

    A column that needs at most an equal share of the room gets the needed width.
    """
    given = [0] * len(wishes)
    order = sorted(range(len(wishes)), key=lambda place: wishes[place])
    for turn, place in enumerate(order):
        even = max(room // (len(order) - turn), 1)
        given[place] = min(wishes[place], even)
        room -= given[place]
    return given


def verdict_text(verdict: Outcome | SafetyWord, *, plain: bool = False) -> Text:
    """Return the word of a verdict for a terminal, in its colour; ``plain``: whether PASS has no colour."""
    text = Text(verdict.value)
    text.stylize("bold" if plain and verdict is Outcome.PASS else f"bold {colour_of(verdict.value)}")
    return text


def say(console: Console, sentence: str | Text) -> None:
    """Print a sentence; on a terminal Rich breaks it into lines, in a file it is one line."""
    text = Text(printable(sentence)) if isinstance(sentence, str) else sentence
    console.print(text, soft_wrap=not console.is_terminal)


def say_end(
    console: Console, title: str, outcome: Outcome, reason: str, page: object = None, *, plain: bool = False
) -> None:
    """Print the last lines of a report: outcome with reason, and the path of the HTML report if one was written.

    ``title``: the name of the run or exploration; ``plain``: whether PASS has no colour.
    """
    end = Text(f"{printable(title)}: ").append_text(verdict_text(outcome, plain=plain))
    say(console, end.append(f": {printable(reason)}"))
    if page is not None:
        console.print(Text(f"report: {printable(str(page))}"), soft_wrap=True)
