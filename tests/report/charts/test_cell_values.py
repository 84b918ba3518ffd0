import pytest

from raidproof.record.cell import CellRecord, Repetition
from raidproof.report.charts.cell_values import series_rows


def of(series: list[tuple[float, float]]) -> CellRecord:
    repeats = [Repetition(round=1, value=1.0, series=series)]
    return CellRecord(name="c", settings={}, workload={}, unit="write_mb_s", asked={}, repeats=repeats)


def test_a_short_series_is_drawn_as_it_was_measured() -> None:
    rows = series_rows(of([(1.0, 10.0), (2.0, 30.0)]), 7, 60)
    assert [(row["cell"], row["at_s"], row["value"]) for row in rows] == [(7, 1.0, 10.0), (7, 2.0, 30.0)]


def test_a_long_series_is_drawn_as_means_that_keep_its_sum() -> None:
    series = [(float(at), float(at % 7)) for at in range(1, 601)]
    rows = series_rows(of(series), 1, 60)
    assert len(rows) == 60
    assert sum(row["value"] for row in rows) * 10 == pytest.approx(sum(value for _, value in series))


def test_a_single_value_is_no_series() -> None:
    assert series_rows(of([(1.0, 10.0)]), 1, 60) == []
