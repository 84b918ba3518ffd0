"""The judgement of runs from their records and files: right after the run, or later."""

from pathlib import Path

from raidproof.record.outcome import Outcome, and_errors
from raidproof.record.run import RunRecord
from raidproof.verdict.cell import conclude_plan, judge_cells
from raidproof.verdict.conclusion import Part, concluded
from raidproof.verdict.crash_states import outcome_of
from raidproof.verdict.crash_test import judge_crash_test
from raidproof.verdict.known import apply_known
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
    early = f"ended early: {why}"
    so_far = Part(record.outcome, f"{record.reason}; {early}")
    record.outcome, record.reason = concluded([Part(Outcome.ERROR, early), so_far], held="")


def conclude(record: RunRecord) -> tuple[Outcome, str]:
    """Return the outcome and the reason of a run: those of its worst crash test or suite."""
    ended = [(cycle.title, *outcome_of(cycle)) for cycle in record.cycles]
    ended += [(suite.title, suite.outcome, suite.reason) for suite in record.suites]
    errors = [f"{title}: {reason}" for title, outcome, reason in ended if outcome is Outcome.ERROR]
    controls = ", and the controls behaved" if any(cycle.control for cycle in record.cycles) else ""
    return concluded(
        [Part(outcome, f"{title}: {reason}{and_errors(outcome, errors)}") for title, outcome, reason in ended],
        held=f"every promise that holds by design was kept{controls}",
        nothing="" if ended else "no crash test and no suite ran",
    )
