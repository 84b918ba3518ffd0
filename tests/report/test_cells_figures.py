import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.report.cells import PublishedFigure, figure_text

ROWS = [
    PublishedFigure("RAID0 of three Atlas 10K V", 160, "MB/s", 168.2, (166.0, 171.4), 5, note="controller is full"),
    PublishedFigure("one Atlas 10K V", 84, "MB/s", 84.1, (84.0, 84.3), 5, used_to_calibrate=True),
    PublishedFigure("seven pairs, one controller", 808, "1/s", 412.0, (400.0, 431.0), 3),
    PublishedFigure("RAID5 of five, mixed", 153, "MB/s", None),
    PublishedFigure("nothing", 0, "MB/s", 3.0, (3.0, 3.0), 1),
]


@pytest.mark.parametrize("width", [80, 120, 160])
def test_no_figure_and_no_deviation_is_hidden(width: int) -> None:
    text = figure_text(ROWS, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for fact in ("160", "168", "166-171", "+5.1", "+0.1", "-49.0", "808", "400-431", "not", "measured", "calibrate"):
        assert fact in text, fact
    # A row each, whatever it says.
    assert sum(" MB/s " in line or " 1/s " in line for line in text.splitlines()) == len(ROWS)


@given(st.floats(0.001, 1e9), st.floats(0.001, 1e9))
def test_deviation_has_the_sign_of_the_difference(published: float, measured: float) -> None:
    deviation = PublishedFigure("x", published, "MB/s", measured).deviation
    assert deviation is not None
    assert (deviation > 0) == (measured > published) or abs(deviation) < 1e-9


def test_deviation_is_unknown_where_it_is_not_defined() -> None:
    assert [row.deviation for row in ROWS[3:]] == [None, None]


@given(st.text())
def test_no_name_obeys(name: str) -> None:
    assert "\x1b" not in figure_text([PublishedFigure(f"[red]{name}\x1b[2J", 1, "MB/s", 1.0)])
