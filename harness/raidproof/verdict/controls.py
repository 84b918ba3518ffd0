"""What the controls of a run, crash tests whose result is known in advance, say about the other results.

A control proves that the harness sees. Lying disks must lose acknowledged operations, a clean reboot must lose none.
INVALID is a control that does not see; then no PASS of its run counts. Whatever else a control shows is evidence about
the system under test, and a FAIL like that of any other crash test.
"""

from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord, RunRecord
from raidproof.verdict.crash_states import outcome_of


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
