"""The history of a cell: which runs belong together, their order, and the changes of level."""

import random
from collections.abc import Callable, Mapping

import pytest

from raidproof.core.errors import RequestError
from raidproof.record.run import RunRecord
from raidproof.record.worker import WorkerRecord
from raidproof.verdict.change.history import Order, histories, version_key
from tests.stored_runs import ASYNC, SYNC, run_with


def series(number: int = 30, step_at: int = 20, step: float = 0.9, seed: int = 1) -> list[RunRecord]:
    """Return runs on consecutive days, with a step and another kernel from run ``step_at`` on."""
    generator = random.Random(seed)
    runs = []
    for day in range(number):
        level = 100 * (step if day >= step_at else 1) * generator.lognormvariate(0, 0.01)
        kernel = "6.19.3" if day >= step_at else "6.12.101"
        runs.append(run_with([level * generator.lognormvariate(0, 0.01) for _ in range(3)], day=day, kernel=kernel))
    return runs


def test_a_step_is_found_with_its_runs_and_kernels() -> None:
    runs = series()
    [history] = histories(runs, SYNC)
    [change] = history.changes
    assert (change.after, change.run) == (runs[19].run, runs[20].run)
    assert change.slower
    assert change.ratio == pytest.approx(0.9, abs=0.04)
    assert [point.run for point in history.points] == [run.run for run in runs]


def test_equal_runs_have_no_change() -> None:
    [history] = histories(series(step=1), SYNC)
    assert history.changes == []


def test_by_kernel_a_change_begins_with_a_kernel() -> None:
    runs = series()
    # The newer kernel was tested first: the order of the dates does not matter.
    for run, day in zip(runs, [*range(20, 30), *range(20)], strict=False):
        run.started = runs[0].started.replace(month=1, day=day + 1)
    [history] = histories(runs, SYNC, Order.KERNEL)
    kernels = [point.kernel for point in history.points]
    assert kernels == ["6.12.101"] * 20 + ["6.19.3"] * 10
    [change] = history.changes
    assert next(point.kernel for point in history.points if point.run == change.run) == "6.19.3"


def test_versions_are_in_the_order_of_their_numbers() -> None:
    versions = ["6.12.101", "6.1.176", "7.2.7", "6.12.9", "6.9", "", "6.12.101-dirty"]
    ordered = ["", "6.1.176", "6.9", "6.12.9", "6.12.101", "6.12.101-dirty", "7.2.7"]
    assert sorted(versions, key=version_key) == ordered


def test_a_pattern_selects_several_cells() -> None:
    assert [one.cell for one in histories(series(3), "export=*")] == [SYNC, ASYNC]


def test_other_hardware_is_another_history() -> None:
    runs = series(6)
    for run in runs[4:]:
        for disk in run.topology["disks"]:
            disk["profile"] = "ssd-sata"
    newest, older = histories(runs, SYNC)
    assert (len(newest.points), len(older.points)) == (2, 4)
    assert newest.differs == []
    assert "disks.0.profile = hdd-7200-sata, newest: ssd-sata" in older.differs


def test_another_host_is_another_history() -> None:
    runs = series(4)
    assert runs[0].environment is not None
    runs[0].environment.host_cpu = "another CPU"
    assert [len(one.points) for one in histories(runs, SYNC)] == [3, 1]


SPEEDS = {"a": 100.0, "b": 60.0}
"""What the hosts of workers measure, by name."""


def on_workers(days: int, hosts: Callable[[int], Mapping[str, str]]) -> list[RunRecord]:
    """Return runs on clusters; ``hosts`` returns the host of each worker by name on a day, in the order of rounds."""
    generator, runs = random.Random(1), []
    for day in range(days):
        mine = hosts(day)
        run = run_with([SPEEDS[host] * generator.lognormvariate(0, 0.01) for host in mine.values()], day=day)
        assert run.plan is not None
        run.plan.workers = [
            WorkerRecord(name=name, host=host, cpu="x", cores=2, kernel="6", load=0.0, version="1")
            for name, host in mine.items()
        ]
        for cell in run.cells:
            for repeat, name in zip(cell.repeats, mine, strict=True):
                repeat.worker = name
        runs.append(run)
    return runs


def test_each_machine_of_a_cluster_has_a_history_of_its_own() -> None:
    # First most rounds are of the fast machine, then most are of the slow one: the medians of the runs differ.
    fast, slow = {"0": "a", "1": "a", "2": "b"}, {"0": "b", "1": "b", "2": "a"}
    runs = on_workers(30, lambda day: fast if day < 15 else slow)
    found = histories(runs, SYNC)
    assert {one.worker_host for one in found} == {"a", "b"}
    for history in found:
        assert len(history.tested) == 30
        assert all(point.median == pytest.approx(SPEEDS[history.worker_host], rel=0.05) for point in history.points)
        assert history.changes == []
    assert any("host.name = " in said for said in found[1].differs)


def test_one_name_on_two_machines_is_no_history() -> None:
    runs = on_workers(30, lambda day: {"0": "a" if day < 15 else "b"})
    assert [len(one.points) for one in histories(runs, SYNC)] == [15, 15]
    for run in runs:
        assert run.plan is not None
        # The run was continued on another cluster, and its record does not tell them apart.
        run.plan.workers.append(run.plan.workers[0].model_copy(update={"host": "c"}))
    found = histories(runs, SYNC)
    assert [len(one.points) for one in found] == [1] * 30
    assert not any(one.changes for one in found)


def test_values_without_a_cluster_are_apart_from_those_of_workers() -> None:
    runs = [*series(4), *on_workers(4, lambda _: {"0": "a"})]
    assert [(one.worker_host, len(one.points)) for one in histories(runs, SYNC)] == [("", 4), ("a", 4)]


def test_a_value_of_the_rig_is_shown_and_not_tested() -> None:
    runs = [*series(), run_with([50, 51], day=40, limit="engine")]
    [history] = histories(runs, SYNC)
    assert len(history.points) == 31
    assert len(history.tested) == 30
    assert not history.points[-1].tested


def test_a_cell_that_no_run_has_names_the_nearest() -> None:
    with pytest.raises(RequestError, match="did you mean 'export=sync'"):
        histories(series(2), "export=snyc")
    with pytest.raises(RequestError, match="no stored run has measured a cell"):
        histories([], SYNC)


def test_lower_values_of_a_duration_are_faster() -> None:
    runs = series()
    for run in runs:
        run.cells[0].unit = "write_latency_us"
    [change] = histories(runs, SYNC)[0].changes
    assert not change.slower
