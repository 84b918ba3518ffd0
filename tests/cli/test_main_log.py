import errno
import os
from pathlib import Path

import pytest

from raidproof.cli.main import main
from raidproof.disk.replay import SECTOR
from tests.crash.stored import store_run


@pytest.fixture
def run(tmp_path: Path) -> str:
    return str(store_run(tmp_path / "run").path)


def test_a_disks_log_is_written_whole(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "disk0.log"
    assert main(["export-log", run, "disk0", str(file)]) == 0
    assert file.stat().st_size > SECTOR
    assert f"entries in {file}" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"run", "disk0.log"}


@pytest.mark.parametrize(
    ("words", "said"),
    [(["dsk0", "new"], "'dsk0'; members: disk0, disk1"), (["disk0", "nowhere/new"], "cannot write")],
)
def test_what_cannot_be_written_is_said_and_leaves_nothing(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["export-log", run, words[0], str(tmp_path / words[1])]) == 2
    assert said in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


def test_a_full_disk_leaves_nothing(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_log: object, _disk: str, path: Path) -> int:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("raidproof.disk.replay.export_dm_log_writes", full)
    assert main(["export-log", run, "disk0", str(tmp_path / "new")]) == 2
    assert "free some space" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


def test_nothing_that_is_there_is_written_over(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine"
    file.write_text("mine")
    assert main(["export-log", run, "disk0", str(file)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert file.read_text() == "mine"
