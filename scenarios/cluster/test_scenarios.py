"""Scenarios on two workers of this host: each file is a task, and the results of all files are one JUnit XML file."""

import subprocess
import sys
from pathlib import Path

import pytest
from junitparser import JUnitXml

from raidproof.core.errors import Status

HOME = Path(__file__).resolve().parents[2]
FILES = {
    "scenarios/durability/test_power_cut.py": "test_ext4_keeps_every_promise",
    "scenarios/faults/test_services.py": "test_killed_nfs_service_loses_nothing",
}
"""Files of scenarios, and the one scenario of each that runs."""
RUN_S = 600.0


@pytest.mark.exhaustive
def test_two_workers_run_two_files(tmp_path: Path) -> None:
    words = [*FILES, "-k", " or ".join(FILES.values()), "--results", str(tmp_path), "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "raidproof", "scenarios", "--cluster", "local:2", *words],
        cwd=HOME,
        timeout=RUN_S,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == Status.PASS, done.stdout + done.stderr
    cases = [case for suite in JUnitXml.fromfile(str(tmp_path / "junit.xml")) for case in suite]
    assert all(case.is_passed for case in cases)
    assert {str(case.name).partition("[")[0] for case in cases} == {*FILES.values()}
    # Each file has a run of its own, whose files are here.
    assert len([*tmp_path.glob("*/*-scenarios/report.json")]) == len(FILES)
