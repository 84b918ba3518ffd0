"""The judgement of a crash test from its record and files: right after the run, or later."""

from pathlib import Path

from raidproof.core.blame import Blame, Culprit, blamed_as
from raidproof.record.outcome import Outcome
from raidproof.record.run import ControlSpec, CrashTestRecord
from raidproof.verdict.check import judged
from raidproof.verdict.conclusion import Control, Part, concluded, part_of
from raidproof.verdict.conditions import Conditions, conditions_of, explained
from raidproof.verdict.evidence import CrashTestEvidence, Stage
from raidproof.verdict.kernel_log import KERNEL_LOG
from raidproof.verdict.measurements import measure, measure_scans


def judge_crash_test(record: CrashTestRecord, directory: Path) -> None:
    """Fill in verdicts, measurements, outcome and reason of one crash test.

    All of them follow from the record and its files in the run's ``directory``.
    """
    if (ended := conclude_without_evidence(record)) is not None:
        record.outcome, record.reason = ended
        return
    evidence = CrashTestEvidence(record, directory)
    permitted = conditions_of(evidence)
    causes = judged(evidence, permitted, explaining=True)
    conditions = explained(permitted, [one.verdict for one in causes], evidence)
    found = sorted([*causes, *judged(evidence, conditions, explaining=False)], key=lambda one: one.rank)
    record.verdicts = [one.verdict for one in found]
    if evidence.stage is Stage.NOT_RECOVERED:
        # The verdicts of the checks that found nothing wrong say nothing about the recovery.
        record.verdicts = [one for one in record.verdicts if one.outcome is Outcome.FAIL]
    if evidence.stage in {Stage.COMPLETE, Stage.BROKEN_OFF}:
        measure_scans(evidence)
    if evidence.stage is Stage.COMPLETE:
        measure(evidence)
    record.outcome, record.reason = conclude_crash_test(evidence, conditions)
    record.reason += agreed(record)


def agreed(record: CrashTestRecord) -> str:
    """Return a clause for the reason of a failed crash test that agrees with known findings; else empty."""
    if record.outcome is not Outcome.FAIL:
        return ""
    return "".join(f"; {damage}: agrees with the finding {finding}" for damage, finding in record.agreements.items())


def conclude_without_evidence(record: CrashTestRecord) -> tuple[Outcome, str] | None:
    """Return the outcome of a crash test that did not run as requested, and the reason; None if it ran."""
    if record.rig_error is not None:
        return None
    if record.requirement_missing is not None:
        return concluded([Part(Outcome.SKIP, record.requirement_missing)], held="")
    return None if record.not_effective is None else concluded([Part(Outcome.FAIL, record.not_effective)], held="")


def conclude_crash_test(evidence: CrashTestEvidence, conditions: Conditions) -> tuple[Outcome, str]:
    """Return the outcome of a crash test and the reason, from the verdicts in its record."""
    record = evidence.record
    if record.rig_error is not None:
        return broken_off(record, record.rig_error)
    if evidence.stage is Stage.NOT_RECOVERED:
        return not_recovered(record)
    parts = [part_of(one) for one in record.verdicts]
    if not (scans := evidence.server_scans):
        return concluded(
            [Part(Outcome.INCONCLUSIVE, "the ledger was not read on the server after the fault"), *parts], ""
        )
    scan = max(scans, key=lambda one: one.result.lost_total)
    acknowledged, lost = scan.result.acknowledged_total, scan.result.lost_total
    if record.control is not None:
        return concluded(parts, held="", control=_control(record.control, lost, acknowledged, conditions))
    survived = f"all {acknowledged:,} acknowledged operations survived"
    loss = f"measured loss: {lost:,} of {acknowledged:,} acknowledged operations; {conditions.blame}"
    async_ = "" if conditions.export_sync or lost else f"the export is async, but {survived} this fault"
    return concluded(parts, held=loss if lost else f"{survived}{undated(record)}", nothing=async_)


def _control(spec: ControlSpec, lost: int, acknowledged: int, conditions: Conditions) -> Control:
    """Return what a control shows whose ledger was read, and in which ``lost`` operations are missing."""
    blame = conditions.blame
    if not lost:
        survived = f"all {acknowledged:,} acknowledged operations survived"
        return Control(spec, lost=False, said="none was lost" if spec.expects_loss else survived)
    # Lies of disks explain the other losses.
    beyond = f"{conditions.beyond_lies:,} of " if conditions.beyond_lies else ""
    by_another = None if blamed_as(blame, spec.expects_blame) else (f"{beyond}{lost:,} lost operations", blame)
    return Control(spec, lost=True, said=f"{lost:,} operations lost, blamed on {blame}", by_another=by_another)


def broken_off(record: CrashTestRecord, error: str) -> tuple[Outcome, str]:
    """Return the outcome of a crash test in which the rig failed (``error``), and the reason."""
    outcome, reason = concluded([Part(Outcome.ERROR, error), *map(part_of, record.verdicts)], held="")
    return outcome, reason if outcome is Outcome.ERROR else f"{reason}; then the rig failed: {error}"


def not_recovered(record: CrashTestRecord) -> tuple[Outcome, str]:
    """Return the outcome of a crash test whose storage did not recover, and the reason.

    The first verdict is that on the recovery, the second may be that on the server's kernel.
    """
    recovery, *others = record.verdicts
    blame = recovery.blame or Blame(culprit=Culprit.STACK)
    wreck = next((f"; {one.checker}: {one.reason}" for one in others if one.checker == KERNEL_LOG), "")
    what = f"{recovery.reason}{wreck}"
    if (spec := record.control) is None:
        return concluded([Part(Outcome.FAIL, f"{what}; blamed on {blame}")], held="")
    everything = (f"the loss of all acknowledged operations ({what})", blame)
    by_another = None if blamed_as(blame, spec.expects_blame) else everything
    said = f"all acknowledged operations are lost, blamed on {blame}: {what}"
    return concluded([], held="", control=Control(spec, lost=True, said=said, by_another=by_another))


def undated(record: CrashTestRecord) -> str:
    """Return a clause for the reason of a crash test if a capture dated none of the acknowledgements; else empty.

    This is no failure: the times of the clients' reports are later, so that fewer operations count as acknowledged.
    """
    replies = record.observed.replies
    if replies is None or not replies.none_dated:
        return ""
    return f"; the capture of the server's replies dated none of {replies.of:,} operations"
