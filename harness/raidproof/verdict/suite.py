"""Verdict on an external test suite: FAIL by one unexpected failure, INCONCLUSIVE by one test of unknown result."""

from collections.abc import Collection

from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.suite import CaseResult, SuiteOutcome, SuiteRecord

CHECKER = "suite"
_SHOWN = 5
"""Greatest number of tests that a reason names."""


def judge_suite(outcome: SuiteOutcome, known: Collection[str] = ()) -> Verdict:
    """Judge the results of a suite's tests; ``known``: the names of the tests whose failure is expected."""
    counted = f"{len(outcome.passed)} of {outcome.total} tests passed"
    fresh = [case for case in outcome.failed if case.name not in known]
    if fresh:
        return Verdict(checker=CHECKER, outcome=Outcome.FAIL, reason=f"{counted}; {_named('failed:', fresh)}")
    if outcome.unknown:
        reason = f"{counted}; {_named('unknown result:', outcome.unknown)}"
        return Verdict(checker=CHECKER, outcome=Outcome.INCONCLUSIVE, reason=reason)
    if not (outcome.passed or outcome.failed):
        reason = _named("no test ran; skipped:", outcome.skipped) if outcome.skipped else "no test ran"
        end = Outcome.SKIP if outcome.skipped else Outcome.INCONCLUSIVE
        return Verdict(checker=CHECKER, outcome=end, reason=reason)
    parts = [counted]
    if outcome.skipped:
        parts.append(f"{len(outcome.skipped)} skipped")
    if outcome.failed:
        parts.append(f"{len(outcome.failed)} failed as expected: {', '.join(case.name for case in outcome.failed)}")
    return Verdict(checker=CHECKER, outcome=Outcome.PASS, reason=", ".join(parts))


def _named(what: str, cases: Collection[CaseResult]) -> str:
    shown = "; ".join(map(str, list(cases)[:_SHOWN]))
    more = f"; and {len(cases) - _SHOWN} more" if len(cases) > _SHOWN else ""
    return f"{what} {shown}{more}"


def judge_suite_record(record: SuiteRecord) -> None:
    """Fill in the verdict, the outcome and the reason of a suite's record."""
    if record.rig_error is not None:
        record.outcome, record.reason = Outcome.ERROR, record.rig_error
    elif record.not_effective is not None:
        record.outcome, record.reason = Outcome.FAIL, record.not_effective
    elif record.requirement_missing is not None:
        record.outcome, record.reason = Outcome.SKIP, record.requirement_missing
    else:
        verdict = judge_suite(record.outcomes, record.known)
        record.verdicts = [verdict]
        record.outcome, record.reason = verdict.outcome, verdict.reason
