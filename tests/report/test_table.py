import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from raidproof.record.outcome import Outcome
from raidproof.report.html import templates
from raidproof.report.table import Cell, Field, Table, shares

Row = tuple[str, float]
ROWS: list[Row] = [("a long name of a row", 1234.0), ("short", 5.0)]


def table(**changes: object) -> Table[Row]:
    fields = [
        Field[Row]("row", lambda row: Cell(row[0], tag="7", link="#there"), names_row=True),
        Field[Row]("verdict", lambda _: Cell("all of it", Outcome.PASS, below="below"), "word"),
        Field[Row]("rate", lambda row: Cell(f"{row[1]:,.0f}", aside="(1-2)"), "number", "MB/s", "speed", "speed rate"),
        Field[Row]("note", lambda _: "page only", page_only=True),
    ]
    return Table(**{"fields": fields, "rows": ROWS, **changes})  # type: ignore[arg-type]


def shown(one: Table[Row], width: int) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(one.drawn(width))
    return file.getvalue()


def page(one: Table[Row]) -> str:
    return templates().from_string('{% from "parts.j2" import grid %}{{ grid(one, "id") }}').render(one=one)


def test_a_terminal_has_titles_units_and_cells() -> None:
    text = shown(table(), 80)
    for fact in ("row", "verdict", "speed rate", "[MB/s]", "a long name of a row", "PASS: all of it", "1,234 (1-2)"):
        assert fact in text
    assert "below" in text
    assert "page only" not in text


@pytest.mark.parametrize("width", [40, 60, 80])
def test_numbers_stay_whole_and_texts_share_what_is_left(width: int) -> None:
    text = shown(table(), width)
    assert max(map(len, text.splitlines())) <= width
    assert "1,234 (1-2)" in text
    assert "\u2026" not in text


def test_a_page_has_the_same_cells_with_groups_links_and_further_rows() -> None:
    text = page(table(apart={"Others": ROWS[1:]}, note="What n is.", marked=lambda row: row[0] == "short"))
    assert '<th class="edge" scope="colgroup" colspan="1">speed</th>' in text
    assert '<span class="tag">7</span> <a href="#there">a long name of a row</a>' in text
    assert '<td class="n edge">1,234<small>(1-2)</small></td>' in text
    assert '<th scope="rowgroup" colspan="4">Others</th>' in text
    assert "<caption>What n is.</caption>" in text
    assert text.count('<tr class="changed">') == 2
    assert "page only" in text
    assert "below" in text


def test_only_chosen_columns_are_left() -> None:
    chosen = table().only("rate", "no such column", "row", rows=ROWS[:1])
    assert [field.title for field in chosen.fields] == ["rate", "row"]
    assert chosen.rows == ROWS[:1]


@given(st.text())
def test_no_text_of_a_cell_is_obeyed(text: str) -> None:
    evil: list[Row] = [(f"[red]<script>{text}\x1b[2J", 1.0)]
    assert "\x1b" not in shown(table(rows=evil), 60)
    assert "\x1b" not in page(table(rows=evil))
    assert "<script" not in page(table(rows=evil))


@given(st.lists(st.integers(1, 200), min_size=1, max_size=4), st.integers(4, 400))
def test_shares_fit_and_waste_nothing(wishes: list[int], room: int) -> None:
    given_ = shares(wishes, room)
    assert all(1 <= got <= wish for got, wish in zip(given_, wishes, strict=True))
    assert sum(given_) == min(sum(wishes), room)
