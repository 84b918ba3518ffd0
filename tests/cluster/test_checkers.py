"""An exploration on a cluster has the result that it has without one, whatever happens to workers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock, Thread
from time import sleep
from typing import Any
from unittest.mock import Mock

import pytest
from dask import config

from raidproof.cluster import checkers as module
from raidproof.cluster import workers as of_workers
from raidproof.cluster.seats import Explained, Seats
from raidproof.cluster.tasks import TaskResult
from raidproof.core.errors import RigError
from raidproof.crash.exploration import Exploration
from raidproof.crash.journal import lines_of
from raidproof.crash.verdicts import VERDICTS
from raidproof.record.exploration import ColdRecord, End, Observation
from raidproof.verdict.conditions import Conditions
from tests.cluster.made_up_cluster import MadeUpRun, Twice, checkers_of, ending_before_fetch, explored, workers
from tests.crash.made_up import MadeUp, told, written


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for one in (module, of_workers):
        monkeypatch.setattr(one, "POLL_S", 0.1)
    monkeypatch.setattr(module, "MOST_STATES", 5)
    monkeypatch.setattr(module, "PROOF_EVERY", 3)


@pytest.fixture
def lying(tmp_path: Path) -> MadeUpRun:
    return MadeUpRun(MadeUp(tmp_path / "lying", written(lies_from=4), told()))


@pytest.fixture
def three() -> Iterator[Any]:
    with workers(3) as client:
        yield client


def verdicts(exploration: Exploration) -> bytes:
    """Return the table of the verdicts."""
    return exploration.journal.path.with_name(VERDICTS).read_bytes()


def failures(exploration: Exploration) -> dict[Any, Any]:
    return {group.damage: group.names for group in exploration.stats.failures()}


def without_cluster(run: MadeUpRun, folder: Path) -> Exploration:
    return MadeUp(folder, written(lies_from=4), told()).explore()


@pytest.mark.parametrize("count", [1, 3])
def test_workers_find_what_this_host_finds(lying: MadeUpRun, tmp_path: Path, count: int) -> None:
    here = without_cluster(lying, tmp_path / "here")
    with workers(count) as client:
        there = explored(lying, client)
    assert verdicts(there) == verdicts(here)
    assert failures(there) == failures(here)
    assert there.stats.judged == len(there.done) == len(there.choices.order)
    by = {line.worker for line in lines_of(there.journal.path) if line.observation is not None}
    assert by <= {str(number) for number in range(count)}
    assert sum(one.done for one in there.checkers.workers) == there.stats.checked
    assert all(one.proofs and one.left_out is None for one in there.checkers.workers)


def test_a_checker_is_booted_and_has_proved_itself_before_the_checks_begin(lying: MadeUpRun) -> None:
    with workers(1) as client, checkers_of(lying, client) as checkers:
        checkers.boot()
        [machine] = lying.made_up.checkers
        assert machine.checks == 2
        assert checkers.open == 0
        assert [(one.name, one.done, one.proofs) for one in checkers.workers] == [("0", 0, 0)]


def clean(made_up: MadeUp) -> None:
    """Let a worker's checkers find all data in each state."""
    boots = made_up.boots

    def always_clean() -> Any:
        made = boots()

        @contextmanager
        def boot(number: int) -> Iterator[Any]:
            with made(number) as checker:
                full = {"f@0": {"blocks": [99] * 4, "names": ["f"]}}
                setattr(checker, "check", lambda *_, **__: Observation(end=End.READ, found=full, ms={}))  # noqa: B010
                yield checker

        return boot

    setattr(made_up, "boots", always_clean)  # noqa: B010


def unsound_later(made_up: MadeUp) -> None:
    """Let a worker's checkers fail after some checks."""
    made: list[int] = []

    def before(number: int) -> None:
        made.append(number)
        # Two checks are the first proof.
        if len(made) > 12:
            raise RigError("the disk is full")

    made_up.before_check = before


def test_a_worker_that_finds_no_loss_is_left_out(lying: MadeUpRun, three: Any, tmp_path: Path) -> None:
    lying.planted["1"] = clean
    there = explored(lying, three)
    assert verdicts(there) == verdicts(without_cluster(lying, tmp_path / "here"))
    left_out = {one.name: one.left_out for one in there.checkers.workers if one.left_out}
    assert list(left_out) == ["1"]
    assert "was not found" in str(left_out["1"]) or "clean" in str(left_out["1"])
    assert "1" not in {line.worker for line in lines_of(there.journal.path)}


def test_a_result_that_arrives_after_its_worker_was_left_out_does_not_count(
    lying: MadeUpRun, three: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lying.planted["2"] = unsound_later
    leave_out, late = module.ClusterCheckers._leave_out, list[bool]()

    def with_late_result(of: module.ClusterCheckers, done: TaskResult, task: module.Task | None) -> None:
        leave_out(of, done, task)
        future = Mock()
        of._tasks[future] = of._waiting.pop()
        of._take(future, replace(done, result=b""))
        late.append(done.session in of._unproved)

    monkeypatch.setattr(module.ClusterCheckers, "_leave_out", with_late_result)
    there = explored(lying, three)
    assert late
    assert not any(late)
    assert verdicts(there) == verdicts(without_cluster(lying, tmp_path / "here"))
    assert "it is gone" not in {one.left_out for one in there.checkers.workers}


def test_a_worker_that_becomes_unsound_loses_its_results(lying: MadeUpRun, three: Any, tmp_path: Path) -> None:
    lying.planted["2"] = unsound_later
    there = explored(lying, three)
    assert verdicts(there) == verdicts(without_cluster(lying, tmp_path / "here"))
    assert {one.name for one in there.checkers.workers if one.left_out} == {"2"}
    states = [line.choice for line in lines_of(there.journal.path)]
    assert len(states) == len(set(states))


def test_without_a_sound_worker_the_exploration_ends(lying: MadeUpRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_workers, "FETCH_S", 1.0)
    lying.planted["0"] = clean
    with workers(1) as client, pytest.raises(RigError, match="no worker left: 0: "):
        explored(lying, client, wait_s=1.0)


def test_a_worker_that_disappears_loses_its_results(lying: MadeUpRun, three: Any, tmp_path: Path) -> None:
    gone = three.cluster.workers[2]

    def leave(made_up: MadeUp) -> None:
        def before(number: int) -> None:
            if number == 9:
                three.cluster.loop.add_callback(gone.close, nanny=False, executor_wait=False)

        made_up.before_check = before

    lying.planted["2"] = leave
    there = explored(lying, three)
    assert verdicts(there) == verdicts(without_cluster(lying, tmp_path / "here"))


@pytest.mark.parametrize("count", [1, 2])
def test_a_worker_that_ends_before_its_result_is_fetched_changes_no_verdict(
    lying: MadeUpRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(of_workers, "FETCH_S", 0.5)
    # The default for the replacement of a worker that has ended is 15 s.
    with config.set({"distributed.deploy.lost-worker-timeout": "100ms"}), workers(count) as client:
        ended = ending_before_fetch(client, monkeypatch)
        # Another worker comes after the only one.
        client.cluster.adapt(minimum=count, maximum=count, interval="100ms")
        there = explored(lying, client)
    assert ended
    assert verdicts(there) == verdicts(without_cluster(lying, tmp_path / "here"))


def test_the_last_tasks_become_shorter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_TASK", 5)
    send, sizes = module.ClusterCheckers._send, list[int]()

    def noted(of: module.ClusterCheckers, task: module.Task) -> None:
        sizes.append(len(task.requests))
        send(of, task)

    monkeypatch.setattr(module.ClusterCheckers, "_send", noted)
    with workers(1, slots=2) as client:
        there = explored(MadeUpRun(MadeUp(tmp_path / "sound", written(), told())), client)
    # The first two boot a checker each.
    last = sizes[2:]
    assert last == sorted(last, reverse=True)
    assert (last[0], last[-1]) == (5, 1)
    assert sum(last) == there.stats.checked


def test_an_idle_slot_proves_itself_while_the_last_task_runs(
    lying: MadeUpRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_TASK", 1)
    check, prove_all = Seats.check, Seats.prove_all
    begun, proving = Lock(), Event()

    def waiting(mine: Seats, requests: Any) -> Any:
        # The first of the two tasks ends after the begin of a proof.
        if requests and begun.acquire(blocking=False):
            assert proving.wait(20)
        return check(mine, requests)

    def noted(mine: Seats) -> None:
        proving.set()
        prove_all(mine)

    monkeypatch.setattr(Seats, "check", waiting)
    monkeypatch.setattr(Seats, "prove_all", noted)
    with workers(1, slots=2) as client:
        there = explored(lying, client, states=2)
    assert there.stats.judged == 2
    assert not [one for one in there.checkers.workers if one.left_out]


def test_a_result_that_arrives_twice_counts_once(
    lying: MadeUpRun, three: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SimpleQueue", Twice)
    before = Twice.doubled
    there = explored(lying, three)
    assert Twice.doubled > before
    assert verdicts(there) == verdicts(without_cluster(lying, tmp_path / "here"))
    states = [line.choice for line in lines_of(there.journal.path)]
    assert len(states) == len(set(states))
    assert sum(one.done for one in there.checkers.workers) == there.stats.checked


def test_failures_are_shrunk_by_another_worker_if_the_first_one_ends(
    lying: MadeUpRun, three: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def shrink(mine: Seats, groups: Any, *_: object) -> Explained:
        tried.append(mine.name)
        return Explained([], groups, ColdRecord(), [], 0)

    monkeypatch.setattr(Seats, "explain", shrink)
    monkeypatch.setattr(of_workers, "FETCH_S", 0.5)
    ended: list[list[str]] = []

    def then(exploration: Exploration) -> None:
        ended.append(ending_before_fetch(three, monkeypatch))
        exploration.checkers.explain([], exploration.stats, lambda name: [name], 8, None)

    explored(lying, three, then=then)
    assert [tried[:1]] == ended
    assert len(set(tried)) == 2


def test_a_worker_that_lost_the_scheduler_for_a_moment_continues(
    lying: MadeUpRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PROOF_EVERY", 8)
    with workers(1) as client:
        lost: list[Thread] = []

        def lose(made_up: MadeUp) -> None:
            def before(number: int) -> None:
                if number == 9 and not lost:
                    [plugin] = [one for one in client.cluster.workers[0].plugins.values() if hasattr(one, "seats")]
                    lost.append(Thread(target=plugin.end_machines))
                    lost[0].start()

            made_up.before_check = before

        lying.planted["0"] = lose
        there = explored(lying, client)
    assert lost
    assert verdicts(there) == verdicts(without_cluster(lying, tmp_path / "here"))
    first, second = sorted(there.checkers.workers, key=lambda one: one.done)
    assert (first.done, first.left_out) in {
        (0, "it ended its machines: the scheduler did not answer"),
        (0, None),
    }
    assert second.done == there.stats.checked
    assert second.left_out is None


def test_an_exploration_continues_with_other_workers(lying: MadeUpRun, tmp_path: Path) -> None:
    with workers(2) as client:
        explored(lying, client, states=30)
    with workers(1) as client:
        there = explored(lying, client)
    assert verdicts(there) == verdicts(without_cluster(lying, tmp_path / "here"))


def test_an_async_export_can_be_proved(tmp_path: Path, three: Any) -> None:
    late = told()
    early = type(late)(one._replace(ended_ns=one.issued_ns + 1) for one in late.operations)
    run = MadeUpRun(MadeUp(tmp_path / "async", written(), early, sync=False))
    assert run.made_up.oracle.conditions == Conditions(export_sync=False)
    there = explored(run, three)
    assert not there.stats.broken
    assert there.stats.loss is not None
    assert not [one for one in there.checkers.workers if one.left_out]


def test_the_first_proofs_of_workers_are_spread() -> None:
    due = [module.first_proof_after(number) for number in range(6)]
    assert due == [3, 2, 1, 3, 2, 1]


def test_several_passes_through_the_recording_find_the_same(
    lying: MadeUpRun, three: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STATES_EACH", 2)
    there = explored(lying, three)
    here = without_cluster(lying, tmp_path / "here")
    assert len(there.choices.order) > there.checkers.batch == 6
    assert sorted(verdicts(there).splitlines()) == sorted(verdicts(here).splitlines())
    assert there.checkers.open == 0


def test_answers_that_are_there_are_judged_before_further_states_are_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_TASK", 1)
    monkeypatch.setattr(module, "PROOF_EVERY", 1)
    submit, proved = module.ClusterCheckers.submit, list[bool]()

    def noted(of: module.ClusterCheckers, request: Any) -> None:
        # Results and proofs arrive between two requests.
        sleep(0.02)
        proved.append(bool(of._proved))
        submit(of, request)

    monkeypatch.setattr(module.ClusterCheckers, "submit", noted)
    take, kept = module.ClusterCheckers._confirm, list[int]()

    def confirmed(of: module.ClusterCheckers, unproved: module.Unproved) -> None:
        take(of, unproved)
        kept.append(len(of._proved))

    monkeypatch.setattr(module.ClusterCheckers, "_confirm", confirmed)
    with workers(1) as client:
        there = explored(MadeUpRun(MadeUp(tmp_path / "sound", written(), told())), client)
    assert there.stats.judged == len(there.choices.order)
    assert any(kept)
    assert not any(proved)
