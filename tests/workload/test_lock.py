"""The lock agent, run on this machine, and the class that controls it."""

import fcntl
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest.mock import create_autospec

import pytest

from raidproof.core.errors import DeadlineExceeded, RigError
from raidproof.guest import lock_agent
from raidproof.machine.machine import Machine
from raidproof.workload.lock import Answer, LockHolder, read_answer


def machine() -> Machine:
    fake: Machine = create_autospec(Machine, instance=True)
    fake.name = "client1"
    return fake


@contextmanager
def agent() -> Iterator[LockHolder]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        process = subprocess.Popen([sys.executable, lock_agent.__file__, host, str(port)])
        connection, _ = listener.accept()
    with connection:
        yield LockHolder(machine(), connection)
    assert process.wait(10) == 0


@pytest.fixture
def holder() -> Iterator[LockHolder]:
    with agent() as one:
        yield one


def test_file_is_written_and_read(holder: LockHolder, tmp_path: Path) -> None:
    file = holder.open(str(tmp_path / "a"))
    assert holder.do("write", file, "hello", 3) == Answer(5)
    assert holder.do("fsync", file).ok
    assert holder.do("read", file, 10) == Answer("\0\0\0hello")
    assert holder.do("letters", file).value == {"\0": 3, "h": 1, "e": 1, "l": 2, "o": 1}
    assert holder.do("status", file).value["size"] == 8
    assert holder.do("close", file).ok


def test_much_is_poured_out(holder: LockHolder, tmp_path: Path) -> None:
    file = holder.open(str(tmp_path / "a"), "new")
    assert holder.do("pour", file, (1 << 20) + 5, "x") == Answer((1 << 20) + 5)
    assert (tmp_path / "a").read_text() == "x" * ((1 << 20) + 5)


def test_lock_is_held_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with agent() as one, agent() as other:
        mine, theirs = one.open(str(path)), other.open(str(path))
        assert one.do("lock", mine, "write").ok
        assert other.do("lock", theirs, "write").error == "EAGAIN"
        one.do("lock", mine, "none")
        assert other.do("lock", theirs, "read").ok
        assert one.do("lock", mine, "read").ok
    with path.open("r+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_error_has_its_name(holder: LockHolder, tmp_path: Path) -> None:
    assert holder.do("unlink", str(tmp_path / "none")).error == "ENOENT"
    with pytest.raises(RigError, match=r"client1: open .*: ENOENT"):
        holder.open(str(tmp_path / "none"), "read")


def test_one_thing_at_a_time() -> None:
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        holder = LockHolder(machine(), ours)
        with pytest.raises(RigError, match="no request to answer"):
            holder.ended()
        holder.begin("fsync", 3)
        with pytest.raises(RigError, match="has no answer yet"):
            holder.begin("fsync", 3)
        with pytest.raises(DeadlineExceeded, match="has no answer after"):
            holder.ended(0.001)
        theirs.sendall(b'{"errno": 5, ')
        theirs.sendall(b'"value": null}\n')
        assert holder.ended().error == "EIO"


def test_agent_that_has_gone_is_the_rigs_fault() -> None:
    ours, theirs = socket.socketpair()
    with closing(ours):
        holder = LockHolder(machine(), ours)
        holder.begin("fsync", 3)
        theirs.close()
        with pytest.raises(RigError, match="lock agent"):
            holder.ended()


@pytest.mark.parametrize("line", [b"", b"x", b"[]", b'{"errno": 0}', b'{"errno": null, "value": 1}'])
def test_something_else_is_no_answer(line: bytes) -> None:
    with pytest.raises(RigError, match="malformed answer"):
        read_answer(line)


def test_failure_has_no_value() -> None:
    with pytest.raises(RigError, match="fsync: EIO"):
        Answer(None, "EIO").require("fsync")
