"""What explorations add to the verdict on a configuration: a broken crash state is never SAFE, ranked or PASS."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.waiting import wall_clock
from raidproof.record.cell import CellRecord, Explored, PlanRecord, Repetition
from raidproof.record.outcome import Outcome
from raidproof.record.run import ControlSpec, CrashTestRecord, RunRecord, ScanResult
from raidproof.verdict.cell import SafetyWord, by_safety, losing, safety_in, safety_of
from raidproof.verdict.crash_states import outcome_of
from raidproof.verdict.recommendation import NoneRecommended, recommend
from raidproof.verdict.run import conclude_run


def explored(outcome: Outcome = Outcome.PASS, broken: int = 0, judged: int = 300, **changes: Any) -> Explored:
    fields = {"file": "explore-cut-a.json", "judged": judged, "broken": broken, "reason": "so"}
    return Explored.model_validate({**fields, "outcome": outcome, **changes})


def crash_test(*explorations: Explored, outcome: Outcome = Outcome.PASS, **changes: Any) -> CrashTestRecord:
    fields = {
        "name": "cut-a", "title": "a", "asked": {"export": {"sync": True}}, "cache_mode": "volatile", "seed": 1,
        "fault": "power-cut", "effects": {"server_memory_lost": True}, "outcome": outcome, "reason": "all survived",
        "on_server": ScanResult(acknowledged={"fsync": 100}), "explored": list(explorations),
    }  # fmt: skip
    return CrashTestRecord.model_validate({**fields, **changes})


def test_states_without_a_failure_are_part_of_safe() -> None:
    safety = safety_of(crash_test(explored()))
    assert str(safety) == "SAFE: all 100 acknowledged operations survived; 300 crash states, none broken"
    assert safety.brief == "SAFE: 0 of 100 lost; 300 crash states, none broken"
    assert safety.claim == "SAFE; 300 crash states, none broken"
    assert safety_of(crash_test(explored(judged=1))).claim == "SAFE; 1 crash state, none broken"
    assert safety_of(crash_test()).claim == "SAFE"


def test_two_explorations_are_not_added_up_as_they_may_check_the_same_states() -> None:
    assert safety_of(crash_test(explored(), explored(judged=50, file="explore-cut-a-2.json"))).states == 300


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.ERROR])
def test_a_broken_state_is_a_loss_whatever_the_cut_showed(outcome: Outcome) -> None:
    safety = safety_of(crash_test(explored(Outcome.FAIL, 5), outcome=outcome) if outcome is not Outcome.ERROR else
                       crash_test(explored(), explored(Outcome.FAIL, 5), outcome=outcome))  # fmt: skip
    assert str(safety) == "LOSES DATA: in 5 of 300 explored crash states"


def test_a_loss_that_the_options_excuse_is_a_loss() -> None:
    assert safety_of(crash_test(explored(lost=7))).why == "up to 7 acknowledged operations in an explored crash state"


@pytest.mark.parametrize("outcome", [Outcome.INCONCLUSIVE, Outcome.ERROR])
def test_what_an_exploration_leaves_open_is_not_shown_to_be_safe(outcome: Outcome) -> None:
    cycle = crash_test(explored(outcome, 1))
    assert str(safety_of(cycle)) == "NOT SHOWN: exploration of crash states: so"
    assert outcome_of(cycle) == (Outcome.PASS, "all survived")


def test_states_prove_no_safety_that_the_cut_did_not_show() -> None:
    assert safety_of(crash_test(explored(), outcome=Outcome.INCONCLUSIVE)).word is SafetyWord.NOT_SHOWN


def test_a_crash_test_without_a_plan_fails_with_its_exploration() -> None:
    run = RunRecord(run="r", started=wall_clock(), command=[], cycles=[crash_test(explored(Outcome.FAIL, 5))])
    conclude_run(run)
    assert (run.outcome, run.reason) == (Outcome.FAIL, "a: exploration of crash states: so")
    assert losing(run)
    assert by_safety(run) == {SafetyWord.LOSES_DATA: ["a"]}
    # The power cut itself lost nothing, and a control that did not see a loss does not outweigh the loss.
    assert run.cycles[0].outcome is Outcome.PASS
    invalid = crash_test(explored(Outcome.FAIL, 5), outcome=Outcome.INVALID)
    assert outcome_of(invalid) == (Outcome.FAIL, "exploration of crash states: so")


def test_a_control_that_an_exploration_contradicts_makes_the_run_invalid() -> None:
    control = crash_test(explored(Outcome.INVALID, 5), control=ControlSpec(expects_loss=False))
    run = RunRecord(run="r", started=wall_clock(), command=[], cycles=[control, crash_test()])
    conclude_run(run)
    assert run.outcome is Outcome.INVALID
    assert by_safety(run) == {SafetyWord.NOT_SHOWN: ["a"]}


def plan_run(*cycles: CrashTestRecord, requested: Explored | None = None) -> RunRecord:
    cell = CellRecord(
        name="a", settings={}, workload={"tool": "fio"}, unit="write_mb_s", asked={"export": {"sync": True}},
        cycle="cut-a", explored=requested, repeats=[Repetition(round=1, value=10.0, limit="disks", cause="disks")],
    )  # fmt: skip
    plan = PlanRecord(path="p.toml", text="", seed=1, repeats=1, cut="power")
    run = RunRecord(run="r", started=wall_clock(), command=[], cells=[cell], plan=plan, cycles=list(cycles))
    conclude_run(run)
    return run


def test_a_cell_with_a_broken_state_is_neither_ranked_nor_recommended() -> None:
    assert recommend(plan_run(crash_test()))[0].cells
    run = plan_run(crash_test(explored(Outcome.FAIL, 5)))
    (cell,) = run.cells
    assert (cell.outcome, cell.rank, run.outcome) == (Outcome.FAIL, None, Outcome.FAIL)
    assert cell.why_not == "FAIL: exploration of crash states: so"
    assert safety_in(run, cell).word is SafetyWord.LOSES_DATA
    assert recommend(run)[0].why_none is NoneRecommended.NONE_SAFE


def test_a_cell_with_an_excused_loss_in_a_state_has_no_rank() -> None:
    (cell,) = plan_run(crash_test(explored(lost=7))).cells
    assert cell.rank is None
    assert cell.why_not is not None
    assert "up to 7 acknowledged operations" in cell.why_not


def test_an_exploration_that_was_resumed_after_the_plan_counts_as_it_ended_last() -> None:
    run = plan_run(crash_test(explored(Outcome.FAIL, 5)), requested=explored(Outcome.INCONCLUSIVE, judged=3))
    assert run.outcome is Outcome.FAIL
    run = plan_run(crash_test(explored()), requested=explored(Outcome.INCONCLUSIVE, judged=3))
    assert (run.outcome, safety_in(run, run.cells[0]).states) == (Outcome.PASS, 300)


@pytest.mark.parametrize("outcome", [Outcome.INCONCLUSIVE, Outcome.ERROR, Outcome.SKIP])
def test_a_broken_state_of_the_requested_exploration_fails_the_cell_whatever_the_cut_showed(outcome: Outcome) -> None:
    run = plan_run(crash_test(outcome=outcome), requested=explored(Outcome.FAIL, 5))
    assert (run.cells[0].outcome, run.outcome) == (Outcome.FAIL, Outcome.FAIL)


@given(st.lists(st.sampled_from(Outcome), max_size=4), st.lists(st.sampled_from(Outcome), max_size=2), st.booleans())
def test_no_run_passes_with_a_failure_or_without_a_test(
    ended: list[Outcome], states: list[Outcome], control: bool
) -> None:
    spec = ControlSpec(expects_loss=False) if control else None
    cycles = [crash_test(outcome=one, control=spec) for one in ended]
    if cycles:
        cycles[0].explored.extend(explored(one) for one in states)
    run = RunRecord(run="r", started=wall_clock(), command=[], cycles=cycles)
    conclude_run(run)
    failed = Outcome.FAIL in ended or (bool(cycles) and Outcome.FAIL in states)
    assert (run.outcome is Outcome.FAIL) is failed
    assert run.outcome is not Outcome.PASS or (bool(ended) and set(ended) == {Outcome.PASS})
    if cycles:
        cell = plan_run(cycles[0]).cells[0]
        assert cell.outcome is not Outcome.PASS or outcome_of(cycles[0])[0] is Outcome.PASS
