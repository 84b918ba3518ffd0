from hypothesis import given
from hypothesis import strategies as st

from raidproof.report.charts.figure import Chart, Figures, rounded
from tests.report.charts.unpacking import unpacked

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


@given(st.lists(st.fixed_dictionaries({"name": TEXTS, "value": st.one_of(st.none(), st.integers())})))
def test_rows_come_back_as_they_were(rows: list[dict[str, object]]) -> None:
    figures = Figures()
    figures.hold("rows", rows)
    assert unpacked(f'<script id="figures">{figures.packed()}</script>')["data"]["rows"] == rows


def test_the_same_charts_give_the_same_page() -> None:
    assert Figures().packed() == Figures().packed()


def test_values_keep_seven_digits() -> None:
    assert rounded(123.456789012) == 123.4568
    assert rounded(75868757365956) == 75868757365956


def test_a_filtered_chart_says_so() -> None:
    assert "data-filtered" in Chart("a", "b", "c", "d", filtered=True).attributes
    assert "data-filtered" not in Chart("a", "b", "c", "d").attributes
