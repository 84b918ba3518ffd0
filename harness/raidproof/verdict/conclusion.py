"""The outcome of a crash test and of a run, from the verdicts of the checks.

| what the evidence is of | outcome |
|---|---|
| a requirement is missing | SKIP |
| the requested configuration is not in effect | FAIL |
| the rig failed | FAIL if a check fails, else ERROR |
| the storage did not recover | FAIL; a control: see `verdict.controls` |
| a complete control | see `verdict.controls` |
| any other complete crash test | the worst verdict; PASS with a measured loss if the options excuse it |
| a complete crash test without a loss, although the export is ``async`` | INCONCLUSIVE |
| a run | the worst of its crash tests and suites |
"""

from raidproof.core.blame import Blame, Culprit
from raidproof.record.outcome import Outcome, Verdict, and_errors, worst, worst_of
from raidproof.record.run import CrashTestRecord, RunRecord
from raidproof.verdict.cell import conclude_plan, judge_cells
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.controls import conclude_control, conclude_control_not_recovered
from raidproof.verdict.crash_states import outcome_of
from raidproof.verdict.evidence import CrashTestEvidence, Stage
from raidproof.verdict.kernel_log import KERNEL_LOG
from raidproof.verdict.known import apply_known


def conclude_without_evidence(record: CrashTestRecord) -> tuple[Outcome, str] | None:
    """Return the outcome of a crash test that did not run as requested, and the reason; None if it ran."""
    if record.rig_error is not None:
        return None
    if record.requirement_missing is not None:
        return Outcome.SKIP, record.requirement_missing
    return None if record.not_effective is None else (Outcome.FAIL, record.not_effective)


def conclude_crash_test(evidence: CrashTestEvidence, conditions: Conditions) -> tuple[Outcome, str]:
    """Return the outcome of a crash test and the reason, from the verdicts in its record."""
    record = evidence.record
    if record.rig_error is not None:
        return broken_off(record.verdicts, record.rig_error)
    if evidence.stage is Stage.NOT_RECOVERED:
        return not_recovered(record)
    if not (scans := evidence.server_scans):
        return Outcome.INCONCLUSIVE, "the ledger was not read on the server after the fault"
    scan = max(scans, key=lambda one: one.result.lost_total)
    bad = [verdict for verdict in record.verdicts if verdict.outcome is not Outcome.PASS]
    acknowledged, lost = scan.result.acknowledged_total, scan.result.lost_total
    if record.control is not None:
        return conclude_control(record.control, lost, acknowledged, conditions.blame, conditions.beyond_lies, bad)
    if bad:
        return worst_of(bad)
    if lost:
        return (
            Outcome.PASS,
            f"measured loss: {lost:,} of {acknowledged:,} acknowledged operations; {conditions.blame}",
        )
    if not conditions.export_sync:
        return (
            Outcome.INCONCLUSIVE,
            f"the export is async, but all {acknowledged:,} acknowledged operations survived this fault",
        )
    return Outcome.PASS, f"all {acknowledged:,} acknowledged operations survived{undated(record)}"


def agreed(record: CrashTestRecord) -> str:
    """Return a clause for the reason of a failed crash test that agrees with known findings; else empty."""
    if record.outcome is not Outcome.FAIL:
        return ""
    return "".join(f"; {damage}: agrees with the finding {finding}" for damage, finding in record.agreements.items())


def broken_off(verdicts: list[Verdict], error: str) -> tuple[Outcome, str]:
    """Return the outcome of a crash test in which the rig failed (``error``), and the reason."""
    if (broken := next((one for one in verdicts if one.outcome is Outcome.FAIL), None)) is None:
        return Outcome.ERROR, error
    return Outcome.FAIL, f"{broken.checker}: {broken.reason}; then the rig failed: {error}"


def not_recovered(record: CrashTestRecord) -> tuple[Outcome, str]:
    """Return the outcome of a crash test whose storage did not recover, and the reason.

    The first verdict is that on the recovery, the second may be that on the server's kernel.
    """
    recovery, *others = record.verdicts
    blame = recovery.blame or Blame(culprit=Culprit.STACK)
    wreck = next((f"; {one.checker}: {one.reason}" for one in others if one.checker == KERNEL_LOG), "")
    what = f"{recovery.reason}{wreck}"
    if record.control is not None:
        return conclude_control_not_recovered(record.control, what, blame)
    return Outcome.FAIL, f"{what}; blamed on {blame}"


def undated(record: CrashTestRecord) -> str:
    """Return a clause for the reason of a crash test if a capture dated none of the acknowledgements; else empty.

    This is no failure: the times of the clients' reports are later, so that fewer operations count as acknowledged.
    """
    replies = record.observed.replies
    if replies is None or not replies.none_dated:
        return ""
    return f"; the capture of the server's replies dated none of {replies.of:,} operations"


def conclude_stored(record: RunRecord) -> None:
    """Fill in the outcome and the reason of a stored run, which may have ended early."""
    conclude_run(record)
    if record.ended is None or record.ended_early is not None:
        conclude_early(record, record.ended_early or "the harness was killed before it stored the end of the run")


def conclude_run(record: RunRecord) -> None:
    """Fill in the outcome and the reason of a run: from its cells if it ran a plan, else from its crash tests."""
    judge_cells(record)
    apply_known(record)
    record.outcome, record.reason = conclude_plan(record) if record.plan else conclude(record)


def conclude_early(record: RunRecord, why: str) -> None:
    """Mark a run as ended early. Its outcome becomes ERROR, unless it is FAIL or INVALID, which outweigh ERROR."""
    early, outcome = f"ended early: {why}", worst([record.outcome, Outcome.ERROR])
    record.reason = early if outcome is Outcome.ERROR else f"{record.reason}; {early}"
    record.outcome = outcome


def conclude(record: RunRecord) -> tuple[Outcome, str]:
    """Return the outcome and the reason of a run: those of its worst crash test or suite."""
    cycles = record.cycles
    if not cycles and not record.suites:
        return Outcome.INCONCLUSIVE, "no crash test and no suite ran"
    parts = [(cycle.title, *outcome_of(cycle)) for cycle in cycles]
    parts += [(suite.title, suite.outcome, suite.reason) for suite in record.suites]
    outcome = worst(of_part for _, of_part, _ in parts)
    if outcome is Outcome.PASS:
        controls = ", and the controls behaved" if any(cycle.control for cycle in cycles) else ""
        return outcome, f"every promise that holds by design was kept{controls}"
    culprit = next(f"{title}: {reason}" for title, of_part, reason in parts if of_part is outcome)
    errors = (f"{title}: {reason}" for title, of_part, reason in parts if of_part is Outcome.ERROR)
    return outcome, f"{culprit}{and_errors(outcome, errors)}"
