"""A storm with a planted defect of the disks: found within a few seeds, shrunk, and written as a scenario."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from raidproof.core.blame import Culprit
from raidproof.core.topology import Platform
from raidproof.disk.cache import CacheMode
from raidproof.plan.cell import Matrix, matrix_of
from raidproof.plan.plan import read_plan
from raidproof.record.outcome import Outcome
from raidproof.record.storm import STORM, STORM_PAGE, StormRecord
from raidproof.run.platform import platform_of
from raidproof.run.storm import storm
from raidproof.run.storm.case import Case

PLAN = {
    "hardware": {"disks": {"count": 4, "size": "288MiB"}, "clients": 1},
    "fixed": {"level": 10, "chunk": "64KiB", "delegations": False, "timeo": "3s"},
    "workload": {"tool": "dd"},
}
KINDS = ["network-cut", "nfsd-restart", "power-cut"]
SEEDS = (1, 3)
"""Seeds of which one has no power cut, and one has several."""
SMALLER = 6
"""Number of smaller cases: enough to leave out all but one fault."""


@pytest.fixture
def matrix() -> Matrix:
    return matrix_of(read_plan(PLAN, source="plan"))


@pytest.fixture
def platform(pytestconfig: pytest.Config) -> Platform:
    return platform_of(vars(pytestconfig.option))


@pytest.mark.exhaustive
def test_disks_that_drop_flushes_are_found_and_shrunk_and_sound_disks_are_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, matrix: Matrix, platform: Platform
) -> None:
    sound, _ = storm.run_storm(matrix, tmp_path / "sound", SEEDS, platform=platform, kinds=KINDS)
    assert [row.reason for row in sound.rows if row.outcome is Outcome.FAIL] == []
    drawn = storm.spec_of
    with monkeypatch.context() as planted:
        planted.setattr(storm, "spec_of", lambda *given: lying(drawn, *given))
        planted.setattr(storm, "MOST_SMALLER", SMALLER)
        found, page = storm.run_storm(matrix, tmp_path / "lying", SEEDS, platform=platform, kinds=KINDS)
    failed = [row for row in found.rows if row.outcome is Outcome.FAIL]
    assert failed
    assert found.outcome is Outcome.FAIL
    for row in failed:
        assert {one.culprit for one in row.blamed} == {Culprit.DISKS}
        assert row.repeated
        assert row.shrunk is not None
        assert row.shrunk.case.names == ["power-cut"]
    assert page.name == STORM_PAGE
    stored = StormRecord.model_validate_json((page.parent / STORM).read_text())
    assert stored == found
    # The scenario has the schedule, and not the defect of the disks: it runs, and passes.
    assert failed[0].shrunk is not None
    scenario = page.parent / failed[0].shrunk.scenario
    command = [sys.executable, "-m", "pytest", "-q", str(scenario), "--results", str(tmp_path / "again")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 passed" in ended.stdout


def lying(spec_of: object, name: str, seed: int, case: Case) -> object:
    """Return the crash test of a case on disks that acknowledge flushes and keep nothing."""
    assert callable(spec_of)
    return spec_of(name, seed, replace(case, cache_mode=CacheMode.LYING))
