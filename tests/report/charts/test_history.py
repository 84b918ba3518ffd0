from raidproof.report.charts.history import level_rows, percent, run_rows, specification
from raidproof.verdict.change.history import histories
from tests.stored_runs import SYNC, run_with


def test_levels_join_at_the_change_and_have_its_size() -> None:
    [history] = histories([run_with([100.0 + day % 3 - 20 * (day >= 6)], day=day) for day in range(12)], SYNC)
    before, after = level_rows(history, 1)
    assert (before["begin"], before["end"], after["begin"], after["end"]) == (-0.5, 5.5, 5.5, 11.5)
    assert (before["change"], after["change"]) == ("", percent(history.changes[0]))
    assert [row["median"] for row in run_rows(history, 1)] == [point.median for point in history.points]
    assert "layer" in specification("1/s")


def test_a_history_without_a_change_has_no_levels() -> None:
    [history] = histories([run_with([100.0], day=day) for day in range(3)], SYNC)
    assert level_rows(history, 1) == []
