from raidproof.record.run import RunRecord
from raidproof.report.cells import rankings
from raidproof.report.run_charts import (
    LEFT,
    RIGHT,
    SPARK_BOTTOM,
    SPARK_TOP,
    bars,
    not_drawn,
    numbered,
    sparks,
    speed_and_loss,
)


def test_bars_stand_in_rank_order_with_each_visit_and_what_was_expected(plan_run: RunRecord) -> None:
    fio = rankings(plan_run)[0]
    chart = bars(fio)
    assert [row.label[0][0] for row in chart.rows] == [*["1"] * 4, *["no rank"] * 3]
    assert [row.bars[0].kind for row in chart.rows] == [*["ranked"] * 4, *["unranked"] * 3]
    tops = [row.top for row in chart.rows]
    assert tops == sorted(tops)
    [first] = chart.rows[0].bars
    assert (first.end, first.expected) == (chart.x.at(112.4), chart.x.at(117.5))
    assert first.dots == [chart.x.at(value) for value in (112.4, 110.9, 113.0)]
    assert chart.rows[3].bars[0].expected is None
    assert {row.name for row in chart.rows} == {cell.name for cell in fio.cells if cell.median is not None}


def test_a_cache_does_not_squeeze_the_disks(plan_run: RunRecord) -> None:
    chart = bars(rankings(plan_run)[0])
    assert chart.x.high <= 200
    cached = next(row for row in chart.rows if row.name.startswith("level=1 "))
    assert "exceeds the axis" in chart.note
    assert not cached.bars[0].dots
    assert [row.name for row in chart.rows if row.label[2][0].endswith("\u00bb")] == [cached.name]
    assert all(LEFT <= row.bars[0].end <= RIGHT for row in chart.rows)


def test_without_any_rank_all_bars_fit(plan_run: RunRecord) -> None:
    for cell in plan_run.cells:
        cell.rank = None
    assert bars(rankings(plan_run)[0]).note == ""


def test_loss_is_drawn_only_where_power_was_cut(plan_run: RunRecord, uncut_run: RunRecord) -> None:
    numbers = numbered(plan_run)
    fio, postmark = rankings(plan_run)
    chart = speed_and_loss(fio, plan_run.cycles, numbers)
    assert chart is not None
    assert {(point.number, point.hollow, point.lost) for point in chart.points} == {
        (1, False, "0"),
        (3, True, "20,047"),
    }
    assert not_drawn(chart) == "2, 4, 5, 6, 9 (loss not known); 7, 8 (write and loss not known)"
    assert speed_and_loss(postmark, plan_run.cycles, numbers) is None
    assert speed_and_loss(rankings(uncut_run)[0], uncut_run.cycles, numbered(uncut_run)) is None


def test_series_run_from_zero_to_their_own_greatest_value(plan_run: RunRecord) -> None:
    chart = sparks(rankings(plan_run)[0], numbered(plan_run))
    assert chart is not None
    assert len(chart.cells) == 7
    heights = [float(point.split(",")[1]) for line in chart.cells[0].lines for point in line.split()]
    assert min(heights) == SPARK_TOP
    assert max(heights) < SPARK_BOTTOM
    for cell in plan_run.cells:
        for repeat in cell.repeats:
            repeat.series = []
    assert sparks(rankings(plan_run)[0], numbered(plan_run)) is None
