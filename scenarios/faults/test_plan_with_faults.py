"""A plan with a schedule of faults: the crash test of a cell has these faults instead of one power cut."""

from raidproof.plan.cell import matrix_of
from raidproof.plan.plan import read_plan
from raidproof.pytest_plugin.fixtures import CrashTestRunner
from raidproof.run.plan_runner import cut_of

PLAN = {
    "hardware": {"disks": {"count": 4, "size": "288MiB"}, "clients": 2},
    "fixed": {"level": 10, "export": "sync", "delegations": False},
    "workload": {"tool": "dd"},
    "run": {"cut": "power", "workers": ["fsync", "close", "metadata", "o_append"]},
    "fault": [
        {"kind": "network-cut", "held_s": 0.5, "at": "500ms", "every": 2},
        {"kind": "power-cut", "policy": "random", "seed": 3, "at": 3},
        {"kind": "power-cut", "in_recovery": "assemble"},
    ],
}


def test_a_cell_of_a_plan_has_its_faults_in_their_order(cycle: CrashTestRunner) -> None:
    matrix = matrix_of(read_plan(PLAN, source="plan"))
    ended = cycle.run(cut_of(matrix.plan, matrix.cells[0], "plan-with-faults")).must_keep_every_promise()
    assert [one.fault for one in ended.record.injected] == ["network-cut"] * 2 + ["power-cut"] * 2
    assert ended.record.injected[-1].after_stage == "assemble"
