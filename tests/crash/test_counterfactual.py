"""The control of an exploration: an operation that nothing made durable must be missing."""

from pathlib import Path

import pytest

from raidproof.crash.sampler import Policy
from raidproof.record.exploration import CounterfactualRecord
from tests.crash.made_up import ROUNDS, MadeUp, told, written


@pytest.fixture
def made_up(tmp_path: Path) -> MadeUp:
    made = MadeUp(tmp_path / "solo", written(), told())
    made.solo = made.oracle.history.operations
    return made


def test_each_operation_but_the_first_is_missed(made_up: MadeUp) -> None:
    exploration = made_up.explore()
    # The reply to the last operation comes after the end of the log.
    assert exploration.stats.counterfactual == {"fsync": CounterfactualRecord(states=ROUNDS - 2, reported=ROUNDS - 2)}
    assert exploration.stats.policies[Policy.DIRECTED] == ROUNDS - 1
    assert not exploration.stats.broken


def test_an_operation_that_the_check_does_not_miss_is_counted(made_up: MadeUp) -> None:
    made_up.unseen = {3}
    found = made_up.explore().stats.counterfactual
    assert found == {"fsync": CounterfactualRecord(states=ROUNDS - 2, reported=ROUNDS - 3)}


def test_a_state_whose_content_is_known_counts(made_up: MadeUp) -> None:
    known = made_up.explore(states=2)
    again = made_up.explore()
    assert known.stats.counterfactual != again.stats.counterfactual
    assert again.stats.counterfactual["fsync"].states == ROUNDS - 2


def test_without_solo_operations_there_is_no_counterfactual_state(made_up: MadeUp) -> None:
    made_up.solo = ()
    exploration = made_up.explore()
    assert not exploration.stats.counterfactual
    assert not exploration.stats.policies[Policy.DIRECTED]


def test_directed_states_and_others_alternate(made_up: MadeUp) -> None:
    order = made_up.begin().choices.order
    first = [one.policy is Policy.DIRECTED for one in order[: 2 * ROUNDS - 2]]
    assert first == [True, False] * (ROUNDS - 1)
