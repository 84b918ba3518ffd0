from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.blame import Culprit
from raidproof.core.waiting import wall_clock
from raidproof.record.exploration import (
    AllLossesRecord,
    ColdRecord,
    CounterfactualRecord,
    ExplorationRecord,
    LossRecord,
    Possible,
    SecondCutsRecord,
    StageTime,
    StoppedBy,
    UndecidedRecord,
    stage_times,
)
from raidproof.record.failure import FailureRecord
from raidproof.record.outcome import Outcome
from raidproof.record.recovery import RecoveryRecord
from raidproof.record.run import ControlSpec
from raidproof.verdict.exploration import conclude_exploration


def failure(**changes: object) -> FailureRecord:
    fields: dict[str, object] = {
        "promise": "write + fsync",
        "damage": "the block is missing",
        "end": "read",
        "states": 3,
        "state": "17-00c0ffee",
        "dump": "[17,[]]",
        "policy": "drop-all",
        "cut": 17,
        "at_s": 1.25,
        "reason": "write + fsync: 1 of 2 acknowledged operations are missing",
        "blame": "the stack: nothing explains it",
    }
    return FailureRecord.model_validate(fields | changes)


def record(**changes: object) -> ExplorationRecord:
    fields: dict[str, object] = {
        "run": "run",
        "cycle": "sync",
        "title": "sync export",
        "started": wall_clock(),
        "log": "sync/write.log",
        "log_digest": "0",
        "seed": 1,
        "tear": 512,
        "possible": Possible(log10=3, exact=1000),
        "judged": 20,
        "distinct": 15,
        "checked": 15,
        "tested": {"fsync": 4},
    }
    return ExplorationRecord.model_validate(fields | changes)


def test_nothing_broken_passes() -> None:
    assert conclude_exploration(record()) == (Outcome.PASS, "every promise held in 20 crash states (15 different)")


def test_a_client_of_which_no_state_could_have_shown_a_loss_has_not_passed() -> None:
    outcome, reason = conclude_exploration(record(idle=["pages on client2"]))
    assert outcome is Outcome.INCONCLUSIVE
    assert reason.endswith("none could have shown a loss of pages on client2")


def test_nothing_judged_has_not_passed() -> None:
    assert conclude_exploration(record(judged=0))[0] is Outcome.INCONCLUSIVE


def test_states_by_whose_cut_nothing_was_acknowledged_prove_nothing() -> None:
    outcome, reason = conclude_exploration(record(tested={}))
    assert outcome is Outcome.INCONCLUSIVE
    assert reason == "no operation was acknowledged before the cut in any of 20 crash states (15 different)"


def test_what_is_missing_and_not_excused_is_no_measured_loss() -> None:
    undecided = UndecidedRecord(states=3, state="17-00c0ffee", reason="close may promise nothing")
    outcome, reason = conclude_exploration(record(undecided=undecided, loss=LOSS))
    assert outcome is Outcome.INCONCLUSIVE
    assert (
        reason
        == "in 3 of 20 crash states (15 different) a loss may or may not break a promise, the first is 17-00c0ffee: "
        "close may promise nothing"
    )
    assert conclude_exploration(record(undecided=undecided, failures=[failure()]))[0] is Outcome.FAIL


def test_a_failure_fails_with_promise_and_blame() -> None:
    outcome, reason = conclude_exploration(record(broken=3, failures=[failure()]))
    assert outcome is Outcome.FAIL
    assert reason == (
        "3 of 20 crash states (15 different) break a promise; write + fsync: the block is missing; "
        "blamed on the stack: nothing explains it"
    )


def test_a_failure_that_never_came_again_proves_nothing() -> None:
    failures = [failure(repeated=2, confirmed=0)]
    assert conclude_exploration(record(broken=1, failures=failures))[0] is Outcome.INCONCLUSIVE
    failures.append(failure(repeated=2, confirmed=1))
    assert conclude_exploration(record(broken=1, failures=failures))[0] is Outcome.FAIL


def test_the_first_that_came_again_is_told() -> None:
    failures = [
        failure(damage="once", repeated=2, confirmed=0),
        failure(damage="again", repeated=2, confirmed=1),
        failure(damage="always", repeated=2, confirmed=2),
    ]
    outcome, reason = conclude_exploration(record(broken=3, failures=failures))
    assert outcome is Outcome.FAIL
    assert "3 distinct failures, one of them is " in reason
    assert "again" in reason
    for one in failures:
        one.repeated = one.confirmed = 0
    assert "once" in conclude_exploration(record(broken=3, failures=failures))[1]


def test_reuse_that_hid_something_overrules_what_was_not_shown_again() -> None:
    outcome, reason = conclude_exploration(
        record(failures=[failure()], cold={"checked": 2, "differing": ["17-00c0ffee"]})
    )
    assert outcome is Outcome.ERROR
    assert "a freshly booted machine gave other results for 17-00c0ffee" in reason


def test_reuse_that_hid_something_hides_no_confirmed_failure() -> None:
    cold = {"checked": 2, "differing": ["17-00c0ffee"]}
    outcome, reason = conclude_exploration(record(failures=[failure(repeated=2, confirmed=2)], cold=cold))
    assert outcome is Outcome.FAIL
    assert "blamed on the stack" in reason
    assert "also, a reused checker gave wrong results: " in reason


def test_an_async_exports_loss_is_measured() -> None:
    loss = LossRecord(operations=7, of=9, bytes=4096, seconds=0.5, state="17-00c0ffee")
    outcome, reason = conclude_exploration(record(loss=loss))
    assert outcome is Outcome.PASS
    assert reason.startswith("measured loss: up to 7 of 9 acknowledged operations")


def test_a_rig_that_failed_proves_nothing_but_what_it_had_found() -> None:
    failed = {"ended_early": "the rig failed: gone", "stopped_by": StoppedBy.RIG}
    assert conclude_exploration(record(**failed))[0] is Outcome.ERROR
    assert conclude_exploration(record(**failed, failures=[failure()]))[0] is Outcome.FAIL


LOSS = LossRecord(operations=7, of=9, bytes=4096, seconds=0.5, state="17-00c0ffee")
STACK = "the stack: nothing explains it"


@pytest.mark.parametrize(
    ("expects_loss", "expects_blame", "changes", "outcome", "said"),
    [
        (True, "the stack", {"failures": [failure()]}, Outcome.PASS, "control behaved: 3 of 20 crash states"),
        (True, None, {"loss": LOSS}, Outcome.PASS, "control behaved: measured loss"),
        (
            True,
            "the disks",
            {"failures": [failure()]},
            Outcome.FAIL,
            f"in crash state 17-00c0ffee is blamed on {STACK}",
        ),
        (
            True,
            "the disks",
            {"failures": [failure(blame=None)]},
            Outcome.INVALID,
            "in crash state 17-00c0ffee is blamed on no part",
        ),
        (True, "the disks", {}, Outcome.INVALID, "control: expected a loss"),
        (True, None, {"ended_early": "the time was up"}, Outcome.INCONCLUSIVE, "control: expected a loss"),
        (False, None, {}, Outcome.PASS, "control behaved: every promise held"),
        (False, None, {"failures": [failure()]}, Outcome.FAIL, "control: expected no failure, but 3 of 20"),
        (False, None, {"loss": LOSS}, Outcome.FAIL, "control: expected no failure, but measured loss"),
        (True, None, {"failures": [failure(repeated=2)]}, Outcome.INCONCLUSIVE, "not reproduced"),
        (True, None, {"judged": 0}, Outcome.INCONCLUSIVE, "no crash state was checked"),
    ],
)
def test_a_control_is_measured_by_what_it_had_to_show(
    expects_loss: bool, expects_blame: str | None, changes: dict[str, object], outcome: Outcome, said: str
) -> None:
    control = ControlSpec(expects_loss=expects_loss, expects_blame=expects_blame)
    ended, reason = conclude_exploration(record(control=control, broken=3, **changes))
    assert ended is outcome
    assert said in reason


def test_who_else_is_blamed_once_and_never_again_does_not_count_against_a_control() -> None:
    control = ControlSpec(expects_loss=True, expects_blame=Culprit.DISKS)
    failures = [failure(blame="the disks: disk1"), failure(repeated=2, confirmed=0)]
    assert conclude_exploration(record(control=control, broken=3, failures=failures))[0] is Outcome.PASS


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300))
def test_percentiles_are_values_in_their_order(values: list[float]) -> None:
    one = StageTime.of("mount", values)
    assert min(values) <= one.median <= one.p90 <= one.p99 <= one.greatest == max(values)
    assert {one.p90, one.p99} <= set(values)
    assert sum(value <= one.p90 for value in values) >= 0.9 * len(values)


def test_stages_keep_their_order_and_count_where_they_took_place() -> None:
    times = stage_times({"mount": [2.0, 4.0], "verify": [3.0]})
    assert [(one.stage, one.count, one.median) for one in times] == [("mount", 2, 3.0), ("verify", 1, 3.0)]


def test_a_record_reads_back(tmp_path: object) -> None:
    one = record(failures=[failure()])
    assert ExplorationRecord.model_validate_json(one.model_dump_json()) == one


def test_another_field_is_refused() -> None:
    with pytest.raises(ValueError, match="extra"):
        record(unknown=1)


def test_a_statement_about_all_states_needs_all_of_them() -> None:
    every = AllLossesRecord(most=2, first_epoch=1, last_epoch=4, of_epochs=4, states=[5, 10, 5], judged=[5, 10, 5])
    said = "every promise held in all 20 crash states with up to 2 lost requests of all 4 flush epochs (15 different)"
    assert conclude_exploration(record(all_losses=every)) == (Outcome.PASS, said)
    part = every.model_copy(update={"judged": [5, 10, 4]})
    part_said = said.replace("all 20", "19 of the 20")
    assert conclude_exploration(record(all_losses=part)) == (Outcome.PASS, part_said)


def test_what_was_requested_and_not_checked_is_in_the_reason() -> None:
    limit = {"asked": 1000, "candidates": 5000, "ended_early": "the time was up", "stopped_by": StoppedBy.TIME}
    said = "every promise held in 20 crash states (15 different); 980 of 1,000 requested states were not checked"
    assert conclude_exploration(record(**limit)) == (Outcome.PASS, f"{said}; the time was up")
    # Fewer states than requested exist: none is left out.
    assert conclude_exploration(record(asked=1000, candidates=20))[1].endswith("(15 different)")
    second = second_cuts(asked=30)
    assert conclude_exploration(record(second_cuts=second))[1].endswith(
        "during 1 recovery; 29 of 30 requested recoveries got no second cut"
    )


def test_what_a_user_interrupted_has_not_passed() -> None:
    stopped = {"asked": 1000, "ended_early": "interrupted", "stopped_by": StoppedBy.USER}
    outcome, reason = conclude_exploration(record(**stopped))
    assert outcome is Outcome.INCONCLUSIVE
    assert reason.endswith("980 of 1,000 requested states were not checked; interrupted")
    assert conclude_exploration(record(**stopped, failures=[failure()]))[0] is Outcome.FAIL


def second_cuts(**changes: Any) -> SecondCutsRecord:
    recovery = RecoveryRecord(
        state="1-0", log="log", log_digest="", requests=5, seconds=1.0, resync_first_s=0.0, settled=True
    )
    fields = {"asked": 1, "states_each": 10, "judged": 10, "distinct": 8, "recoveries": [recovery], **changes}
    return SecondCutsRecord.model_validate(fields)


def test_states_of_a_second_cut_are_counted_apart() -> None:
    assert conclude_exploration(record(second_cuts=second_cuts())) == (
        Outcome.PASS,
        "every promise held in 20 crash states (15 different), and 10 (8 different) of a second cut during 1 recovery",
    )


def test_a_failure_of_a_second_cut_is_a_failure() -> None:
    failures = [failure().model_copy(update={"recovery": "1-0"})]
    one = record(second_cuts=second_cuts(broken=4), failures=failures)
    outcome, reason = conclude_exploration(one)
    assert outcome is Outcome.FAIL
    assert reason.startswith("0 and 4 of 20 crash states (15 different), and 10 (8 different) of a second cut")
    assert one.loses


def test_requested_second_cuts_that_were_not_tried_prove_nothing() -> None:
    outcome, reason = conclude_exploration(record(second_cuts=second_cuts(judged=0, recoveries=[])))
    assert outcome is Outcome.INCONCLUSIVE
    assert reason.startswith("no state of a second power cut was checked")


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"undecided": UndecidedRecord(states=1, state="1-0+2-0", reason="why")}, Outcome.INCONCLUSIVE),
        ({"unchecked": UndecidedRecord(states=1, state="1-0+2-0", reason="why")}, Outcome.ERROR),
        ({"cold": ColdRecord(checked=1, differing=["1-0+2-0"])}, Outcome.ERROR),
    ],
)
def test_what_is_unknown_of_a_second_cut_is_not_passed(changes: dict[str, Any], outcome: Outcome) -> None:
    seen, reason = conclude_exploration(record(second_cuts=second_cuts(**changes)))
    assert (seen, "1-0+2-0" in reason) == (outcome, True)


def test_a_kind_whose_loss_the_check_never_reports_is_not_passed() -> None:
    control = {
        "append": CounterfactualRecord(states=3, reported=0),
        "fsync": CounterfactualRecord(states=3, reported=1),
        "link": CounterfactualRecord(),
    }
    outcome, reason = conclude_exploration(record(counterfactual=control))
    assert outcome is Outcome.INCONCLUSIVE
    assert reason.endswith(
        "the check never reported an operation as missing in states that lack one: append (3 states)"
    )
    assert record(counterfactual=control).blind == ["append"]


def test_a_broken_promise_outweighs_a_check_that_does_not_notice_a_loss() -> None:
    control = {"append": CounterfactualRecord(states=3)}
    broken = record(broken=3, failures=[failure()], counterfactual=control)
    assert conclude_exploration(broken)[0] is Outcome.FAIL


@given(
    st.sampled_from([None, ControlSpec(expects_loss=False), ControlSpec(expects_loss=True)]),
    st.booleans(),
    st.integers(0, 20),
    st.sampled_from([{}, {"fsync": 0}, {"fsync": 2}, {"fsync": 5}]),
)
def test_an_exploration_passes_only_if_its_states_could_have_shown_a_loss(
    control: ControlSpec | None, failed: bool, judged: int, tested: dict[str, int]
) -> None:
    failures = [failure()] if failed else []
    found, _ = conclude_exploration(record(control=control, failures=failures, judged=judged, tested=tested))
    expected = control is not None and control.expects_loss
    if failed and not expected:
        assert found is Outcome.FAIL
    if not failed and (not judged or not any(tested.values())):
        assert found is not Outcome.PASS
