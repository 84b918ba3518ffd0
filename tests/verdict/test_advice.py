"""The judgement of advice on records that were never measured."""

from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.record.advice import Configuration, Picked, PickedBy, RatioRecord, RungRecord
from raidproof.record.outcome import Outcome
from raidproof.record.run import ControlSpec
from raidproof.storage.deployment import Work
from raidproof.verdict.advice import Point, cell_with, front, leader, recommended, rivals
from tests.verdict.searched import AXES, BEST, CURRENT, Measured

LIGHT = "chunk=512KiB wsize=1MiB export=sync"
LAST = {CURRENT: (50.0, 51.0, 49.0, 50.0), BEST: (100.0, 103.0, 98.0, 100.0)}
"""The speeds of a last comparison, in which one configuration is twice as fast."""


@pytest.fixture
def measured() -> Measured:
    made = Measured()
    made.measure(CURRENT, 50.0, 51.0, 49.0)
    made.measure(BEST, 100.0, 101.0, 99.0)
    made.compare(LAST)
    made.cut(CURRENT)
    return made


def test_the_fastest_safe_configuration_is_recommended(measured: Measured) -> None:
    measured.cut(BEST)
    found = measured.judge()
    assert found.recommended == BEST
    assert found.chosen is not None
    assert found.chosen.changes == {"chunk": "64KiB", "wsize": "1MiB"}
    assert found.chosen.against_current is not None
    assert found.chosen.against_current.ratio == pytest.approx(2.0, rel=0.01)
    assert found.outcome is Outcome.PASS


def test_a_configuration_that_was_not_cut_is_not_recommended(measured: Measured) -> None:
    found = measured.judge()
    assert found.recommended == CURRENT
    assert [one.name for one in found.configurations] == [CURRENT]
    assert "no change is recommended" in found.reason


@pytest.mark.parametrize(
    ("lost", "outcome", "word"),
    [(3, Outcome.FAIL, "LOSES DATA"), (0, Outcome.INCONCLUSIVE, "NOT SHOWN"), (0, Outcome.ERROR, "NOT SHOWN")],
)
def test_what_is_not_safe_is_not_recommended(measured: Measured, lost: int, outcome: Outcome, word: str) -> None:
    measured.cut(BEST, lost, outcome)
    found = measured.judge()
    assert found.recommended == CURRENT
    fast = next(one for one in found.configurations if one.name == BEST)
    assert fast.safety == word
    assert fast.why_not is not None


def test_an_async_export_is_never_recommended(measured: Measured) -> None:
    fast = "chunk=64KiB wsize=1MiB export=async"
    measured.measure(fast, 500.0, 501.0, 502.0)
    for lost in (0, 5):
        measured.cut(fast, lost)
        found = measured.judge()
        assert found.recommended == CURRENT
        assert next(one for one in found.configurations if one.name == fast).on_front


def test_without_a_safe_configuration_nothing_is_recommended() -> None:
    measured = Measured()
    measured.measure(CURRENT, 50.0, 51.0)
    assert measured.judge().outcome is Outcome.INCONCLUSIVE
    measured.cut(CURRENT, 3, Outcome.FAIL)
    found = measured.judge()
    assert (found.recommended, found.outcome) == (None, Outcome.FAIL)
    assert found.lines == []


def test_nothing_measured_is_inconclusive() -> None:
    assert Measured().judge().outcome is Outcome.INCONCLUSIVE


def test_a_control_that_misbehaved_makes_the_advice_invalid(measured: Measured) -> None:
    measured.cut(BEST)
    measured.run.cycles.append(
        measured.run.cycles[0].model_copy(
            update={"name": "c", "control": ControlSpec(expects_loss=True), "outcome": Outcome.INVALID}
        )
    )
    found = measured.judge()
    assert (found.recommended, found.outcome) == (None, Outcome.INVALID)


@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.INCONCLUSIVE])
def test_advice_does_not_pass_if_a_control_gave_no_result(measured: Measured, outcome: Outcome) -> None:
    measured.cut(BEST)
    measured.run.cycles.append(
        measured.run.cycles[0].model_copy(
            update={
                "name": "c", "title": "control", "control": ControlSpec(expects_loss=True), "outcome": outcome,
                "reason": "the disk engine ended",
            }
        )
    )  # fmt: skip
    found = measured.judge()
    assert (found.outcome, found.reason) == (outcome, "control: the disk engine ended")


def test_a_value_that_measures_a_cache_is_not_recommended(measured: Measured) -> None:
    measured.cut(BEST)
    for one in measured.run.cells[1].repeats:
        one.regime = {"cache": "client's memory", "accepted": False, "reason": "it fits"}
    found = measured.judge()
    assert found.recommended == CURRENT


def test_a_single_repetition_is_too_few() -> None:
    measured = Measured()
    measured.measure(CURRENT, 50.0, 51.0)
    measured.measure(BEST, 100.0)
    measured.cut(CURRENT)
    measured.cut(BEST)
    assert measured.judge().recommended == CURRENT


def test_the_cost_of_each_change_is_that_of_the_cell_without_it(measured: Measured) -> None:
    measured.measure(LIGHT, 90.0, 91.0, 89.0)
    measured.compare({**LAST, LIGHT: (90.0, 90.0, 91.0, 89.0)})
    measured.cut(BEST)
    chunk, wsize = measured.judge().left_out
    assert (chunk.axis, chunk.cell, chunk.current) == ("chunk", LIGHT, "512KiB")
    assert chunk.ratio is not None
    assert chunk.ratio.ratio == pytest.approx(0.9, rel=0.01)
    assert chunk.ratio.high is not None
    assert chunk.ratio.high < 1
    assert (wsize.axis, wsize.cell, wsize.ratio) == ("wsize", "", None)


def test_the_rounds_of_the_search_do_not_count_if_there_are_last_rounds() -> None:
    # In the search, the best one was fast by chance.
    measured = Measured()
    measured.measure(CURRENT, 50.0, 50.0, 50.0)
    measured.measure(BEST, 100.0, 101.0, 99.0)
    measured.compare({CURRENT: (50.0, 50.0), BEST: (60.0, 60.0)})
    measured.cut(CURRENT)
    measured.cut(BEST)
    chosen = measured.judge().chosen
    assert chosen is not None
    assert chosen.against_current is not None
    assert chosen.against_current.rounds == 2
    assert chosen.against_current.ratio == pytest.approx(1.2)


@pytest.mark.parametrize("last", [{}, {CURRENT: (50.0,), BEST: (100.0,)}])
def test_the_rounds_of_the_search_show_no_gain(last: Mapping[str, tuple[float, ...]]) -> None:
    measured = Measured()
    measured.measure(CURRENT, 50.0, 50.1, 49.9, 50.0)
    measured.measure(BEST, 100.0, 101.0, 99.0, 100.0)
    if last:
        measured.compare(last)
    measured.cut(CURRENT)
    measured.cut(BEST)
    found = measured.judge()
    assert (found.recommended, found.leader, found.lines[0].cell) == (CURRENT, BEST, CURRENT)
    fast = next(one for one in found.configurations if one.name == BEST)
    assert fast.why_not == "not shown to be faster than the current configuration"
    assert fast.against_current is not None
    assert fast.against_current.ratio == pytest.approx(2.0, rel=0.01)
    assert fast.against_current.low is None


def test_a_faster_median_is_not_recommended_if_the_last_comparison_does_not_show_it(measured: Measured) -> None:
    measured.compare({CURRENT: (50.0, 51.0, 49.0, 50.0), BEST: (49.0, 51.5, 50.0, 52.0)})
    measured.advice.rungs = [one for one in measured.advice.rungs if not one.final or one.round > 7]
    measured.cut(BEST)
    found = measured.judge()
    assert (found.recommended, found.outcome) == (CURRENT, Outcome.PASS)
    assert "keep the current configuration" in found.reason


def test_the_interval_is_wider_if_more_configurations_are_compared(measured: Measured) -> None:
    def width() -> float:
        gain = next(one for one in measured.judge().configurations if one.name == BEST).against_current
        assert gain is not None
        assert gain.low is not None
        assert gain.high is not None
        return gain.high - gain.low

    measured.cut(BEST)
    one = width()
    unsafe, other = "chunk=64KiB wsize=1MiB export=async", LIGHT
    final = [rung for rung in measured.advice.rungs if rung.final]
    for rung in final:
        rung.picked.append(Picked(name=unsafe, by=PickedBy.UNSAFE))
    assert width() == one
    for rung in final:
        rung.picked.append(Picked(name=other, by=PickedBy.WITHOUT))
    assert width() > 1.2 * one


def test_a_server_that_loses_data_gets_a_safe_configuration_that_is_slower() -> None:
    measured = Measured()
    measured.measure(CURRENT, 100.0, 101.0, 99.0)
    measured.measure(BEST, 60.0, 61.0, 59.0)
    measured.cut(CURRENT, 3, Outcome.FAIL)
    measured.cut(BEST)
    assert measured.judge().recommended == BEST
    measured.compare({CURRENT: (100.0, 101.0), BEST: (60.0, 60.0)})
    found = measured.judge()
    assert (found.recommended, found.outcome) == (BEST, Outcome.PASS)
    assert found.reason.endswith("the current configuration loses data")


def test_without_a_value_of_the_current_configuration_no_gain_is_shown(measured: Measured) -> None:
    measured.cut(BEST)
    for one in measured.run.cells[0].repeats:
        one.regime = {"cache": "client's memory", "accepted": False, "reason": "it fits"}
    found = measured.judge()
    assert (found.recommended, found.outcome) == (None, Outcome.INCONCLUSIVE)


def test_of_equally_fast_ones_the_one_with_the_lightest_work_is_recommended(measured: Measured) -> None:
    measured.measure(LIGHT, 98.0, 99.0, 98.5)
    measured.compare({**LAST, LIGHT: (99.0, 100.0, 98.0, 100.0)})
    measured.cut(BEST)
    assert measured.judge().recommended == BEST
    assert rivals(measured.advice, measured.run, BEST) == [LIGHT]
    measured.cut(LIGHT)
    assert measured.judge().recommended == LIGHT


def test_a_configuration_is_no_rival_if_it_is_not_shown_to_be_faster_than_the_current_one(measured: Measured) -> None:
    measured.measure(LIGHT, 98.0, 99.0, 98.5)
    measured.cut(BEST)
    measured.compare({**LAST, LIGHT: (49.0, 230.0, 50.0, 240.0)})
    measured.judge()
    assert rivals(measured.advice, measured.run, BEST) == []
    measured.compare({**LAST, LIGHT: (80.0, 81.0, 79.0, 80.0)})
    measured.judge()
    assert rivals(measured.advice, measured.run, BEST) == []


def test_latency_and_loss_are_in_the_configuration() -> None:
    measured = Measured()
    measured.measure(CURRENT, 50.0, 51.0, write_p99_ms=3.0, read_p99_ms=5.0)
    measured.cut(CURRENT, 2, Outcome.FAIL)
    (one,) = measured.judge().configurations
    assert (one.latency_ms, one.lost, one.acknowledged, one.lost_s) == (5.0, 2, 100, 0.5)


def test_a_smaller_duration_is_faster() -> None:
    measured = Measured()
    measured.measure(CURRENT, 5.0, 5.1, unit="create_ms")
    measured.measure(BEST, 2.0, 2.1, unit="create_ms")
    measured.compare({CURRENT: (5.0, 5.1, 5.05, 5.0), BEST: (2.0, 2.1, 2.05, 2.0)})
    measured.cut(CURRENT)
    measured.cut(BEST)
    found = measured.judge()
    assert found.recommended == BEST
    assert found.chosen is not None
    assert found.chosen.against_current is not None
    assert found.chosen.against_current.ratio > 2


def test_each_line_names_the_run_and_the_cell(measured: Measured) -> None:
    measured.cut(BEST)
    found = measured.judge()
    assert {(one.run, one.cell, one.repetitions, one.cycle) for one in found.lines} == {("a-run", BEST, 7, "cut-1")}
    works = {one.line.work for one in found.lines}
    assert {Work.ARRAY, Work.FILESYSTEM, Work.REMOUNT} <= works


def test_the_model_is_compared_with_what_was_measured(measured: Measured) -> None:
    expected = {CURRENT: 1.0, BEST: 3.0, "chunk=512KiB wsize=1MiB export=sync": 2.0}
    measured.measure("chunk=512KiB wsize=1MiB export=sync", 70.0)
    picked = [Picked(name=name, by=PickedBy.MODEL, expected=speed) for name, speed in expected.items()]
    measured.advice.rungs = [RungRecord(round=1, picked=picked)]
    model = measured.judge().model
    assert model is not None
    assert (model.compared, model.correlation, model.compared_random) == (3, 1.0, 0)
    assert model.correlation_random is None


def test_a_cell_is_found_by_the_axes_that_apply_to_it(measured: Measured) -> None:
    cells = {cell.name: cell for cell in measured.run.cells}
    wanted = {"chunk": "64KiB", "wsize": "1MiB", "export": "sync"}
    assert cell_with(cells, wanted, list(AXES)) is cells[BEST]
    assert cell_with(cells, wanted | {"chunk": "512KiB"}, list(AXES)) is None


POINTS = st.lists(
    st.builds(
        Point,
        st.floats(1, 100),
        st.floats(1, 100) | st.none(),
        st.integers(0, 5).map(float) | st.none(),
    ),
    max_size=12,
)


@given(POINTS)
def test_the_front_has_every_point_that_no_other_beats(points: list[Point]) -> None:
    on = front(points)
    known = [point for point in points if point.lost is not None]
    assert any(on) == bool(known)
    for point, is_on in zip(points, on, strict=True):
        if point.lost is None:
            assert not is_on
        elif point.speed == max(one.speed for one in known) and not is_on:
            assert any(other.speed == point.speed and other != point for other in known)


def test_a_slower_point_is_on_the_front_if_it_loses_less() -> None:
    assert front([Point(100, None, 5.0), Point(50, None, 0.0), Point(40, None, 0.0)]) == [True, True, False]
    assert front([Point(100, 9.0, 0.0), Point(50, 1.0, 0.0)]) == [True, True]
    assert front([Point(100, None, 0.0), Point(50, 1.0, 0.0)]) == [True, False]


def of(name: str, speed: float, changes: Mapping[str, str], why_not: str | None = None) -> Configuration:
    return Configuration(
        name=name, settings={}, changes=dict(changes), median=speed, repetitions=3, safety="SAFE", why_not=why_not,
        against_current=RatioRecord(ratio=speed / 50, low=speed / 51, high=speed / 49, rounds=8) if changes else None,
    )  # fmt: skip


WORK = {"chunk": Work.ARRAY, "wsize": Work.REMOUNT, "threads": Work.IN_PLACE}


@pytest.mark.parametrize("choose", [leader, recommended])
def test_what_has_a_reason_against_it_is_never_chosen(
    choose: Callable[[Sequence[Configuration], Mapping[str, Work]], Configuration | None],
) -> None:
    assert choose([of("a", 100, {}, "loses data")], WORK) is None
    assert choose([of("a", 100, {}, "loses data"), of("b", 10, {})], WORK) == of("b", 10, {})


@pytest.mark.parametrize("choose", [leader, recommended])
def test_lighter_work_does_not_outweigh_a_clear_gain(
    choose: Callable[[Sequence[Configuration], Mapping[str, Work]], Configuration | None],
) -> None:
    heavy, light = of("heavy", 100, {"chunk": "64KiB"}), of("light", 90, {"threads": "16"})
    assert choose([heavy, light], WORK) is heavy
    near = of("near", 98, {"threads": "16", "wsize": "1MiB"})
    assert choose([heavy, near], WORK) is near


def test_the_fastest_is_that_of_the_last_comparison() -> None:
    lucky, steady = of("lucky", 100, {"chunk": "64KiB"}), of("steady", 90, {"wsize": "1MiB"})
    lucky.against_current = RatioRecord(ratio=1.2, low=1.1, high=1.3, rounds=8)
    assert leader([lucky, steady], WORK) is lucky
    assert recommended([lucky, steady], WORK) is steady
