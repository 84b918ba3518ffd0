"""One table from parts to the outcome: a control that does not see is INVALID, and a FAIL never disappears."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.blame import Blame, Culprit
from raidproof.core.errors import Status
from raidproof.record.outcome import SEVERITY, Outcome, Verdict
from raidproof.record.run import ControlSpec
from raidproof.verdict.conclusion import Control, Part, concluded, part_of

LYING = ControlSpec(expects_loss=True, expects_blame=Culprit.DISKS)
REBOOT = ControlSpec(expects_loss=False)
STACK = Blame(culprit=Culprit.STACK)
PARTS = st.lists(st.builds(Part, st.sampled_from(Outcome), st.text(max_size=3), st.booleans()), max_size=5)
BLAMES = st.sampled_from([None, STACK, *(Blame(culprit=one) for one in Culprit)])
CONTROLS = st.builds(
    Control,
    st.sampled_from([LYING, REBOOT]),
    st.booleans(),
    st.text(max_size=3),
    st.none() | st.tuples(st.just("3 lost operations"), BLAMES),
    st.booleans(),
)


def fail(**more: Any) -> Verdict:
    return Verdict(checker="array", outcome=Outcome.FAIL, reason="mismatch_cnt 8", **more)


@given(PARTS, st.none() | CONTROLS, st.booleans())
def test_a_failing_part_is_a_failure(parts: list[Part], control: Control | None, nothing: bool) -> None:
    """Only a control that expects a loss permits failures, and none that it cannot have caused."""
    expects_loss = control is not None and control.spec.expects_loss
    counted = [one for one in parts if one.in_control or not expects_loss]
    outcome, _ = concluded(parts, "held", nothing="none ran" if nothing else "", control=control)
    assert (outcome is Outcome.FAIL) or not any(one.outcome is Outcome.FAIL for one in counted)
    assert (outcome is not Outcome.PASS) or all(one.outcome is Outcome.PASS for one in counted)


@given(PARTS, st.none() | CONTROLS)
def test_nothing_tested_never_passes(parts: list[Part], control: Control | None) -> None:
    assert concluded(parts, "held", nothing="none ran", control=control)[0] is not Outcome.PASS


@given(PARTS, st.none() | CONTROLS, st.booleans(), st.randoms(use_true_random=False))
def test_the_order_of_the_parts_does_not_matter(
    parts: list[Part], control: Control | None, nothing: bool, random: Any
) -> None:
    def outcome(of: list[Part]) -> Outcome:
        return concluded(of, "held", nothing="none ran" if nothing else "", control=control)[0]

    assert outcome(random.sample(parts, len(parts))) is outcome(parts)


@given(PARTS)
def test_a_further_part_makes_no_outcome_better(parts: list[Part]) -> None:
    whole = SEVERITY.index(concluded(parts, "held")[0])
    assert all(SEVERITY.index(concluded(parts[:count], "held")[0]) <= whole for count in range(len(parts)))


@given(CONTROLS)
def test_a_control_passes_only_with_what_it_expects(control: Control) -> None:
    outcome, _ = concluded([], "", control=control)
    expected = control.lost is control.spec.expects_loss and not (control.lost and control.by_another)
    assert (outcome is Outcome.PASS) is expected
    assert (outcome is Outcome.FAIL) or not control.lost or control.spec.expects_loss


def test_the_reason_is_that_of_the_first_part_that_decides() -> None:
    parts = [Part(Outcome.INCONCLUSIVE, "a"), part_of(fail(blame=STACK)), Part(Outcome.FAIL, "b")]
    assert concluded(parts, "held") == (Outcome.FAIL, "array: mismatch_cnt 8; blamed on the stack")
    assert concluded([Part(Outcome.PASS, "a")], "held") == (Outcome.PASS, "held")
    assert concluded([], "held", nothing="none ran") == (Outcome.INCONCLUSIVE, "none ran")


def test_every_outcome_has_the_exit_status_of_its_name() -> None:
    assert {Status[one.name] for one in Outcome} == {
        Status.PASS,
        Status.FAIL,
        Status.ERROR,
        Status.SKIP,
        Status.INVALID,
        Status.INCONCLUSIVE,
    }


def lost(said: str, *, by: Blame | None = None) -> Control:
    return Control(LYING, lost=True, said=said, by_another=None if by is None else ("3 lost operations", by))


@pytest.mark.parametrize(
    ("control", "parts", "outcome", "said"),
    [
        (lost("3 operations lost"), [], Outcome.PASS, "control behaved: 3 operations lost"),
        # What no disk explains does not matter for a control of disks, unless no defect of a disk can explain it.
        (lost("3 operations lost"), [fail()], Outcome.PASS, "control behaved: 3 operations lost"),
        (lost(""), [fail(of_the_stack=True)], Outcome.FAIL, "control: array: mismatch_cnt 8"),
        (lost("", by=STACK), [], Outcome.FAIL, "control: 3 lost operations blamed on the stack; expected: the disks"),
        (
            lost("", by=Blame(culprit=Culprit.KERNEL)),
            [],
            Outcome.FAIL,
            f"control: 3 lost operations blamed on {Blame(culprit=Culprit.KERNEL)}; expected: the disks",
        ),
        (
            lost("", by=Blame(culprit=Culprit.ASYNC_EXPORT)),
            [],
            Outcome.INVALID,
            "control: 3 lost operations blamed on the async export; expected: the disks",
        ),
        (
            Control(LYING, lost=True, said="", by_another=("fsync: lost is", None)),
            [],
            Outcome.INVALID,
            "control: fsync: lost is blamed on no part of the system; expected: the disks",
        ),
        (
            Control(LYING, lost=False, said="none was lost"),
            [],
            Outcome.INVALID,
            "control: expected a loss of acknowledged operations, but none was lost",
        ),
        (
            Control(LYING, lost=False, said="none was lost", complete=False),
            [],
            Outcome.INCONCLUSIVE,
            "control: expected a loss of acknowledged operations, but none was lost",
        ),
        (Control(REBOOT, lost=False, said="all survived"), [], Outcome.PASS, "control behaved: all survived"),
        (
            Control(REBOOT, lost=True, said="3 operations lost"),
            [],
            Outcome.FAIL,
            "control: expected no failure, but 3 operations lost",
        ),
        (Control(REBOOT, lost=False, said=""), [fail()], Outcome.FAIL, "control: array: mismatch_cnt 8"),
    ],
)
def test_controls(control: Control, parts: list[Verdict], outcome: Outcome, said: str) -> None:
    assert concluded([part_of(one) for one in parts], "", control=control) == (outcome, said)
