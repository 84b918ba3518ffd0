"""The verdict on intruders: one that is let in is a failure of the server, and without attempts nothing is proved."""

import pytest

from raidproof.core.blame import Culprit
from raidproof.record.observation import IntruderSeen
from raidproof.record.outcome import Outcome
from raidproof.storage.intruder import Intruder, Occasion
from raidproof.verdict.checks.intruders import judge_intruders

BEFORE, AFTER = Occasion


def seen(when: Occasion, kind: Intruder = Intruder.PLAIN, *, let_in: bool = False) -> IntruderSeen:
    return IntruderSeen(kind=kind, when=when, let_in=let_in, said="" if let_in else "Operation not permitted")


def test_intruders_that_are_refused_twice() -> None:
    verdict = judge_intruders([seen(BEFORE), seen(AFTER)], [Intruder.PLAIN])
    assert (verdict.outcome, verdict.reason) == (
        Outcome.PASS, "refused before the work and after the fault: a client in plain text",
    )  # fmt: skip


@pytest.mark.parametrize("when", Occasion)
def test_an_intruder_that_is_let_in_is_a_failure_of_the_server(when: Occasion) -> None:
    others = [seen(BEFORE), seen(AFTER)]
    verdict = judge_intruders([*others, seen(when, Intruder.NO_CERTIFICATE, let_in=True)], [Intruder.PLAIN])
    assert verdict.outcome is Outcome.FAIL
    assert verdict.reason == f"the server let in: a client without a certificate ({when})"
    assert verdict.of_the_stack
    assert verdict.blame is not None
    assert verdict.blame.culprit is Culprit.SERVER


@pytest.mark.parametrize(
    ("attempts", "missing"),
    [
        ([], (Intruder.PLAIN, BEFORE)),
        ([seen(BEFORE)], (Intruder.PLAIN, AFTER)),
        ([seen(AFTER), seen(AFTER)], (Intruder.PLAIN, BEFORE)),
        ([seen(BEFORE), seen(AFTER), seen(AFTER, Intruder.NO_TICKET)], (Intruder.NO_TICKET, BEFORE)),
    ],
)
def test_without_each_attempt_on_both_occasions_nothing_is_proved(
    attempts: list[IntruderSeen], missing: tuple[Intruder, Occasion]
) -> None:
    verdict = judge_intruders(attempts, [Intruder.PLAIN, Intruder.NO_TICKET])
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert f"{missing[0]} ({missing[1]})" in verdict.reason
