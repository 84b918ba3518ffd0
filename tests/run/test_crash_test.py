import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from raidproof.core.errors import RequestError
from raidproof.disk.cache import CutPolicy
from raidproof.fault import KernelPanic, MemberFails, NfsdRestart, PowerCut
from raidproof.fault.schedule import after_recovery, at
from raidproof.pytest_plugin.fixtures import CrashTestResult, CrashTestRunner, name_of, stack_of
from raidproof.record import CrashTestRecord
from raidproof.record.outcome import Outcome
from raidproof.record.run import ScanResult
from raidproof.run.crash_test import CrashTestSpec, schedule_of
from raidproof.run.crash_test_files import CrashTestFiles
from raidproof.run.fault_sequence import protocol_s, rousing_command
from raidproof.storage.mount import MountSpec
from raidproof.workload.ledger import LedgerSpec


def spec(**changes: object) -> CrashTestSpec:
    return CrashTestSpec.model_validate({"name": "x", "title": "x", "stack": stack_of(), **changes})


def record(**fields: object) -> CrashTestRecord:
    common = {"name": "x", "title": "x", "asked": {}, "cache_mode": "volatile", "fault": "power-cut", "seed": 1}
    return CrashTestRecord.model_validate(common | fields)


def test_a_fault_is_found_by_its_name() -> None:
    assert schedule_of(spec(policy=CutPolicy.TORN, seed=9)).main_fault == PowerCut(CutPolicy.TORN, 9)
    assert schedule_of(spec(fault="none")).main_fault is None


def test_a_fault_may_be_given_itself() -> None:
    asked = spec(fault=KernelPanic(), during=[NfsdRestart()])
    assert schedule_of(asked).main_fault == KernelPanic()
    assert schedule_of(asked).conditions == (NfsdRestart(),)


def test_a_schedule_has_all_faults() -> None:
    faults = [at(1.0, MemberFails("disk1")), at(2.5, PowerCut()), after_recovery(0.3, KernelPanic())]
    asked = spec(faults=faults)
    assert schedule_of(asked).main_fault == PowerCut()
    assert [one.name for one in schedule_of(asked).faults] == ["member-fails", "power-cut", "kernel-panic"]
    for also in ({"fault": "none"}, {"during": [NfsdRestart()]}, {"policy": CutPolicy.TORN}):
        with pytest.raises(RequestError, match=f"excludes {next(iter(also))}"):
            spec(faults=faults, **also)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"capture": True}, "a capture cannot read the traffic, or not which user"),
        ({"second_reader": True}, "neither TLS nor Kerberos for libnfs"),
        ({"ledger": LedgerSpec(users=4)}, "only 3 users have a ticket, not 4"),
    ],
)
def test_what_a_stack_with_kerberos_cannot_have_is_refused(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        spec(stack=stack_of(mount=MountSpec(sec="krb5")), **changes)
    spec(**changes)


def test_a_misspelt_fault_names_the_nearest() -> None:
    with pytest.raises(RequestError, match="did you mean 'kernel-panic'"):
        schedule_of(spec(fault="kernel-panik"))


@pytest.mark.parametrize("name", ["", "../x", "a b", "A"])
def test_a_name_must_do_for_a_directory(name: str) -> None:
    with pytest.raises(ValidationError):
        spec(name=name)


def test_a_record_names_files_by_their_paths_in_the_run(tmp_path: Path) -> None:
    assert CrashTestFiles(tmp_path, "x").write("on-server.json", "{}") == "x/on-server.json"
    assert (tmp_path / "x" / "on-server.json").read_text() == "{}"


@pytest.mark.parametrize(
    ("test", "name"),
    [("test_a_cut[torn-3]", "a-cut-torn-3"), ("test_x[1+0]", "x-1-0"), ("test_x[CutPolicy.DROP]", "x-cutpolicy-drop")],
)
def test_the_name_of_a_cycle(test: str, name: str) -> None:
    assert name_of(test) == name
    assert spec(name=name)


def ended(outcome: Outcome, lost: int = 0) -> CrashTestResult:
    evidence = ScanResult(acknowledged={"fsync": 5}, lost={"fsync": lost} if lost else {})
    return CrashTestResult(record(outcome=outcome, reason="so", on_server=evidence.model_dump()), Path("run/x"))


def test_claims_hold() -> None:
    assert ended(Outcome.PASS).must_keep_every_promise().acknowledged == 5
    assert ended(Outcome.PASS, lost=2).must_lose_by_design().lost == 2


@pytest.mark.parametrize("outcome", [one for one in Outcome if one is not Outcome.PASS])
def test_each_other_end_has_its_error(outcome: Outcome) -> None:
    from raidproof.pytest_plugin.plugin import outcome_of  # noqa: PLC0415

    for claim in (
        CrashTestResult.must_pass,
        CrashTestResult.must_keep_every_promise,
        CrashTestResult.must_lose_by_design,
    ):
        with pytest.raises(Exception, match=r"x: so \(see run/x\)") as raised:
            claim(ended(outcome))
        assert outcome_of(raised.value) is outcome


def test_a_loss_breaks_the_claim_that_nothing_was_lost() -> None:
    with pytest.raises(Exception, match="so") as raised:
        ended(Outcome.PASS, lost=1).must_keep_every_promise()
    assert type(raised.value).__name__ == "ProductError"


def test_no_loss_leaves_the_claim_of_one_open() -> None:
    with pytest.raises(Exception, match="so") as raised:
        ended(Outcome.PASS).must_lose_by_design()
    assert type(raised.value).__name__ == "Inconclusive"


def test_a_scenario_may_run_several_cycles() -> None:
    class FakeCampaign:
        def __init__(self) -> None:
            self.store = self
            self.path = Path("run")
            self.names: list[str] = []

        def cycle(self, spec: CrashTestSpec) -> CrashTestRecord:
            self.names.append(spec.name)
            return record()

    current_run = FakeCampaign()
    cycle = CrashTestRunner(current_run, "twice")  # type: ignore[arg-type]
    cycle(stack_of())
    cycle(stack_of(), seed=2)
    assert current_run.names == ["twice", "twice-2"]


def test_clients_are_waited_for_as_long_as_nfs_may_keep_them() -> None:
    # What a plan sets by default, and the kernel's own.
    assert protocol_s({"export": {"lease_s": 10, "grace_s": 10}}) == 20
    assert protocol_s({"export": {"lease_s": 90, "grace_s": 90}}) == 180


def test_each_connection_of_a_mount_is_roused(tmp_path: Path) -> None:
    assert rousing_command("/mnt/x", 1) == ["stat", "--file-system", "/mnt/x"]
    command = rousing_command(str(tmp_path), 2)
    assert command[-1] == "16"
    assert subprocess.run([sys.executable, *command[1:]], check=True, capture_output=True).stderr == b""
