"""The verdict on the errors that clients got: the faults, and a lost lease, explain some of them."""

from dataclasses import replace
from errno import EIO

import pytest

from raidproof.fault import FaultEffects
from raidproof.record.outcome import Outcome
from raidproof.verdict.checks.errors import judge_errors
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.window import Window
from raidproof.workload.history import Ended, History, Operation

CUT = 100
SYNC = Conditions(export_sync=True, windows=(Window(FaultEffects(), CUT),))


@pytest.mark.parametrize(
    ("kind", "outcome"), [("lock", Outcome.PASS), ("unlock", Outcome.PASS), ("set-up", Outcome.FAIL)]
)
def test_who_lost_a_lock_with_its_lease_may_fail_to_take_or_to_release_it(kind: str, outcome: Outcome) -> None:
    step = Operation(0, 0, kind, 0, 0, CUT + 1, CUT + 2, Ended.FAILED, EIO)
    history = History([], {}, [step])
    assert judge_errors(history, SYNC).outcome is Outcome.FAIL
    lease_lost = replace(SYNC, windows=(Window(FaultEffects(lease_lost=True), CUT),))
    assert judge_errors(history, lease_lost).outcome is outcome
