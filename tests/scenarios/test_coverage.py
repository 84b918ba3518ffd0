import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from raidproof.cli.main import main
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.storage.stack import Stack
from scenarios.coverage import COMMANDS, Axis, Execution, Recorder, Row, recording, required, rows_of_crash_test

STORED = Path(__file__).resolve().parents[1] / "data" / "run" / "report.json"
LAYERS = {
    Row(Axis.ARRAY, "md"),
    Row(Axis.LEVEL, "5"),
    Row(Axis.MEMBER, "disk"),
    Row(Axis.VOLUME, "direct"),
    Row(Axis.FILESYSTEM, "xfs"),
    Row(Axis.SERVER, "knfsd"),
    Row(Axis.NFS, "4.2"),
}


def stored_run() -> dict[str, Any]:
    run: dict[str, Any] = json.loads(STORED.read_text())
    return run


def crash_test(**changes: Any) -> set[Row]:
    return set(rows_of_crash_test({**stored_run()["cycles"][0], **changes}))


def verdict(outcome: str) -> dict[str, Any]:
    return {"kind": "fsync", "outcome": outcome}


def test_a_crash_test_has_its_layers_and_its_fault() -> None:
    assert crash_test() >= {*LAYERS, Row(Axis.EXECUTION, Execution.CRASH_TEST), Row(Axis.FAULT, "power-cut")}


def test_a_fault_without_proof_was_not_exercised() -> None:
    assert Row(Axis.FAULT, "power-cut") not in crash_test(fault_proof=None)


def test_a_fault_from_before_the_work_is_exercised() -> None:
    assert Row(Axis.FAULT, "rebuilding") in crash_test(during=[{"fault": "rebuilding"}])


@pytest.mark.parametrize(("outcome", "judged"), [("PASS", True), ("FAIL", True), ("INCONCLUSIVE", False)])
def test_a_promise_counts_if_it_was_judged(outcome: str, *, judged: bool) -> None:
    assert (Row(Axis.PROMISE, "fsync") in crash_test(verdicts=[verdict(outcome)])) == judged


def test_a_control_is_no_crash_test() -> None:
    rows = crash_test(control={"expects_loss": True})
    assert Row(Axis.EXECUTION, Execution.CONTROL) in rows
    assert Row(Axis.EXECUTION, Execution.CRASH_TEST) not in rows


def test_a_scenario_has_what_its_runs_added(tmp_path: Path) -> None:
    run = stored_run()
    store = tmp_path / "run" / "report.json"
    store.parent.mkdir()
    recorder = Recorder()
    store.write_text(json.dumps(run))
    recorder.read([tmp_path])
    assert recorder.rows >= {*LAYERS, Row(Axis.PROVIDER, "uml")}

    recorder.begin()
    recorder.read([tmp_path])
    assert recorder.rows == set()

    recorder.begin()
    run["cycles"].append({**run["cycles"][0], "name": "another", "fault": "reboot"})
    store.write_text(json.dumps(run))
    recorder.read([tmp_path])
    assert Row(Axis.FAULT, "reboot") in recorder.rows
    assert Row(Axis.FAULT, "power-cut") not in recorder.rows


def test_explorations_count_if_they_judged_a_state(tmp_path: Path) -> None:
    recorder = Recorder()
    for name, content in {
        "explore-none.json": {"judged": 0},
        "explore-some.json": {"judged": 3, "second_cuts": {"asked": 1}},
        "advice.json": {},
    }.items():
        (tmp_path / name).write_text(json.dumps(content))
    recorder.read([tmp_path])
    assert recorder.rows == {
        Row(Axis.EXECUTION, execution) for execution in (Execution.EXPLORATION, Execution.SECOND_CUT, Execution.ADVICE)
    }


def test_a_stack_that_went_online_counts_without_a_record() -> None:
    recorder = Recorder()
    recorder.online(stack_of())
    assert recorder.rows == LAYERS


def test_commands_count_in_this_process_and_in_others(capfd: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder()
    before = Stack.activate
    with recording(recorder):
        assert main(["explore", "--help"]) == 0
        subprocess.run([sys.executable, "-m", "raidproof", "demo", "--help"], check=True)
        assert Stack.activate is not before
    assert main(["teach", "--help"]) == 0
    assert recorder.rows == {Row(Axis.COMMAND, "explore"), Row(Axis.COMMAND, "demo")}
    assert Stack.activate is before


def test_the_table_has_each_kind_once() -> None:
    table = required(["scenarios/test_x.py::test_y"])
    assert len(table) == len(set(table))
    assert {*LAYERS, Row(Axis.PLANT, "scenarios/test_x.py::test_y"), Row(Axis.COMMAND, COMMANDS[0])} <= set(table)
    assert all(Row.parse(str(row)) == row for row in table)
