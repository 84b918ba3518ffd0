"""What a run does with its lab after a crash test with an error."""

from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from raidproof.core.errors import RequestError, RigError
from raidproof.core.topology import server_and_clients
from raidproof.record import run_lock
from raidproof.record.entry import State
from raidproof.record.index import Index
from raidproof.record.outcome import Outcome
from raidproof.run import run as module
from raidproof.run.demo import demo_cycles
from raidproof.run.run import Run


@pytest.fixture
def labs(monkeypatch: pytest.MonkeyPatch) -> list[MagicMock]:
    """Return the fake labs that the run has started."""
    begun: list[MagicMock] = []

    def lab_of(*_: Any, **__: Any) -> MagicMock:
        lab = MagicMock()
        lab.__enter__.return_value = lab
        begun.append(lab)
        return lab

    monkeypatch.setattr(module, "lab_of", lab_of)
    monkeypatch.setattr(module, "environment_of", lambda _: None)
    return begun


def fails_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def run_crash_test(*_: Any) -> None:
        raise error

    monkeypatch.setattr(module, "run_crash_test", run_crash_test)


@pytest.mark.parametrize("error", [RigError("gone"), RequestError("no such worker"), KeyboardInterrupt()])
def test_after_an_error_the_next_cycle_has_another_lab(
    error: BaseException, labs: list[MagicMock], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_with(monkeypatch, error)
    spec = demo_cycles()[0]
    current_run = Run("test", tmp_path, server_and_clients())
    for _ in range(2):
        try:
            record = current_run.cycle(spec)
        except (RequestError, KeyboardInterrupt):
            record = current_run.record.cycles[-1]
        assert record.outcome is Outcome.ERROR
    assert len(labs) == 2
    assert all(cast("MagicMock", lab.__exit__).called for lab in labs)


def test_a_run_is_in_progress_until_it_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lock, "PROBED_S", 0.0)
    Index.open(tmp_path).close()
    current_run = Run("test", tmp_path, server_and_clients())
    with current_run:
        with Index.open(tmp_path) as index:
            assert [run.state for run in index.runs()] == [State.RUNNING]
        with pytest.raises(RequestError, match="is in progress"):
            current_run.store.remove()
        resumed = Run("test", tmp_path, server_and_clients(), resumed=current_run.store)
        with pytest.raises(RequestError, match="is in progress"):
            resumed.__enter__()
    with Index.stored(tmp_path) as index:
        assert [run.state for run in index.runs()] == [State.ENDED]
        assert index.reconcile() == 0
    current_run.store.remove()


def test_all_files_of_a_run_are_durable_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(module, "sync_tree", synced.append)
    with Run("test", tmp_path, server_and_clients()) as current_run:
        assert synced == []
    assert synced == [current_run.store.path]
