"""A table as data; the terminal draws it with Rich, and macro ``grid`` of parts.j2 as HTML."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Generic, Literal, TypeVar

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from raidproof.record.outcome import Outcome
from raidproof.report.words import printable
from raidproof.verdict.cell import SafetyWord

R = TypeVar("R")
LOOKS = {
    Outcome.PASS: ("\u2713", "green"),
    Outcome.FAIL: ("\u2717", "red"),
    Outcome.ERROR: ("!", "magenta"),
    Outcome.SKIP: ("\u2013", "cyan"),
    Outcome.INVALID: ("\u2298", "magenta"),
    Outcome.INCONCLUSIVE: ("?", "yellow"),
    SafetyWord.SAFE: ("\u2713", "green"),
    SafetyWord.LOSES_DATA: ("\u2717", "red"),
    SafetyWord.NOT_SHOWN: ("?", "yellow"),
}
"""The sign that distinguishes a verdict without colour on a page, and its colour on a terminal."""


@dataclass(frozen=True)
class Cell:
    """One cell."""

    text: str = ""
    verdict: Outcome | SafetyWord | None = None
    """The verdict in front of the text, in its colour."""
    plain: bool = False
    """Whether the verdict has no colour: a PASS of a configuration that loses data is not green."""
    short: str | None = None
    """A shorter text for a terminal."""
    aside: str = ""
    """What belongs to the text, such as its range: after it on a terminal, below it on a page."""
    below: str = ""
    """A line below the text."""
    more: Sequence[str] = ()
    """Lines below the text, on a page only."""
    tag: str = ""
    """A label in front of the text, on a page only."""
    link: str = ""
    """What the text leads to, on a page only."""
    loss: bool = False
    """Whether the text is emphasized as a loss, on a page only."""

    @property
    def small(self) -> list[str]:
        """The lines below the text on a page."""
        return [line for line in (self.aside, self.below, *self.more) if line]

    @property
    def words(self) -> str:
        """The text of the cell on a terminal."""
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
    """One column."""

    title: str
    value: Callable[[R], Cell | str]
    """Returns the cell of a row."""
    kind: Literal["number", "word", "text"] = "text"
    """A number is right-aligned, and a word left-aligned; both are never broken on a terminal. Texts share the width
    that the others leave."""
    unit: str = ""
    group: str = ""
    """Heading over several columns, on a page only."""
    alone: str = ""
    """Title on a terminal, where groups have no heading; empty: the same title."""
    names_row: bool = False
    """Whether the cells are the names of the rows."""
    page_only: bool = False

    def cell(self, row: R) -> Cell:
        """Return the cell of a row."""
        value = self.value(row)
        return value if isinstance(value, Cell) else Cell(value)

    @property
    def header(self) -> str:
        """Title and unit on a terminal."""
        title = self.alone or self.title
        return f"{title}\n[{self.unit}]" if self.unit else title


@dataclass(frozen=True)
class Table(Generic[R]):
    """A table with one column for each item of ``fields`` and one row for each item of ``rows``."""

    fields: Sequence[Field[R]]
    rows: Sequence[R]
    apart: Mapping[str, Sequence[R]] = field(default_factory=dict)
    """Further rows under a heading of their own, on a page only."""
    note: str = ""
    """A remark below the table, on a page only."""
    marked: Callable[[R], bool] = lambda _: False
    """Returns whether a row is emphasized, on a page only."""

    def only(self, *titles: str, rows: Sequence[R] | None = None) -> "Table[R]":
        """Return the columns with these titles, in their order; titles without a column are passed over."""
        by_title = {one.title: one for one in self.fields}
        chosen = [by_title[title] for title in titles if title in by_title]
        return replace(self, fields=chosen, rows=self.rows if rows is None else rows)

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The headings over the columns, each with the number of its columns; empty if there are none."""
        listed = [(group, len(list(fields))) for group, fields in groupby(one.group for one in self.fields)]
        return listed if any(group for group, _ in listed) else []

    @property
    def edges(self) -> list[bool]:
        """For each column, whether a group begins there."""
        return [False, *(one.group != other.group for one, other in pairwise(self.fields))]

    def narrowest(self, one: Field[R]) -> int:
        """Return the least width that breaks no word of a column's header, and no cell that must stay whole."""
        cells = [one.cell(row).words for row in self.rows]
        pieces = [piece for cell in cells for piece in (cell.split() if one.kind == "text" else cell.splitlines())]
        return max(map(len, [*one.header.split(), *pieces, ""]))

    def drawn(self, width: int) -> RichTable:
        """Return the table for a terminal, at most ``width`` characters wide; texts share the remaining width."""
        fields = [one for one in self.fields if not one.page_only]
        texts = [one for one in fields if one.kind == "text"]
        widths = {id(one): self.narrowest(one) for one in fields if one.kind != "text"}
        room = width - sum(widths.values()) - (len(fields) - 1)
        wishes = [self._longest(one) for one in texts]
        widths |= {id(one): share for one, share in zip(texts, shares(wishes, room), strict=True)}
        # Gaps are 2 wide where no cell is broken by that.
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
    """Divide ``room`` characters among columns: columns that need at most an equal share get their width."""
    given = [0] * len(wishes)
    order = sorted(range(len(wishes)), key=lambda place: wishes[place])
    for turn, place in enumerate(order):
        even = max(room // (len(order) - turn), 1)
        given[place] = min(wishes[place], even)
        room -= given[place]
    return given


def verdict_text(verdict: Outcome | SafetyWord, *, plain: bool = False) -> Text:
    """Return a verdict for a terminal; only a PASS can be without its colour."""
    text = Text(verdict.value)
    text.stylize("bold" if plain and verdict is Outcome.PASS else f"bold {LOOKS[verdict][1]}")
    return text


def say(console: Console, sentence: str | Text) -> None:
    """Print a line, broken only on a terminal."""
    text = Text(printable(sentence)) if isinstance(sentence, str) else sentence
    console.print(text, soft_wrap=not console.is_terminal)


def say_end(
    console: Console, title: str, outcome: Outcome, reason: str, page: object = None, *, plain: bool = False
) -> None:
    """Print the last lines: the outcome with its reason, and the path of the page if there is one."""
    end = Text(f"{printable(title)}: ").append_text(verdict_text(outcome, plain=plain))
    say(console, end.append(f": {printable(reason)}"))
    if page is not None:
        console.print(Text(f"report: {printable(str(page))}"), soft_wrap=True)
