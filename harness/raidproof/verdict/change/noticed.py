"""Whether a difference between two verdicts is a change, or may be due to what the crash tests could have noticed.

A PASS says that no loss was noticed. If the crash test that passed would have noticed certainly fewer defects than the
one that failed, the defect may be in both: then the difference is not called a change. A PASS that would have noticed
as much, or more, is comparable with any FAIL.
"""

from collections.abc import Iterable, Sequence

from raidproof.record.bisection import CandidateAnswer, RepetitionResult
from raidproof.record.sensitivity import Noticed
from raidproof.verdict.change.statistics import share_interval


def pooled(several: Iterable[Noticed | None]) -> Noticed | None:
    """Return the sums over several crash tests; None if it is known of none of them."""
    known = [one for one in several if one is not None]
    if not known:
        return None
    return Noticed(
        noticed=sum(one.noticed for one in known),
        of=sum(one.of for one in known),
        states=sum(one.states for one in known),
    )


def less_sensitive(one: Noticed | None, other: Noticed | None) -> bool:
    """Return whether a crash test would certainly have noticed a smaller share of missing flushes than another one.

    The confidence intervals of both shares are disjoint then. They suppose that the flushes are independent, as two
    recordings of the same work have different flushes by chance. False if one of the shares is not known.
    """
    if one is None or other is None:
        return False
    return share_interval(one.noticed, one.of)[1] < share_interval(other.noticed, other.of)[0]


def why_no_change(passed: Noticed | None, failed: Noticed | None) -> str:
    """Return why a PASS and a FAIL do not show a change, as a clause; empty if they do."""
    if passed is None or failed is None or not less_sensitive(passed, failed):
        return ""
    return (
        f"the side that passed would have noticed {passed.noticed:,} of {passed.of:,} missing flushes, the other one "
        f"{failed.noticed:,} of {failed.of:,}"
    )


def comparable(results: Sequence[RepetitionResult], bad: Iterable[RepetitionResult]) -> list[RepetitionResult]:
    """Return the repetitions on a candidate; a GOOD one that would have noticed too little is UNKNOWN.

    ``bad``: repetitions on candidates that are known to be bad; those of them that showed the failure say what must be
    noticed.
    """
    failed = pooled(one.noticed for one in (*bad, *results) if one.answer is CandidateAnswer.BAD)
    return [
        one.model_copy(update={"answer": CandidateAnswer.UNKNOWN, "reason": f"{one.reason}; {why}"})
        if one.answer is CandidateAnswer.GOOD and (why := why_no_change(one.noticed, failed))
        else one
        for one in results
    ]
