"""The verdicts on the user's own application: its check command, its data, and the end of its run command."""

from collections.abc import Iterable

from raidproof.guest.ledger_format import APPLICATION
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.run import ScanResult
from raidproof.verdict.check import Check, LedgerCheck
from raidproof.verdict.conditions import Conditions, blame_with_application
from raidproof.verdict.damage import Wrong, wrong
from raidproof.verdict.evidence import CrashStateEvidence, CrashTestEvidence, Scan
from raidproof.workload.history import History, WorkerSpec

APPLICATION_CHECK = "check of the application"
"""Name of the check that the check command of an application gave a result."""
APPLICATION_DATA = "data of the application"
"""Name of the check that the check command of an application reported no damage."""
APPLICATION_RUN = "application goes on"
"""Name of the check that the run command of an application did not fail after the fault."""


class ApplicationCheck(LedgerCheck):
    """The check command of an application gives a result."""

    name = APPLICATION_CHECK
    rank = 50

    def judge_scan(self, scan: Scan, conditions: Conditions) -> list[Verdict]:
        """Return a verdict if the command gave no result."""
        return judge_application_checks(scan.result, scan.place)


class ApplicationData(LedgerCheck):
    """The check command of an application reports no damage."""

    name = APPLICATION_DATA
    rank = 51

    def judge_scan(self, scan: Scan, conditions: Conditions) -> list[Verdict]:
        """Return a verdict if the command reported damage."""
        return judge_application_data(scan.result, conditions, scan.place)

    def wrong(self, evidence: CrashStateEvidence, conditions: Conditions) -> list[Wrong]:
        """Return the reported damage."""
        what = "the check command reports damage"
        return [wrong(APPLICATION_DATA, what, line) for scan in evidence.scans for line in scan.result.damaged]


class ApplicationRuns(Check[CrashTestEvidence]):
    """The run command of an application does not fail after the fault."""

    name = APPLICATION_RUN
    rank = 60

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return a verdict for each command that failed."""
        return judge_application_runs(evidence.workers, evidence.history, conditions, evidence.fault_at_ns)


def judge_application_data(evidence: ScanResult, conditions: Conditions, where: str) -> list[Verdict]:
    """Return a verdict if the check command of an application reported damage; else an empty list.

    The loss of acknowledged writes can damage an application's data, so that the same options excuse both.
    """
    if not evidence.damaged:
        return []
    excused = conditions.excused
    reason = f"{'measured loss: ' if excused else ''}the check command reports {'; '.join(evidence.damaged[:3])}"
    outcome = Outcome.PASS if excused else Outcome.FAIL
    checker = f"{APPLICATION_DATA}, seen {where}"
    return [Verdict(checker=checker, outcome=outcome, reason=reason, blame=blame_with_application(conditions))]


def judge_application_checks(evidence: ScanResult, where: str) -> list[Verdict]:
    """Return an ERROR verdict if the check command of an application gave no result; else an empty list."""
    if not evidence.unchecked:
        return []
    reason = f"the application's own check command gave no result: {'; '.join(evidence.unchecked[:3])}"
    return [Verdict(checker=f"{APPLICATION_CHECK}, seen {where}", outcome=Outcome.ERROR, reason=reason)]


def judge_application_runs(
    workers: Iterable[WorkerSpec], history: History, conditions: Conditions, fault_at_ns: int | None
) -> list[Verdict]:
    """Return a verdict for each application whose run command failed after the fault.

    A failure before the fault ends the crash test. Whether the stack or the application is at fault is not known; an
    excused loss may be the cause.
    """
    verdicts = []
    for worker in workers:
        end = history.ends.get(worker.number)
        if worker.kind == APPLICATION and end is not None and end.status:
            after = "" if fault_at_ns is None else f" {(end.at_ns - fault_at_ns) / 1e9:.1f} s after the fault"
            reason = f"the run command on {worker.client} ended with status {end.status}{after}"
            outcome = Outcome.PASS if conditions.excused else Outcome.INCONCLUSIVE
            verdicts.append(Verdict(checker=APPLICATION_RUN, outcome=outcome, reason=reason))
    return verdicts
