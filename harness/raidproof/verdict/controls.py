"""Verdicts on controls, crash tests whose result is known in advance, and what controls say about the other results.

A control proves that the harness sees. Lying disks must lose acknowledged operations, a clean reboot must lose none.
INVALID is a control that does not see; then no PASS of its run counts. Whatever else a control shows is evidence about
the system under test, and a FAIL like that of any other crash test.
"""

from collections.abc import Sequence

from raidproof.core.blame import Blame, Culprit, blamed_as, text_of
from raidproof.record.outcome import Outcome, Verdict, worst_of
from raidproof.record.run import ControlSpec, CrashTestRecord, RunRecord
from raidproof.verdict.crash_states import outcome_of

OF_A_REQUEST = frozenset({Culprit.DISKS, Culprit.ASYNC_EXPORT, Culprit.FILESYSTEM_SETTINGS})
"""Culprits that the harness requested or simulates; any other culprit is a part of the system under test."""


def conclude_control(
    control: ControlSpec, lost: int, acknowledged: int, blame: Blame, beyond_lies: int, bad: Sequence[Verdict]
) -> tuple[Outcome, str]:
    """Return the outcome of a control whose ledger was read, and the reason.

    ``lost`` of ``acknowledged`` operations are missing, and ``blame`` is the blame for it; ``beyond_lies`` of them are
    explained by no lie of a disk, although others are. ``bad``: the verdicts other than PASS.
    """
    if not control.expects_loss:
        if bad:
            return _against(bad)
        if lost:
            return Outcome.FAIL, f"control: expected no failure, but {lost:,} operations lost; blamed on {blame}"
        return Outcome.PASS, f"control behaved: all {acknowledged:,} acknowledged operations survived"
    if beside := [one for one in bad if one.of_the_stack]:
        return _against(beside)
    if not lost:
        return Outcome.INVALID, "control: expected a loss of acknowledged operations, but none was lost"
    if blamed_as(blame, control.expects_blame):
        return Outcome.PASS, f"control behaved: {lost:,} operations lost, blamed on {blame}"
    many = f"{beyond_lies:,} of " if beyond_lies else ""
    return _by_another(control, f"{many}{lost:,} lost operations", blame)


def conclude_control_not_recovered(control: ControlSpec, what: str, blame: Blame) -> tuple[Outcome, str]:
    """Return the outcome of a control whose storage did not recover, and the reason. ``what``: what failed."""
    if not control.expects_loss:
        return Outcome.FAIL, f"control: expected no failure, but {what}; blamed on {blame}"
    if blamed_as(blame, control.expects_blame):
        return Outcome.PASS, f"control behaved: all acknowledged operations are lost, blamed on {blame}: {what}"
    return _by_another(control, f"the loss of all acknowledged operations ({what})", blame)


def conclude_control_explored(
    control: ControlSpec, reason: str, *, broken: bool, complete: bool, by_another: tuple[str, Blame | None] | None
) -> tuple[Outcome, str]:
    """Return the outcome of an exploration of a control's crash states, and the reason.

    ``broken``: whether a state lost an acknowledged operation. ``complete``: whether the exploration did not end
    early. ``by_another``: the first failure, as text, whose blame is not the expected one, with its blame.
    """
    if not control.expects_loss:
        if broken:
            return Outcome.FAIL, f"control: expected no failure, but {reason}"
        return Outcome.PASS, f"control behaved: {reason}"
    if not broken:
        # The states that an interrupted exploration did not check could have shown the loss.
        outcome = Outcome.INVALID if complete else Outcome.INCONCLUSIVE
        return outcome, f"control: expected a loss of acknowledged operations, but {reason}"
    if by_another is not None:
        return _by_another(control, *by_another)
    return Outcome.PASS, f"control behaved: {reason}"


def _against(bad: Sequence[Verdict]) -> tuple[Outcome, str]:
    """Return the worst of several verdicts as the outcome of a control."""
    outcome, reason = worst_of(bad)
    return outcome, f"control: {reason}"


def _by_another(control: ControlSpec, what: str, blame: Blame | None) -> tuple[Outcome, str]:
    """Return the outcome of a control that lost by another part than the expected one."""
    expected = "" if control.expects_blame is None else f"; expected: {text_of(control.expects_blame)}"
    tested = blame is not None and blame.culprit not in OF_A_REQUEST
    return (
        Outcome.FAIL if tested else Outcome.INVALID,
        f"control: {what} blamed on {blame or 'no part of the system'}{expected}",
    )


def blind(record: RunRecord) -> CrashTestRecord | None:
    """Return the first control of a run that did not show what it had to show; None if there is none."""
    return _first(record, Outcome.INVALID)


def against(record: RunRecord) -> CrashTestRecord | None:
    """Return the first control of a run that shows a defect of the system under test; None if there is none."""
    return _first(record, Outcome.FAIL)


def doubt(record: RunRecord) -> str:
    """Return why no PASS of a run proves that a configuration is safe; empty if the controls raise no doubt."""
    if (one := blind(record)) is not None:
        return f"{one.title} did not show what it had to show"
    if (one := against(record)) is not None:
        return f"{one.title} shows a defect"
    return ""


def _first(record: RunRecord, outcome: Outcome) -> CrashTestRecord | None:
    controls = (cycle for cycle in record.cycles if cycle.control is not None)
    return next((one for one in controls if outcome_of(one)[0] is outcome), None)
