"""A plan on a cluster has the record that it has without one, whatever happens to workers."""

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Timer

import pytest

from raidproof.cluster import identity
from raidproof.cluster import workers as of_workers
from raidproof.cluster.rounds import Made, PlanJob, Request
from raidproof.core.errors import RigError
from raidproof.plan.cell import Cell
from raidproof.record.cell import Repetition
from raidproof.record.outcome import Outcome
from tests.cluster.made_up_cluster import Twice, ending_before_fetch
from tests.cluster.made_up_plan import (
    House,
    MadeUpRun,
    house,
    labs,
    maker,
    measured_by,
    plan_of,
    run_on,
    this_worker,
    tiny,
    without_time,
)

__all__ = ["house"]


@pytest.mark.usefixtures("house")
def test_the_record_is_that_of_a_run_without_a_cluster(tmp_path: Path) -> None:
    matrix = tiny(repeats=5)
    here = run_on(None, matrix, tmp_path / "0")
    assert measured_by(here) == [None] * 10
    assert plan_of(here).workers == []
    for count in (1, 3):
        with labs(count) as client:
            there = run_on(client, matrix, tmp_path / str(count))
        assert without_time(there.current_run.store) == without_time(here.current_run.store)
        assert set(measured_by(there)) <= {"0", "1", "2"}
        workers = plan_of(there).workers
        assert sum(worker.done for worker in workers) == 10
        assert {worker.name for worker in workers} == set(measured_by(there))
        for cell in there.records.values():
            for repeat in cell.repeats:
                text = (there.current_run.store.path / repeat.files["tool client1"]).read_text()
                assert text == f"{cell.name}, round {repeat.round}"


def test_a_round_is_made_by_one_worker_in_the_drawn_order(house: House, tmp_path: Path) -> None:
    with labs(3) as client:
        runner = run_on(client, tiny(repeats=6), tmp_path)
    for round_ in range(1, 7):
        mine = [(worker, cell) for worker, number, cell in house.made if number == round_]
        assert len({worker for worker, _ in mine}) == 1
        assert [cell for _, cell in mine] == [cell for number, cell in runner.order if number == round_]


def test_several_workers_are_used(house: House, tmp_path: Path) -> None:
    both = Event()

    def wait(_cell: Cell, _repeat: Repetition) -> None:
        if len({worker for worker, _, _ in house.made}) > 1:
            both.set()
        both.wait(20)

    house.happens = wait
    with labs(2) as client:
        client.wait_for_workers(2)
        runner = run_on(client, tiny(repeats=4), tmp_path)
    assert set(measured_by(runner)) == {"0", "1"}


def test_a_failed_repetition_stays_in_the_record(house: House, tmp_path: Path) -> None:
    def fail(cell: Cell, repeat: Repetition) -> None:
        if (cell.index, repeat.round) == (0, 2):
            raise RigError("the lab burned down")

    house.happens = fail
    with labs(2) as client:
        runner = run_on(client, tiny(repeats=3), tmp_path)
    first, second = runner.records.values()
    assert [repeat.rig_error for repeat in first.repeats] == [None, "the lab burned down", None]
    assert len(second.measured) == 3
    path = runner.current_run.store.path
    assert (path / "lab-round-2" / "lab1" / "console.server.log").read_text() == "booted"
    assert (path / "lab-round-2" / "raidproof.log").exists()
    assert not (path / "lab-round-1").exists()
    # The next run repeats only this repetition.
    house.made.clear()
    house.happens = lambda _cell, _repeat: None
    again = run_on(None, tiny(repeats=3), tmp_path)
    assert [made[1:] for made in house.made] == [(2, first.name)]
    assert len(again.records[first.name].measured) == 3


def test_a_run_continues_on_another_cluster(house: House, tmp_path: Path) -> None:
    def interrupt(job: PlanJob, request: Request, wanted: Callable[[], bool]) -> Made:
        if "round-3" in request.label:
            raise RigError("no such host")
        return maker(job, request, wanted)

    matrix = tiny(repeats=5)
    with labs(4) as client, pytest.raises(RigError, match=r"3 workers could not carry out round-3: .*no such host"):
        run_on(client, matrix, tmp_path, interrupt)
    before = {(round_, cell) for _, round_, cell in house.made}
    house.made.clear()
    with labs(1) as client:
        runner = run_on(client, matrix, tmp_path)
    after = {(round_, cell) for _, round_, cell in house.made}
    assert len(house.made) == len(after)
    assert (3, matrix.cells[0].name) in after
    assert not before & after or before - after
    assert all([repeat.round for repeat in cell.repeats] == [1, 2, 3, 4, 5] for cell in runner.records.values())
    refused = [worker.left_out for worker in plan_of(runner).workers if worker.left_out]
    assert refused == ["no such host"] * 3


def refuses(job: PlanJob, request: Request, wanted: Callable[[], bool]) -> Made:
    if this_worker() == "1":
        raise RigError("the lab does not boot")
    time.sleep(0.05)  # so that the other worker gets a round
    return maker(job, request, wanted)


@pytest.mark.usefixtures("house")
def test_a_round_that_a_worker_refuses_is_made_by_another(tmp_path: Path) -> None:
    with labs(2) as client:
        client.wait_for_workers(2)
        runner = run_on(client, tiny(repeats=6), tmp_path, refuses)
    assert set(measured_by(runner)) == {"0"}
    assert all(len(cell.measured) == 6 for cell in runner.records.values())
    [out] = [worker for worker in plan_of(runner).workers if worker.left_out]
    assert (out.name, out.left_out, out.done) == ("1", "the lab does not boot", 0)


@pytest.mark.usefixtures("house")
def test_a_worker_with_another_version_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "raidproof.cluster.round_tasks.version", lambda: "1-other" if this_worker() == "0" else identity.version()
    )
    with labs(2) as client:
        client.wait_for_workers(2)
        runner = run_on(client, tiny(repeats=4), tmp_path)
    out = [worker for worker in plan_of(runner).workers if worker.left_out]
    assert [one.name for one in out] == ["0"] or out == []
    assert set(measured_by(runner)) == {"1"}


def test_a_round_of_a_worker_that_dies_is_made_by_another(house: House, tmp_path: Path) -> None:
    with labs(2) as client:
        client.wait_for_workers(2)
        gone = client.cluster.workers[1]
        died = Event()

        def die(_cell: Cell, _repeat: Repetition) -> None:
            if this_worker() == "1" and not died.is_set():
                died.set()
                client.cluster.loop.add_callback(gone.close, nanny=False, executor_wait=False)
                time.sleep(1)

        house.happens = die
        runner = run_on(client, tiny(repeats=6), tmp_path)
    assert died.is_set()
    assert all([repeat.round for repeat in cell.repeats] == [1, 2, 3, 4, 5, 6] for cell in runner.records.values())


def test_a_result_whose_worker_ends_before_it_is_fetched_is_made_again(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with labs(2) as client:
        client.wait_for_workers(2)
        ended = ending_before_fetch(client, monkeypatch)
        runner = run_on(client, tiny(repeats=4), tmp_path)
    assert len(ended) == 1
    assert len(house.made) > 8
    assert all([repeat.round for repeat in cell.repeats] == [1, 2, 3, 4] for cell in runner.records.values())


def test_a_round_waits_for_another_worker_if_the_only_one_ends(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_workers, "FETCH_S", 0.5)
    with labs(1) as client:
        ended = ending_before_fetch(client, monkeypatch)
        # The job, which only this worker has, is lost; another worker comes later.
        comes = Timer(3.0, client.cluster.scale, args=(2,))
        comes.start()
        runner = run_on(client, tiny(repeats=2), tmp_path)
        comes.join()
    assert ended == ["0"]
    assert len(house.made) > 4
    assert all([repeat.round for repeat in cell.repeats] == [1, 2] for cell in runner.records.values())


@pytest.mark.usefixtures("house")
def test_a_result_that_arrives_twice_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raidproof.cluster.round_pool.SimpleQueue", Twice)
    before = Twice.doubled
    with labs(2) as client:
        runner = run_on(client, tiny(repeats=4), tmp_path)
    assert Twice.doubled == before + 4
    assert all([repeat.round for repeat in cell.repeats] == [1, 2, 3, 4] for cell in runner.records.values())
    assert sum(worker.done for worker in plan_of(runner).workers) == 8


def test_a_cluster_without_a_slot_for_labs_ends_the_run(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raidproof.cluster.slots.slots_of", lambda: {"checker": 1.0})
    with labs(1) as client:
        client.run(lambda dask_worker: dask_worker.state.total_resources.clear())
        for worker in client.cluster.workers.values():
            client.cluster.sync(worker.set_resources, lab=0)
        with pytest.raises(RigError, match="no worker left"):
            run_on(client, tiny(repeats=1), tmp_path, wait_s=0.5)
    assert house.made == []


def until_unwanted(job: PlanJob, request: Request, wanted: Callable[[], bool]) -> Made:
    STARTED.set()
    while wanted():
        time.sleep(0.05)
    ENDED.set()
    return maker(job, request, lambda: True)


STARTED, ENDED = Event(), Event()


@pytest.mark.usefixtures("house")
def test_an_interruption_ends_the_labs_of_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_workers: object) -> None:
        if STARTED.is_set():
            raise KeyboardInterrupt

    monkeypatch.setattr(of_workers.Workers, "poll", interrupt)
    with labs(1) as client:
        with pytest.raises(KeyboardInterrupt):
            run_on(client, tiny(repeats=2), tmp_path, until_unwanted)
        assert ENDED.wait(20)


@pytest.mark.usefixtures("house")
@pytest.mark.parametrize("workers", [1, 2])
def test_power_cuts_have_controls_on_the_same_worker(tmp_path: Path, workers: int) -> None:
    with labs(workers) as client:
        client.wait_for_workers(workers)
        runner = run_on(client, tiny(repeats=1, cut="power"), tmp_path)
    record, path = runner.current_run.record, runner.current_run.store.path
    names = [cycle.name for cycle in record.cycles]
    parts = ["", "-part2"][:workers]
    assert sorted(names) == sorted(
        ["cut-000", "cut-001", *(f"control-{one}{part}" for part in parts for one in ("lying-disks", "clean-reboot"))]
    )
    assert {cell.cycle for cell in runner.records.values()} == {"cut-000", "cut-001"}
    assert all((path / name / "write.log").exists() for name in names)
    # A resumed run has nothing left to do.
    with labs(1) as client:
        again = run_on(client, tiny(repeats=1, cut="power"), tmp_path)
    assert [cycle.name for cycle in again.current_run.record.cycles] == names


@pytest.mark.usefixtures("house")
def test_no_power_is_cut_if_a_control_misbehaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MadeUpRun, "control_ends", Outcome.INVALID)
    with labs(1) as client:
        runner = run_on(client, tiny(repeats=1, cut="power"), tmp_path)
    assert {cell.cycle for cell in runner.records.values()} == {None}
    assert len(runner.current_run.record.cycles) == 2
