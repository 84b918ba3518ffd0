"""The check of directed states right after a crash test."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from raidproof.core.errors import RequestError
from raidproof.crash.shrink import EXPLAINED
from raidproof.fault import FaultEffects
from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord
from raidproof.run.crash_states import Options
from raidproof.run.directed import BUSY_MINUTES, ENOUGH, MINUTES, check_directed
from raidproof.run.run import Run


class Explorations:
    """Stands for a run, and notes the explorations of its crash test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[Options] = []
        self.entered = 0
        self.provider = "uml"
        monkeypatch.setattr("raidproof.run.directed.source_of", lambda _store, name: name)
        monkeypatch.setattr("raidproof.run.directed.exploration_of", self._explore)

    def _explore(self, name: str, options: Options) -> None:
        assert name == "sync"
        self.asked.append(options)

    def _enter(self, _record: object) -> None:
        self.entered += 1

    @property
    def run(self) -> Run:
        store = SimpleNamespace(read_explorations=self._enter)
        topology = SimpleNamespace(provider=self.provider)
        return cast(Run, SimpleNamespace(store=store, topology=topology, record=None))


@pytest.fixture
def explorations(monkeypatch: pytest.MonkeyPatch) -> Explorations:
    return Explorations(monkeypatch)


@pytest.fixture
def cycle() -> CrashTestRecord:
    return CrashTestRecord(
        name="sync",
        title="sync export",
        asked={},
        cache_mode="volatile",
        fault="power-cut",
        seed=5,
        effects=FaultEffects(),
        solo_operations={"fsync": 3},
        outcome=Outcome.PASS,
    )


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.INCONCLUSIVE])
def test_directed_states_are_checked_for_a_limited_time(
    explorations: Explorations, cycle: CrashTestRecord, outcome: Outcome
) -> None:
    cycle.outcome = outcome
    check_directed(explorations.run, cycle, 40)
    (options,) = explorations.asked
    assert (options.budget.states, options.budget.minutes) == (40, MINUTES)
    assert (options.only_directed, options.seed, options.resume) == (True, 5, False)
    assert (options.explained, options.budget.broken, options.crash_page) == (EXPLAINED, None, True)
    check_directed(explorations.run, cycle, 40, briefly=True)
    brief = explorations.asked.pop()
    assert (brief.explained, brief.budget.broken, brief.crash_page) == (0, ENOUGH, False)
    assert brief.budget.minutes == BUSY_MINUTES
    assert explorations.entered == 2


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.ERROR, Outcome.INVALID])
def test_nothing_is_checked_after_a_failure(
    explorations: Explorations, cycle: CrashTestRecord, outcome: Outcome
) -> None:
    cycle.outcome = outcome
    check_directed(explorations.run, cycle)
    assert not explorations.asked


def test_nothing_is_checked_without_solo_operations_or_states(
    explorations: Explorations, cycle: CrashTestRecord
) -> None:
    check_directed(explorations.run, cycle, 0)
    cycle.solo_operations = {}
    check_directed(explorations.run, cycle)
    assert not explorations.asked
    assert not explorations.entered
    assert not cycle.no_states, "nothing was requested"


def test_a_provider_that_cannot_show_a_crash_state_is_said(explorations: Explorations, cycle: CrashTestRecord) -> None:
    explorations.provider = "hosts"
    check_directed(explorations.run, cycle)
    assert not explorations.asked
    assert cycle.no_states.startswith("provider hosts: crash states need the disk engine")
    check_directed(explorations.run, cycle, 0)


def test_a_crash_test_that_cannot_be_explored_keeps_its_result(
    explorations: Explorations, cycle: CrashTestRecord, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(_store: object, _name: str) -> None:
        raise RequestError(f"no write log in {tmp_path}")

    monkeypatch.setattr("raidproof.run.directed.source_of", refuse)
    check_directed(explorations.run, cycle)
    assert not explorations.entered
    assert cycle.outcome is Outcome.PASS
    assert cycle.no_states == f"no write log in {tmp_path}"
