"""What the clients' ledger says, and what was seen on the wire meanwhile, agree."""

from harness.fixtures import Cycle, stack_of
from harness.verdict.outcome import Outcome


def test_every_promise_is_kept_and_the_power_cut_shows_on_the_wire(cycle: Cycle) -> None:
    ended = cycle(stack_of(), capture=True).must_keep_every_promise()
    outcomes = {verdict.checker: verdict.outcome for verdict in ended.record.verdicts}
    assert outcomes["write verifier"] is Outcome.PASS
