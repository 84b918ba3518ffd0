"""On a small run that was really recorded: RAID5, XFS, sync export, power cut, every promise kept."""

import json
import shutil
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from raidproof.core.blame import Blame, Cause, Culprit
from raidproof.disk.cache import CacheMode, CutPolicy
from raidproof.disk.messages import Counters
from raidproof.disk.writelog import Flag, Kind, LogWriter, MemberInfo
from raidproof.fault import ClientPowerCut, Fault, FaultEffects, KernelPanic, PowerCut
from raidproof.guest.ledger_format import BLOCK, block
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.record import ControlSpec, CrashTestRecord, RunRecord, RunStore
from raidproof.record.observation import Files, MembersSeen, RepliesSeen
from raidproof.record.outcome import Outcome
from raidproof.storage.array import Identity
from raidproof.storage.filesystem.state import FilesystemCheck, WriteBackState
from raidproof.verdict.conditions import conditions_of
from raidproof.verdict.crash_test import judge_crash_test
from raidproof.verdict.evidence import CrashTestEvidence
from raidproof.verdict.run import conclude, judge_run
from raidproof.workload.history import Ended, History, write_replies
from tests.crash.conftest import Did, write_log

RECORDED = Path(__file__).resolve().parents[1] / "data" / "run"


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(Path(shutil.copytree(RECORDED, tmp_path / "run")))


@pytest.fixture
def run(store: RunStore) -> RunRecord:
    return store.load()


@pytest.fixture
def cycle(run: RunRecord) -> CrashTestRecord:
    return run.cycles[0]


def change(store: RunStore, cycle: CrashTestRecord, place: str, tamper: Callable[[dict[str, Any]], None]) -> None:
    path = store.path / str(getattr(cycle.files, place))
    found = json.loads(path.read_text())
    tamper(found)
    path.write_text(json.dumps(found))


def lose_a_block(found: dict[str, Any]) -> None:
    blocks = next(one for key, one in sorted(found.items()) if "fsync" in key)["blocks"]
    blocks[0] = 0


def test_judging_again_says_the_same(store: RunStore, run: RunRecord) -> None:
    judge_run(run, store.path)
    # Older records have no kind and no lives of lost blocks; reasons are texts for people, which may be worded anew.
    fields: Any = {"cycles": {"__all__": {"reason": True, "lives": True, "verdicts": {"__all__": {"kind", "reason"}}}}}
    again, before = run.model_dump(exclude=fields), store.load().model_dump(exclude=fields)
    for one in (*again["cycles"], *before["cycles"]):
        one["verdicts"].sort(key=itemgetter("checker"))
    assert again["cycles"] == before["cycles"]
    assert run.outcome is Outcome.PASS


def test_judging_twice_says_the_same(store: RunStore, cycle: CrashTestRecord) -> None:
    judge_crash_test(cycle, store.path)
    once = cycle.model_dump()
    judge_crash_test(cycle, store.path)
    assert cycle.model_dump() == once


@pytest.mark.parametrize("place", ["on_server", "on_client"])
def test_a_lost_block_turns_pass_into_fail(store: RunStore, cycle: CrashTestRecord, place: str) -> None:
    change(store, cycle, place, lose_a_block)
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.FAIL
    assert "blamed on the stack" in cycle.reason
    assert place.replace("_", " the ") in cycle.reason


def test_what_a_client_began_after_the_server_was_off_is_not_on_its_disks(
    store: RunStore, cycle: CrashTestRecord
) -> None:
    assert cycle.fault_at_ns is not None
    assert (cycle.main.seen_ns, cycle.main.served_until_ns) == (cycle.resumed_ns, cycle.resumed_ns)  # an older record
    cycle.fault_ended_ns = cycle.fault_at_ns + 1
    assert (cycle.main.seen_ns, cycle.main.served_until_ns) == (cycle.fault_ended_ns, cycle.fault_ended_ns)
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.PASS
    # Had the server been off since then, no client could have written what the scan found.
    cycle.fault_ended_ns = 1
    judge_crash_test(cycle, store.path)
    assert any(one.checker.startswith("nothing invented") for one in cycle.verdicts if one.outcome is Outcome.FAIL)


def test_a_fault_that_leaves_the_server_on_has_no_instant_that_its_scan_shows(cycle: CrashTestRecord) -> None:
    cycle.recovery.assemble_s, cycle.fault_ended_ns = None, 5
    assert (cycle.main.seen_ns, cycle.main.served_until_ns) == (None, cycle.resumed_ns)


@pytest.mark.parametrize(("vers", "possible"), [("3", False), ("4.0", True), ("4.2", True)])
def test_only_nfsv4_has_delegations(cycle: CrashTestRecord, vers: str, possible: bool) -> None:
    for mount in (cycle.asked["mount"], *cycle.effective.get("mounts", {}).values()):
        mount["vers"] = vers
    cycle.asked["export"]["delegations"] = True
    assert conditions_of(CrashTestEvidence(cycle, Path())).delegations is possible
    cycle.asked["export"]["delegations"] = False
    assert not conditions_of(CrashTestEvidence(cycle, Path())).delegations


@pytest.mark.parametrize(
    ("asked", "local"),
    [({}, False), ({"lock": False}, True), ({"local_lock": "posix"}, True), ({"local_lock": "flock"}, False)],
)
def test_local_locks_are_those_of_the_requested_mount(
    cycle: CrashTestRecord, asked: dict[str, Any], local: bool
) -> None:
    cycle.asked["mount"] = {"vers": "3", **asked}
    assert conditions_of(CrashTestEvidence(cycle, Path())).local_locks is local


@pytest.mark.parametrize(
    ("asked", "shows"),
    [({"type": "xfs"}, False), ({"type": "ext4", "data": "writeback"}, True), ({"type": "of another version"}, True)],
)
def test_old_data_may_be_seen_where_the_file_system_says_so(
    cycle: CrashTestRecord, asked: dict[str, Any], shows: bool
) -> None:
    cycle.asked = {**cycle.asked, "filesystem": asked}
    assert conditions_of(CrashTestEvidence(cycle, Path())).shows_old_data is shows


def test_the_same_loss_under_an_async_export_is_measured(store: RunStore, cycle: CrashTestRecord) -> None:
    cycle.asked["export"]["sync"] = False
    change(store, cycle, "on_server", lose_a_block)
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.PASS
    assert cycle.reason.startswith("measured loss: ")
    assert cycle.loss_window_s
    assert cycle.loss_window_s > 0


def test_the_same_loss_is_blamed_on_a_disk_that_lied(store: RunStore, cycle: CrashTestRecord) -> None:
    cycle.disks["disk2"]["broken_promises"] = 3
    change(store, cycle, "on_server", lose_a_block)
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.FAIL
    assert "the disks: disk2" in cycle.reason


def test_no_loss_under_an_async_export_is_inconclusive(store: RunStore, cycle: CrashTestRecord) -> None:
    cycle.asked["export"]["sync"] = False
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("control", "outcome"),
    [
        (ControlSpec(expects_loss=False), Outcome.PASS),
        (ControlSpec(expects_loss=True), Outcome.INVALID),
        (ControlSpec(expects_loss=True, expects_blame=Culprit.DISKS), Outcome.INVALID),
    ],
)
def test_a_control_is_held_to_what_it_must_show(
    store: RunStore, run: RunRecord, control: ControlSpec, outcome: Outcome
) -> None:
    run.cycles[0].control = control
    judge_run(run, store.path)
    assert run.outcome is outcome


def test_a_control_that_loses_by_the_stack_fails(store: RunStore, cycle: CrashTestRecord) -> None:
    cycle.control = ControlSpec(expects_loss=True, expects_blame=Culprit.DISKS)
    change(store, cycle, "on_server", lose_a_block)
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.FAIL


def test_storage_that_did_not_come_back_fails(store: RunStore, cycle: CrashTestRecord) -> None:
    cycle.not_recovered = "mount: bad superblock"
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.FAIL
    assert cycle.reason.endswith("blamed on the stack")


@pytest.mark.parametrize(("proof", "culprit"), [("5 reads failed", "the disks"), (None, "the stack")])
def test_a_fault_whose_injection_did_not_end_explains_nothing(
    store: RunStore, cycle: CrashTestRecord, proof: str | None, culprit: str
) -> None:
    cycle.effects = FaultEffects(explanation=Blame(culprit=Culprit.DISKS, cause=Cause.UNREADABLE_SECTORS))
    cycle.fault_proof = proof
    cycle.not_recovered = "md read the sectors without end"
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.FAIL
    assert f"blamed on {culprit}" in cycle.reason


def test_storage_that_did_not_come_back_is_the_loss_that_a_control_waits_for(
    store: RunStore, cycle: CrashTestRecord
) -> None:
    cycle.not_recovered = "mount: bad superblock"
    cycle.disks["disk0"]["broken_promises"] = 1
    cycle.control = ControlSpec(expects_loss=True, expects_blame=Culprit.DISKS)
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("field", "outcome"),
    [
        ("rig_error", Outcome.ERROR),
        ("requirement_missing", Outcome.SKIP),
        ("not_effective", Outcome.FAIL),
    ],
)
def test_what_ended_early_needs_no_observation(
    cycle: CrashTestRecord, field: str, outcome: Outcome, tmp_path: Path
) -> None:
    setattr(cycle, field, "why")
    judge_crash_test(cycle, tmp_path)
    assert (cycle.outcome, cycle.reason) == (outcome, "why")


def test_a_kernel_that_complained_fails(store: RunStore, cycle: CrashTestRecord) -> None:
    with (store.path / cycle.files.consoles["server"]).open("a") as console:
        console.write("BUG: unable to handle page fault for address: 0000000000001000\n")
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.FAIL
    assert "kernel log" in cycle.reason


def change_effects(cycle: CrashTestRecord, **fields: Any) -> FaultEffects:
    return cycle.effects.model_copy(update=fields)


def judged(cycle: CrashTestRecord, store: RunStore) -> Outcome:
    judge_crash_test(cycle, store.path)
    return cycle.outcome


def test_what_a_fault_made_the_kernel_say_is_not_alarming(store: RunStore, cycle: CrashTestRecord) -> None:
    with (store.path / cycle.files.consoles["server"]).open("a") as console:
        console.write("md/raid:md0: Disk failure on vdb, disabling device.\n")
    assert judged(cycle, store) is Outcome.FAIL
    cycle.effects = change_effects(cycle, kernel_messages=("Disk failure on",))
    assert judged(cycle, store) is Outcome.PASS


def test_an_array_that_was_re_created_fails(store: RunStore, cycle: CrashTestRecord) -> None:
    was = {
        "array_uuid": "a",
        "created": "x",
        "device_uuid": "d",
        "role": "Active device 0",
        "events": 7,
        "state": "clean",
    }
    cycle.observed.members = MembersSeen.model_validate({"start": {"disk0": was}, "end": {"disk0": was}})
    assert judged(cycle, store) is Outcome.PASS
    cycle.observed.members.end = {"disk0": Identity.model_validate(was | {"array_uuid": "b"})}
    assert judged(cycle, store) is Outcome.FAIL
    assert "members: disk0: the array was re-created" in cycle.reason


def test_an_export_that_was_turned_async_meanwhile_fails(store: RunStore, cycle: CrashTestRecord) -> None:
    cycle.observed.export = ["async", "no_root_squash", "no_subtree_check", "rw", "wdelay"]
    assert judged(cycle, store) is Outcome.FAIL
    assert "not in effect: sync; in effect instead: async; blamed on the server" in cycle.reason


def test_what_was_lost_is_blamed_on_what_was_found_to_be_wrong(store: RunStore, cycle: CrashTestRecord) -> None:
    change(store, cycle, "on_server", lose_a_block)
    cycle.observed.export = ["async", "no_root_squash", "no_subtree_check", "rw", "wdelay"]
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.FAIL
    assert "missing; blamed on the server: its export was changed" in cycle.reason


def test_a_member_that_is_never_flushed_fails(store: RunStore, cycle: CrashTestRecord) -> None:
    cycle.observed.disks = {
        serial: Counters(serial, writes=counted["writes"], flushes=counted["flushes"], fua=counted["fua"])
        for serial, counted in cycle.disks.items()
    }
    for counted in cycle.disks.values():
        counted["writes"] += 9
        counted["flushes"] += 9
    assert judged(cycle, store) is Outcome.PASS
    cycle.disks["disk1"]["flushes"] -= 9
    assert judged(cycle, store) is Outcome.FAIL
    assert "no flush reached disk1 (9 writes)" in cycle.reason
    # Under an async export nobody waits for a flush.
    cycle.asked["export"]["sync"] = False
    judge_crash_test(cycle, store.path)
    assert "flushes reach the disks" not in {verdict.checker for verdict in cycle.verdicts}


def test_what_explains_that_storage_did_not_come_back_is_told(store: RunStore, cycle: CrashTestRecord) -> None:
    cycle.not_recovered = "it does not mount"
    cycle.observed.export = ["async"]
    judge_crash_test(cycle, store.path)
    assert [verdict.checker for verdict in cycle.verdicts] == ["recovery", "export"]
    assert cycle.reason == "it does not mount; blamed on the server: its export was changed while clients were active"


def test_a_damaged_file_system_fails(store: RunStore, cycle: CrashTestRecord) -> None:
    cycle.observed.filesystem = FilesystemCheck(outcome="corrupt", status=1, reasons=("bad magic",))
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.FAIL


def test_a_truncated_history_is_read_as_far_as_it_goes(store: RunStore, cycle: CrashTestRecord) -> None:
    path = store.path / (cycle.files.history or "none")
    whole = History.read(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 + 3])
    part = History.read(path)
    assert 0 < len(part.operations) < len(whole.operations)
    told = [one for one in part.operations if one.ended is Ended.OK]
    assert told == [one for one in whole.operations if one in set(told)]


@pytest.mark.parametrize("share", [2, 4, 20])
def test_a_history_without_the_ends_of_its_workers_proves_nothing(
    store: RunStore, cycle: CrashTestRecord, share: int
) -> None:
    path = store.path / (cycle.files.history or "none")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // share])
    judge_crash_test(cycle, store.path)
    assert Outcome.ERROR in {one.outcome for one in cycle.verdicts if one.checker == "ends of the workers"}
    assert cycle.outcome is Outcome.ERROR, [one for one in cycle.verdicts if one.outcome is Outcome.FAIL]


def test_a_capture_that_dated_nothing_is_said_and_is_no_failure(store: RunStore, cycle: CrashTestRecord) -> None:
    for dated, said in ((0, True), (3, False), (9000, False)):
        cycle.observed.replies = RepliesSeen(dated=dated, of=9000)
        judge_crash_test(cycle, store.path)
        assert cycle.outcome is Outcome.PASS
        assert cycle.reason.endswith("dated none of 9,000 operations") is said


def missing(store: RunStore, cycle: CrashTestRecord) -> str:
    """Return what a crash test is found to lack, which makes it INCONCLUSIVE."""
    judge_crash_test(cycle, store.path)
    found = [one for one in cycle.verdicts if one.checker == "observations"]
    assert [one.outcome for one in found] == [Outcome.INCONCLUSIVE]
    assert cycle.outcome is Outcome.INCONCLUSIVE
    return found[0].reason


def test_what_no_client_read_has_not_passed(store: RunStore, cycle: CrashTestRecord) -> None:
    cycle.files.on_client = None
    assert missing(store, cycle) == "the record lacks the scan of the ledger through a client"


@pytest.mark.parametrize("machine", ["server", "client1", "client2"])
def test_a_machine_whose_kernel_messages_are_missing_has_not_passed(
    store: RunStore, cycle: CrashTestRecord, machine: str
) -> None:
    del cycle.files.consoles[machine]
    assert missing(store, cycle) == f"the record lacks the kernel messages of {machine}"


def test_only_the_server_must_have_said_something(store: RunStore, cycle: CrashTestRecord) -> None:
    (store.path / cycle.files.consoles["client1"]).write_text("")
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.PASS
    (store.path / cycle.files.consoles["server"]).write_text("\n")
    assert missing(store, cycle) == "the record lacks a kernel message of server, whose log is empty"


def test_a_client_that_did_nothing_has_not_passed(
    store: RunStore, cycle: CrashTestRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = {worker["number"]: worker["path"] for worker in cycle.workers if worker["client"] == "client2"}
    whole = CrashTestEvidence(cycle, store.path).history
    part = History((one for one in whole.operations if one.worker not in idle), whole.ends)
    monkeypatch.setattr(CrashTestEvidence, "history", part)
    shared = next(worker for worker in cycle.workers if worker["path"] == "shared" and worker["number"] in idle)

    def forget(found: dict[str, Any]) -> None:
        for key, entry in found.items():
            if key.partition("@")[0] in {*idle.values()} - {"shared"} or key == f"shared@{shared['first']}":
                found[key] = {"blocks": [0] * len(entry["blocks"]), "names": []} if "blocks" in entry else {}

    for place in ("on_server", "on_client"):
        change(store, cycle, place, forget)
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.INCONCLUSIVE
    assert "0 of metadata on client2" in cycle.reason


def test_a_run_without_cycles_has_not_passed(run: RunRecord) -> None:
    empty = RunRecord(run="a", started=run.started, command=[])
    assert conclude(empty)[0] is Outcome.INCONCLUSIVE


def test_one_invalid_control_voids_the_run(store: RunStore, run: RunRecord) -> None:
    other = run.cycles[0].model_copy(deep=True, update={"control": ControlSpec(expects_loss=True), "title": "other"})
    run.cycles.append(other)
    judge_run(run, store.path)
    assert run.outcome is Outcome.INVALID
    assert run.reason.startswith("other: control")


def test_a_run_that_was_killed_has_not_passed(store: RunStore, run: RunRecord) -> None:
    run.ended = None
    judge_run(run, store.path)
    assert run.outcome is Outcome.ERROR
    assert "killed" in run.reason


def test_a_run_that_was_interrupted_has_not_passed(store: RunStore, run: RunRecord) -> None:
    run.ended_early = "KeyboardInterrupt"
    judge_run(run, store.path)
    assert run.outcome is Outcome.ERROR


def test_a_broken_promise_stands_though_the_rig_failed_later(store: RunStore, cycle: CrashTestRecord) -> None:
    cycle.rig_error = "a client hung"
    ends = []
    for lost in (False, True):
        if lost:
            change(store, cycle, "on_server", lose_a_block)
        judge_crash_test(cycle, store.path)
        ends.append(cycle.outcome)
    assert ends == [Outcome.ERROR, Outcome.FAIL]
    assert "a client hung" in cycle.reason


def test_what_was_found_to_be_wrong_stands_though_the_rig_failed_later(
    store: RunStore, cycle: CrashTestRecord
) -> None:
    cycle.observed.export = ["async", "no_root_squash", "no_subtree_check", "rw", "wdelay"]
    cycle.rig_error = "a client hung"
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.FAIL
    assert "not in effect: sync" in str(cycle.reason)


@pytest.mark.parametrize(("kind", "torn"), [("xfs", False), ("zfs", True), ("of another version", False)])
def test_a_file_system_may_leave_a_part_of_an_interrupted_write(cycle: CrashTestRecord, kind: str, torn: bool) -> None:
    cycle.asked = {**cycle.asked, "filesystem": {"type": kind}}
    assert conditions_of(CrashTestEvidence(cycle, Path())).torn is torn


@pytest.mark.parametrize(("size", "torn"), [(512, True), (1024, True), (4096, False), (65536, False)])
def test_small_blocks_of_a_file_system_are_written_one_by_one(cycle: CrashTestRecord, size: int, torn: bool) -> None:
    cycle.asked = {**cycle.asked, "filesystem": {"type": "ext4", "block_size": size}}
    assert conditions_of(CrashTestEvidence(cycle, Path())).torn is torn


@pytest.mark.parametrize(
    ("asked", "caveat"),
    [
        ({"type": "zfs"}, ""),
        ({"type": "zfs", "sync": "disabled"}, "sync=disabled"),
        ({"type": "ext4", "mount_options": ["nobarrier"]}, "nobarrier"),
        ({"type": "of another version"}, ""),
    ],
)
def test_a_setting_that_breaks_fsync_is_to_blame(cycle: CrashTestRecord, asked: dict[str, Any], caveat: str) -> None:
    cycle.asked = {**cycle.asked, "filesystem": asked}
    found = conditions_of(CrashTestEvidence(cycle, Path()))
    assert caveat in found.fsync_caveat
    assert (found.blame.culprit is Culprit.FILESYSTEM_SETTINGS) == bool(found.fsync_caveat) == bool(caveat)


@pytest.mark.parametrize("fault", [ClientPowerCut(CutPolicy.TORN), KernelPanic(), PowerCut(CutPolicy.TORN)])
def test_only_the_servers_power_cut_tears(cycle: CrashTestRecord, fault: Fault) -> None:
    cycle.effects = fault.effects(stack_of())
    assert conditions_of(CrashTestEvidence(cycle, Path())).torn is (fault.name == PowerCut.name)


@pytest.mark.parametrize(
    ("restarted", "vers", "away_s", "once"),
    [
        (False, "4.2", 10, True),
        (False, "4.1", 10, True),
        (False, "4.0", 10, False),
        (False, "3", 10, False),
        (False, "4.2", 100, False),
        (True, "4.2", 10, False),
    ],
)
def test_where_a_session_outlives_a_fault_each_request_is_done_once(
    cycle: CrashTestRecord, restarted: bool, vers: str, away_s: int, once: bool
) -> None:
    for mount in cycle.effective["mounts"].values():
        mount["vers"] = vers
    cycle.effects = FaultEffects(nfsd_restarted=restarted)
    cycle.fault_begun_ns, cycle.resumed_ns = 10**9, (1 + away_s) * 10**9
    assert conditions_of(CrashTestEvidence(cycle, Path())).exactly_once is once


def test_a_loss_older_than_write_back_allows_is_not_measured(store: RunStore, cycle: CrashTestRecord) -> None:
    cycle.asked["export"]["sync"] = False
    change(store, cycle, "on_server", lose_a_block)
    cycle.observed.write_back = WriteBackState(expire_s=30, wake_s=5, commit_s=30)
    assert judged(cycle, store) is Outcome.PASS
    cycle.fault_at_ns = (cycle.fault_at_ns or 0) + 600 * 10**9
    assert judged(cycle, store) is Outcome.FAIL
    assert cycle.reason.startswith("older than write-back allows")


OOPS = "BUG: unable to handle page fault for address: 0000000000001000\nCall Trace:\n xlog_recover+0x10/0x20\n"


def say(store: RunStore, cycle: CrashTestRecord, machine: str, text: str) -> None:
    with (store.path / cycle.files.consoles[machine]).open("a") as console:
        console.write(text)


def test_a_server_whose_kernel_failed_is_no_error_of_the_rig(store: RunStore, cycle: CrashTestRecord) -> None:
    cycle.rig_error = "server: no answer"
    say(store, cycle, "server", OOPS)
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.FAIL
    assert "trace: xlog_recover; blamed on kernel; then the rig failed: server: no answer" in cycle.reason
    assert str(cycle.verdicts[0].blame) == "kernel"


def test_a_client_that_waits_proves_nothing_where_the_rig_failed(store: RunStore, cycle: CrashTestRecord) -> None:
    cycle.rig_error = "server: no answer"
    say(store, cycle, "client1", "INFO: task agent.py:77 blocked for more than 120 seconds.\n")
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.ERROR


def test_a_control_passes_over_no_broken_stack(store: RunStore, cycle: CrashTestRecord) -> None:
    cycle.disks["disk0"]["broken_promises"] = 1
    cycle.control = ControlSpec(expects_loss=True, expects_blame=Culprit.DISKS)
    change(store, cycle, "on_server", lose_a_block)
    assert judged(cycle, store) is Outcome.PASS
    cycle.observed.export = ["async", "no_root_squash", "no_subtree_check", "rw", "wdelay"]
    assert judged(cycle, store) is Outcome.FAIL
    assert cycle.reason.startswith("control: export: ")


@pytest.mark.parametrize(("lies", "blame"), [(True, "the disks: disk0"), (False, "the stack")])
def test_a_disk_is_blamed_for_what_its_lie_covers(
    store: RunStore, cycle: CrashTestRecord, monkeypatch: pytest.MonkeyPatch, lies: bool, blame: str
) -> None:
    cycle.disks["disk0"]["broken_promises"] = 1
    change(store, cycle, "on_server", lose_a_block)
    done = [Did(Kind.WRITE), Did(Kind.FLUSH, flags=int(Flag.LIED)), *([] if lies else [Did(Kind.FLUSH)])]
    write_log(store.path / "write.log", done)
    cycle.files.write_log = "write.log"
    # The made-up log is of a time long before the ledger.
    monkeypatch.setattr("raidproof.verdict.blame.BEGUN_LATE_NS", 1 << 62)
    assert judged(cycle, store) is Outcome.FAIL
    assert f"blamed on {blame}" in cycle.reason


@pytest.mark.parametrize(("generations", "outcome"), [(100, Outcome.PASS), (0, Outcome.FAIL)])
def test_what_reached_no_disk_is_not_lost_by_one_that_lied(
    store: RunStore, cycle: CrashTestRecord, monkeypatch: pytest.MonkeyPatch, generations: int, outcome: Outcome
) -> None:
    monkeypatch.setattr("raidproof.verdict.blame.BEGUN_LATE_NS", 1 << 62)
    cycle.not_recovered = "mount: bad superblock"
    cycle.disks["disk0"]["broken_promises"] = 1
    cycle.control = ControlSpec(expects_loss=True, expects_blame=Culprit.DISKS)
    infos = [MemberInfo("disk0", 1 << 30, CacheMode.VOLATILE, CacheMode.VOLATILE)]
    log = LogWriter(store.path / "write.log", infos, 0)
    for at, worker in enumerate(cycle.workers):
        for place in range(worker["first"], worker["first"] + worker["blocks"]):
            data = block(worker["file"], place * BLOCK, generations, 7)
            log.write(0, 0, 0, (at, at + 1), data)
    log.note(Kind.FLUSH, int(Flag.LIED), 0, (0, 0), (100, 101))
    log.close(102)
    cycle.files.write_log = "write.log"
    assert judged(cycle, store) is outcome
    assert (str(cycle.verdicts[0].blame) == "the stack") == (outcome is Outcome.FAIL)


def test_a_kernel_that_failed_in_recovery_passes_for_no_control(store: RunStore, cycle: CrashTestRecord) -> None:
    cycle.not_recovered = "mount: killed"
    cycle.disks["disk0"]["broken_promises"] = 1
    cycle.control = ControlSpec(expects_loss=True, expects_blame=Culprit.DISKS)
    say(store, cycle, "server", OOPS)
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.FAIL
    assert "blamed on kernel" in cycle.reason


@pytest.mark.parametrize(("away", "outcome"), [(True, Outcome.PASS), (False, Outcome.FAIL)])
def test_clients_may_wait_for_a_server_that_a_fault_keeps_away(
    store: RunStore, cycle: CrashTestRecord, away: bool, outcome: Outcome
) -> None:
    waits = "[  181.200000] INFO: task agent.py:77 blocked for more than 120 seconds.\n"
    say(store, cycle, "client1", waits)
    (store.path / "away.log").write_text(waits)
    cycle.files.away["client1"] = "away.log"
    cycle.effects = change_effects(cycle, server_away=away)
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is outcome


def test_a_broken_promise_is_not_hidden_by_an_error_elsewhere(store: RunStore, run: RunRecord) -> None:
    dead = run.cycles[0].model_copy(deep=True, update={"rig_error": "burned down", "title": "dead"})
    change(store, run.cycles[0], "on_server", lose_a_block)
    run.cycles.insert(0, dead.model_copy(update={"files": Files()}))
    judge_run(run, store.path)
    assert run.outcome is Outcome.FAIL
    assert run.reason.endswith("; the rig failed in 1 other part of the run: dead: burned down")
    run.ended_early = "SIGINT"
    judge_run(run, store.path)
    assert run.outcome is Outcome.FAIL
    assert run.reason.endswith("; ended early: SIGINT")


def test_a_setting_without_effect_fails_a_control_too(store: RunStore, cycle: CrashTestRecord) -> None:
    cycle.not_effective, cycle.control = "wsize", ControlSpec(expects_loss=False)
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.FAIL


def test_what_the_server_acknowledged_before_the_cut_binds_though_the_report_came_after_it(
    store: RunStore, cycle: CrashTestRecord
) -> None:
    cycle.fault_at_ns = fault_ns = (cycle.fault_at_ns or 0) + 1
    judge_crash_test(cycle, store.path)
    assert cycle.on_server is not None
    before = cycle.on_server.acknowledged_total
    history = History.read(store.path / (cycle.files.history or "none"))
    later = next(one for one in history.operations if one.ended is Ended.OK and (one.ended_ns or 0) > fault_ns)
    cycle.files.replies = "replies"
    write_replies(store.path / "replies", {(later.worker, later.sequence): fault_ns - 1})
    judge_crash_test(cycle, store.path)
    assert cycle.on_server.acknowledged_total == before + 1
