"""How old a loss may be that an async export explains."""

from raidproof.core.blame import Blame, Culprit
from raidproof.record.evidence import Evidence
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.contract import Conditions

OLDER = "older than write-back allows"


def too_old(acknowledged_ns: int, until_ns: int, conditions: Conditions) -> bool:
    """Whether the kernel itself had to have written what was acknowledged so long before the power went.

    An async export only leaves out the waiting: the server's kernel writes dirty pages back after a while, and its
    file system commits what is in its log, whoever waits for it or nobody.
    """
    longest_s = conditions.write_back_s
    return conditions.excused and longest_s is not None and until_ns - acknowledged_ns > longest_s * 1e9


def judge_age(evidence: Evidence, conditions: Conditions, until_ns: int | None, where: str) -> list[Verdict]:
    """Judge that no loss is older than what the server keeps in its memory; nothing where that is not known."""
    first_ns = evidence.first_lost_ns
    if until_ns is None or first_ns is None or not too_old(first_ns, until_ns, conditions):
        return []
    age_s = (until_ns - first_ns) / 1e9
    reason = f"an operation is lost that had been acknowledged {age_s:,.0f} s before the fault"
    reason = f"{reason}; what is not synced is in memory for {conditions.write_back_s:,.0f} s at most"
    blame = Blame(culprit=Culprit.STACK, detail="an async export delays what the kernel writes, and excuses no more")
    return [Verdict(checker=f"{OLDER}, seen {where}", outcome=Outcome.FAIL, reason=reason, blame=blame)]
