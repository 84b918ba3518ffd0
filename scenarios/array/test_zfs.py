"""The RAID of ZFS on provider qemu: promises after a power cut, fsync without effect, and blocks that are wrong."""

from collections.abc import Iterator
from typing import Any

import pytest

from raidproof.core.blame import Culprit
from raidproof.core.errors import RequirementMissing
from raidproof.core.topology import Platform, server_and_clients
from raidproof.fault.array import Degraded
from raidproof.fault.disk import CorruptedAtRest
from raidproof.guest.ledger_format import MAGIC
from raidproof.image.kernel import pc
from raidproof.provider.registry import prepare
from raidproof.pytest_plugin.fixtures import MEMBERS, CrashTestResult, CrashTestRunner, Explore, name_of, stack_of
from raidproof.record import CrashTestRecord
from raidproof.record.outcome import Outcome
from raidproof.record.run import BlockClass
from raidproof.run.run import Run
from raidproof.storage.array import ARRAYS
from raidproof.storage.stack import StackSpec

pytestmark = pytest.mark.exhaustive

KIND = ARRAYS["zfs"]
LOG = "disk4"
STATES = 20
"""Crash states of an exploration: an emulated machine checks one in some seconds."""
SECONDS = 2.0
"""Seconds of the clients' work before the cut: shorter than the 5 s between two transaction groups."""


def stack_with(level: str = "z1", **properties: Any) -> StackSpec:
    """Return a stack with a pool of all member disks; ``properties`` are fields of the file system."""
    array = KIND.model_validate({"level": level, "members": MEMBERS})
    return StackSpec.model_validate({**dict(stack_of()), "array": array, "filesystem": {"type": "zfs", **properties}})


@pytest.fixture(scope="module")
def pools(current_run: Run) -> Iterator[Run]:
    """A run of this file, whose lab has a kernel with the module zfs."""
    kernel = str(KIND.software.kernel)
    if not pc.at_hand(kernel):
        raise RequirementMissing(
            f"kernel {kernel} is not built", remedy="build it once: ./raidproof demo --provider qemu --set raid=zfs"
        )
    topology = server_and_clients(clients=1, disks=5, platform=Platform(provider="qemu", server=KIND.software))
    prepare(topology)
    current_run.discard_lab()
    with Run("zfs", current_run.store.path, topology) as one:
        yield one


@pytest.fixture
def cut(pools: Run, request: pytest.FixtureRequest) -> CrashTestRunner:
    """Run crash tests in the lab of `pools`."""
    return CrashTestRunner(pools, name_of(request.node.name))


@pytest.mark.parametrize("level", ["1", "10", "z1", "z2", "z3"])
def test_every_promise_holds(cut: CrashTestRunner, level: str) -> None:
    record = cut(stack_with(level)).must_keep_every_promise().record
    assert record.observed.array is not None
    assert not any(record.observed.array.mismatch_cnt.values())


@pytest.mark.parametrize("properties", [{"log": LOG}, {"sync": "always"}], ids="-".join)
def test_a_property_keeps_every_promise(cut: CrashTestRunner, properties: dict[str, str]) -> None:
    cut(stack_with(**properties)).must_keep_every_promise()


@pytest.mark.parametrize("level", ["1", "10", "z1", "z2", "z3"])
def test_every_promise_holds_without_a_disk(cut: CrashTestRunner, level: str) -> None:
    ended = cut(stack_with(level), during=[Degraded("disk1")]).must_keep_every_promise()
    assert ended.record.observed.array is not None


def test_a_loss_is_found_if_fsync_has_no_effect(cut: CrashTestRunner) -> None:
    ended = cut(stack_with(sync="disabled"), ledger_seconds=SECONDS)
    assert ended.record.outcome is Outcome.FAIL
    assert {"fsync", "o_sync", "create"} <= lost_kinds(ended.record)
    assert "sync=disabled" in str(ended.record.effective["caveats"])
    blames = [one.blame for one in ended.record.verdicts if one.kind == "fsync" and one.blame is not None]
    assert {blame.culprit for blame in blames} == {Culprit.FILESYSTEM_SETTINGS}


@pytest.mark.parametrize("lost", [None, "disk1"], ids=["all-members", "disk1-lost"])
def test_every_promise_holds_in_every_crash(pools: Run, cut: CrashTestRunner, lost: str | None) -> None:
    ended = cut(stack_with(), ledger_seconds=SECONDS).must_keep_every_promise()
    explored = Explore(pools)(ended, states=STATES, lost_member=lost).must_keep_every_promise()
    assert explored.record.judged == STATES
    assert explored.record.cold.checked


def test_wrong_blocks_are_counted_and_corrected(cut: CrashTestRunner) -> None:
    # Compressed blocks do not begin with the pattern.
    ended: CrashTestResult = cut(stack_with(compression="off"), fault=CorruptedAtRest("disk3", MAGIC))
    found = ended.record.observed.array
    assert found is not None
    assert sum(found.mismatch_cnt.values()) > 0
    assert not any(found.repaired.values())
    assert ended.record.on_server is not None
    assert BlockClass.GARBAGE not in ended.record.on_server.blocks
    assert ended.record.outcome is Outcome.PASS, ended.record.reason


def lost_kinds(record: CrashTestRecord) -> set[str | None]:
    """Return the kinds of operations of which acknowledged ones are missing."""
    return {one.kind for one in record.verdicts if one.outcome is Outcome.FAIL}
