"""Checks register themselves, and judge the evidence of the stages that they declare, in the order of their ranks."""

from collections.abc import Iterator
from typing import Any

import pytest

from raidproof.core.errors import RequestError
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.check import CHECKS, LAST, LEDGER, Check, checks_of
from raidproof.verdict.evidence import Stage

FIRST = {
    Stage.COMPLETE: ["calls on the wire", "promises"],
    Stage.NOT_RECOVERED: ["recovery", "kernel of the server"],
    Stage.BROKEN_OFF: ["kernel of the server", "calls on the wire"],
    Stage.UNREAD: ["kernel of the server"],
    Stage.STATE: ["promises", "blocks whole"],
}


@pytest.mark.parametrize("stage", Stage)
def test_the_checks_of_a_stage_come_in_their_order(stage: Stage) -> None:
    found = checks_of(stage)
    assert [one.name for one in found][:2] == FIRST[stage]
    assert [one.rank for one in found] == sorted(one.rank for one in found)


def test_every_check_judges_some_stage_and_has_a_rank_of_its_own() -> None:
    kinds = [kind for _, kind in CHECKS.items()]
    assert all(kind.stages and kind.rank < LAST and kind.__doc__ for kind in kinds)
    for stage in Stage:
        ranks = [kind.rank for kind in kinds if stage in kind.stages]
        assert len(ranks) == len({*ranks}), stage


def test_the_ledger_is_judged_in_crash_states_as_in_crash_tests() -> None:
    names = {kind.name for _, kind in CHECKS.items() if set(kind.stages) == LEDGER}
    assert names >= {"promises", "blocks whole", "nothing invented", "older than write-back allows"}


@pytest.fixture
def toy() -> Iterator[type[Check[Any]]]:
    class Toy(Check[Any]):
        name = "toy"

        def judge(self, evidence: Any, conditions: Any) -> list[Verdict]:
            return [Verdict(checker=self.name, outcome=Outcome.FAIL, reason="no")]

    yield Toy
    CHECKS.remove("toy")


def test_a_new_check_comes_last(toy: type[Check[Any]]) -> None:
    assert isinstance(checks_of(Stage.COMPLETE)[-1], toy)
    assert not any(isinstance(one, toy) for one in checks_of(Stage.STATE))


@pytest.mark.usefixtures("toy")
def test_two_checks_have_two_names() -> None:
    with pytest.raises(RequestError, match="toy"):
        type("Other", (Check,), {"name": "toy"})
