"""The explorations for the table of the write hole: with all members, without a lost one, without a missing one."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from raidproof.core.errors import RequestError
from raidproof.crash.exploration import Budget
from raidproof.plan.members import Members
from raidproof.plan.plan import Plan, read_plan
from raidproof.record import RunStore
from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord
from raidproof.run import write_hole as module
from raidproof.run.crash_states import Options
from raidproof.run.crash_test import NO_FAULT, CrashTestSpec
from raidproof.run.exploration import explore_cycle
from raidproof.run.run import Run
from raidproof.run.source import source_of
from raidproof.run.write_hole import WriteHole, drawn_member
from raidproof.storage.array import ARRAYS
from tests.crash.stored import CYCLE, OnFakes, store_run

ALL = tuple(Members)


def plan_of(*members: Members, seed: int = 1) -> Plan:
    run = {"cut": "explore", "explore_states": 30, "explore_members": list(members), "seed": seed}
    return read_plan({"workload": [{"tool": "dd"}], "run": run}, source="here.toml", name="here")


class FakeRun:
    """A run whose crash tests end at once, with a given outcome."""

    def __init__(self, path: Path, ends: Outcome) -> None:
        self.store = store_run(path / "run")
        self.record = self.store.load()
        self.ends = ends
        self.made: list[CrashTestSpec] = []

    def cycle(self, spec: CrashTestSpec) -> CrashTestRecord:
        self.made.append(spec)
        one = self.record.cycles[0].model_copy(
            update={"name": spec.name, "title": spec.title, "outcome": self.ends, "reason": "md only"}
        )
        self.record.cycles.append(one)
        return one


class Rig:
    """What the explorations were asked, and crash tests on fakes."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run = FakeRun(path, Outcome.PASS)
        self.asked: list[dict[str, Any]] = []
        self.options: list[Options] = []
        monkeypatch.setattr(module, "source_of", self._source)
        monkeypatch.setattr(module, "exploration_of", self._explore)

    def _source(self, store: RunStore, name: str, **asked: Any) -> OnFakes:
        self.asked.append({"cycle": name, **asked})
        return OnFakes.of(source_of(store, CYCLE, **asked))

    def _explore(self, source: OnFakes, options: Options) -> Any:
        self.options.append(options)
        return explore_cycle(source, replace(options, checkers=1))

    def measure(self, *members: Members, kind: str | None = None, **asked: str) -> Any:
        hole = WriteHole(plan_of(*members), cast("Run", self.run), lambda stem: stem)
        stack = source_of(self.run.store).stack
        if kind is not None:
            array = ARRAYS[kind].model_validate({"level": 5, "members": stack.array.members, **asked})
            stack = stack.model_copy(update={"array": array})
        return hole.measure(CrashTestSpec(name=CYCLE, title="the cell", stack=stack))


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(tmp_path, monkeypatch)


def test_each_choice_of_members_is_explored(rig: Rig) -> None:
    whole, lost, missing = rig.measure(*ALL)
    serial = lost.serial
    assert serial in source_of(rig.run.store).stack.array.members
    assert rig.asked == [
        {"cycle": CYCLE, "starts_dirty": False, "lost_member": None, "scrub": True},
        {"cycle": CYCLE, "starts_dirty": True, "lost_member": serial, "scrub": False},
        {"cycle": f"missing-{CYCLE}", "starts_dirty": True, "lost_member": None, "scrub": False},
    ]
    assert [(one.members, one.serial) for one in (whole, lost, missing)] == [
        (Members.WHOLE, None), (Members.LOST, serial), (Members.MISSING, serial),
    ]  # fmt: skip
    assert [one.counts for one in rig.options] == [True, False, False]
    assert all(0 < one.judged <= 30 for one in (whole, lost, missing))
    (spec,) = rig.run.made
    assert (spec.fault, [str(one.name) for one in spec.during]) == (NO_FAULT, ["degraded"])


def test_the_disk_of_a_missing_member_stays_away_where_an_assembly_might_take_it_in(rig: Rig) -> None:
    (missing,) = rig.measure(Members.MISSING, kind="lvm")
    asked = {"cycle": f"missing-{CYCLE}", "starts_dirty": True, "lost_member": missing.serial, "scrub": False}
    assert rig.asked == [asked]


def test_without_a_member_that_the_array_needs_nothing_is_recorded_or_explored(rig: Rig) -> None:
    lost, missing = rig.measure(Members.LOST, Members.MISSING, kind="lvm", integrity="journal")
    assert all("LVM does not activate" in one.why_not for one in (lost, missing))
    assert (rig.asked, rig.run.made) == ([], [])


def test_an_array_that_cannot_miss_a_member_has_a_row_with_the_reason(rig: Rig) -> None:
    rig.run.ends = Outcome.SKIP
    (missing,) = rig.measure(Members.MISSING)
    assert (missing.judged, missing.file) == (0, None)
    assert missing.why_not is not None
    assert "md only" in missing.why_not


def test_a_crash_test_that_the_run_has_is_used_again(rig: Rig) -> None:
    rig.measure(Members.MISSING)
    rig.measure(Members.MISSING)
    assert len(rig.run.made) == 1


def test_an_exploration_without_a_member_does_not_count_for_the_run(rig: Rig) -> None:
    rig.measure(Members.LOST)
    record = rig.run.store.load()
    rig.run.store.read_explorations(record)
    assert record.cycles[0].explored == []
    rig.measure(Members.WHOLE)
    rig.run.store.read_explorations(record)
    assert len(record.cycles[0].explored) == 1


def test_the_member_depends_on_the_seed_alone(rig: Rig) -> None:
    array = source_of(rig.run.store).stack.array
    drawn = {seed: drawn_member(array, seed) for seed in range(20)}
    assert drawn == {seed: drawn_member(array, seed) for seed in range(20)}
    assert set(drawn.values()) == set(array.members)


def test_a_plan_without_exploration_cannot_choose_members() -> None:
    document = {"workload": [{"tool": "dd"}], "run": {"cut": "power", "explore_members": ["lost"]}}
    with pytest.raises(RequestError, match="explore_members needs cut"):
        read_plan(document, source="here.toml", name="here")


def test_the_states_of_a_lost_member_are_resumed_only_without_it(tmp_path: Path) -> None:
    store = store_run(tmp_path / "run")
    source = OnFakes.of(source_of(store, lost_member="disk1"))
    record, page = explore_cycle(source, Options(Budget(10), checkers=1, explained=0))
    assert (record.lost_member, record.counts, page.stem) == ("disk1", False, f"explore-{CYCLE}-without-disk1")
    other = OnFakes.of(source_of(store, lost_member="disk0"))
    with pytest.raises(RequestError, match="has not been explored yet"):
        explore_cycle(other, Options(Budget(10), checkers=1, explained=0, resume=True))
