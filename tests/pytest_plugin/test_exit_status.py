import subprocess
import sys
from pathlib import Path

import pytest

from raidproof.core.errors import NotEffective, RequestError, RigError, Status, worst
from raidproof.pytest_plugin.exit_status import ExitStatus, status_of
from raidproof.pytest_plugin.plugin import outcome_of

ENDS = {
    "passes": "pass",
    "breaks": "raise ProductError('a promise was broken')",
    "asserts": "assert 1 == 2",
    "fails": "pytest.fail('no')",
    "rig": "raise RigError('the rig broke')",
    "odd": "{}['no such key']",
    "asks": "raise RequestError('no such kernel')",
    "lacks": "raise RequirementMissing('no such tool')",
    "invalid": "raise ControlFailed('the control passed')",
    "unsure": "raise Inconclusive('nothing showed')",
    "interrupts": "raise KeyboardInterrupt",
}
SCENARIOS = "import pytest\nfrom raidproof.core.errors import *\n" + "".join(
    f"def test_{name}():\n    {body}\n" for name, body in ENDS.items()
)


def status_after(pytester: pytest.Pytester, *arguments: str) -> int:
    """Return the exit status in this process: a process of its own takes seconds to start."""
    ends = ExitStatus()
    return ends.of(int(pytester.runpytest_inprocess(*arguments, plugins=[ends]).ret))


def status_of_program(pytester: pytest.Pytester, *arguments: str) -> int:
    return pytester.run(sys.executable, "-m", "raidproof.pytest_plugin", *arguments).ret


@pytest.mark.parametrize(
    ("names", "status"),
    [
        ("asserts or passes or unsure", Status.FAIL),
        ("odd", Status.ERROR),
        ("asks", Status.BAD_REQUEST),
        ("lacks", Status.REQUIREMENT_MISSING),
        ("invalid or breaks or rig or fails", Status.FAIL),
        ("invalid or rig or passes", Status.INVALID),
        ("no_such_scenario", Status.BAD_REQUEST),
    ],
)
def test_each_end_has_its_status(pytester: pytest.Pytester, names: str, status: Status) -> None:
    pytester.makepyfile(SCENARIOS)
    assert status_after(pytester, "-k", names) == status


def test_an_interruption_has_its_status(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SCENARIOS)
    assert status_of_program(pytester, "-k", "interrupts") == Status.INTERRUPTED


def test_no_warning_about_modules_that_the_program_has_imported(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SCENARIOS)
    ended = pytester.run(sys.executable, "-m", "raidproof.pytest_plugin", "-k", "passes")
    ended.assert_outcomes(passed=1, deselected=len(ENDS) - 1, warnings=0)


def test_workers_report_the_same(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SCENARIOS)
    assert status_of_program(pytester, "-k", "unsure or passes", "-n", "1") == Status.INCONCLUSIVE


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["--no-such-option"], Status.BAD_REQUEST), (["--version"], Status.PASS)],
)
def test_bad_usage(pytester: pytest.Pytester, arguments: list[str], status: Status) -> None:
    assert status_after(pytester, *arguments) == status


def test_a_file_that_cannot_be_imported_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import no_such_module")
    assert status_after(pytester) == Status.ERROR


def test_a_fixture_that_fails_is_an_error_and_an_expected_failure_none(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_set_up="import pytest\n@pytest.fixture\ndef one(): {}['x']\ndef test_it(one): pass",
        test_expected="import pytest\n@pytest.mark.xfail\ndef test_it(): assert False",
        test_unexpected="import pytest\n@pytest.mark.xfail(strict=True)\ndef test_it(): pass",
    )
    for file, status in (("set_up", Status.ERROR), ("expected", Status.PASS), ("unexpected", Status.FAIL)):
        assert status_after(pytester, f"test_{file}.py") == status


def test_the_command_scenarios_returns_these_statuses() -> None:
    home = Path(__file__).resolve().parents[2]
    words = [sys.executable, "-m", "raidproof", "scenarios", "scenarios/no_such_file.py"]
    ended = subprocess.run(words, cwd=home, capture_output=True, text=True, check=False)
    assert ended.returncode == Status.BAD_REQUEST, ended.stderr


def test_missing_requirements_count_only_alone() -> None:
    assert worst([]) is Status.PASS
    assert worst([Status.SKIP, Status.SKIP]) is Status.REQUIREMENT_MISSING
    assert worst([Status.SKIP, Status.PASS]) is Status.PASS
    assert worst([Status.FAIL, Status.ERROR, Status.INVALID]) is Status.FAIL
    assert worst([Status.ERROR, Status.INVALID, Status.PASS]) is Status.INVALID


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RigError("x"), Status.ERROR),
        (NotEffective("x"), Status.FAIL),
        (RequestError("x"), Status.BAD_REQUEST),
        (AssertionError(), Status.FAIL),
        (KeyError("x"), Status.ERROR),
    ],
)
def test_status_of_an_error(error: Exception, status: Status) -> None:
    assert status_of(error, outcome_of(error)) is status
