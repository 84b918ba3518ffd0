"""The verdicts on the user's own application: its check command, its data, and the end of its run command."""

from collections.abc import Iterable

from raidproof.core.blame import Blame, Culprit
from raidproof.guest.ledger_format import APPLICATION
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.run import ScanResult
from raidproof.verdict.check import LEDGER, Check, LedgerCheck, conditions_at
from raidproof.verdict.checks.age import NOT_EXCUSED, too_old
from raidproof.verdict.conditions import Conditions, blame_with_application
from raidproof.verdict.damage import Wrong, wrong
from raidproof.verdict.evidence import CrashStateEvidence, CrashTestEvidence, Evidence, Scan
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


class ApplicationData(Check[Evidence]):
    """The check command of an application reports no damage."""

    name = APPLICATION_DATA
    stages = LEDGER
    rank = 51

    def judge(self, evidence: Evidence, conditions: Conditions) -> list[Verdict]:
        """Return a verdict for each place where the command reported damage."""
        verdicts = []
        for scan in evidence.scans:
            known = conditions_at(scan, conditions)
            until_ns = scan.cut_ns or evidence.fault_at_ns
            active_ns = last_active(evidence.workers, evidence.history, until_ns)
            old = active_ns is not None and until_ns is not None and too_old(active_ns, until_ns, known)
            verdicts += judge_application_data(scan.result, known, scan.place, old=old)
        return verdicts

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


def last_active(workers: Iterable[WorkerSpec], history: History, until_ns: int | None) -> int | None:
    """Return the instant at which an application last carried out an operation; None if not known.

    ``until_ns``: the instant of the fault, at which an operation that has begun and not ended is still carried out.
    """
    mine = {worker.number for worker in workers if worker.kind == APPLICATION}
    if until_ns is None:
        return None
    begun = [one for one in history.operations if one.worker in mine and one.issued_ns <= until_ns]
    return max((min(until_ns if one.ended_ns is None else one.ended_ns, until_ns) for one in begun), default=None)


def judge_application_data(
    evidence: ScanResult, conditions: Conditions, where: str, *, old: bool = False
) -> list[Verdict]:
    """Return a verdict if the check command of an application reported damage; else an empty list.

    The loss of acknowledged writes can damage an application's data, so that the same options excuse both. ``old``:
    whether the write-back of all data was due before the fault, so that an async export loses none of them.
    """
    if not evidence.damaged:
        return []
    checker = f"{APPLICATION_DATA}, seen {where}"
    outcome, blame = Outcome.FAIL, blame_with_application(conditions)
    reason = f"the check command reports {'; '.join(evidence.damaged[:3])}"
    if old:
        reason = f"{reason}; the last operation had ended longer before the fault than write-back takes"
        blame = Blame(culprit=Culprit.STACK, detail=NOT_EXCUSED)
    elif conditions.excused:
        outcome, reason = Outcome.PASS, f"measured loss: {reason}"
    return [Verdict(checker=checker, outcome=outcome, reason=reason, blame=blame)]


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
