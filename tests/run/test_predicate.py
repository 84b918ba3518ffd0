"""The answers of predicates, from exit statuses, records of crash tests and explorations, and measured values."""

import sys
from pathlib import Path
from typing import Any, cast

import pytest

from raidproof.core.errors import RequestError
from raidproof.core.topology import Platform, SoftwareSpec
from raidproof.fault import FaultEffects
from raidproof.plan.cell import Cell
from raidproof.plan.plan import load_plan
from raidproof.record.bisection import CandidateAnswer
from raidproof.record.cell import CellRecord, Repetition
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.run import CrashTestRecord
from raidproof.run.candidates import Trial
from raidproof.run.plan_runner import PlanRunner
from raidproof.run.predicate import (
    CrashStates,
    PlannedCell,
    Promise,
    Scenario,
    Speed,
    answer_of,
    platform_with,
    run_logged,
)
from tests.report.test_exploration import exploration, failure

PLAN = Path(__file__).resolve().parents[2] / "scenarios" / "plans" / "tiny.toml"


def crash_test(outcome: Outcome, *verdicts: tuple[str, Outcome]) -> CrashTestRecord:
    return CrashTestRecord(
        name="cut",
        title="cut",
        asked={},
        cache_mode="volatile",
        fault="power-cut",
        effects=FaultEffects(),
        seed=1,
        outcome=outcome,
        reason="simulated",
        verdicts=[Verdict(checker=kind, kind=kind, outcome=one, reason="simulated") for kind, one in verdicts],
    )


@pytest.mark.parametrize(
    ("kind", "cycle", "answer"),
    [
        (None, crash_test(Outcome.FAIL), CandidateAnswer.BAD),
        (None, crash_test(Outcome.PASS), CandidateAnswer.GOOD),
        (None, crash_test(Outcome.INCONCLUSIVE), CandidateAnswer.UNKNOWN),
        ("fsync", crash_test(Outcome.FAIL, ("fsync", Outcome.FAIL)), CandidateAnswer.BAD),
        ("fsync", crash_test(Outcome.FAIL, ("pages", Outcome.FAIL), ("fsync", Outcome.PASS)), CandidateAnswer.GOOD),
        ("fsync", crash_test(Outcome.FAIL, ("fsync", Outcome.PASS), ("fsync", Outcome.FAIL)), CandidateAnswer.BAD),
        ("fsync", crash_test(Outcome.INCONCLUSIVE, ("fsync", Outcome.INCONCLUSIVE)), CandidateAnswer.UNKNOWN),
        ("fsync", crash_test(Outcome.FAIL), CandidateAnswer.UNKNOWN),
        ("fsync", crash_test(Outcome.ERROR, ("fsync", Outcome.FAIL)), CandidateAnswer.UNKNOWN),
        ("fsync", crash_test(Outcome.SKIP), CandidateAnswer.UNTESTABLE),
    ],
)
def test_a_crash_test_answers_for_one_promise(
    kind: str | None, cycle: CrashTestRecord, answer: CandidateAnswer
) -> None:
    assert Promise(kind).result(cycle).answer is answer


def test_an_exploration_answers_for_a_failure_or_counts() -> None:
    shown = failure()
    record = exploration(failures=[shown], outcome=Outcome.FAIL)
    assert CrashStates(100, failure=shown.promise).result(record).answer is CandidateAnswer.BAD
    assert CrashStates(100, failure=shown.damage).result(record).answer is CandidateAnswer.BAD
    assert CrashStates(100, failure="another").result(record).answer is CandidateAnswer.GOOD
    counted = CrashStates(100, share=0.1).result(record)
    assert (counted.answer, counted.broken, counted.judged) == (CandidateAnswer.MEASURED, record.broken, record.judged)
    assert CrashStates(100).result(exploration(outcome=Outcome.ERROR)).answer is CandidateAnswer.UNKNOWN


class MeasuredCell:
    """Stands for a runner of a plan: each call adds one repetition."""

    def __init__(self, **repetition: Any) -> None:
        self.record = CellRecord(name="c", settings={}, workload={}, unit="write_mb_s", asked={})
        self._repetition = repetition

    def measure(self, _cell: Cell) -> CellRecord:
        self.record.repeats.append(Repetition(round=1, **self._repetition))
        self.record.limit = self._repetition.get("limit", "disks")
        return self.record


@pytest.mark.parametrize(
    ("repetition", "answer"),
    [
        ({"value": 50.0, "limit": "disks"}, CandidateAnswer.MEASURED),
        ({"value": 150.0, "limit": "host cpu"}, CandidateAnswer.MEASURED),
        ({"value": 50.0, "limit": "host cpu"}, CandidateAnswer.UNKNOWN),
        ({"value": None, "rig_error": "no answer"}, CandidateAnswer.UNKNOWN),
    ],
)
def test_a_slow_value_that_the_rig_limited_proves_nothing(repetition: dict[str, Any], answer: CandidateAnswer) -> None:
    runner = cast(PlanRunner, MeasuredCell(**repetition))
    assert Speed(100.0).result(runner, cast(Cell, None)).answer is answer


def test_a_setting_without_effect_is_untestable() -> None:
    cell = MeasuredCell(value=50.0)
    cell.record.not_effective = "wsize: found 64 KiB"
    assert Speed(100.0).result(cast(PlanRunner, cell), cast(Cell, None)).answer is CandidateAnswer.UNTESTABLE


@pytest.mark.parametrize("machines", ["all", "server", "clients"])
def test_the_candidates_software_is_on_the_named_machines(machines: str) -> None:
    common = Platform(server=SoftwareSpec(packages=("a.deb",)), clients=SoftwareSpec(kernel="debian/sid"))
    platform = platform_with(common, SoftwareSpec(kernel="/built"), machines)
    assert platform.server.packages == ("a.deb",)
    assert platform.server.kernel == (None if machines == "clients" else "/built")
    assert platform.clients.kernel == ("debian/sid" if machines == "server" else "/built")


def planned(select: str, tmp_path: Path) -> PlannedCell:
    return PlannedCell(load_plan(PLAN), PLAN, select, Platform(), "server", tmp_path, Speed(1.0))


def test_a_candidates_setting_replaces_an_axis_of_the_plan(tmp_path: Path) -> None:
    cell = planned("export=sync", tmp_path)
    (found,) = cell.matrix(Trial(setting={"level": "10"})).cells
    assert (found.name, found.settings["level"]) == ("export=sync", "10")
    (found,) = cell.matrix(Trial(setting={"level": "5"})).cells
    assert found.stack.array.level == "5"
    with pytest.raises(RequestError, match="2 cells are selected"):
        cell.refuse(Trial())
    assert cell.topology(Trial(SoftwareSpec(kernel="/built"))).server.software.kernel == "/built"


def test_each_status_of_a_command(tmp_path: Path) -> None:
    def ended(status: int) -> CandidateAnswer:
        words = [sys.executable, "-c", f"print('said'); raise SystemExit({status})"]
        return run_logged(words, tmp_path / "logs" / "log", None).answer

    assert ended(1) is CandidateAnswer.BAD
    assert (tmp_path / "logs" / "log").read_text() == "said\n"
    assert answer_of(5) is CandidateAnswer.UNKNOWN
    with pytest.raises(RequestError, match="exit status 7"):
        ended(7)
    with pytest.raises(KeyboardInterrupt):
        ended(130)


def test_a_scenario_answers_by_its_outcome(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(
        "def test_kernel(pytestconfig):\n"
        "    assert pytestconfig.option.server == ['kernel=debian/sid']\n"
        "    assert pytestconfig.option.provider == 'uml'\n"
        "    assert pytestconfig.option.results.endswith('label-1')\n"
    )
    scenario = Scenario(f"{file}::test_kernel", Platform(), "server", tmp_path / "logs")
    scenario.refuse(Trial())
    for kernel, answer in (("debian/sid", CandidateAnswer.GOOD), ("debian/trixie", CandidateAnswer.BAD)):
        with scenario.on(Trial(SoftwareSpec(kernel=kernel)), "label") as repeat:
            found = repeat(1)
            assert found.answer is answer, Path(str(found.evidence)).read_text()
    with pytest.raises(RequestError, match="there is no file"):
        Scenario("no.py::test_it", Platform(), "server", tmp_path).refuse(Trial())
