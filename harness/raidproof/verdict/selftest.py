"""The verdict on the harness itself, from crash tests whose result is known because a defect was planted, or none."""

from collections.abc import Iterable, Sequence

from raidproof.core.blame import Blame, Culprit
from raidproof.record.outcome import Outcome
from raidproof.record.selftest import SelftestAnswer, SelftestRow
from raidproof.verdict.conclusion import Part, concluded

WRONG = frozenset({SelftestAnswer.MISSED, SelftestAnswer.WRONG_BLAME, SelftestAnswer.FALSE_ALARM})
"""Answers that show a defect of the harness."""
NOTHING_SEEN = frozenset({Outcome.ERROR, Outcome.SKIP, Outcome.INVALID})
"""Outcomes of a crash test that say nothing about the harness."""


def answer_of(outcome: Outcome, blamed: Iterable[Blame], *, planted: bool) -> SelftestAnswer:
    """Return what the outcome of a crash test says about the harness.

    ``blamed``: the blames of its failures. ``planted``: whether a disk had a defect.
    """
    if outcome in NOTHING_SEEN:
        return SelftestAnswer.UNDECIDED
    if not planted:
        known = {Outcome.PASS: SelftestAnswer.PASSED, Outcome.FAIL: SelftestAnswer.FALSE_ALARM}
        return known.get(outcome, SelftestAnswer.UNDECIDED)
    if outcome is not Outcome.FAIL:
        return SelftestAnswer.MISSED
    disks = any(one.culprit is Culprit.DISKS for one in blamed)
    return SelftestAnswer.FOUND if disks else SelftestAnswer.WRONG_BLAME


def conclude_selftest(rows: Sequence[SelftestRow]) -> tuple[Outcome, str]:
    """Return the outcome of a self-test, and the reason: FAIL outweighs what is undecided."""
    wrong = [one for one in rows if one.answer in WRONG]
    undecided = [one for one in rows if one.answer is SelftestAnswer.UNDECIDED]
    parts = [Part(Outcome.FAIL, _named(wrong))] if wrong else []
    parts += [Part(one.outcome, f"{_named(undecided)}: {undecided[0].reason}") for one in undecided]
    found = sum(one.answer is SelftestAnswer.FOUND for one in rows)
    clean = sum(one.answer is SelftestAnswer.PASSED for one in rows)
    nothing = "" if found and clean else "a self-test needs crash tests with a defect, and one without"
    return concluded(parts, f"all {found:,} planted defects were found, and sound disks passed", nothing=nothing)


def _named(rows: Iterable[SelftestRow]) -> str:
    return "; ".join(f"{one.defect or 'no defect'}: {one.answer.value}" for one in rows)
