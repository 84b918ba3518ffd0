"""Crash states that are checked right after a crash test: they show what its fault does not."""

from typing import Any

import pytest

from raidproof.core.blame import Culprit, blamed_as
from raidproof.core.errors import ProductError
from raidproof.disk.disk_fault import drop_flushes
from raidproof.fault.disk import DefectiveDrives
from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.record.outcome import Outcome
from raidproof.record.results.store import RunStore
from raidproof.run.selftest import EXTRA_S, FLAWED, LEDGER, blames_of

STATES = 12
LEAST: dict[str, Any] = {"ledger": LEDGER, "ledger_seconds": 0.2, "solo_extra_s": EXTRA_S, "states": STATES}
"""A short crash test: few kinds of operation."""


@pytest.mark.plants
def test_a_defect_that_only_crash_states_show(cycle: CrashTestRunner) -> None:
    # Nothing takes the disks' power, so that nothing is lost: only the states lack what the disk did not flush.
    drive = DefectiveDrives((FLAWED,), drop_flushes())
    result = cycle(stack_of(), fault="none", during=[drive], **LEAST)
    assert result.record.outcome is Outcome.PASS, result.record.reason
    with pytest.raises(ProductError, match="exploration of crash states"):
        result.must_pass()
    blames = blames_of(result.record, RunStore(cycle.current_run.store.path))
    assert any(blamed_as(one, Culprit.DISKS) for one in blames)


def test_sound_disks_pass_with_their_crash_states(cycle: CrashTestRunner) -> None:
    result = cycle(stack_of(), **LEAST)
    result.must_keep_every_promise()
    (states,) = result.record.explored
    assert 0 < states.judged <= STATES
