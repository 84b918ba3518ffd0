"""The judgement of advice on records that were never measured."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.waiting import wall_clock
from raidproof.fault import FaultEffects
from raidproof.plan.free_axes import free_of
from raidproof.plan.plan import read_plan
from raidproof.record.advice import AdviceRecord, Configuration, FreeAxisRecord, Picked, PickedBy, RungRecord
from raidproof.record.cell import CellRecord, PlanRecord, Repetition
from raidproof.record.outcome import Outcome
from raidproof.record.run import ControlSpec, CrashTestRecord, Evidence, RunRecord
from raidproof.run.plan_runner import new_record
from raidproof.storage.deployment import Work
from raidproof.verdict.advice import Point, cell_with, front, judge_advice, recommended

AXES = {"chunk": ["512KiB", "64KiB"], "wsize": ["64KiB", "1MiB"], "export": ["sync", "async"]}
CURRENT = "chunk=512KiB wsize=64KiB export=sync"
BEST = "chunk=64KiB wsize=1MiB export=sync"


class Measured:
    """A run whose cells have given speeds, and whose power cuts lost a given number of operations."""

    def __init__(self) -> None:
        plan = read_plan(
            {
                "hardware": {"disks": {"count": 4, "size": "1GiB"}},
                "axes": AXES,
                "workload": [{"tool": "dd"}],
                "fixed": {"level": 5},
            },
            source="here.toml",
        )
        self.cells = {cell.name: cell for cell in free_of(plan).matrix.cells}
        self.run = RunRecord(
            run="a-run",
            started=wall_clock(),
            command=[],
            plan=PlanRecord(path="here.toml", text="", seed=1, repeats=0),
        )
        self.advice = AdviceRecord(
            run="a-run", plan="here", digest="", command=[], started=wall_clock(), budget_s=60, seed=1, workload="dd",
            current=CURRENT, candidates=8,
            axes=[
                FreeAxisRecord(name="chunk", values=AXES["chunk"], assumed=False, work=Work.ARRAY),
                FreeAxisRecord(name="wsize", values=AXES["wsize"], assumed=False, work=Work.REMOUNT),
                FreeAxisRecord(name="export", values=AXES["export"], assumed=False, work=Work.IN_PLACE),
            ],
        )  # fmt: skip

    def measure(self, name: str, *values: float, unit: str = "write_mb_s", **other: float) -> CellRecord:
        cell = new_record(self.cells[name])
        cell.unit = unit
        cell.repeats = [
            Repetition(round=number, value=value, values={unit: value, **other}, limit="disks")
            for number, value in enumerate(values, 1)
        ]
        self.run.cells.append(cell)
        return cell

    def cut(self, name: str, lost: int = 0, outcome: Outcome = Outcome.PASS, **other: Any) -> CrashTestRecord:
        cell = next(one for one in self.run.cells if one.name == name)
        made = CrashTestRecord(
            name=f"cut-{len(self.run.cycles)}", title=name, asked=cell.asked, cache_mode="volatile", fault="power-cut",
            effects=FaultEffects(server_memory_lost=True), seed=1, outcome=outcome, reason="so", loss_window_s=0.5,
            on_server=Evidence(
                acknowledged={"fsync": 100}, judged={"fsync": 100}, lost={"fsync": lost} if lost else {}
            ),
            **other,
        )  # fmt: skip
        self.run.cycles.append(made)
        cell.cycle = made.name
        return made

    def judge(self) -> AdviceRecord:
        judge_advice(self.advice, self.run)
        return self.advice


@pytest.fixture
def measured() -> Measured:
    made = Measured()
    made.measure(CURRENT, 50.0, 51.0, 49.0)
    made.measure(BEST, 100.0, 101.0, 99.0)
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
    without = "chunk=512KiB wsize=1MiB export=sync"
    measured.measure(without, 90.0, 91.0, 89.0)
    measured.cut(BEST)
    chunk, wsize = measured.judge().left_out
    assert (chunk.axis, chunk.cell, chunk.current) == ("chunk", without, "512KiB")
    assert chunk.ratio is not None
    assert chunk.ratio.ratio == pytest.approx(0.9, rel=0.01)
    assert chunk.ratio.high is not None
    assert chunk.ratio.high < 1
    assert (wsize.axis, wsize.cell, wsize.ratio) == ("wsize", "", None)


def test_the_rounds_of_the_search_do_not_count_if_there_are_last_rounds(measured: Measured) -> None:
    # In the search, the best one was fast by chance.
    best, current = measured.run.cells[1], measured.run.cells[0]
    for cell, values in ((best, (60.0, 60.0)), (current, (50.0, 50.0))):
        cell.repeats += [
            Repetition(round=number, value=value, limit="disks") for number, value in zip((4, 5), values, strict=True)
        ]
    measured.advice.rungs = [RungRecord(round=number, picked=[], final=number > 3) for number in range(1, 6)]
    measured.cut(BEST)
    chosen = measured.judge().chosen
    assert chosen is not None
    assert chosen.against_current is not None
    assert chosen.against_current.rounds == 2
    assert chosen.against_current.ratio == pytest.approx(1.2)


def test_of_equally_fast_ones_the_one_with_the_lightest_work_is_recommended(measured: Measured) -> None:
    light = "chunk=512KiB wsize=1MiB export=sync"
    measured.measure(light, 98.0, 99.0, 98.5)
    measured.cut(BEST)
    measured.cut(light)
    assert measured.judge().recommended == light


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
    assert {(one.run, one.cell, one.repetitions, one.cycle) for one in found.lines} == {("a-run", BEST, 3, "cut-1")}
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


def of(name: str, median: float, changes: Mapping[str, str], why_not: str | None = None) -> Configuration:
    return Configuration(
        name=name, settings={}, changes=dict(changes), median=median, repetitions=3, safety="SAFE", why_not=why_not
    )


WORK = {"chunk": Work.ARRAY, "wsize": Work.REMOUNT, "threads": Work.IN_PLACE}


def test_what_has_a_reason_against_it_is_never_recommended() -> None:
    assert recommended([of("a", 100, {}, "loses data")], WORK) is None
    assert recommended([of("a", 100, {}, "loses data"), of("b", 10, {})], WORK) == of("b", 10, {})


def test_lighter_work_does_not_outweigh_a_clear_gain() -> None:
    heavy, light = of("heavy", 100, {"chunk": "64KiB"}), of("light", 90, {"threads": "16"})
    assert recommended([heavy, light], WORK) is heavy
    assert recommended([heavy, of("near", 98, {"threads": "16", "wsize": "1MiB"})], WORK) == of(
        "near", 98, {"threads": "16", "wsize": "1MiB"}
    )
