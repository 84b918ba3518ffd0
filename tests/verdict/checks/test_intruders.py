"""The verdict on intruders: one that is let in is a failure of the server, and without attempts nothing is proved."""

import pytest

from raidproof.core.blame import Culprit
from raidproof.record.observation import IntruderSeen
from raidproof.record.outcome import Outcome
from raidproof.verdict.checks.intruders import judge_intruders

BEFORE, AFTER = "before the work", "after the fault"


def seen(when: str, *, let_in: bool = False, kind: str = "a client in plain text") -> IntruderSeen:
    return IntruderSeen(kind=kind, when=when, let_in=let_in, said="" if let_in else "Operation not permitted")


def test_intruders_that_are_refused_twice() -> None:
    verdict = judge_intruders([seen(BEFORE), seen(AFTER)])
    assert (verdict.outcome, verdict.reason) == (
        Outcome.PASS, "refused before the work and after the fault: a client in plain text",
    )  # fmt: skip


@pytest.mark.parametrize("when", [BEFORE, AFTER])
def test_an_intruder_that_is_let_in_is_a_failure_of_the_server(when: str) -> None:
    others = [seen(BEFORE), seen(AFTER)]
    verdict = judge_intruders([*others, seen(when, let_in=True, kind="a client without a certificate")])
    assert verdict.outcome is Outcome.FAIL
    assert verdict.reason == f"the server let in: a client without a certificate ({when})"
    assert verdict.of_the_stack
    assert verdict.blame is not None
    assert verdict.blame.culprit is Culprit.SERVER


@pytest.mark.parametrize("attempts", [[], [seen(BEFORE)], [seen(AFTER), seen(AFTER)]])
def test_without_attempts_on_both_occasions_nothing_is_proved(attempts: list[IntruderSeen]) -> None:
    assert judge_intruders(attempts).outcome is Outcome.INCONCLUSIVE
