"""Second power cuts during recorded recoveries, on checkers that are no machines."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from raidproof.core.errors import RequestError, RigError
from raidproof.crash.checker import Checker
from raidproof.crash.checkers import LocalCheckers
from raidproof.crash.exploration import Budget, Exploration
from raidproof.crash.journal import Journal, begun_in, lines_of
from raidproof.crash.recovery import LOG, SECOND, journal_of
from raidproof.crash.sampler import Choices
from raidproof.record.exploration import ExplorationRecord, Observation
from raidproof.record.outcome import Outcome
from raidproof.record.recovery import Phase
from raidproof.run.crash_states import Options
from raidproof.run.exploration import explore_cycle
from raidproof.run.exploration_record import ONE_CUT, TWO_CUTS
from raidproof.run.recoveries import FirstCuts, source_of_recovery
from raidproof.run.replay import locate, replay
from raidproof.run.second_cuts import SecondCuts, cut_again
from raidproof.run.source import Source, source_of
from tests.crash.conftest import Did
from tests.crash.made_up import ROUNDS, careless, rewriting
from tests.crash.stored import HoldingChecker, OnFakes, store_run

STATES, CUTS, EACH = 60, 4, 12


class Recovering(OnFakes):
    """Its checkers recover in a given way."""

    recovers: ClassVar[Callable[[int], list[Did]]] = staticmethod(rewriting)
    after: ClassVar[Callable[[Observation], Observation]] = staticmethod(lambda seen: seen)
    checkers: ClassVar[list[HoldingChecker]] = []

    @contextmanager
    def checker(self, number: int, *, logs: Path) -> Iterator[Checker]:
        one = HoldingChecker()
        one.recovery, one.after_recovery = type(self).recovers, type(self).after
        self.checkers.append(one)
        yield cast("Checker", one)


@pytest.fixture(autouse=True)
def sound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recovering, "recovers", staticmethod(rewriting))
    monkeypatch.setattr(Recovering, "checkers", [])


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Recovering.of(source_of(store_run(tmp_path / "run", lies_from=ROUNDS)))


def explore(source: Source, **changes: Any) -> ExplorationRecord:
    return explore_cycle(
        source, replace(Options(Budget(STATES), second_cuts=CUTS, second_states=EACH, crash_page=False), **changes)
    )[0]


def journals(source: Source) -> dict[str, list[str]]:
    folder = source.store.path / "explore-made-up"
    return {path.name: sorted(line.crash.name for line in lines_of(path)) for path in folder.glob("second-*")}


def test_a_careful_recovery_breaks_nothing(source: Source) -> None:
    record = explore(source)
    second = record.second_cuts
    assert second is not None
    assert (record.outcome, record.failures, second.broken) == (Outcome.PASS, [], 0), record.reason
    assert len(second.recoveries) == CUTS
    assert second.judged == sum(one.judged for one in second.recoveries) == sum(one.judged for one in second.phases)
    assert second.judged > 2 * CUTS
    assert {one.phase for one in second.phases} == {Phase.RESYNC, Phase.LOG_RECOVERY}
    assert f"{second.judged} ({second.distinct} different) of a second cut during {CUTS} recoveries" in record.reason
    assert ONE_CUT not in record.cannot_prove
    assert set(TWO_CUTS) <= set(record.cannot_prove)


def test_without_second_cuts_nothing_is_recovered(source: Source) -> None:
    record = explore(source, second_cuts=0)
    assert record.second_cuts is None
    assert ONE_CUT in record.cannot_prove
    assert not any(one.recoveries for one in Recovering.checkers)


def test_a_recovery_that_only_a_second_cut_breaks_is_found(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recovering, "recovers", staticmethod(careless))
    record = explore(source)
    second = record.second_cuts
    assert second is not None
    assert record.outcome is Outcome.FAIL
    assert (record.broken, record.loses) == (0, True)
    assert second.broken == sum(one.broken for one in second.phases) > 0
    (failure,) = record.failures
    assert (failure.promise, failure.states) == ("write + fsync", second.broken)
    assert failure.recovery in {one.state for one in second.recoveries}
    assert failure.state.startswith(f"{failure.recovery}{SECOND}")
    assert failure.phase in {Phase.RESYNC, Phase.LOG_RECOVERY}
    assert (failure.repeated, failure.confirmed) == (2, 2)
    assert failure.shrunk is not None
    assert failure.shortest is not None
    assert failure.shortest.state in failure.replay
    assert failure.shortest.cut >= source_of_recovery(source, locate(source, str(failure.recovery))[1]).first
    found, state = locate(source, failure.shortest.state)
    shown = replay(found, state, source.store.path / "logs")
    assert shown.judgements[0].broken
    assert failure.shortest.state in shown.lines[0]


def test_the_whole_recovery_is_judged_and_repeated(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    def emptied(seen: Observation) -> Observation:
        return seen.model_copy(update={"found": {"f@0": {"blocks": [0] * 4, "names": ["f"]}}})

    monkeypatch.setattr(Recovering, "after", staticmethod(emptied))
    record = explore(source)
    second = record.second_cuts
    assert second is not None
    assert record.outcome is Outcome.FAIL
    broken = [one for one in second.recoveries if one.broken]
    assert broken
    assert not any(one.judged for one in broken)
    assert f"and {len(broken)} after the whole recovery" in record.reason
    failure = record.failures[0]
    assert (failure.phase, failure.repeated, failure.confirmed) == (None, 1, 1)
    assert failure.recovery == failure.state


def test_a_failure_of_a_recovery_that_does_not_come_again_is_inconclusive(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Observation] = []

    def once(one: Observation) -> Observation:
        seen.append(one)
        lost = one.model_copy(update={"found": {"f@0": {"blocks": [0] * 4, "names": ["f"]}}})
        return lost if len(seen) == 1 else one

    monkeypatch.setattr(Recovering, "after", staticmethod(once))
    record = explore(source, second_cuts=1)
    assert record.outcome is Outcome.INCONCLUSIVE, record.reason
    assert "not reproduced" in record.reason


def test_the_second_states_are_the_same_each_time(source: Source, tmp_path: Path) -> None:
    explore(source)
    other = Recovering.of(source_of(store_run(tmp_path / "other", lies_from=ROUNDS)))
    explore(other, checkers=1)
    assert journals(source) == journals(other)
    assert len(journals(source)) == CUTS


def test_another_exploration_uses_the_stored_recoveries(source: Source) -> None:
    before = explore(source).second_cuts
    recorded = sum(one.recoveries for one in Recovering.checkers)
    after = explore(source).second_cuts
    assert before is not None
    assert after is not None
    assert [one.log_digest for one in before.recoveries] == [one.log_digest for one in after.recoveries]
    assert sum(one.recoveries for one in Recovering.checkers) == recorded == CUTS


def test_a_resumed_exploration_keeps_and_continues_its_second_cuts(source: Source) -> None:
    before = explore(source, second_cuts=2, second_states=3).second_cuts
    checks = sum(one.checks for one in Recovering.checkers)
    kept = explore(source, second_cuts=0, second_states=3, resume=True).second_cuts
    assert before is not None
    assert kept is not None
    assert (kept.judged, kept.recoveries) == (before.judged, before.recoveries)
    assert sum(one.checks for one in Recovering.checkers) == checks
    more = explore(source, resume=True).second_cuts
    assert more is not None
    assert len(more.recoveries) == CUTS
    assert {one.state for one in before.recoveries} < {one.state for one in more.recoveries}


def test_an_interruption_keeps_the_results_so_far(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_seen: Observation) -> Observation:
        raise KeyboardInterrupt

    whole = explore(source, second_cuts=2, checkers=1).second_cuts
    assert whole is not None
    monkeypatch.setattr(Recovering, "after", staticmethod(interrupted))
    with pytest.raises(KeyboardInterrupt):
        explore(source, checkers=1, resume=True)
    assert not list((source.store.path / "recoveries-made-up").glob(".*"))
    monkeypatch.setattr(Recovering, "after", staticmethod(lambda seen: seen))
    more = explore(source, resume=True).second_cuts
    assert more is not None
    assert len(more.recoveries) == CUTS


def test_a_failing_rig_is_an_error(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_seen: Observation) -> Observation:
        raise RigError("no machine")

    monkeypatch.setattr(Recovering, "after", staticmethod(failing))
    record = explore(source)
    assert record.outcome is Outcome.ERROR
    assert "no machine" in record.reason


@pytest.mark.parametrize("damage", ["log", "description", "missing"])
def test_a_damaged_recovery_is_refused(source: Source, damage: str) -> None:
    second = explore(source).second_cuts
    assert second is not None
    folder = source.store.path / "recoveries-made-up" / second.recoveries[0].state
    state = locate(source, second.recoveries[0].state)[1]
    if damage == "missing":
        shutil.rmtree(folder)
        with pytest.raises(RequestError, match="no recovery of state"):
            source_of_recovery(source, state)
        return
    with (folder / (LOG if damage == "log" else "recovery.json")).open("ab") as file:
        file.write(b"x")
    with pytest.raises(RequestError, match=str(folder)):
        source_of_recovery(source, state)


def test_a_recovery_can_be_recovered_again(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """The states of a second cut are explored like any others, with second cuts of their own: the third ones."""
    second = explore(source).second_cuts
    assert second is not None
    deeper = source_of_recovery(source, locate(source, second.recoveries[0].state)[1])
    monkeypatch.setattr(Recovering, "recovers", staticmethod(careless))
    folder = source.store.path / "explore-made-up"
    path = folder / journal_of(deeper.recovery)
    begun = begun_in(path)
    assert begun is not None
    here = partial(LocalCheckers, deeper.recording, deeper.boots(folder))
    with (
        closing(Journal(path, begun)) as journal,
        Exploration(Choices(deeper.recording, 1), deeper.oracle, journal, here) as second_cut,
    ):
        options = Options(second_cuts=2, second_states=EACH)
        third = SecondCuts(options)
        cut_again(FirstCuts(deeper, second_cut, here), options, None, third)
    assert (second_cut.stats.broken, third.record.broken > 0) == (0, True)
    (failure,) = third.failures.values()
    assert failure.state.count(SECOND) == 2
    found, state = locate(source, failure.state)
    assert found.recovery == failure.recovery
    assert found.recording.acknowledged_ns(state.cut) == deeper.recording.acknowledged_ns(deeper.first)
    assert replay(found, state, source.store.path / "logs").judgements[0].broken
