"""A power cut with a capture of all NFS traffic: the ledger's promises are kept, and the write verifier changes."""

import pytest

from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.record.outcome import Outcome
from raidproof.storage.mount import MountSpec


@pytest.mark.parametrize("vers", ["4.2", pytest.param("3", marks=pytest.mark.exhaustive)])
def test_every_promise_is_kept_and_the_power_cut_shows_on_the_wire(cycle: CrashTestRunner, vers: str) -> None:
    stack = stack_of(mount=MountSpec.model_validate({"vers": vers}))
    ended = cycle(stack, capture=True).must_keep_every_promise()
    outcomes = {verdict.checker: verdict.outcome for verdict in ended.record.verdicts}
    assert outcomes["write verifier"] is Outcome.PASS
