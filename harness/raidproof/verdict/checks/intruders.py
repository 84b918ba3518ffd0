"""The verdict on clients that an export with TLS or Kerberos must refuse."""

from collections.abc import Sequence

from raidproof.core.blame import Blame, Culprit
from raidproof.record.observation import IntruderSeen
from raidproof.record.outcome import Outcome, Verdict
from raidproof.storage.intruder import Intruder, Occasion, intruders_of
from raidproof.verdict.check import Check
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.evidence import CrashTestEvidence

INTRUDERS = "intruders"
"""Name of the check that an export with TLS or Kerberos lets only clients in with the security that it requires."""


class Intruders(Check[CrashTestEvidence]):
    """The server refuses clients without the security that the export requires."""

    name = INTRUDERS
    rank = 145

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return a verdict if the mounts of the crash test have TLS or Kerberos."""
        if not evidence.mount.secured:
            return []
        return [judge_intruders(evidence.record.observed.intruders, intruders_of(evidence.mount))]


def judge_intruders(seen: Sequence[IntruderSeen], intruders: Sequence[Intruder]) -> Verdict:
    """Judge that the server refused each of the intruders that it must refuse, on both occasions."""
    if let_in := [f"{one.kind} ({one.when})" for one in seen if one.let_in]:
        blame = Blame(culprit=Culprit.SERVER, detail="it does not enforce the security of its export")
        reason = f"the server let in: {', '.join(let_in)}"
        return Verdict(checker=INTRUDERS, outcome=Outcome.FAIL, reason=reason, of_the_stack=True, blame=blame)
    attempted = {(one.kind, one.when) for one in seen}
    missing = [f"{one} ({when})" for when in Occasion for one in intruders if (one, when) not in attempted]
    if missing:
        reason = f"accesses that the export must refuse were not attempted: {', '.join(missing)}"
        return Verdict(checker=INTRUDERS, outcome=Outcome.INCONCLUSIVE, reason=reason)
    reason = f"refused {' and '.join(Occasion)}: {', '.join(intruders)}"
    return Verdict(checker=INTRUDERS, outcome=Outcome.PASS, reason=reason)
