from raidproof.record.observation import SoloSeen
from raidproof.record.run import RunRecord, Timeline
from raidproof.report.charts.timeline import (
    MOST_BARS,
    STATUS,
    bar_rows,
    describe,
    join,
    mark_rows,
    specification,
    status,
    time_range,
)

SURVIVED, LOST, AFTER = STATUS


def test_all_timelines_of_a_page_have_the_same_axes(run: RunRecord) -> None:
    rows = bar_rows(run.cycles)
    low, high = time_range(run.cycles)
    assert all(low <= row["begin"] + 0.1 and row["end"] <= high + 0.1 for row in rows)
    bars = specification(rows, (low, high))["layer"][0]["encoding"]
    assert bars["x"]["scale"]["domain"] == [low, high]
    assert bars["y"]["scale"]["domain"] == [0, max(row["count"] for row in rows)]


def test_bars_count_every_acknowledgement_and_name_what_was_lost(run: RunRecord) -> None:
    rows = bar_rows(run.cycles)
    for place, cycle in enumerate(run.cycles, start=1):
        assert cycle.timeline is not None
        assert sum(row["count"] for row in rows if row["test"] == place) == sum(cycle.timeline.acknowledged)
    assert {row["status"] for row in rows if row["test"] == 2} == {LOST, AFTER}
    assert {row["status"] for row in rows if row["test"] == 1} == {SURVIVED, AFTER}
    marks = {row["mark"]: row["at"] for row in mark_rows(run.cycles) if row["test"] == 2}
    assert list(marks.values()) == [0.0, -2.947, 4.189]


def test_a_crash_test_that_was_never_served_again_says_so(run: RunRecord) -> None:
    cycle = run.cycles[2]
    assert cycle.timeline is not None
    assert "no acknowledgement after the fault" in describe(cycle, cycle.timeline)


def test_joining_loses_no_operation_and_keeps_the_fault_between_bars() -> None:
    timeline = Timeline(begin_s=-0.7, acknowledged=[1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert join(timeline, 4) == [(-0.8, 1 + 2 + 3), (-0.4, 4 + 5 + 6 + 7), (0.0, 8 + 9)]


def test_long_timelines_have_no_more_bars_than_can_be_seen(run: RunRecord) -> None:
    cycle = run.cycles[0].model_copy(update={"timeline": Timeline(begin_s=-90, acknowledged=[1] * 1800)})
    rows = bar_rows([cycle])
    assert len(rows) <= MOST_BARS + 1
    assert sum(row["count"] for row in rows) == 1800


def test_the_bin_that_holds_the_last_durable_point_is_lost_in_part() -> None:
    timeline = Timeline(begin_s=-1, acknowledged=[5] * 10, last_durable_s=-0.55)
    statuses = [status(begin, 0.1, timeline) for begin in (-0.7, -0.6, -0.5, 0.0)]
    assert statuses == [SURVIVED, LOST, LOST, AFTER]


def test_the_time_of_solo_operations_is_marked(run: RunRecord) -> None:
    cycle = run.cycles[0]
    cycle.fault_at_ns = 9_000_000_000
    cycle.observed.solo = SoloSeen(begun_ns=5_000_000_000, ended_ns=8_500_000_000)
    marks = [row["at"] for row in mark_rows([cycle]) if row["mark"] == "begin and end of solo operations"]
    assert marks == [-4.0, -0.5]
    assert cycle.timeline is not None
    assert "one operation at a time from 4.00 s to 0.500 s before the fault" in describe(cycle, cycle.timeline)
    cycle.observed.solo = SoloSeen(begun_ns=5_000_000_000)
    assert not [row for row in mark_rows([cycle]) if row["mark"] == "begin and end of solo operations"]
    assert "at a time" not in describe(cycle, cycle.timeline)
