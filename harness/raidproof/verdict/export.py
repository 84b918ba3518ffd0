"""Whether an export was still what had been asked when clients had worked with it."""

from collections.abc import Iterable

from raidproof.core.blame import Blame, Culprit
from raidproof.record.outcome import Outcome, Verdict


def judge_export(asked: Iterable[str], applied: Iterable[str], path: str) -> Verdict:
    """Judge the options that the server applied just before the fault."""
    checker = "export"
    if gone := sorted(set(asked) - set(applied)):
        found = sorted(set(applied) - set(asked))
        reason = f"{path}: {', '.join(gone)} was asked, and the server applied {', '.join(found) or 'nothing else'}"
        blame = Blame(culprit=Culprit.SERVER, detail="its export was changed while clients worked")
        return Verdict(checker=checker, outcome=Outcome.FAIL, reason=reason, of_the_stack=True, blame=blame)
    return Verdict(checker=checker, outcome=Outcome.PASS, reason=f"{path}: {', '.join(sorted(asked))}")
