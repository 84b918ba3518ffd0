"""The crash tests of a self-test, and the collection of what they showed."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from jsonschema import Draft202012Validator

from raidproof.cli.main import main
from raidproof.core.blame import Blame, Culprit
from raidproof.core.errors import RequirementMissing, Status
from raidproof.core.topology import Platform
from raidproof.crash.exploration import Budget
from raidproof.fault import FaultEffects
from raidproof.fault.disk import DefectiveDrives
from raidproof.record import CrashTestRecord, RunStore
from raidproof.record.cell import Explored
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.selftest import SELFTEST, SelftestAnswer
from raidproof.run import selftest
from raidproof.run.crash_states import Options
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.exploration import explore_cycle
from raidproof.run.run import Run
from raidproof.run.selftest import DEFECTS, selftest_cycle, selftest_topology
from raidproof.run.source import source_of
from tests.crash.stored import OnFakes, store_run

DISKS = Blame(culprit=Culprit.DISKS)
SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "schema" / "selftest.schema.json"


def test_each_defect_has_one_crash_test_of_its_own_and_sound_disks_have_one() -> None:
    cycles = [selftest_cycle(one, 1) for one in (None, *DEFECTS)]
    assert len({one.name for one in cycles}) == len(cycles)
    assert (cycles[0].during, cycles[0].cache_mode.loses) == ((), True)
    for one, defect in zip(cycles[1:], DEFECTS, strict=True):
        planted = [fault.disk_fault for fault in one.during if isinstance(fault, DefectiveDrives)]
        assert planted == ([] if defect.disk_fault is None else [defect.disk_fault])
        assert planted or one.cache_mode is not cycles[0].cache_mode


def test_a_provider_without_simulated_disks_is_refused() -> None:
    with pytest.raises(RequirementMissing, match="simulated disks"):
        selftest_topology(Platform(provider="hosts"))


class FakeRun:
    """A fake run whose crash tests fail if a disk has a defect, except for one that is missed."""

    missed: str | None = None

    def __init__(self, _what: str, results: Path, _topology: object) -> None:
        self.store = RunStore(results)
        self.record = SimpleNamespace(run="run", started="2026-11-28T12:00:00Z")

    def __enter__(self) -> "FakeRun":
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def cycle(self, spec: CrashTestSpec) -> CrashTestRecord:
        failed = spec.name not in ("no-defect", self.missed)
        outcome = Outcome.FAIL if failed else Outcome.PASS
        verdict = Verdict(checker="write", outcome=outcome, reason="lost", blame=DISKS if failed else None)
        record = CrashTestRecord(
            name=spec.name, title=spec.title, asked={}, cache_mode="", fault="none", seed=1, effects=FaultEffects()
        )
        record.outcome, record.reason, record.verdicts = outcome, "why", [verdict]
        return record


def explored(_run: Run, cycle: CrashTestRecord, *, briefly: bool) -> None:
    """Stand for the exploration of crash states, in which every promise held."""
    assert briefly
    cycle.explored = [Explored(file=None, judged=60, broken=0, outcome=Outcome.PASS, reason="held")]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeRun]:
    class Mine(FakeRun):
        pass

    monkeypatch.setattr(selftest, "Run", Mine)
    monkeypatch.setattr(selftest, "check_directed", explored)
    for name in ("require_host", "prepare"):
        monkeypatch.setattr(selftest, name, lambda *_: None)
    return Mine


@pytest.mark.parametrize("missed", [None, *(one.name for one in DEFECTS)])
def test_a_missed_defect_gives_exit_status_1(
    fake: type[FakeRun], missed: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.missed = missed
    status = main(["selftest", "--results", str(tmp_path), "--json"])
    assert status == (Status.PASS if missed is None else Status.FAIL)
    record = json.loads(capsys.readouterr().out)
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(record)
    answers = {one["defect"]: one["answer"] for one in record["rows"]}
    expected = {one.name: SelftestAnswer.MISSED if one.name == missed else SelftestAnswer.FOUND for one in DEFECTS}
    assert answers.pop(None) == SelftestAnswer.PASSED
    assert answers == expected
    assert json.loads((tmp_path / SELFTEST).read_text()) == record


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("reasons", [[], ["blind"]])
def test_sound_disks_pass_only_if_their_crash_states_passed(
    reasons: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def undecided(_run: Run, cycle: CrashTestRecord, *, briefly: bool) -> None:
        found = [
            Explored(file=None, judged=1, broken=int(not briefly), outcome=Outcome.INCONCLUSIVE, reason=one)
            for one in reasons
        ]
        cycle.explored = found

    monkeypatch.setattr(selftest, "check_directed", undecided)
    record, _ = selftest.run_selftest(tmp_path)
    assert record.rows[0].answer is SelftestAnswer.UNDECIDED
    assert record.outcome is Outcome.INCONCLUSIVE


def test_the_failures_of_crash_states_have_blames(tmp_path: Path) -> None:
    source = OnFakes.of(source_of(store_run(tmp_path / "run")))
    record, _ = explore_cycle(source, Options(Budget(None), checkers=1))
    run = source.store.load()
    source.store.read_explorations(run)
    (cycle,) = (one for one in run.cycles if one.name == record.cycle)
    cycle.verdicts = []
    blames = list(selftest.blames_of(cycle, source.store))
    assert blames == [one.blame for one in record.failures]
    assert blames[0] is not None
    assert blames[0].culprit is Culprit.DISKS
