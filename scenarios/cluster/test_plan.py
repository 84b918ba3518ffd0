"""A plan on two workers of this host has the record of a run without a cluster, and an interruption ends all labs."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from raidproof.core.errors import Status
from raidproof.core.waiting import Deadline, wait_until
from raidproof.record import RunRecord
from raidproof.record.comparison import BASE, NEW, ComparisonRecord
from raidproof.record.exploration import ExplorationRecord
from raidproof.record.outcome import Outcome

PLAN = """
title = "two levels on two workers"
hardware = { disks = { count = 4, size = "512MiB" } }
axes = { level = [5, 10] }
workload = { tool = "dd", count = 64 }
run = { repeats = 2, cut = "power", allow_cache = true, reference = false }
"""
EXPLORED = """
title = "crash states of two levels on two workers"
hardware = { disks = { count = 4, size = "512MiB" } }
axes = { level = [5, 10] }
workload = { tool = "dd", count = 64 }
run = { repeats = 1, cut = "explore", explore_states = 10, allow_cache = true, reference = false }
"""
COMPARED = """
title = "two kernels on two workers"
hardware = { disks = { count = 4, size = "512MiB" } }
axes = { level = [5] }
workload = { tool = "dd", count = 64 }
run = { repeats = 2, allow_cache = true, reference = false }
"""
SIDES = {BASE: "debian/bookworm", NEW: "debian/trixie"}
RUN_S, START_S, END_S = 600.0, 120.0, 90.0


def started(plan: Path, *options: str, command: str = "run") -> "subprocess.Popen[bytes]":
    """Start a command on a plan, on two workers."""
    words = [command, str(plan), "--cluster", "local:2", "--results", str(plan.parent), *options]
    return subprocess.Popen([sys.executable, "-P", "-m", "raidproof", *words], start_new_session=True)


def record_in(results: Path) -> RunRecord:
    (path,) = results.glob("*-plan/report.json")
    return RunRecord.model_validate(json.loads(path.read_text()))


def labs_of(process: int) -> list[int]:
    """Return the processes below a process that carry out rounds."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            parents = (entry / "environ").read_bytes()
        except OSError:
            continue
        if b"raidproof.cluster.round_process" in words and f"RAIDPROOF_SCENARIO={process}".encode() in parents:
            found.append(int(entry.name))
    return found


@pytest.mark.exhaustive
def test_two_workers_measure_a_plan(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    process = started(plan)
    assert process.wait(RUN_S) in {Status.PASS, Status.INCONCLUSIVE}
    record = record_in(tmp_path)
    assert record.plan is not None
    assert all([repeat.round for repeat in cell.repeats] == [1, 2] for cell in record.cells)
    assert all(repeat.rig_error is None for cell in record.cells for repeat in cell.repeats)
    cuts = [one for one in record.cycles if one.control is None]
    assert cuts
    assert all(one.explored for one in cuts), "the worker checks crash states of each power cut"
    for round_ in (1, 2):
        makers = {repeat.worker for cell in record.cells for repeat in cell.repeats if repeat.round == round_}
        assert len(makers) == 1
        assert makers <= {worker.name for worker in record.plan.workers}
    assert {cell.lost_operations for cell in record.cells} == {0}
    (path,) = tmp_path.glob("*-plan")
    assert all((path / (cycle.files.write_log or "missing")).is_file() for cycle in record.cycles)
    assert all((path / file).is_file() for cell in record.cells for one in cell.repeats for file in one.files.values())


@pytest.mark.exhaustive
def test_workers_explore_the_power_cuts_of_a_plan(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(EXPLORED)
    assert started(plan).wait(RUN_S) in {Status.PASS, Status.INCONCLUSIVE}
    record = record_in(tmp_path)
    (path,) = tmp_path.glob("*-plan")
    assert len(record.cells) == 2
    for cell in record.cells:
        assert cell.explored is not None
        assert (cell.explored.judged, cell.explored.broken) == (10, 0)
        # Ten states may contain too few operations of some kind.
        assert cell.explored.outcome in {Outcome.PASS, Outcome.INCONCLUSIVE}
        stored = ExplorationRecord.model_validate_json((path / (cell.explored.file or "missing")).read_text())
        assert (stored.cycle, stored.checked) == (cell.cycle, 10)


@pytest.mark.exhaustive
def test_one_worker_measures_both_sides_of_a_round(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(COMPARED)
    sides = [f"--{side}=server.kernel={kernel}" for side, kernel in SIDES.items()]
    process = started(plan, *sides, "--repeats", "2", command="ab")
    # Two repetitions decide nothing.
    assert process.wait(RUN_S) == Status.INCONCLUSIVE
    (path,) = tmp_path.glob("*-ab/comparison.json")
    compared = ComparisonRecord.model_validate_json(path.read_text())
    [pair] = compared.pairs
    assert pair.base.rounds == pair.new.rounds == [1, 2]
    assert pair.base.workers == pair.new.workers
    assert set(pair.base.workers) <= {"0", "1"}
    kernels = {}
    for side in SIDES:
        (stored,) = tmp_path.glob(f"*-plan-{side}/report.json")
        kernels[side] = RunRecord.model_validate_json(stored.read_text()).server_kernel
    assert kernels[BASE].startswith("6.1.")
    assert kernels[NEW].startswith("6.12.")


@pytest.mark.exhaustive
def test_an_interruption_ends_the_labs_of_all_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAIDPROOF_SCENARIO", str(os.getpid()))
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    process = started(plan)
    wait_until(lambda: labs_of(os.getpid()), Deadline.after(START_S), "the process of a round")
    process.send_signal(signal.SIGINT)
    assert process.wait(END_S) == Status.INTERRUPTED
    wait_until(lambda: not labs_of(os.getpid()), Deadline.after(END_S), "the end of the processes of all rounds")
    record = record_in(tmp_path)
    assert record.ended_early is not None
    # The same command continues the run, here without a cluster.
    words = ["run", str(plan), "--resume", "--results", str(tmp_path)]
    done = subprocess.run([sys.executable, "-P", "-m", "raidproof", *words], timeout=RUN_S, check=False)
    assert done.returncode in {Status.PASS, Status.INCONCLUSIVE}
    assert all(len(cell.measured) == 2 for cell in record_in(tmp_path).cells)
