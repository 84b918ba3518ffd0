"""The judgement of crash tests and runs from their records and files: right after the run, or later."""

from pathlib import Path

from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord, RunRecord
from raidproof.verdict.check import judged
from raidproof.verdict.conclusion import agreed, conclude_crash_test, conclude_stored, conclude_without_evidence
from raidproof.verdict.conditions import conditions_of, explained
from raidproof.verdict.evidence import CrashTestEvidence, Stage
from raidproof.verdict.measurements import measure, measure_scans
from raidproof.verdict.suite import judge_suite_record


def judge_run(record: RunRecord, directory: Path) -> None:
    """Judge every crash test and suite of a run from its record and files, then the run from their outcomes.

    ``directory``: the run's directory.
    """
    for cycle in record.cycles:
        judge_crash_test(cycle, directory)
    for suite in record.suites:
        judge_suite_record(suite)
    conclude_stored(record)


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
