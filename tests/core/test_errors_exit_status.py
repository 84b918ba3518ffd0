from raidproof.core.errors import Status
from raidproof.record.outcome import Outcome


def test_each_outcome_has_a_status() -> None:
    assert {outcome.name for outcome in Outcome} <= set(Status.__members__)
