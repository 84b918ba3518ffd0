"""Plans and comparisons on a cluster: what workers cannot do is refused, and both sides are measured by one worker."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raidproof.cluster.plans import LONGEST_ROUND_S, OnWorkers, distinct, job_of, require_movable, round_of
from raidproof.cluster.round_pool import RoundPool
from raidproof.cluster.round_process import end, environment, made_in_process
from raidproof.cluster.rounds import ALONE, Made, PlanJob, Request, RoundRequest
from raidproof.cluster.spec import ClusterSpec
from raidproof.core.errors import RequestError, RigError
from raidproof.core.topology import Platform, SoftwareSpec
from raidproof.plan.cell import Cell, Matrix, matrix_of
from raidproof.plan.plan import read_plan
from raidproof.record.cell import Repetition
from raidproof.record.comparison import BASE, NEW, PairFinding
from raidproof.record.worker import WorkerRecord
from raidproof.run.comparison import Effort, measure
from raidproof.run.plan_runner import PlanRunner
from raidproof.verdict.cell import judge_cells
from raidproof.verdict.change.comparison import compare
from tests.cluster.made_up_plan import House, MadeUpRun, house, labs, maker, runner_of, this_worker, tiny

__all__ = ["house"]
DEFAULT, NO_MORE = Platform(), Effort()


def plan_with(**parts: Any) -> Matrix:
    document = {"workload": {"tool": "dd"}, "axes": {"level": [5, 10]}, **parts}
    return matrix_of(read_plan(document, source="here.toml", name="here"))


def movable(matrix: Matrix, platform: Platform = DEFAULT, sides: int = 1) -> None:
    require_movable(matrix, [matrix.plan.hardware.topology(platform)] * sides)


def test_a_usual_plan_is_made_by_workers() -> None:
    movable(tiny())


@pytest.mark.parametrize(
    ("platform", "said"),
    [
        (Platform(server=SoftwareSpec(kernel="/boot/vmlinuz")), "/boot/vmlinuz is a file of this host"),
        (Platform(clients=SoftwareSpec(packages=("a.deb",))), "a.deb is a file of this host"),
    ],
)
def test_software_of_this_host_is_refused(platform: Platform, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        movable(tiny(), platform)


def test_workers_on_this_host_have_its_files(tmp_path: Path) -> None:
    platform = Platform(server=SoftwareSpec(kernel="/boot/vmlinuz"), clients=SoftwareSpec(packages=("a.deb",)))
    profiles = Path(sys.modules["raidproof"].__file__ or "").parent / "disk" / "profiles"
    mine = tmp_path / "mine.toml"
    mine.write_text((profiles / "hdd-7200-sata.toml").read_text())
    matrix = plan_with(hardware={"disks": {"count": 4, "profile": str(mine)}})
    topology = matrix.plan.hardware.topology(platform)
    require_movable(matrix, [topology], files=False)
    with pytest.raises(RequestError, match="is a file of this host"):
        require_movable(matrix, [topology], files=True)


@pytest.mark.parametrize(("cluster", "here"), [("local:2", True), ("tls://scheduler:8786", False)])
def test_only_a_local_cluster_has_this_hosts_files(cluster: str, here: bool) -> None:
    assert ClusterSpec.read(cluster).on_this_host is here


def test_a_disk_profile_of_this_host_is_refused(tmp_path: Path) -> None:
    profiles = Path(sys.modules["raidproof"].__file__ or "").parent / "disk" / "profiles"
    mine = tmp_path / "mine.toml"
    mine.write_text((profiles / "hdd-7200-sata.toml").read_text())
    movable(plan_with(hardware={"disks": {"count": 4, "profile": "hdd-7200-sata"}}))
    with pytest.raises(RequestError, match=r"mine\.toml is a file of this host"):
        movable(plan_with(hardware={"disks": {"count": 4, "profile": str(mine)}}))


def test_an_application_of_this_host_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "mine.py"
    program.write_text("")
    application = {"tool": "command", "run": ["python3", "mine.py"], "check": ["true"], "files": [str(program)]}
    with pytest.raises(RequestError, match=r"mine\.py is a file of this host"):
        movable(plan_with(workload=application))


def test_a_round_that_takes_too_long_is_refused() -> None:
    fio = {"tool": "fio", "rw": "write", "runtime_s": 700}
    movable(plan_with(workload=fio))
    with pytest.raises(RequestError, match=r"takes about 47 min, more than 30 min; the longest cell, level=5, .*-k"):
        movable(plan_with(workload=fio), sides=2)
    assert sum(round_of(plan_with(workload=fio), 1).values()) < LONGEST_ROUND_S


def sides_of(matrix: Matrix, folder: Path) -> list[PlanRunner]:
    return [runner_of(matrix, folder, side) for side in (BASE, NEW)]


def compare_on(client: Any, sides: list[PlanRunner], effort: Effort = NO_MORE) -> None:
    named = dict(zip((BASE, NEW), sides, strict=True))
    with RoundPool[Request, Made](client, job_of(named), maker) as pool:
        measure(sides, effort, OnWorkers(pool, named))


def different(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let both sides request different software."""
    monkeypatch.setattr("raidproof.verdict.change.comparison.asked_alike", lambda *_: False)


def test_one_worker_measures_both_sides_of_a_round(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    different(monkeypatch)
    house.speeds = {"1": 3.0}
    sides = sides_of(tiny(repeats=8), tmp_path)
    with labs(2) as client:
        client.wait_for_workers(2)
        compare_on(client, sides)
    base, new = (side.current_run.record for side in sides)
    for round_ in range(1, 9):
        assert len({worker for worker, number, _ in house.made if number == round_}) == 1
    for record in (base, new):
        judge_cells(record)
        assert all([repeat.round for repeat in cell.repeats] == [*range(1, 9)] for cell in record.cells)
    for pair in compare(base, new, name="").pairs:
        assert pair.finding is not PairFinding.SLOWER
        assert pair.change is not None
        assert pair.change.ratio == pytest.approx(1)


def test_sides_with_the_same_software_are_not_measured(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    different(monkeypatch)
    monkeypatch.setattr(MadeUpRun, "kernels", {BASE: "6.1", NEW: "6.1"})
    sides = sides_of(tiny(repeats=3), tmp_path)
    with labs(1) as client:
        compare_on(client, sides)
    assert house.made == []
    assert all(side.current_run.record.environment is not None for side in sides)


def test_undecided_cells_get_more_rounds(house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    different(monkeypatch)
    decided = [["level=10"], []]
    monkeypatch.setattr("raidproof.run.comparison.undecided", lambda *_: decided.pop(0))
    sides = sides_of(tiny(repeats=2), tmp_path)
    with labs(2) as client:
        compare_on(client, sides, Effort(most_repeats=4))
    for side in sides:
        assert {name: len(cell.measured) for name, cell in side.records.items()} == {"level=5": 2, "level=10": 3}


def test_a_side_that_fails_is_repeated_by_nobody(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    different(monkeypatch)

    def fail(cell: Cell, repeat: Repetition) -> None:
        if cell.index == 0 and len(house.made) % 2:
            raise RigError(f"no lab on {this_worker()}")

    house.happens = fail
    sides = sides_of(tiny(repeats=2), tmp_path)
    with labs(1) as client:
        compare_on(client, sides)
    errors = [repeat.rig_error for side in sides for cell in side.records.values() for repeat in cell.repeats]
    assert "no lab on 0" in errors
    assert len(errors) == 8


def test_a_worker_on_another_machine_does_not_get_the_name_of_an_earlier_one() -> None:
    worker = WorkerRecord(name="0", host="a", cpu="c", cores=1, kernel="k", load=0.0, version="v")
    other = worker.model_copy(update={"host": "b"})
    assert distinct(worker, []).name == distinct(worker, [worker]).name == "0"
    assert distinct(other, [worker]).name == "0 on b"
    assert distinct(other, [worker]) is not other


@pytest.mark.parametrize(("wanted", "said"), [(lambda: True, "nowhere"), (lambda: False, "nowhere|ended with status")])
def test_an_error_in_the_process_of_a_request_is_an_error_of_the_request(
    wanted: Callable[[], bool], said: str, tmp_path: Path
) -> None:
    runner = runner_of(tiny(), tmp_path)
    topology = runner.current_run.topology.model_copy(update={"provider": "nowhere"})
    job = PlanJob(runner.matrix, runner.record, {ALONE: topology}, {ALONE: ""})
    with pytest.raises(RigError, match=said):
        made_in_process(job, RoundRequest(1, ((ALONE, "level=5"),)), wanted)


def test_without_the_option_dask_is_not_imported() -> None:
    script = (
        "import sys, raidproof.cli.main, raidproof.run.plan_runner, raidproof.run.comparison\n"
        "print([name for name in sys.modules if name.partition('.')[0] in {'dask', 'distributed'}"
        " or name.startswith('raidproof.cluster.round')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment()
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("killed", [False, True])
def test_the_end_of_the_worker_interrupts_the_process_of_a_request(killed: bool) -> None:
    script = (
        "import threading, time\n"
        "from raidproof.cluster.round_process import end_with_worker\n"
        "from raidproof.core.waiting import unwind_on_signals\n"
        "unwind_on_signals()\n"
        "orphaned = threading.Event()\n"
        "threading.Thread(target=end_with_worker, args=(orphaned,), daemon=True).start()\n"
        "try:\n    print('works', flush=True)\n    time.sleep(600)\n"
        "except KeyboardInterrupt as error:\n    print(error, orphaned.is_set())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"works\n"
        if killed:
            process.stdin.close()
        else:
            end(process)
        assert process.stdout.read() == f"SIGTERM {killed}\n".encode()
    assert process.returncode == 0
