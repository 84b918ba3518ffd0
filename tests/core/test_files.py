import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.files import make_directory, rename_durably, sync_directory, sync_tree, write_durably


class Synced:
    """The paths of the files and directories that were synchronized, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        real = os.fsync

        def fsync(descriptor: int) -> None:
            self.paths.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
            real(descriptor)

        monkeypatch.setattr("os.fsync", fsync)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Synced:
    return Synced(monkeypatch)


def test_an_error_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space") as caught:
        write_durably(tmp_path / "file", "content")
    assert caught.value.filename == str(tmp_path / "file")


def test_content_is_durable_before_the_name_and_the_name_before_the_return(tmp_path: Path, synced: Synced) -> None:
    write_durably(tmp_path / "record", "new")
    content, name = synced.paths
    assert Path(content).parent == tmp_path
    assert Path(content).name.startswith(".record.")
    assert name == str(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["record"]


@given(before=st.text(), after=st.text())
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, before: str, after: str) -> None:
    path = tmp_path_factory.mktemp("files") / "x"
    write_durably(path, before)
    write_durably(path, after)
    assert path.read_bytes() == after.encode()


@pytest.mark.parametrize("failing", ["os.fsync", "pathlib.Path.rename"])
def test_a_full_disk_leaves_the_old_content_and_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "record"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(failing, full)
    with pytest.raises(OSError, match="No space"):
        write_durably(path, b"new")
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]


def test_a_new_directory_is_durable_with_its_parents(tmp_path: Path, synced: Synced) -> None:
    make_directory(tmp_path / "a" / "b")
    assert synced.paths == [str(tmp_path), str(tmp_path / "a")]
    with pytest.raises(FileExistsError):
        make_directory(tmp_path / "a" / "b")
    make_directory(tmp_path / "a" / "b", exist_ok=True)


def test_a_rename_is_durable(tmp_path: Path, synced: Synced) -> None:
    (tmp_path / "old").mkdir()
    rename_durably(tmp_path / "old", tmp_path / "new")
    assert (tmp_path / "new").is_dir()
    assert synced.paths == [str(tmp_path)]


def test_a_tree_is_synchronized_without_what_is_no_file(tmp_path: Path, synced: Synced) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "log").write_text("x")
    os.mkfifo(tmp_path / "lab" / "fifo")
    (tmp_path / "link").symlink_to("nowhere")
    sync_tree(tmp_path)
    assert synced.paths == [str(tmp_path / "lab" / "log"), str(tmp_path / "lab"), str(tmp_path)]


@pytest.mark.parametrize(("error", "raised"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_only_a_file_system_without_fsync_of_directories_is_excused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, *, raised: bool
) -> None:
    def fail(_: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr("os.fsync", fail)
    if raised:
        with pytest.raises(OSError, match="Input/output error"):
            sync_directory(tmp_path)
    else:
        sync_directory(tmp_path)
