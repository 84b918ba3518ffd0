"""A mirror with a write-mostly member, also with write-behind and failfast, keeps the promises."""

import pytest

from raidproof.core.errors import NotEffective
from raidproof.lab.lab import Lab
from raidproof.pytest_plugin.fixtures import MEMBERS, CrashTestRunner, Explore, stack_of
from raidproof.storage.array import MdArray, MdSpec
from raidproof.storage.filesystem import Ext4Spec
from raidproof.storage.stack import StackSpec
from scenarios.crash.known_findings import KNOWN

STATES = 80
FLAGS = {"write_mostly": 1, "write_behind": 256, "failfast": True}


def mirror() -> StackSpec:
    """Return a stack on a RAID1 of three disks, of which the last is write-mostly."""
    usual = stack_of("1", members=3, filesystem=Ext4Spec()).model_dump(mode="json")
    return StackSpec.model_validate({**usual, "array": {**usual["array"], **FLAGS}})


def test_every_promise_is_kept(cycle: CrashTestRunner) -> None:
    record = cycle(mirror()).must_keep_every_promise().record
    (array,) = record.effective["array"]["devices"]
    assert array["write_behind"] == FLAGS["write_behind"]
    flagged = [one["device"] for one in array["members"] if "write_mostly" in one["state"]]
    assert [path.rpartition("-")[2] for path in flagged] == [MEMBERS[2]]


def test_a_flag_that_is_taken_away_is_found(lab: Lab) -> None:
    spec = mirror().array
    assert isinstance(spec, MdSpec)
    array = MdArray(spec, lab.server)
    array.create()
    try:
        last = array.state().top.members[-1].kernel_name
        lab.server.put("-writemostly\n", f"/sys/block/md0/md/dev-{last}/state")
        with pytest.raises(NotEffective, match="write_mostly"):
            array.require_effective()
    finally:
        array.destroy()


@pytest.mark.exhaustive
def test_every_promise_is_kept_in_every_crash(cycle: CrashTestRunner, explore: Explore) -> None:
    explored = explore(cycle(mirror()).must_pass(), states=STATES, cold=False).must_keep_every_promise(but=KNOWN)
    assert explored.record.judged == STATES
