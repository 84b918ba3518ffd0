"""The line to the agent of a checker's machine: what is asked and answered, and how a missing answer is told."""

import json
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from raidproof.core.command import Completed
from raidproof.core.errors import RigError
from raidproof.core.waiting import Deadline
from raidproof.crash.agent_connection import KEEPS_MEMORY, AgentConnection, Lost, Silent
from raidproof.guest import nfsd_threads
from raidproof.lab.lab import Lab
from raidproof.machine.agent import RemoteCommand
from raidproof.machine.machine import Machine
from raidproof.workload.ledger_programs import FOLDER

PANIC = "[1.0] md: fine\n[2.0] Kernel panic - not syncing: no reason\n[2.1] CPU: 0\n"


class Command:
    """The agent's command, and the status that it ended with."""

    def __init__(self, status: int = 0, ended: bool = False) -> None:
        self.status = status
        self.ended = ended

    def wait(self, deadline: Deadline) -> Completed:
        return Completed(("python3",), self.status, "", "it broke", "server")


class Guest:
    """A machine that runs whatever it is told to, and goes on as long as nobody lets it die."""

    def __init__(self, console: Path, run: Callable[[Sequence[str]], Command]) -> None:
        self.name = "server"
        self.console = console
        self.files: dict[str, str | bytes] = {}
        self.start_command = run
        self.power = self
        self.dead = False

    def put(self, content: str | bytes, path: str) -> None:
        self.files[path] = content

    def install(self, programs: Mapping[str, bytes]) -> None:
        self.files |= programs

    def require_on(self) -> None:
        if self.dead:
            raise RigError("server is off")


class Here:
    """A lab whose machines reach a listener where it is."""

    def callback_address(self, listener: socket.socket, client: object) -> tuple[str, int]:
        host, port = listener.getsockname()
        return host, port


class Rig:
    """A line, and the agent's end of it."""

    def __init__(self, console: Path, command: Command) -> None:
        ours, self.agent = socket.socketpair()
        console.write_text(PANIC)
        self.guest = Guest(console, lambda _: command)
        self.line = AgentConnection(cast("Machine", self.guest), cast("RemoteCommand", command), ours)
        self.stages: list[str] = []

    def says(self, *things: dict[str, object]) -> None:
        self.agent.sendall(b"".join(json.dumps(one).encode() + b"\n" for one in things))

    def ask(self, deadline_s: float = 20.0) -> dict[str, Any]:
        return self.line.ask({"verb": "switch", "number": 7}, deadline_s, self.stages.append)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def rig(status: int = 0) -> Rig:
        made.append(Rig(tmp_path / "console", Command(status)))
        return made[-1]

    yield rig
    for one in made:
        one.agent.close()
        one.line.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def test_the_agent_gets_its_files_and_its_orders_and_calls(tmp_path: Path, listener: socket.socket) -> None:
    called: list[socket.socket] = []

    def run(argv: Sequence[str]) -> Command:
        assert argv == [*KEEPS_MEMORY, "python3", f"{FOLDER}/check_agent.py", f"{FOLDER}/config.json"]
        config = json.loads(guest.files[argv[-1]])
        called.append(socket.create_connection((config["host"], config["port"])))
        return Command()

    guest = Guest(tmp_path / "console", run)
    with AgentConnection.start(
        cast("Machine", guest), listener, cast("Lab", Here()), {"root": "/srv"}, nfsd_threads
    ) as line:
        assert set(guest.files) == {
            f"{FOLDER}/{name}"
            for name in (
                "application.py", "assembled.py", "ledger_format.py", "ledger_pieces.py", "ledger_reader.py",
                "check_agent.py", "kernel_messages.py", "member_disks.py", "nfsd_threads.py", "storage_calls.py",
                "config.json",
            )
        }  # fmt: skip
        assert json.loads(guest.files[f"{FOLDER}/config.json"])["root"] == "/srv"
        called[0].sendall(b'{"answer": {"end": "read"}}\n')
        assert line.ask({"verb": "switch"}, 20.0, lambda _: None) == {"end": "read"}
    called[0].settimeout(20)
    assert called[0].recv(100) == b'{"verb": "switch"}\n'
    assert called[0].recv(100) == b"", "hung up"
    called[0].close()


def test_an_agent_that_ends_before_it_calls_is_an_error_of_the_rig(tmp_path: Path, listener: socket.socket) -> None:
    guest = Guest(tmp_path / "console", lambda _: Command(1, ended=True))
    listener.settimeout(20)
    with pytest.raises(RigError, match="ended before it connected: it broke"):
        AgentConnection.start(cast("Machine", guest), listener, cast("Lab", Here()), {})


def test_stages_are_told_before_the_answer_of_the_same_request(make: Callable[..., Rig]) -> None:
    rig = make()
    rig.says({"stage": "assemble"}, {"stage": "mount"}, {"answer": {"end": "read"}}, {"answer": {"end": "next"}})
    assert rig.ask() == {"end": "read"}
    assert rig.stages == ["assemble", "mount"]
    assert rig.ask() == {"end": "next"}
    assert rig.agent.recv(1000) == b'{"verb": "switch", "number": 7}\n' * 2


def test_an_answer_may_come_in_pieces(make: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make()
    rig.agent.sendall(b'{"ans')
    pieces = iter([b'wer": {"a"', b": 1}}\n"])

    def select(read: list[socket.socket], *_: object) -> tuple[list[socket.socket], list[object], list[object]]:
        try:
            read[0].recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            rig.agent.sendall(next(pieces))
        return read, [], []

    monkeypatch.setattr("raidproof.crash.agent_connection.select.select", select)
    assert rig.ask() == {"a": 1}


@pytest.mark.parametrize(
    ("status", "end"), [(-9, Lost), (137, Lost), (129, Lost), (128, RigError), (1, RigError), (0, RigError)]
)
def test_an_agent_that_was_killed_is_a_finding_and_one_that_failed_is_none(
    make: Callable[..., Rig], status: int, end: type[Exception]
) -> None:
    rig = make(status)
    rig.agent.shutdown(socket.SHUT_WR)
    with pytest.raises(end, match=f"status {status}" if end is Lost else "the check agent failed: it broke"):
        rig.ask()


def test_a_machine_that_died_is_told_with_the_cause_that_its_console_names(make: Callable[..., Rig]) -> None:
    rig = make()
    rig.agent.shutdown(socket.SHUT_WR)
    rig.guest.dead = True
    with pytest.raises(Lost, match="Kernel panic - not syncing: no reason"):
        rig.ask()


def test_a_machine_that_dies_without_hanging_up_is_not_waited_for(
    make: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raidproof.crash.agent_connection._POLL_S", 0.001)
    rig = make()
    rig.guest.dead = True
    with pytest.raises(Lost, match="Kernel panic") as lost:
        rig.ask()
    assert not isinstance(lost.value, Silent)


def test_an_agent_that_says_nothing_until_the_deadline_is_silent(make: Callable[..., Rig]) -> None:
    rig = make()
    with pytest.raises(Silent, match="no answer in time"):
        rig.ask(deadline_s=0.01)


def test_content_follows_the_request(make: Callable[..., Rig]) -> None:
    rig = make()
    rig.says({"answer": {}})
    rig.line.ask({"verb": "show", "runs": [[0, 0, 3]]}, 20.0, rig.stages.append, [b"a\nb"])
    assert rig.agent.recv(1000) == b'{"verb": "show", "runs": [[0, 0, 3]]}\na\nb'


def test_a_machine_that_receives_nothing_is_silent(make: Callable[..., Rig]) -> None:
    rig = make()
    with pytest.raises(Silent, match="not received in time"):
        rig.line.ask({"verb": "show", "runs": []}, 0.05, rig.stages.append, [bytes(64 << 20)])
