from raidproof.record.run import RunRecord
from raidproof.report.cells import numbered, rankings
from raidproof.report.charts.of_run import not_drawn
from raidproof.report.charts.tradeoff import of_cells, of_crash_tests, specification, ticks


def test_each_crash_test_is_a_point_with_the_values_of_its_record(run: RunRecord) -> None:
    rows = {row["number"]: row for row in of_crash_tests(run).rows}
    assert set(rows) == {1, 2, 3, 4}
    for place, cycle in enumerate(run.cycles, start=1):
        assert rows[place]["speed"] == cycle.throughput.sequential_write_mb_s
        assert rows[place]["lost_s"] == cycle.loss_window_s
    assert [rows[place]["safety"] for place in (1, 2)] == ["SAFE", "LOSES DATA"]
    assert [rows[place]["kind"] for place in (1, 2, 3, 4)] == ["", "", "control", "control"]


def test_what_is_not_known_is_named_and_not_drawn_at_zero(broken_run: RunRecord) -> None:
    found = of_crash_tests(broken_run)
    assert 1 not in {row["number"] for row in found.rows}
    assert not_drawn(found) == "1 a server that does not boot (MB/s and seconds lost not known)"


def test_a_control_whose_speed_was_not_measured_is_not_missed(run: RunRecord) -> None:
    run.cycles[2].throughput = run.cycles[2].throughput.model_copy(update={"sequential_write_mb_s": None})
    found = of_crash_tests(run)
    assert {row["number"] for row in found.rows} == {1, 2, 4}
    assert found.missing == []


def test_what_was_measured_more_than_once_has_its_range(run: RunRecord) -> None:
    each = {"sequential_write_each": [100.0, 128.42, 500.0]}
    run.cycles[0].throughput = run.cycles[0].throughput.model_copy(update=each)
    row = of_crash_tests(run).rows[0]
    assert (row["low"], row["high"], row["n"]) == (100.0, 500.0, 3)


def test_only_cells_whose_power_was_cut_are_points(plan_run: RunRecord) -> None:
    first = rankings(plan_run)[0]
    found = of_cells(plan_run, first, numbered(plan_run), ["level=5 chunk=64KiB export=sync"])
    assert len(found.rows) == 2
    assert len(found.rows) + len(found.missing) == len(first.cells)


def test_losses_of_very_different_size_have_a_logarithmic_axis_that_contains_zero(run: RunRecord) -> None:
    rows = of_crash_tests(run).rows
    assert ticks([0.0, 2.0, 3.0]) is None
    assert ticks([0.0, 0.02, 30.0]) == [0.0, 0.01, 0.1, 1.0, 10.0, 100.0]
    spread = specification([{**rows[0], "lost_s": 0.02}, {**rows[1], "lost_s": 30.0}], "MB/s")
    assert spread["layer"][0]["encoding"]["x"]["scale"]["type"] == "symlog"
