from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raidproof.core.errors import RequestError, RequirementMissing, RigError
from raidproof.fault import Fault, FaultContext
from raidproof.fault.array import (
    DISK_FAILURE,
    WRITE_HOLE,
    Degraded,
    Rebuilding,
    Reshaping,
    Resyncing,
    Scrubbing,
)
from raidproof.lab.lab import Lab
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.record.outcome import Outcome
from raidproof.storage.array import ExpectedDeviation, Identity, MdArray, MdSpec, parse_examine, serial_of
from raidproof.storage.stack import Stack
from raidproof.verdict.kernel_log import judge_kernel_logs
from tests.storage.array.test_array_upkeep import Typist

DATA = Path(__file__).parents[1] / "data" / "mdadm"
MEMBERS = ("disk0", "disk1", "disk2", "disk3")
EVERY = [Degraded("disk1"), Rebuilding("disk1"), Resyncing(), Scrubbing(), Reshaping()]
BUSY = "md: recover of RAID array md0\nXFS (md0): Ending clean mount\n"
DONE = "md: md0: check done.\n"


class FakeArray(MdArray):
    """A fake array that is always in the expected state."""

    unnoticed = 0
    """Number of reads of the state after which the kernel has detected that a member is gone."""

    def require_effective(self) -> Any:
        self.unnoticed -= 1
        missing = int(self.unnoticed < 0)
        devices = [SimpleNamespace(device=md.device, degraded=missing) for md in self.spec.devices]
        return SimpleNamespace(devices=devices)

    def wait_clean(self, deadline_s: float = 0.0) -> Any:
        cast("Typist", self.machine).typed.append(f"wait {deadline_s > 1e9}")


def context(machine: Typist | None = None, *, consoles: int = 1, **asked: Any) -> FaultContext:
    array = FakeArray(MdSpec.model_validate({"members": MEMBERS} | asked), machine or Typist())
    server = SimpleNamespace(name="server", consoles=[Path("x")] * consoles)
    return FaultContext(cast("Lab", SimpleNamespace(server=server)), cast("Stack", SimpleNamespace(array=array)))


def examined(name: str) -> dict[str, Identity]:
    said = (DATA / f"examine-4.4-{name}.txt").read_text()
    return {serial_of(path): one for path, one in parse_examine(said).items()}


def test_a_member_is_missing_until_it_is_healed() -> None:
    machine = Typist()
    where, fault = context(machine), Degraded("disk1")
    assert fault.inject(where).proof == "/dev/md0: 1 member missing"
    assert where.stack.array.expected_deviation == ExpectedDeviation(absent=frozenset({"disk1"}))
    fault.heal(where)
    assert where.stack.array.expected_deviation == ExpectedDeviation()
    assert machine.typed[2:] == ["mdadm /dev/md0 --re-add disk1", "wait False"]


def test_the_kernel_detects_a_missing_member_by_a_write() -> None:
    where, written = context(), []

    def run(argv: list[str]) -> None:
        written.append(argv[0])

    where.lab.server.run = run  # type: ignore[method-assign,assignment]
    where.stack.filesystem = cast("Any", SimpleNamespace(directory="/srv/raidproof"))
    cast("FakeArray", where.stack.array).unnoticed = 3  # the first read, and those after two writes
    assert Degraded("disk1").inject(where).proof == "/dev/md0: 1 member missing"
    assert written == ["dd", "dd", "dd", "rm"]


def test_without_a_bitmap_all_of_a_member_is_rebuilt() -> None:
    machine = Typist()
    where, fault = context(machine, consistency_policy="ppl"), Degraded("disk1")
    fault.inject(where)
    fault.heal(where)
    assert machine.typed[2:4] == ["mdadm --zero-superblock disk1", "mdadm /dev/md0 --add disk1"]
    assert where.stack.array.expected_deviation == ExpectedDeviation(renewed=frozenset({"disk1"}))


def test_a_rebuild_is_throttled_until_the_fault_is_healed() -> None:
    machine = Typist(progress="recover")
    where, fault = context(machine), Rebuilding("disk2", kib_s=500)
    assert fault.inject(where).proof == "recover at sector 128 of 1,024, 500 KiB/s at most"
    assert machine.typed[1] == "tee sync_speed_max < 500"
    assert machine.typed[-2] == "mdadm /dev/md0 --add disk2"
    mine = frozenset({"disk2"})
    assert where.stack.array.expected_deviation == ExpectedDeviation(rebuilding=mine, renewed=mine)
    fault.heal(where)
    assert machine.typed[-2:] == ["tee sync_speed_max < system", "wait False"]
    assert where.stack.array.expected_deviation == ExpectedDeviation(renewed=mine)


@pytest.mark.parametrize(("policy", "action"), [("bitmap", "repair"), ("resync", "resync"), ("ppl", "resync")])
def test_where_a_bitmap_would_spare_the_resync_it_is_a_repair(policy: str, action: str) -> None:
    machine = Typist(progress=action)
    Resyncing().inject(context(machine, consistency_policy=policy))
    assert f"tee sync_action < {action}" in machine.typed


def test_a_check_begins() -> None:
    machine = Typist()
    Scrubbing().inject(context(machine))
    assert "tee sync_action < check" in machine.typed


def test_a_reshape_takes_the_spare_and_it_stays_so() -> None:
    machine = Typist(progress="reshape")
    where = context(machine, members=MEMBERS[:3], spares=MEMBERS[3:])
    Reshaping().inject(where)
    assert "mdadm --grow /dev/md0 --raid-devices=4" in machine.typed
    Reshaping().heal(where)
    assert where.stack.array.expected_deviation == ExpectedDeviation(raid_disks=4)


@pytest.mark.parametrize(
    ("fault", "asked", "reason"),
    [
        (Degraded("disk9"), {}, "no member"),
        (Degraded("disk1"), {"level": 0}, "RAID0"),
        (Degraded("disk1"), {"members": MEMBERS[:3], "spares": MEMBERS[3:]}, "a spare would take"),
        (Rebuilding("disk1"), {"members": MEMBERS[:3], "spares": MEMBERS[3:]}, "a spare would take"),
        (Reshaping(), {}, "with a spare"),
        (Reshaping(), {"level": 10, "members": MEMBERS[:3], "spares": MEMBERS[3:]}, "only a RAID4, 5 or 6"),
        (Reshaping(), {"members": MEMBERS[:3], "spares": MEMBERS[3:], "consistency_policy": "ppl"}, "ppl"),
        (Scrubbing(), {"level": 0}, "RAID0"),
    ],
)
def test_the_impossible_is_refused_before_anything_is_done(fault: Any, asked: dict[str, Any], reason: str) -> None:
    machine = Typist()
    with pytest.raises(RequestError, match=reason):
        fault.inject(context(machine, **asked))
    assert machine.typed == []


@pytest.mark.parametrize("fault", [Resyncing(), Scrubbing()])
def test_what_only_a_console_can_prove_needs_one(fault: Resyncing | Scrubbing) -> None:
    with pytest.raises(RequirementMissing, match="no console"):
        fault.inject(context(consoles=0))


@pytest.mark.parametrize("fault", EVERY)
def test_each_takes_no_machine_down_and_can_prove_that_it_lasted(fault: Any) -> None:
    assert fault.target(context()) is None
    assert type(fault).lasted is not Fault.lasted


@pytest.mark.parametrize(
    ("fault", "members"),
    [
        (Degraded("disk1"), "member-out"),
        (Rebuilding("disk1"), "rebuilding"),
        (Reshaping(), "reshaping"),
        (Resyncing(), "whole"),
        (Scrubbing(), "whole"),
    ],
)
def test_what_lasted_is_proved(fault: Any, members: str) -> None:
    assert fault.lasted(context(), examined(members), BUSY)


@pytest.mark.parametrize("fault", [Degraded("disk1"), Rebuilding("disk1"), Reshaping()])
def test_a_condition_missing_in_the_members_metadata_did_not_last(fault: Any) -> None:
    with pytest.raises(RigError):
        fault.lasted(context(), examined("whole"), BUSY)


@pytest.mark.parametrize("fault", [Rebuilding("disk1"), Reshaping(), Resyncing(), Scrubbing()])
def test_a_condition_that_the_kernel_reported_as_done_did_not_last(fault: Any) -> None:
    with pytest.raises(RigError, match="too late"):
        fault.lasted(context(), examined("rebuilding"), BUSY + DONE)


def test_consent_to_start_dirty_is_kept_and_explains_a_loss() -> None:
    where, fault = context(), Degraded("disk1", starts_dirty=True)
    fault.inject(where)
    assert where.stack.array.expected_deviation.starts_dirty
    assert tuple(one.effects(stack_of()).explanation for one in (fault, Degraded("disk1"))) == (WRITE_HOLE, None)


def test_a_member_that_was_declared_faulty_is_not_alarming_and_all_else_is() -> None:
    log = [("server", "md/raid10:md0: Disk failure on vdb, disabling device.\n")]
    assert judge_kernel_logs(log).outcome is Outcome.FAIL
    assert judge_kernel_logs(log, asked_for=[DISK_FAILURE]).outcome is Outcome.PASS
    worse = [("server", f"{log[0][1]}Buffer I/O error on dev md0\n")]
    assert judge_kernel_logs(worse, asked_for=[DISK_FAILURE]).outcome is Outcome.FAIL
