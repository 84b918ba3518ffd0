import io
from pathlib import Path

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped

from raidproof.core import log
from raidproof.core.errors import ControlFailed, Inconclusive, NotEffective, RequestError, RequirementMissing, RigError
from raidproof.pytest_plugin.plugin import counted, outcome_of
from raidproof.record.outcome import Outcome
from tests.report.conftest import error_row, sample

ENDS = """
import pytest
from raidproof.core.errors import *

def test_fail(): raise ProductError("a promise was broken")
def test_error(): raise RigError("the rig broke")
def test_skip(): raise RequirementMissing("no such tool")
def test_invalid(): raise ControlFailed("the control passed")
def test_inconclusive(): raise Inconclusive("nothing showed")
def test_plain(): assert False, "a plain failure"
def test_pass(): pass
"""


@pytest.fixture
def ended(pytester: pytest.Pytester) -> pytest.RunResult:
    pytester.makepyfile(ENDS)
    return pytester.runpytest_inprocess("-v", "--junitxml=junit.xml")


def test_each_outcome_has_its_word(ended: pytest.RunResult) -> None:
    words = ["FAILED", "ERROR", "SKIPPED*no such tool*", "INVALID", "INCONCLUSIVE", "FAILED", "PASSED"]
    names = ["fail", "error", "skip", "invalid", "inconclusive", "plain", "pass"]
    ended.stdout.fnmatch_lines([f"*::test_{name} {word}*" for name, word in zip(names, words, strict=True)])
    assert ended.ret == pytest.ExitCode.TESTS_FAILED
    for said in ("2 failed", "1 passed", "1 skipped", "1 error", "1 invalid", "1 inconclusive"):
        assert said in ended.outlines[-1]


def test_each_reason_is_shown(ended: pytest.RunResult) -> None:
    said = str(ended.stdout)
    assert "INVALID: test_each_reason_is_shown.py::test_invalid" in said
    for reason in ("a promise was broken", "the rig broke", "the control passed", "nothing showed"):
        assert reason in said


def test_each_end_has_its_element(ended: pytest.RunResult, pytester: pytest.Pytester) -> None:
    (suite,) = JUnitXml.fromfile(str(pytester.path / "junit.xml"))
    found = {case.name: (type(case.result[0]), case.result[0].type) for case in suite if case.result}
    assert found["test_error"] == (Error, "ERROR")
    assert found["test_invalid"] == (Error, "INVALID")
    assert found["test_inconclusive"] == (Error, "INCONCLUSIVE")
    assert [found[name][0] for name in ("test_fail", "test_plain", "test_skip")] == [Failure, Failure, Skipped]
    assert (suite.failures, suite.errors, suite.skipped) == (2, 3, 1)


def test_xml_of_others_is_left_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_plain(): assert False")
    pytester.runpytest_inprocess("--junitxml=without.xml")
    pytester.runpytest_inprocess("--junitxml=with.xml")
    without, with_plugin = (
        [(type(case.result[0]), case.result[0].type) for suite in JUnitXml.fromfile(str(pytester.path / name))
         for case in suite] for name in ("without.xml", "with.xml")
    )  # fmt: skip
    assert without == with_plugin


@pytest.mark.parametrize(
    ("arguments", "ran"), [([], 1), (["--exhaustive"], 2), (["-m", "exhaustive"], 1), (["-m", "not exhaustive"], 1)]
)
def test_what_is_slow_is_left_out_unless_asked_for(pytester: pytest.Pytester, arguments: list[str], ran: int) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.exhaustive\ndef test_slow(): pass\ndef test_quick(): pass\n")
    ended = pytester.runpytest_inprocess("--strict-markers", *arguments)
    ended.assert_outcomes(passed=ran, deselected=2 - ran)


@pytest.mark.parametrize("capture", ["fd", "sys", "no"])
def test_progress_shows_whatever_is_captured(pytester: pytest.Pytester, capture: str) -> None:
    pytester.makepyfile("from raidproof.core import log\ndef test_it(): log.step('array [md0] assembled')")
    ended = pytester.runpytest_subprocess(f"--capture={capture}")
    ended.stdout.fnmatch_lines(["array [[]md0[]] assembled", "*1 passed*"])


def test_tests_that_ask_for_no_lab_make_no_run(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(): pass")
    ended = pytester.runpytest_inprocess("--results=runs")
    assert not (pytester.path / "runs").exists()
    assert "raidproof" not in ended.outlines[-2]


@pytest.mark.parametrize(("option", "nearest"), [("--kernel=debian/sdi", "debian/sid"), ("--image=trixie", "debian/")])
def test_a_typo_in_an_option_names_the_nearest(pytester: pytest.Pytester, option: str, nearest: str) -> None:
    ended = pytester.runpytest_inprocess(option)
    assert ended.ret == pytest.ExitCode.USAGE_ERROR
    ended.stderr.fnmatch_lines([f"ERROR: *did you mean *{nearest}*"])


def test_a_missing_requirement_of_the_host_is_a_skip(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        "from raidproof.run import doctor\nfrom raidproof.core.errors import RequirementMissing\n"
        "def missing(): raise RequirementMissing('no user namespaces')\n"
        "doctor.require_host = missing\n"
    )
    pytester.makepyfile("def test_one(cycle): pass\ndef test_other(lab): pass\n")
    ended = pytester.runpytest_subprocess("-rs")
    ended.assert_outcomes(skipped=2)
    ended.stdout.fnmatch_lines(["SKIPPED*no user namespaces"])


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (NotEffective("x"), Outcome.FAIL),
        (RigError("x"), Outcome.ERROR),
        (RequirementMissing("x"), Outcome.SKIP),
        (ControlFailed("x"), Outcome.INVALID),
        (Inconclusive("x"), Outcome.INCONCLUSIVE),
        (RequestError("x"), None),
        (AssertionError(), None),
    ],
)
def test_outcome_of_an_error(error: Exception, outcome: Outcome | None) -> None:
    assert outcome_of(error) is outcome


def test_the_screen_is_given_back(tmp_path: Path) -> None:
    before = log.console
    with log.shown_on(io.StringIO(), 80):
        assert log.console is not before
    assert log.console is before


def test_the_last_line_counts_the_operations_of_crash_tests_that_are_no_controls() -> None:
    record = sample()
    assert counted(record.cycles) == " (2 crash tests: 21,701 acknowledged, 20,047 lost)"
    assert counted(record.cycles[:1]).startswith(" (1 crash test: 1,518 acknowledged, 0")
    assert counted(record.cycles[2:]) == counted([error_row()]) == ""
