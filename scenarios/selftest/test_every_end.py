"""The harness reports FAIL, ERROR, SKIP, INVALID and INCONCLUSIVE: a real event causes each of these outcomes.

A second pytest runs `trials.py`. Its terminal output, JUnit XML and record must have the right outcome of each trial.
"""

import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped, TestCase

from raidproof.core import log
from raidproof.record import CrashTestRecord, RunRecord, RunStore
from raidproof.record.outcome import Outcome
from raidproof.run.platform import words_of
from raidproof.run.run import Run

TRIALS = Path(__file__).with_name("trials.py")
DEADLINE_S = 900.0
"""Deadline of all trials together in seconds. Without a hang they take about 80 s."""


class Trials(NamedTuple):
    """The results of the second pytest: exit status, terminal output, JUnit XML by test, and record."""

    status: int
    terminal: str
    junit: dict[str, TestCase]
    record: RunRecord

    def cycle(self, name: str) -> CrashTestRecord:
        """Return the record of the crash test with this name."""
        return next(cycle for cycle in self.record.cycles if cycle.name == name)

    def must_end(self, trial: str, word: str, element: type[object], *reasons: str) -> None:
        """Assert that the terminal output and the JUnit XML have a trial's outcome, with these parts of the reason."""
        __tracebackhide__ = True
        assert re.search(rf"::{trial} {word}\b", self.terminal), self.terminal
        result = self.junit[trial].result
        assert [type(one) for one in result] == [element], result
        said = f"{result[0].message}\n{result[0].text}"
        for reason in reasons:
            assert reason in said, said


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory, current_run: Run) -> Trials:
    """Run the trials once, in a second pytest, so that their outcomes do not change the outcome of this run."""
    home = tmp_path_factory.mktemp("trials")
    command = [sys.executable, "-m", "pytest", str(TRIALS), "-v", "-p", "no:cacheprovider", "--color=no"]
    command += words_of(current_run.topology)
    command += [f"--results={home / 'results'}", f"--junitxml={home / 'junit.xml'}"]
    status, terminal = pytest_of(command)
    assert (home / "junit.xml").is_file(), terminal
    cases = {case.name: case for suite in JUnitXml.fromfile(str(home / "junit.xml")) for case in suite}
    (run,) = (home / "results").iterdir()
    return Trials(status, terminal, cases, RunStore(run).load())


def pytest_of(command: list[str]) -> tuple[int, str]:
    """Run a pytest command, show its progress, and return its exit status and its output."""
    said: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        late = threading.Timer(DEADLINE_S, child.terminate)
        late.start()
        try:
            assert child.stdout is not None
            for line in child.stdout:
                said.append(line)
                if line.strip() and not any(one.startswith("====") for one in said[1:]):
                    log.step(f"  trial: {line.rstrip()}")
        except BaseException:
            # The lab of the second pytest must not survive this test.
            child.terminate()
            raise
        finally:
            late.cancel()
    return child.returncode, "".join(said)


def test_lying_disks_fail_and_are_named(trials: Trials) -> None:
    trials.must_end("test_lying_disks", "FAILED", Failure, "disk0, disk1, disk2, disk3 acknowledged flushes")
    assert trials.cycle("lying-disks").outcome is Outcome.FAIL


def test_one_lying_disk_of_four_is_found(trials: Trials) -> None:
    trials.must_end("test_one_lying_disk_of_four", "FAILED", Failure, "the disks: disk2 acknowledged flushes")
    assert trials.cycle("one-lying-disk-of-four").outcome is Outcome.FAIL


def test_oops_fails_a_scenario_without_assertions(trials: Trials) -> None:
    trials.must_end("test_oops", "FAILED", Failure, "kernel log: server: oops")


def test_crashed_init_is_an_error(trials: Trials) -> None:
    trials.must_end("test_crashed_init", "ERROR", Error, "Attempted to kill init")


def test_stuck_mount_is_an_error(trials: Trials) -> None:
    # The client correctly waits for ever. The rig is at fault, as it did not start nfsd again.
    trials.must_end("test_stuck_mount", "ERROR", Error, "gave up waiting for a client to continue")
    assert trials.cycle("stuck-mount").outcome is Outcome.ERROR


def test_missing_tool_is_a_skip_with_its_reason(trials: Trials) -> None:
    trials.must_end("test_missing_tool", "SKIPPED", Skipped, "client1 has no fio")
    assert trials.cycle("missing-tool").outcome is Outcome.SKIP


def test_control_that_sees_nothing_is_invalid_and_hides_no_failure(trials: Trials) -> None:
    trials.must_end(
        "test_control_that_passes", "INVALID", Error, "expected a loss of acknowledged operations, but none was lost"
    )
    assert trials.cycle("control-that-passes").outcome is Outcome.INVALID
    assert trials.record.outcome is Outcome.FAIL


def test_nothing_lost_under_async_is_inconclusive(trials: Trials) -> None:
    trials.must_end("test_async_export_that_loses_nothing", "INCONCLUSIVE", Error, "survived this fault")
    assert trials.cycle("async-export-that-loses-nothing").outcome is Outcome.INCONCLUSIVE


def test_pytest_counts_each_outcome_by_its_name(trials: Trials) -> None:
    summary = trials.terminal.splitlines()[-1]
    for counted in ("3 failed", "1 skipped", "2 errors", "1 invalid", "1 inconclusive"):
        assert counted in summary
    assert trials.status == pytest.ExitCode.TESTS_FAILED
