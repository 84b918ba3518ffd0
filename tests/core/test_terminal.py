import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from raidproof.core.terminal import Terminal, printable


@given(st.text())
def test_nothing_is_left_that_a_terminal_obeys(text: str) -> None:
    said = printable(text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", said)
    assert printable(said) == said


def test_a_control_character_is_shown() -> None:
    assert printable("a\x1b[31mb") == "a\\x1b[31mb"


CLEAR = "\x1b[2J\x9b2J"


def in_table() -> Table:
    table = Table()
    table.add_column(CLEAR)
    table.add_row(CLEAR)
    return table


@pytest.mark.parametrize(
    "shown", [CLEAR, Text(CLEAR, style="red"), Group(Text(CLEAR), CLEAR), Panel(CLEAR), in_table()], ids=type
)
def test_no_text_reaches_the_terminal_as_a_command(shown: RenderableType) -> None:
    file = io.StringIO()
    Terminal(file=file, force_terminal=True, width=80).print(shown, style="bold", markup=False)
    said = re.sub(r"\x1b\[[\d;]*m", "", file.getvalue())
    assert "\\x1b[" in said
    assert not {"\x1b", "\x9b"} & set(said)


def test_the_console_itself_can_move_the_cursor() -> None:
    file = io.StringIO()
    with Terminal(file=file, force_terminal=True, width=80).status("working"):
        pass
    assert "\x1b[" in file.getvalue()
