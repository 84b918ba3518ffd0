"""The fixture cycle checks crash states after a crash test, and its assertions count them."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from raidproof.core.errors import ProductError
from raidproof.fault import FaultEffects
from raidproof.pytest_plugin.fixtures import CrashTestResult, CrashTestRunner, stack_of
from raidproof.record.cell import Explored
from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.run import Run

INI = "[pytest]\nraidproof_states = {}\n"
PRINTS = """
from raidproof.pytest_plugin.plugin import states_of
def test_it(pytestconfig): print(f"number {states_of(pytestconfig)}.")
"""


def passed(*explored: Explored) -> CrashTestRecord:
    return CrashTestRecord(
        name="one",
        title="one",
        asked={},
        cache_mode="volatile",
        fault="power-cut",
        seed=1,
        effects=FaultEffects(),
        outcome=Outcome.PASS,
        reason="every promise was kept",
        explored=[*explored],
    )


def states(outcome: Outcome, lost: int = 0) -> Explored:
    return Explored(file="explore-one-directed.json", judged=60, broken=3, lost=lost, outcome=outcome, reason="said")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    numbers: list[int] = []
    monkeypatch.setattr(
        "raidproof.pytest_plugin.fixtures.check_directed", lambda _run, _record, number: numbers.append(number)
    )
    return numbers


def test_crash_states_are_checked_after_each_crash_test(asked: list[int], tmp_path: Path) -> None:
    specs: list[CrashTestSpec] = []

    def carried_out(spec: CrashTestSpec) -> CrashTestRecord:
        specs.append(spec)
        return passed()

    run = SimpleNamespace(cycle=carried_out, store=SimpleNamespace(path=tmp_path))
    cycle = CrashTestRunner(cast("Run", run), "one", 60)
    assert cycle(stack_of()).outcome is Outcome.PASS
    cycle(stack_of(), states=7)
    cycle(stack_of(), states=0)
    cycle.run(specs[0])
    assert asked == [60, 7, 0, 60]


@pytest.mark.parametrize("assertion", ["must_pass", "must_keep_every_promise"])
def test_a_promise_that_only_a_crash_state_breaks_fails_the_scenario(assertion: str, tmp_path: Path) -> None:
    result = CrashTestResult(passed(states(Outcome.FAIL, lost=2)), tmp_path)
    assert (result.record.outcome, result.outcome) == (Outcome.PASS, Outcome.FAIL)
    with pytest.raises(ProductError, match=r"^one: exploration of crash states: said"):
        getattr(result, assertion)()


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.ERROR])
def test_crash_states_that_prove_nothing_leave_the_outcome(outcome: Outcome, tmp_path: Path) -> None:
    result = CrashTestResult(passed(states(outcome)), tmp_path)
    assert result.must_pass().must_keep_every_promise() is result


def test_a_loss_by_design_in_a_crash_state_is_a_loss(tmp_path: Path) -> None:
    result = CrashTestResult(passed(states(Outcome.PASS, lost=2)), tmp_path).must_pass()
    with pytest.raises(ProductError):
        result.must_keep_every_promise()


@pytest.mark.parametrize(
    ("configured", "option", "number"),
    [(None, [], 60), ("", [], 60), ("0", [], 0), ("12", [], 12), ("0", ["--states=7"], 7), (None, ["--states=0"], 0)],
)
def test_the_option_comes_before_the_configuration_file(
    pytester: pytest.Pytester, configured: str | None, option: list[str], number: int
) -> None:
    if configured is not None:
        pytester.makeini(INI.format(configured))
    pytester.makepyfile(PRINTS)
    pytester.runpytest_inprocess("-s", *option).stdout.fnmatch_lines([f"*number {number}.*"])


@pytest.mark.parametrize(("configured", "option"), [("many", []), ("-1", []), ("0", ["--states=-1"])])
def test_a_number_that_is_none_is_refused(pytester: pytest.Pytester, configured: str, option: list[str]) -> None:
    pytester.makeini(INI.format(configured))
    ended = pytester.runpytest_inprocess(*option)
    assert ended.ret == pytest.ExitCode.USAGE_ERROR
    ended.stderr.fnmatch_lines(["ERROR: raidproof_states, --states: expected a number *"])
