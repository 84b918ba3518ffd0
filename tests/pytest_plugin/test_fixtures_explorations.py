"""Assertions about an exploration."""

from pathlib import Path
from typing import cast

import pytest

from raidproof.core.blame import Culprit
from raidproof.core.errors import Inconclusive, ProductError, RigError
from raidproof.pytest_plugin.fixtures import Explored
from raidproof.record.failure import FailureRecord
from raidproof.record.outcome import Outcome
from raidproof.run.source import Source
from tests.report.test_exploration import exploration, failure


def explored(*failures: FailureRecord, outcome: Outcome = Outcome.FAIL) -> Explored:
    record = exploration(failures=list(failures), outcome=outcome)
    return Explored(record, cast(Source, None), Path("explore-sync.html"))


def one(whole: bool | None = True, **changes: object) -> FailureRecord:
    shrunk = failure().shrunk
    assert shrunk is not None
    smallest = None if whole is None else shrunk.model_copy(update={"whole": whole})
    return failure().model_copy(update={"shrunk": smallest, **changes})


def test_the_first_whose_shrinking_came_to_its_end() -> None:
    shrunk = one(state="4-0")
    others = one(None, state="1-0"), one(whole=False, state="2-0"), one(state="3-0", confirmed=0)
    assert explored(*others, shrunk, one(state="5-0")).must_find("rename", blame=Culprit.STACK).state == shrunk.state


def test_the_first_where_none_came_to_its_end() -> None:
    assert explored(one(whole=False, state="1-0"), one(None, state="2-0")).must_find("metadata").state == "1-0"


@pytest.mark.parametrize("failures", [(), (one(promise="write + fsync", damage="stale"),), (one(confirmed=0),)])
def test_a_failure_not_found_or_not_reproduced_is_inconclusive(failures: tuple[FailureRecord, ...]) -> None:
    with pytest.raises(Inconclusive, match="no failure with 'metadata' was found and reproduced"):
        explored(*failures).must_find("metadata")


def test_another_blame_is_a_failure() -> None:
    with pytest.raises(ProductError, match="metadata is blamed on the stack"):
        explored(one()).must_find("metadata", blame=Culprit.DISKS)


def test_an_error_of_the_rig_is_an_error() -> None:
    with pytest.raises(RigError):
        explored(one(), outcome=Outcome.ERROR).must_find("metadata")


@pytest.mark.parametrize(
    ("judged", "states", "finding", "allowed"),
    [
        (1000, 1, "md-early-commit-block", True),
        (1000, 50, "md-early-commit-block", True),
        (1000, 51, "md-early-commit-block", False),
        (20, 4, "md-early-commit-block", True),
        (20, 5, "md-early-commit-block", False),
        (1000, 1, "another-finding", False),
        (1000, 1, None, False),
    ],
)
def test_a_known_finding_explains_few_states(judged: int, states: int, finding: str | None, allowed: bool) -> None:
    found = explored(one(states=states, finding=finding))
    found.record.judged = judged
    if allowed:
        assert found.must_keep_every_promise(but={"md-early-commit-block"}) is found
    else:
        with pytest.raises(ProductError):
            found.must_keep_every_promise(but={"md-early-commit-block"})
