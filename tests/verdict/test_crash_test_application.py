"""Verdicts on the operations of an application, in a crash test and in crash states, from made-up observations."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from raidproof.core.blame import Culprit
from raidproof.crash.stats import ExplorationStats
from raidproof.fault import ClientPowerCut, PowerCut
from raidproof.guest.ledger_format import ACKNOWLEDGE, APPLICATION, END, FRAME, ISSUE, KINDS
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.record import CrashTestRecord, RunStore
from raidproof.record.exploration import End, Observation, UndecidedRecord
from raidproof.record.outcome import Outcome
from raidproof.run.exploration_record import undated
from raidproof.run.source import application_of, source_of
from raidproof.verdict.cell import SafetyWord, safety_of
from raidproof.verdict.conditions import Conditions, conditions_of
from raidproof.verdict.crash_test import judge_crash_test
from raidproof.verdict.damage import Damage
from raidproof.verdict.evidence import CrashTestEvidence
from raidproof.verdict.exploration import conclude_exploration
from raidproof.verdict.oracle import Oracle
from raidproof.workload.application import ApplicationSpec
from raidproof.workload.history import Ended, History, Operation, Recorder, WorkerSpec
from tests.crash.stored import store_run
from tests.record.test_exploration import record as exploration

RECORDED = Path(__file__).resolve().parents[1] / "data" / "run"
WORKER = WorkerSpec(number=0, client="client1", kind=APPLICATION, path="a", file=0)
LOCAL = WORKER.model_copy(update={"client": "server", "local": True})
NOTHING: dict[str, Any] = {"ids": [], "wrong": [], "damaged": [], "unreadable": [], "failed": ""}
HISTORY = History([
    Operation(0, number, APPLICATION, 10 * number, 1, 100 * number, 100 * number + 50, Ended.OK, 0)
    for number in range(1, 6)
])  # fmt: skip


def oracle(worker: WorkerSpec = WORKER, **conditions: Any) -> Oracle:
    return Oracle((worker,), HISTORY, Conditions(**{"export_sync": True, **conditions}), created_ns=10)


def read(*ids: int, **found: Any) -> Observation:
    return Observation(end=End.READ, found={"a": {**NOTHING, "ids": [*ids], **found}})


def test_a_crash_state_is_judged_as_of_its_cut() -> None:
    assert oracle().judge(read(10, 20, 30), 400).outcome is Outcome.PASS
    judged = oracle().judge(read(10, 20, 30), 500)
    assert judged.damages == (Damage("acknowledged by the application", "the operation is missing", "read"),)
    assert [str(one) for one in judged.missing] == ["a: operation 40: the operation is missing"]
    assert judged.judged == {APPLICATION: 4}
    assert judged.lost_bytes == 0


def test_a_state_in_which_nothing_mounts_loses_every_operation() -> None:
    judged = oracle().judge(Observation(end=End.NOT_MOUNTED, said="no"), 500)
    assert judged.broken
    assert len(judged.missing) == 4


def test_a_loss_by_an_async_export_is_measured() -> None:
    judged = oracle(export_sync=False).judge(read(10), 500)
    assert judged.excused
    assert len(judged.missing) == 3


def test_damage_is_described_by_the_application() -> None:
    judged = oracle().judge(read(10, 20, 30, 40, damaged=["malformed"]), 500)
    assert judged.damages == (Damage("data of the application", "the check command reports damage", "read"),)
    assert judged.lines(judged.damages[0]) == ("a: malformed",)
    assert not oracle(export_sync=False).judge(read(10, damaged=["malformed"]), 500).broken


def test_a_phantom_breaks_a_crash_state() -> None:
    judged = oracle().judge(read(10, 20, 7), 300)
    assert [one.promise for one in judged.damages] == ["nothing invented"]


def test_a_check_without_a_result_is_no_failure_of_the_stack() -> None:
    judged = oracle().judge(read(failed="did not end within 10 s"), 500)
    assert (judged.outcome, judged.unchecked, judged.broken, judged.missing) == (Outcome.ERROR, True, False, ())
    assert "the application's own check command gave no result: a: it did not end within 10 s" in judged.reason


def test_states_without_a_result_make_an_exploration_an_error() -> None:
    record = exploration(unchecked=UndecidedRecord(state="7-ab", reason="it did not end", states=3))
    outcome, reason = conclude_exploration(record)
    assert outcome is Outcome.ERROR
    assert "in 3 of" in reason
    assert "the first is 7-ab: it did not end" in reason


# --- a crash test


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(Path(shutil.copytree(RECORDED, tmp_path / "run")))


def with_application(store: RunStore, worker: WorkerSpec = WORKER, *, status: int | None = 0) -> CrashTestRecord:
    """Replace the ledger of a recorded crash test by an application; all of its operations are there.

    ``status``: the exit status of its run command; None: its machine lost power.
    """
    cycle = store.load().cycles[0]
    assert cycle.fault_at_ns is not None
    recorder = Recorder(store.path / "history-of-application")
    kind = KINDS.index(APPLICATION)
    for number in range(20):
        at_ns = cycle.fault_at_ns - 10_000_000 * (21 - number)
        for what in (ISSUE, ACKNOWLEDGE):
            recorder.add(0, at_ns, FRAME.pack(what, kind, 0, number, number, 1, 0, at_ns))
    if status is not None:
        at_ns = cycle.fault_at_ns + 1_000_000_000
        recorder.add(0, at_ns, FRAME.pack(END, kind, 0, 20, 0, 0, status, at_ns))
    recorder.close()
    for place in ("on_server", "on_client"):
        (store.path / f"{place}.json").write_text(json.dumps({"a": {**NOTHING, "ids": [*range(20)]}}))
    files = {"history": "history-of-application", "replies": None, "on_server": "on_server.json"}
    cycle.files = cycle.files.model_copy(update={**files, "on_client": "on_client.json"})
    cycle.workers = [worker.model_dump()]
    return cycle


def found(store: RunStore, **changes: Any) -> None:
    (store.path / "on_server.json").write_text(json.dumps({"a": {**NOTHING, "ids": [*range(20)], **changes}}))


def test_every_operation_is_there(store: RunStore) -> None:
    cycle = with_application(store)
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.PASS, cycle.reason
    assert cycle.reason == "all 20 acknowledged operations survived"
    # Whether an application syncs is not known, so that no flush is missed.
    assert not any(one.checker == "flushes reach the disks" for one in cycle.verdicts)


def test_a_lost_operation_fails(store: RunStore) -> None:
    cycle = with_application(store)
    found(store, ids=[*range(19)])
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.FAIL
    assert cycle.reason.startswith("acknowledged by the application, seen on the server: 1 of 20")


def test_a_lost_operation_is_blamed_on_a_disk_that_lied(store: RunStore) -> None:
    cycle = with_application(store)
    found(store, ids=[*range(19)])
    cycle.files.write_log = None
    cycle.disks["disk2"]["broken_promises"] = 7
    judge_crash_test(cycle, store.path)
    failed = [one for one in cycle.verdicts if one.kind == APPLICATION and one.outcome is Outcome.FAIL]
    assert failed
    assert all(one.blame is not None and one.blame.culprit is Culprit.DISKS for one in failed)


def test_a_check_that_hangs_is_an_error(store: RunStore) -> None:
    cycle = with_application(store)
    found(store, ids=[], failed="did not end within 10 s")
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.ERROR
    assert cycle.reason.startswith("check of the application, seen on the server: the application's own check command")


def test_an_application_that_fails_after_the_fault_leaves_a_doubt(store: RunStore) -> None:
    cycle = with_application(store, status=3)
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.INCONCLUSIVE
    assert cycle.reason == "application goes on: the run command on client1 ended with status 3 1.0 s after the fault"


def test_an_export_excuses_nothing_on_the_server_itself(store: RunStore) -> None:
    cycle = with_application(store)
    cycle.asked["export"]["sync"] = False
    assert conditions_of(CrashTestEvidence(cycle, Path())).excused
    local = with_application(store, LOCAL)
    local.asked["export"]["sync"] = False
    assert not conditions_of(CrashTestEvidence(local, Path())).excused


def test_the_server_is_disconnected_where_an_application_runs_on_it(store: RunStore) -> None:
    cycle, local = with_application(store), with_application(store, LOCAL)
    stack = stack_of()
    for one in (cycle, local):
        one.fault_target, one.effects = "server", PowerCut().effects(stack)
    assert (cycle.lost_power, local.lost_power) == ([], ["server"])
    local.fault_target, local.effects = "client1", ClientPowerCut().effects(stack)
    assert local.lost_power == ["client1"]


def test_a_configuration_with_damage_loses_data(store: RunStore) -> None:
    cycle = with_application(store)
    found(store, damaged=["malformed"])
    judge_crash_test(cycle, store.path)
    assert cycle.outcome is Outcome.FAIL
    assert cycle.reason.startswith("data of the application, seen on the server: the check command reports a: malf")
    assert safety_of(cycle).word is SafetyWord.LOSES_DATA
    assert safety_of(cycle).why == "the application reports damage"
    found(store, failed="did not end within 10 s")
    judge_crash_test(cycle, store.path)
    assert safety_of(cycle).word is SafetyWord.NOT_SHOWN


# --- what an exploration needs

SPEC = ApplicationSpec(run=("run",), check=("check",), check_s=3.0)


def store_application(path: Path, **files: Any) -> RunStore:
    ledger = {"seed": 7, "kinds": [APPLICATION], "application": SPEC.model_dump(mode="json")}
    store = store_run(path, workload={"ledger": ledger})
    record = store.load()
    record.cycles[0].files = record.cycles[0].files.model_copy(update=files)
    store.save(record)
    return store


def test_an_exploration_has_the_files_of_its_crash_test(tmp_path: Path) -> None:
    store = store_application(tmp_path / "run", application="application.json")
    (store.path / "application.json").write_text('{"a.py": "cHJpbnQ="}')
    source = source_of(store)
    assert source.scan_config["application"]["files"] == {"a.py": "cHJpbnQ="}
    assert source.scan_config["application"]["check"] == ["check"]
    assert application_of(source.cycle) == SPEC
    assert "not captured" in undated(source)[0]
    checker: Any = source.checker(1, logs=tmp_path)
    assert checker.deadline_s == 26.0
    assert ExplorationStats(source.recording, source.oracle).unchecked is None
