"""Temporary folders: a killed process leaves one behind, which is removed; one in use is not."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from raidproof.core.scratch import PREFIX, remove_abandoned, scratch_folder

HOLD = """
import sys
from raidproof.core.scratch import scratch_folder
with scratch_folder("held") as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the folder of temporary files of this test and of its processes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def age(folder: Path) -> None:
    os.utime(folder, (0, 0))


def test_a_folder_exists_for_the_duration_of_the_context(temporary: Path) -> None:
    with scratch_folder("probe") as folder:
        assert folder.parent == temporary
        assert folder.name.startswith(f"{PREFIX}probe-")
        (folder / "file").touch()
    assert not folder.exists()


def test_only_the_folder_of_a_killed_process_is_removed(temporary: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        held = Path(process.stdout.readline().strip())
        age(held)
        foreign = temporary / "raidproof-other"
        foreign.mkdir()
        age(foreign)
        assert list(remove_abandoned()) == []
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert held.exists()
    assert list(remove_abandoned()) == [held]
    assert [*temporary.iterdir()] == [foreign]


def test_a_new_folder_may_not_be_locked_yet(temporary: Path) -> None:
    (temporary / f"{PREFIX}probe-1").mkdir()
    assert list(remove_abandoned()) == []
