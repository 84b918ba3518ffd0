from itertools import combinations

from raidproof.record.run import RunRecord, Timeline
from raidproof.report.run_charts import (
    CHARACTER,
    LEAST_BAR,
    LINE_HEIGHT,
    NARROW,
    NARROW_TIMELINE,
    WIDE_TIMELINE,
    Moments,
    join,
    scatter,
    status,
    timelines,
)


def test_each_cycle_is_a_point_where_its_numbers_say(run: RunRecord) -> None:
    chart = scatter(run.cycles)
    by_number = {point.number: point for point in chart.points}
    assert set(by_number) == {1, 2, 3, 4}
    assert by_number[2].x > by_number[3].x > by_number[1].x == chart.x.at(0)
    assert by_number[2].y < by_number[1].y
    assert [by_number[place].hollow for place in (1, 2, 3, 4)] == [False, False, True, True]
    assert not chart.missing


def test_what_is_not_known_is_named_and_not_drawn_at_zero(broken_run: RunRecord) -> None:
    chart = scatter(broken_run.cycles)
    assert 1 not in {point.number for point in chart.points}
    assert chart.missing == [(1, "a server that does not boot", "MB/s and seconds lost")]


def test_a_control_whose_speed_was_not_measured_is_not_missed(run: RunRecord) -> None:
    run.cycles[2].throughput = run.cycles[2].throughput.model_copy(update={"sequential_write_mb_s": None})
    chart = scatter(run.cycles)
    assert {point.number for point in chart.points} == {1, 2, 4}
    assert chart.missing == []


def test_labels_of_equal_points_do_not_touch(run: RunRecord) -> None:
    cycles = [run.cycles[0].model_copy(update={"title": f"row {place}"}) for place in range(9)]
    points = scatter(cycles).points
    for one, other in combinations(points, 2):
        apart = abs(one.label_y - other.label_y) >= LINE_HEIGHT - 0.2
        assert apart or abs(one.label_x - other.label_x) > CHARACTER * len("1 row 1")


def test_labels_stand_in_the_order_of_their_points(run: RunRecord) -> None:
    speeds = [
        run.cycles[0].throughput.model_copy(update={"sequential_write_mb_s": 100.0 + place}) for place in range(9)
    ]
    points = scatter([run.cycles[0].model_copy(update={"throughput": speed}) for speed in speeds]).points
    assert [one.number for one in sorted(points, key=lambda one: one.label_y)] == list(range(9, 0, -1))


def test_many_points_are_labelled_by_number(run: RunRecord) -> None:
    assert {point.label for point in scatter(run.cycles * 4).points} == {""}
    assert {point.label for point in scatter(run.cycles).points} == {cycle.title for cycle in run.cycles}


def test_no_point_and_no_label_leaves_a_narrow_chart(run: RunRecord) -> None:
    chart = scatter(run.cycles, NARROW)
    assert chart.frame.width <= 400
    for point in chart.points:
        length = CHARACTER * len(f"{point.number} {point.label}")
        begin = point.label_x if point.anchor == "start" else point.label_x - length
        assert chart.frame.left <= point.x <= chart.frame.right
        assert chart.frame.top <= point.y <= chart.frame.bottom
        assert begin >= 0
        assert begin + length <= chart.frame.width
    assert {point.label for point in scatter(run.cycles).points} == {cycle.title for cycle in run.cycles}


def test_what_was_measured_more_than_once_has_its_range(run: RunRecord) -> None:
    each = {"sequential_write_each": [100.0, 128.42, 500.0]}
    run.cycles[0].throughput = run.cycles[0].throughput.model_copy(update=each)
    chart = scatter(run.cycles)
    assert chart.y.high >= 500
    by_number = {point.number: point for point in chart.points}
    assert by_number[1].range == (chart.y.at(100), chart.y.at(500))
    assert by_number[2].range is None


def test_all_timelines_of_a_page_have_the_same_scales(run: RunRecord) -> None:
    for frame in (WIDE_TIMELINE, NARROW_TIMELINE):
        charts = timelines(run.cycles, frame)
        assert len({(chart.x, chart.y) for chart in charts}) == 1
        # A tenth as much is drawn a tenth as high, or the axis says that it is not.
        assert charts[0].y.scale == ""
        heights = [max(bar.height for bar in chart.bars) for chart in charts]
        assert heights[1] > 5 * heights[0]
        assert all(frame.left <= mark.x <= frame.right for chart in charts for mark in chart.marks)


def only(charts: list[Moments], number: int) -> Moments:
    [chart] = [chart for chart in charts if chart.number == number]
    return chart


def test_bars_tell_kept_from_doubtful_from_after(run: RunRecord) -> None:
    chart = only(timelines(run.cycles), 2)
    assert {bar.status for bar in chart.bars} == {"doubtful", "after"}
    kept = only(timelines(run.cycles), 1)
    assert {bar.status for bar in kept.bars} == {"kept", "after"}
    assert kept.doubtful is None
    assert [mark.kind for mark in chart.marks] == ["durable", "fault", "served"]
    assert [mark.x for mark in chart.marks] == [chart.x.at(-2.947), chart.x.at(0), chart.x.at(4.189)]


def test_who_was_never_served_again_is_silent_to_the_end(run: RunRecord) -> None:
    chart = only(timelines(run.cycles), 3)
    assert chart.silent == (chart.x.at(0), chart.x.end)
    assert "no acknowledgement after the fault" in chart.description


def test_a_cycle_without_a_timeline_has_no_chart(broken_run: RunRecord) -> None:
    assert {chart.number for chart in timelines(broken_run.cycles)} == {2, 3, 4}
    assert timelines(broken_run.cycles[:1]) == []


def test_joining_loses_no_operation_and_keeps_the_fault_between_bars() -> None:
    timeline = Timeline(begin_s=-0.7, acknowledged=[1, 2, 3, 4, 5, 6, 7, 8, 9])
    joined = join(timeline, 4)
    assert joined == [(-0.8, 1 + 2 + 3), (-0.4, 4 + 5 + 6 + 7), (0.0, 8 + 9)]


def test_long_timelines_have_no_more_bars_than_can_be_seen(run: RunRecord) -> None:
    cycle = run.cycles[0].model_copy(update={"timeline": Timeline(begin_s=-90, acknowledged=[1] * 1800)})
    [chart], [narrow] = timelines([cycle]), timelines([cycle], NARROW_TIMELINE)
    assert len(chart.bars) <= (WIDE_TIMELINE.right - WIDE_TIMELINE.left) / LEAST_BAR
    assert len(narrow.bars) <= (NARROW_TIMELINE.right - NARROW_TIMELINE.left) / LEAST_BAR
    assert chart.bin_ms == 500


def test_the_bin_that_holds_the_last_durable_point_is_doubtful() -> None:
    timeline = Timeline(begin_s=-1, acknowledged=[5] * 10, last_durable_s=-0.55)
    statuses = [status(begin, 0.1, timeline) for begin in (-0.7, -0.6, -0.5, 0.0)]
    assert statuses == ["kept", "doubtful", "doubtful", "after"]
