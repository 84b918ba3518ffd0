"""Failures of explorations are named by the findings of the clone."""

from pathlib import Path

import pytest

from raidproof.core.errors import RequestError
from raidproof.crash.exploration import Budget
from raidproof.record.finding import load_findings
from raidproof.run import named
from raidproof.run.crash_states import Options
from raidproof.run.exploration import explore_cycle
from raidproof.run.findings import FOLDER
from raidproof.run.source import source_of
from tests.crash.stored import OnFakes, store_run

OPTIONS = Options(Budget(None), checkers=1, crash_page=False)
TEXT = """
title = "an early write"
short = "early"
layer = "md"
wrong = ""
software = ""
reproduce = ""
evidence = ""
state = ""
no_reproducer = "made up"

[[crash_states]]
damages = ["write + fsync: *"]
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "clone"
    (folder / FOLDER).mkdir(parents=True)
    (folder / "tox.ini").touch()
    monkeypatch.setattr(named, "HOME", folder)
    return folder


def names(path: Path) -> tuple[set[str | None], str]:
    record, _ = explore_cycle(OnFakes.of(source_of(store_run(path))), OPTIONS)
    assert record.failures
    return {one.finding for one in record.failures}, record.reason


def test_a_failure_that_agrees_with_a_finding_gets_its_name(tmp_path: Path, home: Path) -> None:
    (home / FOLDER / "md-early.toml").write_text(TEXT)
    found, reason = names(tmp_path / "run")
    assert found == {"md-early"}
    assert "agrees with the finding md-early" in reason


@pytest.mark.parametrize("changed", ['levels = ["0"]', 'filesystems = ["zfs"]', 'servers = ["none"]', 'since = "99"'])
def test_the_software_that_was_tested_must_agree(tmp_path: Path, home: Path, changed: str) -> None:
    (home / FOLDER / "md-early.toml").write_text(f"{TEXT}{changed}\n")
    assert names(tmp_path / "run")[0] == {None}


def test_an_installed_package_names_no_finding(tmp_path: Path, home: Path) -> None:
    (home / "tox.ini").unlink()
    assert named.folder_of_findings() is None
    found, reason = names(tmp_path / "run")
    assert found == {None}
    assert "finding" not in reason


def test_a_file_that_is_no_finding_loses_no_result(tmp_path: Path, home: Path) -> None:
    (home / FOLDER / "md-early.toml").write_text("title = 1\n")
    assert names(tmp_path / "run")[0] == {None}


def test_a_file_that_is_no_finding_is_an_error(tmp_path: Path, home: Path) -> None:
    (home / FOLDER / "md-early.toml").write_text("title = 1\n")
    with pytest.raises(RequestError, match=r"md-early\.toml"):
        load_findings(home / FOLDER)
