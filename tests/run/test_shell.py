import os
import pty
import signal
import sys
import tempfile
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raidproof.core.errors import RequestError, RigError
from raidproof.core.topology import server_and_clients
from raidproof.lab import lab_directory
from raidproof.lab.lab_directory import ENTRY, LabDirectory
from raidproof.machine.login import LabKeys
from raidproof.run import shell
from raidproof.run.shell import KeptLab, choose, enter, kept_labs, machine_of


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(lab_directory, "LONGEST_PATH", 4096)
    return tmp_path


def lab(*, kept: bool = True) -> LabDirectory:
    made = LabDirectory.create()
    made.register(os.getpid(), server_and_clients())
    if kept:
        made.mark_kept(LabKeys.generate())
    return made


def test_only_kept_labs_that_run_can_be_entered() -> None:
    kept, dead, other = lab(), lab(), lab()
    lab(kept=False)
    entry = dead.entry
    assert entry is not None
    assert entry.keeper is not None
    gone = entry.keeper.model_copy(update={"started": 1})
    (dead.path / ENTRY).write_text(entry.model_copy(update={"keeper": gone, "harness": gone}).model_dump_json())
    (other.path / ENTRY).write_text("{}")
    assert [found.directory.name for found in kept_labs()] == [kept.name]


def test_no_lab_was_kept() -> None:
    with pytest.raises(RequestError, match=r"no lab is kept \(./raidproof demo --keep"):
        enter("server")


def test_the_only_lab_needs_no_name() -> None:
    made = lab()
    assert choose(kept_labs(), None).directory.name == made.name


def test_of_several_labs_one_must_be_named() -> None:
    first, second = lab(), lab()
    labs = kept_labs()
    with pytest.raises(RequestError, match="more than one lab started with --keep") as raised:
        choose(labs, None)
    assert first.name in str(raised.value)
    assert second.name in str(raised.value)
    assert choose(labs, second.name).directory.name == second.name
    with pytest.raises(RequestError, match=f"did you mean '{first.name}'"):
        choose(labs, first.name[:-1])


def test_a_machine_that_is_not_in_the_lab() -> None:
    lab()
    (kept,) = kept_labs()
    assert isinstance(kept, KeptLab)
    assert machine_of(kept, "client2").name == "client2"
    with pytest.raises(RequestError, match="did you mean 'server'"):
        enter("sever")


def test_a_lab_that_does_not_answer() -> None:
    lab()  # nobody listens on its socket
    with pytest.raises(RigError, match="does not answer"):
        enter("server")


class Channel:
    """The remote end: a thread that reads typed input, writes output, and ends."""

    def __init__(self, behave: Callable[["Channel"], None]) -> None:
        self.reading, self.writing = os.pipe()
        self.said, self.complaints, self.heard = bytearray(), bytearray(), bytearray()
        self.status: int | None = None
        self.closed = self.eof_received = False
        self.input_ended, self.lock = threading.Event(), threading.Lock()
        self.sizes: list[tuple[int, int]] = []
        self.resized = threading.Event()
        self.thread = threading.Thread(target=behave, args=(self,), daemon=True)

    def say(self, data: bytes) -> None:
        with self.lock:
            self.said += data
        os.write(self.writing, b"\0")

    def end(self, status: int | None) -> None:
        self.status, self.eof_received = status, True
        self.closed = status is None
        os.write(self.writing, b"\0")

    def setblocking(self, _: int) -> None:
        self.thread.start()

    def fileno(self) -> int:
        return self.reading

    def exit_status_ready(self) -> bool:
        return self.status is not None

    def recv_exit_status(self) -> int:
        assert self.status is not None
        return self.status

    def recv_ready(self) -> bool:
        return bool(self.said)

    def recv(self, size: int) -> bytes:
        return self._take(self.said, size)

    def recv_stderr_ready(self) -> bool:
        return bool(self.complaints)

    def recv_stderr(self, size: int) -> bytes:
        return self._take(self.complaints, size)

    def _take(self, buffer: bytearray, size: int) -> bytes:
        with self.lock:
            data = bytes(buffer[:size])
            del buffer[:size]
        return data

    def send_ready(self) -> bool:
        return True

    def send(self, data: bytes) -> int:
        accepted = data[:1000]  # never all of it
        self.heard += accepted
        return len(accepted)

    def shutdown_write(self) -> None:
        self.input_ended.set()

    def resize_pty(self, width: int, height: int) -> None:
        self.sizes.append((width, height))
        self.resized.set()


@pytest.fixture
def standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], None]]:
    opened: list[Any] = []

    def hold(content: bytes) -> None:
        (tmp_path / "script").write_bytes(content)
        opened.append((tmp_path / "script").open())
        monkeypatch.setattr(sys, "stdin", opened[-1])

    yield hold
    for file in opened:
        file.close()


def converse(channel: Channel, resized: int | None = None) -> int:
    far_end: Any = channel
    return shell._converse(far_end, "server", resized)


def test_a_script_is_executed_and_its_output_is_printed(
    standard_input: Callable[[bytes], None], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    script, answer = b"x" * 70_000, b"y" * 3_000_000

    def behave(channel: Channel) -> None:
        channel.input_ended.wait()
        channel.complaints += b"warning\n"
        channel.say(answer)
        channel.end(7)

    standard_input(script)
    channel = Channel(behave)
    assert converse(channel) == 7
    said = capfdbinary.readouterr()
    assert (said.out, said.err) == (answer, b"warning\n")
    assert channel.heard == script


def test_a_broken_connection_is_reported(standard_input: Callable[[bytes], None]) -> None:
    standard_input(b"")
    with pytest.raises(RigError, match="server: the SSH connection broke"):
        converse(Channel(lambda channel: channel.end(None)))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield ours, theirs
    os.close(ours)


def test_each_key_goes_through_and_the_terminal_is_put_back(terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    before = termios.tcgetattr(theirs)

    def behave(channel: Channel) -> None:
        os.write(ours, b"\x03\x04\r")  # Ctrl-C, Ctrl-D and Return are for the far shell
        while len(channel.heard) < 3:
            channel.input_ended.wait(0.01)
        channel.end(0)

    channel = Channel(behave)
    with shell._raw_terminal():
        assert termios.tcgetattr(theirs) != before
        assert converse(channel) == 0
    assert channel.heard == b"\x03\x04\r"
    assert termios.tcgetattr(theirs) == before


def test_the_terminal_is_put_back_after_an_error(terminal: tuple[int, int]) -> None:
    before = termios.tcgetattr(terminal[1])
    with pytest.raises(RigError), shell._raw_terminal():
        raise RigError("x")
    assert termios.tcgetattr(terminal[1]) == before


def test_the_far_terminal_follows_the_window(terminal: tuple[int, int]) -> None:
    ours, _ = terminal

    def behave(channel: Channel) -> None:
        termios.tcsetwinsize(ours, (40, 132))
        os.kill(os.getpid(), signal.SIGWINCH)
        channel.resized.wait(60)
        channel.end(0)

    channel = Channel(behave)
    with shell._resizes() as resized:
        assert converse(channel, resized) == 0
    assert channel.sizes[-1] == (132, 40)
