import pytest

from raidproof.pytest_plugin.plugin import put_in_order

SCENARIOS = """
import os
from pathlib import Path
import pytest
from raidproof.core.log import step
from raidproof.core.waiting import pause

LOG = Path(__file__).with_name("said")

def note(word):
    with LOG.open("a") as file:
        file.write(word + "\\n")

@pytest.mark.alone
def test_measures():
    note("alone begins")
    pause(0.2)
    note("alone ends")

@pytest.mark.parametrize("number", range(8))
def test_others(number):
    step(f"at work on {number}")
    note(f"other {number} begins")
    pause(0.05)
    note(f"other {number} ends")
"""
RUNS = """
import pytest
from raidproof.pytest_plugin import plugin

def ends_of(config):
    return [f"report: results/{config.workerinput['workerid']}/report.html"] if hasattr(config, "workerinput") else []

@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    plugin.ends_of = ends_of
"""
OUTCOMES = """
from raidproof.core.errors import Inconclusive, RequirementMissing

def test_one(): raise Inconclusive("nothing showed")
def test_other(): raise RequirementMissing("no such tool")
"""


def test_two_workers(pytester: pytest.Pytester) -> None:
    """Start pytest with workers once, which takes seconds, and check all that holds for workers."""
    pytester.makeconftest(RUNS)
    pytester.makepyfile(test_outcomes=OUTCOMES, test_scenarios=SCENARIOS)
    ended = pytester.runpytest_subprocess("-n", "2", "--dist", "load", "--junitxml=junit.xml")
    # What measures runs alone, after the others had their turn.
    said = (pytester.path / "said").read_text().splitlines()
    begun = said.index("alone begins")
    assert said[begun + 1] == "alone ends"
    assert begun > 8
    # Progress names the worker.
    for number in range(8):
        assert any(line in (f"gw0: at work on {number}", f"gw1: at work on {number}") for line in ended.errlines)
    # The ends of the workers' runs are printed.
    ended.stdout.fnmatch_lines_random(["report: results/gw0/report.html", "report: results/gw1/report.html"])
    # Outcomes keep their words.
    ended.stdout.fnmatch_lines(["*nothing showed*", "*9 passed, 1 skipped, 1 inconclusive*"])
    assert 'type="INCONCLUSIVE"' in (pytester.path / "junit.xml").read_text()


def test_a_file_that_measures_is_the_last(pytester: pytest.Pytester) -> None:
    quick = "def test_quick(): pass"
    pytester.makepyfile(
        test_a_measures=f"import pytest\n{quick}\n@pytest.mark.alone\ndef test_alone(): pass",
        test_b_quick=quick,
        test_c_quick=quick,
    )
    items, _ = pytester.inline_genitems()
    # Workers take the files in this order with --dist=loadfile --no-loadscope-reorder.
    put_in_order(items)
    assert [item.nodeid for item in items] == [
        "test_b_quick.py::test_quick",
        "test_c_quick.py::test_quick",
        "test_a_measures.py::test_quick",
        "test_a_measures.py::test_alone",
    ]


def test_without_workers_no_scenario_waits(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SCENARIOS)
    pytester.runpytest_inprocess().assert_outcomes(passed=9)
