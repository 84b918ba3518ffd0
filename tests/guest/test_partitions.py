"""Partitions of disks in the kernel: the program of the guest, on a folder in place of /sys, and without its ioctl."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from raidproof.guest import partitions
from raidproof.guest.partitions import PART, SECTOR, add, main, named, remove

SIZE = 192 << 20


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The ioctl calls, each of which makes or removes a folder below ``tmp_path / "class"``."""
    made: list[tuple[str, int]] = []

    def control(disk: str, operation: int, length: int = 0) -> None:
        made.append((disk, operation))
        folder = tmp_path / "class" / named(disk)
        if operation == partitions.REMOVE:
            folder.rmdir()
            return
        assert length == SIZE
        folder.mkdir()

    monkeypatch.setattr(partitions, "_CLASS", str(tmp_path / "class"))
    monkeypatch.setattr(partitions, "control", control)
    (tmp_path / "class" / "vdb").mkdir(parents=True)
    (tmp_path / "class" / "vdb" / "size").write_text(f"{SIZE // SECTOR}\n")
    (tmp_path / "disk0").symlink_to("/dev/vdb")
    return made


@pytest.mark.parametrize(("disk", "name"), [("vdb", "vdb1"), ("sda", "sda1"), ("nvme0n1", "nvme0n1p1")])
def test_the_name_of_a_partition(disk: str, name: str) -> None:
    assert named(disk) == name


def test_a_partition_is_added_once_with_its_link_and_removed(tmp_path: Path, calls: list[tuple[str, int]]) -> None:
    path = str(tmp_path / "disk0")
    add(path)
    add(path)
    assert calls == [("vdb", partitions.ADD)]
    assert (tmp_path / f"disk0{PART}").readlink() == Path("/dev/vdb1")
    remove(path)
    remove(path)
    assert calls == [("vdb", partitions.ADD), ("vdb", partitions.REMOVE)]
    assert not (tmp_path / f"disk0{PART}").is_symlink()


def test_a_link_to_a_partition_of_an_earlier_boot_is_replaced(tmp_path: Path, calls: list[tuple[str, int]]) -> None:
    link = tmp_path / f"disk0{PART}"
    link.symlink_to("/dev/vdz1")
    add(str(tmp_path / "disk0"))
    assert calls == [("vdb", partitions.ADD)]
    assert link.readlink() == Path("/dev/vdb1")


def test_a_failure_names_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: list[tuple[str, int]]
) -> None:
    def refused(disk: str, operation: int, length: int = 0) -> None:
        del operation, length
        raise OSError(errno.EBUSY, "in use", disk)

    monkeypatch.setattr(partitions, "control", refused)
    with pytest.raises(SystemExit, match=r"disk0: \[Errno 16\] in use: 'vdb'"):
        main(["add", str(tmp_path / "disk0")])
    assert calls == []


def test_the_program_runs_alone_and_fails_for_a_disk_that_does_not_exist(tmp_path: Path) -> None:
    words = [sys.executable, "-I", "-", "add", str(tmp_path / "absent")]
    program = Path(partitions.__file__).read_text()
    ended = subprocess.run(words, input=program, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "absent: " in ended.stderr
