"""The operations of a worker, and its reports."""

import ctypes
import errno
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from raidproof.guest.ledger_format import ACKNOWLEDGE, BLOCK, FRAME, GROUPS, KINDS, acting_as, write_whole
from raidproof.guest.ledger_reader import names
from raidproof.guest.ledger_writer import Blocks, Directory, Trees, identify, take_turns


@pytest.mark.parametrize("position", [None, 100])
def test_a_write_that_does_less_is_gone_on_with(
    position: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fd = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    write, pwrite = os.write, os.pwrite
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:7], at))
    write_whole(fd, bytes(range(1, 41)), position)
    os.close(fd)
    assert (tmp_path / "file").read_bytes()[position or 0 :] == bytes(range(1, 41))


def test_what_is_written_past_the_cache_lies_in_aligned_memory_of_the_workers_own(tmp_path: Path) -> None:
    worker = Blocks.__new__(Blocks)
    worker.mappings = {}
    for byte in (1, 2):
        data = worker.aligned(bytes([byte]) * BLOCK)
        assert data == bytes([byte]) * BLOCK
        address = ctypes.addressof(ctypes.c_char.from_buffer(data))
        assert address % 512 == 0


def worked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tolerated_errnos: list[int]) -> list[tuple[str, int, int]]:
    """Reports (kind, place, error) of a worker whose second and third change of metadata fail with ENOSPC."""
    wrong = iter([0, errno.ENOSPC, errno.ENOSPC, 0, 0])

    def change() -> None:
        if error := next(wrong):
            raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "mkdir", lambda *_: change())
    monkeypatch.setattr(Directory, "create", lambda _: change())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        config = {"root": str(tmp_path), "seed": 1, "host": host, "port": port, "tolerated_errnos": tolerated_errnos}
        orders = {"number": 0, "path": "m", "kind": "metadata", "blocks": 2, "file": 0, "operations": 5}
        worker = Trees(config, orders | {"rounds": [["mkdir", "create"]]}, threading.Event())
        (tmp_path / "m").touch()  # what it would be made in
        monkeypatch.setattr(os, "makedirs", lambda *_, **__: None)
        heard = listener.accept()[0]
        take_turns([worker])
    with heard, heard.makefile("rb") as stream:
        told = [one for one in FRAME.iter_unpack(stream.read()) if one[0] == ACKNOWLEDGE]
    return [(KINDS[code], index, error) for _, code, _, _, index, _, error, _ in told]


def test_a_worker_continues_with_another_operation_after_an_allowed_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = errno.ENOSPC
    told = [("mkdir", 0, 0), ("create", 0, full), ("mkdir", 1, full), ("mkdir", 2, 0), ("create", 2, 0)]
    assert worked(tmp_path, monkeypatch, [full]) == told


def test_a_worker_is_done_after_any_other_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert worked(tmp_path, monkeypatch, []) == [("mkdir", 0, 0), ("create", 0, errno.ENOSPC)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may take any group")
def test_a_workers_thread_and_no_other_makes_its_requests_in_a_group_of_its_own(tmp_path: Path) -> None:
    def work() -> None:
        identify(7, 0)
        (tmp_path / "worker").touch()

    (tmp_path / "before").touch()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    (tmp_path / "after").touch()
    before, worker, after = ((tmp_path / name).stat().st_gid for name in ("before", "worker", "after"))
    assert before == after != worker == GROUPS + 7


@pytest.fixture
def shared() -> Iterator[Path]:
    """Yield a directory in which each user may create files; other users cannot reach tmp_path."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o1777)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may act as any user")
def test_a_workers_thread_acts_as_an_ordinary_user(shared: Path) -> None:
    (shared / "of-root").touch(mode=0o600)
    refused: list[int | None] = []

    def attempt(call: Callable[[], object]) -> None:
        try:
            call()
        except PermissionError as error:
            refused.append(error.errno)

    def work() -> None:
        identify(7, 1001)
        (shared / "worker").touch()
        attempt((shared / "of-root").read_bytes)
        attempt(lambda: os.chown(shared / "worker", 12345, 23456))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    (shared / "after").touch()
    owners = [((shared / name).stat().st_uid, (shared / name).stat().st_gid) for name in ("worker", "after")]
    assert owners == [(1001, GROUPS + 7), (0, os.getegid())]
    assert refused == [errno.EACCES, errno.EPERM]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may act as any user")
def test_files_of_a_user_are_read_as_this_user(shared: Path) -> None:
    with acting_as(1001):
        (shared / "d0").mkdir()
        (shared / "d0" / "a").touch(mode=0o600)
    assert (shared / "d0").stat().st_uid == 1001
    with acting_as(1002):
        assert names(str(shared), rounds=[["utimes"]])["d0/a"] == [0, 0, 0, "EACCES"]
        # The user 1002 stands for root whom a server maps.
        assert names(str(shared), rounds=[["utimes"]], owner=1001)["d0/a"][5:] == [None, None]
    # As root without NFS, also a file that nobody else may read.
    (shared / "d0" / "a").chmod(0)
    assert names(str(shared), rounds=[["utimes"]], owner=1001)["d0/a"][5:] == [None, None]
    assert names(str(shared), rounds=[["utimes"]])["d0/a"][5] == f"1001:{os.getegid()}"


FAILS = """
import json, sys
from raidproof.guest import ledger_writer
def work(self):
    raise {error}
    yield
for worker in (ledger_writer.Blocks, *ledger_writer.CLASSES.values()):
    worker.work = work
ledger_writer.write(json.loads(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        ("NameError('said')", "fsync", 1),
        ("NameError('said')", "msync", 1),
        ("OSError(5, 'EIO')", "fsync", 1),
        ("ledger_writer.base.Disconnected('reset')", "fsync", 0),
    ],
)
def test_a_worker_whose_code_fails_ends_the_program(tmp_path: Path, error: str, kind: str, status: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as harness:
        host, port = harness.getsockname()
        worker = {"kind": kind, "number": 0, "path": "file", "blocks": 1, "file": 0}
        config = {"root": str(tmp_path), "seed": 1, "host": host, "port": port, "workers": [worker]}
        command = [sys.executable, "-c", FAILS.format(error=error), json.dumps(config)]
        ended = subprocess.run(command, stdin=subprocess.PIPE, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == status, ended.stderr
    assert error.partition("(")[0].rpartition(".")[2] in ended.stderr
