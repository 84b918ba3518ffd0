import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from raidproof.core.errors import RequestError, RigError
from raidproof.core.topology import server_and_clients
from raidproof.lab import lab_directory
from raidproof.lab.lab_directory import ENTRY, LONGEST_PATH, LabDirectory, ProcessIdentity, all_labs, labs_directory
from raidproof.machine.login import LabKeys

SLEEP = shutil.which("sleep") or "sleep"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(lab_directory, "LONGEST_PATH", 4096)
    return tmp_path


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([SLEEP, "1000"]) as process:
        yield process
        process.kill()


def test_a_lab_notes_its_maker_before_anybody_sees_it() -> None:
    made = LabDirectory.create()
    assert [lab.path for lab in all_labs()] == [made.path]
    assert made.path.stat().st_mode & 0o777 == 0o700
    entry = made.entry
    assert entry is not None
    assert entry.harness == ProcessIdentity.of(os.getpid())
    assert entry.running
    assert not entry.kept
    made.remove()
    assert all_labs() == []


def test_a_kept_lab_stores_what_a_shell_needs(sleeper: subprocess.Popen[bytes]) -> None:
    made, keys, topology = LabDirectory.create(), LabKeys.generate(), server_and_clients(clients=1)
    made.register(sleeper.pid, topology)
    assert made.entry is not None
    assert made.entry.lab_keys is None
    made.mark_kept(keys)
    entry = made.entry
    assert entry.kept
    assert entry.lab_keys == keys
    assert entry.topology == topology
    assert (made.path / ENTRY).stat().st_mode & 0o777 == 0o600


def test_a_kept_lab_runs_as_long_as_its_keeper(sleeper: subprocess.Popen[bytes]) -> None:
    made = LabDirectory.create()
    made.register(sleeper.pid, server_and_clients())
    assert made.entry is not None
    gone = made.entry.harness.model_copy(update={"started": 1})
    orphan = made.entry.model_copy(update={"harness": gone})
    assert not orphan.running
    kept = orphan.model_copy(update={"kept": True})
    assert kept.running
    sleeper.kill()
    sleeper.wait()
    assert not kept.running


def test_a_process_is_not_taken_for_a_later_one_of_its_number(sleeper: subprocess.Popen[bytes]) -> None:
    living = ProcessIdentity.of(sleeper.pid)
    for other in ({"started": living.started - 1}, {"boot_id": "another"}):
        stranger = living.model_copy(update=other)
        assert not stranger.alive
        assert not stranger.kill()
    assert living.alive
    assert sleeper.poll() is None


def test_a_process_is_ended_and_waited_for(sleeper: subprocess.Popen[bytes]) -> None:
    process = ProcessIdentity.of(sleeper.pid)
    assert process.kill()
    assert not process.alive  # not reaped yet: what is left of it runs no more
    sleeper.wait()
    assert not process.kill()
    with pytest.raises(ProcessLookupError):
        ProcessIdentity.of(sleeper.pid)


def test_an_odd_name_does_not_confuse_the_identity(tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 2 (b"
    program.symlink_to(sys.executable)
    with subprocess.Popen([program, "-c", "input()"], stdin=subprocess.PIPE) as process:
        process_identity = ProcessIdentity.of(process.pid)
        assert process_identity.started >= ProcessIdentity.of(os.getpid()).started
        process.kill()


def test_an_entry_of_another_version_is_refused() -> None:
    made = LabDirectory.create()
    (made.path / ENTRY).write_text('{"harness": [1, 2.0]}')
    with pytest.raises(RigError, match="another version"):
        _ = made.entry


def test_a_lost_entry_is_an_error() -> None:
    made = LabDirectory.create()
    made.remove()
    with pytest.raises(RigError, match="the lab was removed"):
        made.mark_kept(LabKeys.generate())


def test_a_path_too_long_for_sockets_is_refused(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_directory, "LONGEST_PATH", LONGEST_PATH)
    base = f"/{'x' * (LONGEST_PATH - len(f'//raidproof-{os.getuid()}/12345678') + 1)}"
    monkeypatch.setattr(tempfile, "gettempdir", lambda: base)
    with pytest.raises(RequestError, match=r"is 1 bytes too long .*set TMPDIR"):
        labs_directory()


def test_a_folder_that_is_a_link_is_not_used(temporary: Path) -> None:
    (temporary / "elsewhere").mkdir()
    (temporary / f"raidproof-{os.getuid()}").symlink_to(temporary / "elsewhere")
    with pytest.raises(RigError, match="another user"):
        LabDirectory.create()
