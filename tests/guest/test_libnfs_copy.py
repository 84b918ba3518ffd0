"""The copy of an export, whose calls a local directory answers in place of libnfs."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from raidproof.guest import libnfs_copy
from raidproof.guest.ledger_reader import names
from raidproof.guest.libnfs_copy import Copy, library


class Local:
    """A local directory with the methods of `libnfs_copy.Export`."""

    def __init__(self, root: Path, *, short: int = 0) -> None:
        """``short``: bytes that are missing at the end of each file."""
        self.root, self.short = root, short

    def status(self, path: str) -> SimpleNamespace:
        found = os.lstat(f"{self.root}{path}")
        return SimpleNamespace(mode=found.st_mode, ino=found.st_ino, size=found.st_size)

    def names(self, path: str) -> list[str]:
        return sorted(one.name for one in Path(f"{self.root}{path}").iterdir())

    def target(self, path: str) -> str:
        return str(Path(f"{self.root}{path}").readlink())

    def data(self, path: str, begin: int) -> Iterator[bytes]:
        with Path(f"{self.root}{path}").open("rb") as file:
            file.seek(begin)
            content = file.read()
        yield content[: len(content) - self.short]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    (root / "folder" / "inner").mkdir(parents=True)
    (root / "file").write_bytes(b"+" * 100)
    (root / "folder" / "link").hardlink_to(root / "file")
    (root / "folder" / "symlink").symlink_to("../nowhere")
    os.mkfifo(root / "pipe", 0o600)
    (root / "file").chmod(0o640)
    (root / "folder" / "inner").chmod(0o500)
    return root


def test_a_copy_has_the_names_modes_links_and_data_of_its_source(source: Path, tmp_path: Path) -> None:
    Copy(Local(source), str(tmp_path / "copy")).make()
    copied = names(str(tmp_path / "copy"))
    assert copied == names(str(source))
    assert (tmp_path / "copy" / "file").samefile(tmp_path / "copy" / "folder" / "link")
    assert copied["folder/symlink"][3] == "../nowhere"
    assert copied["file"][:3] == [0o100640, 100, 2]


def test_of_a_large_file_the_last_bytes_are_copied_to_the_same_place(source: Path, tmp_path: Path) -> None:
    size = libnfs_copy.LARGE + 7
    with (source / "large").open("wb") as file:
        file.seek(size - 3)
        file.write(b"end")
    Copy(Local(source), str(tmp_path / "copy")).make()
    copy = tmp_path / "copy" / "large"
    assert copy.stat().st_size == size
    with copy.open("rb") as file:
        file.seek(size - 4)
        assert file.read() == b"\0end"


def test_a_file_that_ends_early_is_an_error(source: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="/file has 99 bytes instead of 100"):
        Copy(Local(source, short=1), str(tmp_path / "copy")).make()


def test_a_name_of_another_kind_is_an_error(source: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(source / "socket"))
        with pytest.raises(OSError, match="/socket has the kind 0140000"):
            Copy(Local(source), str(tmp_path / "copy")).make()


def test_a_machine_without_libnfs_has_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libnfs_copy, "LIBRARIES", ("libnfs-of-no-machine.so.1",))
    assert library() is None
