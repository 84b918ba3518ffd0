"""Which cells may be compared: only what worked, kept its promises, and says something of the hardware."""

from typing import Any

import pytest

from raidproof.core.waiting import wall_clock
from raidproof.record.cell import CellRecord, Explored, PlanRecord, Repetition
from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord, RunRecord, ScanResult
from raidproof.verdict.cell import conclude_plan, judge_cell, judge_cells


def cell(name: str = "a", *values: float | None, sync: bool = True, **changes: Any) -> CellRecord:
    repeats = [
        Repetition(round=number, value=value, limit="disks", cause=f"cause of {value}")
        if value is not None
        else Repetition(round=number, rig_error="the lab burned down")
        for number, value in enumerate(values, start=1)
    ]
    return CellRecord(
        name=name,
        settings={},
        workload={"tool": "fio"},
        unit="write_mb_s",
        asked={"export": {"sync": sync}},
        repeats=repeats,
        **changes,
    )


def cut(lost: int, outcome: Outcome = Outcome.PASS, **changes: Any) -> CrashTestRecord:
    evidence = ScanResult.model_construct(lost={"fsync": lost}, acknowledged={"fsync": 100})
    return CrashTestRecord.model_construct(
        name="cut-a", outcome=outcome, reason="because", on_server=evidence, not_recovered=None, **changes
    )


def test_the_fastest_is_first_by_its_median() -> None:
    record = run(cell("slow", 10, 11, 12), cell("fast", 20, 21, 22))
    judge_cells(record)
    assert {one.name: one.rank for one in record.cells} == {"fast": 1, "slow": 2}
    assert conclude_plan(record) == (Outcome.PASS, "fastest: fast (promises not tested)")


def test_cells_of_different_workloads_are_ranked_apart() -> None:
    other = cell("other", 1).model_copy(update={"workload": {"tool": "dd"}})
    record = run(cell("one", 10), other)
    judge_cells(record)
    assert [one.rank for one in record.cells] == [1, 1]


@pytest.mark.parametrize("limit", ["engine", "host cpu", "server cpu", "client cpu"])
def test_what_this_machine_limited_has_no_rank(limit: str) -> None:
    one = cell("a", 10, 10)
    for repeat in one.repeats:
        repeat.limit = limit
    judge_cell(one, None)
    assert not one.rankable
    assert limit in (one.why_not or "")


def test_what_measured_a_cache_has_no_rank_unless_that_was_asked() -> None:
    one = cell("a", 10)
    one.repeats[0].regime = {"accepted": False, "reason": "64 MiB fit into the server's memory"}
    judge_cell(one, None)
    assert one.why_not == "the workload measures a cache: 64 MiB fit into the server's memory"
    one.repeats[0].regime["accepted"] = True
    judge_cell(one, None)
    assert one.rankable


def test_a_promise_that_did_not_hold_costs_the_rank() -> None:
    one = cell("a", 10, sync=False)
    judge_cell(one, cut(7))
    assert (one.outcome, one.rankable) == (Outcome.PASS, False)
    assert one.why_not == "the power cut lost 7 of 100 acknowledged operations"
    assert one.lost == "7 of 100"
    judge_cell(one, cut(7, Outcome.FAIL))
    assert (one.outcome, one.reason) == (Outcome.FAIL, "because")


def test_an_async_export_has_no_rank_even_if_nobody_looked() -> None:
    one = cell("a", 10, sync=False)
    judge_cell(one, None)
    assert one.why_not == "the export is async: its acknowledgements promise nothing"


def test_a_cell_that_never_worked_is_an_error_and_one_that_mostly_did_says_so() -> None:
    dead, limping = cell("dead", None, None), cell("limping", 10, None, 11)
    judge_cell(dead, None)
    judge_cell(limping, None)
    assert (dead.outcome, dead.reason) == (Outcome.ERROR, "the lab burned down")
    assert (limping.outcome, limping.reason) == (
        Outcome.PASS,
        "measured 2 times; repetitions in which the rig failed: 1, the lab burned down",
    )
    record = run(dead, limping)
    assert conclude_plan(record)[0] is Outcome.ERROR


def test_what_did_not_take_effect_fails() -> None:
    one = cell("a", not_effective="wsize: requested 1048576, effective 524288")
    judge_cell(one, None)
    assert one.outcome is Outcome.FAIL


def test_oddities_are_flagged() -> None:
    one = cell("a", 10, 20, expected={"value": 100.0})
    one.repeats[0].steady = {"steady": False}
    judge_cell(one, None)
    assert one.flag == (
        "the median is 15% of the value expected of the hardware; the repetitions vary widely: the median is "
        "unreliable; the workload reached no steady state"
    )


def test_the_limit_is_the_usual_one_and_the_sentence_that_of_the_typical_visit() -> None:
    one = cell("a", 10, 12, 50)
    one.repeats[2].limit = "network"
    judge_cell(one, None)
    assert (one.limit, one.cause) == ("disks", "cause of 12")


def run(*cells: CellRecord) -> RunRecord:
    plan = PlanRecord(path="p.toml", text="", seed=1, repeats=3)
    return RunRecord(run="r", started=wall_clock(), command=[], cells=list(cells), plan=plan)


def test_a_bimodal_cell_has_no_rank() -> None:
    record = run(cell("two", 10, 10.1, 10, 10.2, 20, 20.1, 20.2, 20))
    judge_cells(record)
    assert (record.cells[0].rank, record.cells[0].why_not) == (
        None,
        "bimodal: 4 values from 10 to 10.2, 4 values from 20 to 20.2",
    )


def test_an_async_export_is_left_out_for_that_and_not_for_what_limits_it() -> None:
    one = cell("a", 10, sync=False)
    for repeat in one.repeats:
        repeat.limit = "host cpu"
    judge_cell(one, None)
    assert one.why_not == "the export is async: its acknowledgements promise nothing"


def test_what_an_exploration_leaves_open_has_no_rank() -> None:
    explored = Explored(file="x.json", judged=9, broken=0, outcome=Outcome.INCONCLUSIVE, reason="close: undecided")
    one = cell("a", 10, 10, explored=explored)
    judge_cell(one, cut(0))
    assert one.outcome is Outcome.INCONCLUSIVE
    assert not one.rankable


def test_a_cell_that_broke_a_promise_is_not_hidden_by_one_that_never_worked() -> None:
    record = run(cell("dead", None), cell("broken", 10, not_effective="wsize"))
    for one in record.cells:
        judge_cell(one, None)
    outcome, reason = conclude_plan(record)
    assert outcome is Outcome.FAIL
    assert reason == "broken: wsize; the rig failed in 1 other part of the run: dead: the lab burned down"
