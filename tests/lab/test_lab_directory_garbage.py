import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from raidproof.cli.main import gc
from raidproof.core.errors import RigError
from raidproof.core.scratch import PREFIX
from raidproof.core.topology import server_and_clients
from raidproof.image import cache
from raidproof.lab import lab_directory
from raidproof.lab.lab_directory import ENTRY, LabDirectory, LabEntry, ProcessIdentity, collect
from raidproof.machine.login import LabKeys

SLEEP = shutil.which("sleep") or "sleep"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(lab_directory, "LONGEST_PATH", 4096)
    monkeypatch.setenv("RAIDPROOF_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def keeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([SLEEP, "1000"]) as process:
        yield process
        process.kill()


def lab_of(keeper: subprocess.Popen[bytes], *, harness_lives: bool, kept: bool) -> LabDirectory:
    lab = LabDirectory.create()
    lab.register(keeper.pid, server_and_clients())
    if kept:
        lab.mark_kept(LabKeys.generate())
    if not harness_lives:
        entry = lab.entry
        assert entry is not None
        dead = entry.harness.model_copy(update={"started": entry.harness.started - 1})
        (lab.path / ENTRY).write_text(LabEntry.model_copy(entry, update={"harness": dead}).model_dump_json())
    return lab


def test_there_is_nothing_to_do() -> None:
    assert list(collect()) == []


def test_a_running_lab_is_left_alone(keeper: subprocess.Popen[bytes]) -> None:
    lab = lab_of(keeper, harness_lives=True, kept=False)
    assert list(collect(kept=True)) == []
    assert lab.path.exists()
    assert keeper.poll() is None


def test_a_lab_whose_harness_was_killed_goes_with_its_keeper(keeper: subprocess.Popen[bytes]) -> None:
    lab = lab_of(keeper, harness_lives=False, kept=False)
    assert list(collect()) == [
        f"ended and removed lab {lab.name}: process {os.getpid()}, which created the lab, was killed"
    ]
    assert not lab.path.exists()
    assert keeper.wait() == -9
    assert list(collect()) == []


def test_a_lab_of_machines_that_exist_goes_although_nothing_holds_it_together() -> None:
    lab = LabDirectory.create()
    with socket.socket(socket.AF_UNIX) as ear:
        ear.bind(str(lab.path / "ear"))
        assert list(collect(kept=True)) == []
        entry = lab.entry
        assert entry is not None
        dead = entry.harness.model_copy(update={"started": entry.harness.started - 1})
        (lab.path / ENTRY).write_text(entry.model_copy(update={"harness": dead}).model_dump_json())
        assert list(collect()) == [f"removed lab {lab.name}: process {os.getpid()}, which created the lab, was killed"]
    assert not lab.path.exists()


def test_a_strangers_process_with_the_keepers_number_is_not_touched(keeper: subprocess.Popen[bytes]) -> None:
    lab = lab_of(keeper, harness_lives=False, kept=False)
    entry = lab.entry
    assert entry is not None
    assert entry.keeper is not None
    earlier = entry.keeper.model_copy(update={"started": entry.keeper.started - 1})
    (lab.path / ENTRY).write_text(entry.model_copy(update={"keeper": earlier}).model_dump_json())
    assert list(collect()) == [f"removed lab {lab.name}: process {os.getpid()}, which created the lab, was killed"]
    assert keeper.poll() is None


def test_a_kept_lab_ends_only_when_that_is_asked_for(keeper: subprocess.Popen[bytes]) -> None:
    lab = lab_of(keeper, harness_lives=False, kept=True)
    assert list(collect()) == [f"did not touch lab {lab.name}, which was kept (./raidproof gc --kept ends the lab)"]
    assert lab.path.exists()
    assert list(collect(kept=True)) == [f"ended and removed lab {lab.name}, which was kept"]
    assert keeper.wait() == -9
    assert not lab.path.exists()


def test_a_kept_lab_that_has_ended_is_removed(keeper: subprocess.Popen[bytes]) -> None:
    lab = lab_of(keeper, harness_lives=False, kept=True)
    keeper.kill()
    keeper.wait()
    assert list(collect()) == [
        f"removed lab {lab.name}: the lab was kept, but the process that keeps its namespaces has ended"
    ]


def test_a_lab_whose_maker_did_not_get_far(temporary: Path) -> None:
    lab = LabDirectory.create()
    (lab.path / ENTRY).unlink()
    assert list(collect()) == [f"removed lab {lab.name}: the process that was creating it was killed"]


def test_a_lab_of_another_version_is_left_alone() -> None:
    lab = LabDirectory.create()
    (lab.path / ENTRY).write_text("{}")
    (said,) = collect(kept=True)
    assert said.startswith(f"did not touch lab {lab.name}: another version")
    assert lab.path.exists()


def test_garbage_that_cannot_be_removed_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = LabDirectory.create()
    (lab.path / ENTRY).unlink()
    monkeypatch.setattr(LabDirectory, "remove", lambda _: None)
    with pytest.raises(RigError, match="cannot remove"):
        list(collect())


def test_half_built_artefacts_go() -> None:
    partial = cache.root() / "image" / f"abc{cache.PARTIAL}"
    partial.mkdir(parents=True)
    assert list(collect()) == [f"removed partial build of image {partial}"]
    assert not partial.exists()


def test_folders_of_killed_processes_go(temporary: Path) -> None:
    folder = temporary / f"{PREFIX}recover-1"
    folder.mkdir()
    os.utime(folder, (0, 0))
    assert list(collect()) == [f"removed {folder}, the folder of a process that was killed"]


def test_identity_is_of_this_boot() -> None:
    assert ProcessIdentity.of(os.getpid()).boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_the_command_reports_each_removal_or_that_there_was_none(capsys: pytest.CaptureFixture[str]) -> None:
    lab = LabDirectory.create()
    (lab.path / ENTRY).unlink()
    gc()
    gc()
    said = capsys.readouterr().out.splitlines()
    assert said == [f"removed lab {lab.name}: the process that was creating it was killed", "found nothing to remove"]
