"""A close that a client acknowledges while it holds a write delegation: nothing says that it promised anything."""

from harness.explorations import Explore
from harness.export import ExportSpec
from harness.fixtures import Cycle, stack_of
from harness.verdict.outcome import Outcome
from harness.workload.ledger import LedgerSpec

LEDGER = LedgerSpec(kinds=("close",), files=256)
"""So many files that none is written again at once: that would have the first write sent."""
STATES = 60


def test_a_close_under_a_delegation_is_no_measured_loss(cycle: Cycle, explore: Explore) -> None:
    ended = cycle(stack_of(export=ExportSpec(delegations=True)), ledger=LEDGER, fault="none")
    explored = explore(ended, states=STATES).record
    assert explored.outcome is Outcome.INCONCLUSIVE, explored.reason
    assert explored.undecided is not None
    assert "under a write delegation" in explored.undecided.reason
    assert explored.loss is None


def test_without_delegations_close_keeps_its_promise(cycle: Cycle, explore: Explore) -> None:
    ended = cycle(stack_of(export=ExportSpec(delegations=False)), ledger=LEDGER, fault="none")
    explore(ended, states=STATES).must_keep_every_promise()
