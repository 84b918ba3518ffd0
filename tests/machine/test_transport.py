"""The transport, with a real SSH server on the loopback interface in this process."""

import shlex
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import paramiko
import psutil
import pytest
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL

from raidproof.core.command import Completed
from raidproof.core.errors import DeadlineExceeded, RequirementMissing, RigError
from raidproof.core.waiting import Deadline, LongWait, wait_until
from raidproof.machine import transport as transport_module
from raidproof.machine.agent import SHOWN, ChannelCommand
from raidproof.machine.login import KeyPair, LabKeys, LabLogin
from raidproof.machine.transport import Transport

KEYS = LabKeys.generate()
OPENED = 0
"""paramiko's OPEN_SUCCEEDED, which its type stubs lack."""
PLENTY = 3 << 20
"""More bytes than a channel's window (2 MiB): a command stops if its output is not read."""


class Login(paramiko.ServerInterface):
    """An SSH server that accepts the lab's user and runs requested commands on this host."""

    def __init__(self, *, has_python: bool) -> None:
        self.silent = threading.Event()
        self.has_python = has_python

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        right = username == "root" and key.asbytes() == KEYS.user.for_paramiko().asbytes()
        return AUTH_SUCCESSFUL if right else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPENED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        if command == b"'fall silent'":
            self.silent.wait()
        text = command.decode()
        if text.startswith("python3 ") and not self.has_python:
            # Not at once: this server's reply that the command has begun comes after its first bytes.
            text = "echo sh: 1: python3: not found >&2; sleep 0.1; exit 127"
        threading.Thread(target=carry_out, args=(channel, text), daemon=True).start()
        return True


def carry_out(channel: paramiko.Channel, command: str) -> None:
    with subprocess.Popen(
        ["/bin/sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        pumps = [
            threading.Thread(target=pump, args=(process.stdout, channel.sendall), daemon=True),
            threading.Thread(target=pump, args=(process.stderr, channel.sendall_stderr), daemon=True),
        ]
        feeder = threading.Thread(target=feed, args=(channel, process.stdin), daemon=True)
        for thread in (*pumps, feeder):
            thread.start()
        for thread in pumps:
            thread.join()
        status = process.wait()
        channel.shutdown_write()
        channel.send_exit_status(status)
        channel.close()
        feeder.join()


def pump(stream: Any, send: Any) -> None:
    try:
        while data := stream.read1(65536):
            send(data)
    except OSError:
        stream.close()


def feed(channel: paramiko.Channel, stream: Any) -> None:
    try:
        while data := channel.recv(65536):
            stream.write(data)
            stream.flush()
        stream.close()
    except OSError:
        return


def redirected(there: tuple[str, int]) -> socket.socket:
    """Return a socket that is connected to the server for every address."""

    class Redirected(socket.socket):
        def connect(self, address: object) -> None:
            super().connect(there)

    return Redirected()


class Server:
    """A socket that listens until it is closed."""

    def __init__(self, host_key: KeyPair) -> None:
        self.host_key = host_key.for_paramiko()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        self.transports: list[paramiko.Transport] = []
        self.accepted = 0
        self.has_python = True
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.accepted += 1
            transport = paramiko.Transport(connection)
            transport.add_server_key(self.host_key)
            transport.start_server(event=threading.Event(), server=Login(has_python=self.has_python))
            self.transports.append(transport)

    def close(self) -> None:
        with suppress(OSError):  # closed before
            self.listener.shutdown(socket.SHUT_RDWR)  # closing alone would let the waiting accept() go on
        self.listener.close()
        for transport in self.transports:
            transport.close()

    def socket(self) -> socket.socket:
        """Return a socket that is connected to this server."""
        return redirected(self.address)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(KEYS.host)
    yield made
    made.close()


def transport_to(server: Server, keys: LabKeys = KEYS) -> Transport:
    return Transport("server", LabLogin("10.77.0.10", keys, server.socket))


@pytest.fixture(params=["agent", "without python3"])
def transport(server: Server, request: pytest.FixtureRequest) -> Iterator[Transport]:
    server.has_python = request.param == "agent"
    made = transport_to(server)
    made.connect(Deadline.after(20))
    yield made
    made.close()


@pytest.fixture
def agent(server: Server) -> Iterator[Transport]:
    made = transport_to(server)
    made.connect(Deadline.after(20))
    assert run(made, "true").ok
    yield made
    made.close()


def run(transport: Transport, *argv: str, stdin: bytes = b"", deadline_s: float = 20) -> Completed:
    deadline = Deadline.after(deadline_s)
    return transport.run(argv, deadline, stdin)


def ended(path: Path) -> None:
    """Wait until no process has this path in its command line."""

    def gone() -> bool:
        return not any(str(path) in str(one.info["cmdline"]) for one in psutil.process_iter(["cmdline"]))

    wait_until(gone, Deadline.after(20), "the end of the command")


def test_a_command_gives_output_and_status(transport: Transport) -> None:
    completed = run(transport, "sh", "-c", "echo out; echo error >&2; exit 3")
    assert (completed.status, completed.stdout, completed.stderr) == (3, "out\n", "error\n")
    assert completed.where == "server"


@pytest.mark.parametrize("word", ["two words", "$HOME", "a'b\"c", "*", "", ";", "é\n"])
def test_arguments_arrive_unchanged(transport: Transport, word: str) -> None:
    assert run(transport, "printf", "%s", word).stdout == word


@pytest.mark.parametrize(
    "order", ["head -c {0} /dev/zero >&2; head -c {0} /dev/zero", "head -c {0} /dev/zero; head -c {0} /dev/zero >&2"]
)
def test_both_output_streams_are_read_in_any_order(transport: Transport, order: str) -> None:
    completed = run(transport, "sh", "-c", order.format(PLENTY))
    assert (len(completed.stdout), len(completed.stderr)) == (PLENTY, PLENTY)


def test_input_is_written_while_output_is_read(transport: Transport) -> None:
    data = bytes(range(ord("a"), ord("z"))) * (PLENTY // 25)
    assert run(transport, "cat", stdin=data).stdout.encode() == data


def test_unread_input_does_not_block(transport: Transport) -> None:
    assert run(transport, "sh", "-c", "exec <&-; exit 4", stdin=bytes(PLENTY)).status == 4


def test_a_command_that_does_not_end(transport: Transport) -> None:
    command = transport.start(["sleep", "5"], Deadline.after(20))
    with pytest.raises(DeadlineExceeded, match="server: still running at its deadline: sleep 5"):
        command.wait(Deadline.after(0.05))
    assert run(transport, "true").ok


def test_what_runs_long_is_named_once(transport: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("raidproof.core.waiting._listeners", [said.append])
    run(transport, "true")
    assert said == []
    monkeypatch.setattr("raidproof.core.waiting.LONG_S", 0.0)
    run(transport, "echo", "x" * 200)
    assert said == [f"waiting for {transport.where}: echo {'x' * (SHOWN - 5)}"]


def test_a_command_that_was_started_is_waited_for(transport: Transport) -> None:
    command = transport.start(["sh", "-c", "read word; echo $word; exit 3"], Deadline.after(20))
    assert not command.ended
    completed = command.wait(Deadline.after(20), b"hello\n")
    assert (completed.status, completed.stdout) == (3, "hello\n")
    assert command.ended


def test_a_command_that_outlives_its_deadline_is_killed_with_what_it_has_started(
    agent: Transport, tmp_path: Path
) -> None:
    with pytest.raises(DeadlineExceeded, match="server: still running at its deadline: sh -c"):
        run(agent, "sh", "-c", f"(sleep 1000; touch {tmp_path}) & wait", deadline_s=0.2)
    ended(tmp_path)


def test_a_command_whose_wait_is_interrupted_is_killed(
    agent: Transport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = agent.start(["sh", "-c", f"sleep 1000; touch {tmp_path}"], Deadline.after(20))

    def interrupted(_: LongWait) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as inner:
        inner.setattr(LongWait, "goes_on", interrupted)
        with pytest.raises(KeyboardInterrupt):
            command.wait(Deadline.after(20))
    ended(tmp_path)


def test_commands_run_side_by_side(transport: Transport) -> None:
    slow = transport.start(["sleep", "60"], Deadline.after(20))
    assert run(transport, "echo", "done").stdout == "done\n"
    assert not slow.ended


def test_a_killed_command_is_reported_as_killed(agent: Transport) -> None:
    assert run(agent, "sh", "-c", "kill -9 $$").status == 137


def test_files_are_read_written_and_resolved(agent: Transport, tmp_path: Path) -> None:
    deadline = Deadline.after(20)
    (tmp_path / "link").symlink_to("file")
    file, link, nothing = (f"{tmp_path}/{name}" for name in ("file", "link", "nothing"))
    assert agent.resolve([nothing, link], deadline) == [None, None]
    refused = agent.write({f"{nothing}/x": b"1", file: b"\0\xff" * 100_000}, deadline)
    assert refused == {f"{nothing}/x": "No such file or directory"}
    assert agent.read([nothing, link], deadline) == ["No such file or directory", b"\0\xff" * 100_000]
    assert agent.resolve([link], deadline) == [str((tmp_path / "file").resolve())]


def test_files_need_an_agent(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    server.has_python = False
    transport = transport_to(server)
    transport.connect(Deadline.after(20))
    assert run(transport, "true").ok
    with pytest.raises(
        RequirementMissing,
        match=r"server: cannot read /etc/fstab: the machine cannot run raidproof's agent: .*python3: not found",
    ):
        transport.read(["/etc/fstab"], Deadline.after(20))
    transport.close()
    assert [record.message for record in caplog.records if "cannot run raidproof's agent" in record.message] == [
        "server: cannot run raidproof's agent; each command uses its own SSH channel: the agent ended with status 127 "
        "(sh: 1: python3: not found)"
    ]


def test_an_agent_that_ends_is_named_and_another_one_started(agent: Transport) -> None:
    with pytest.raises(RigError, match=r"server: the agent ended with status .* during: sh -c"):
        # Its parent is the agent.
        run(agent, "sh", "-c", "kill -9 $PPID; sleep 5")
    assert run(agent, "true").ok


def test_a_machine_without_a_greeting_is_reported(server: Server) -> None:
    server.has_python = False
    transport = transport_to(server)
    transport.connect(Deadline.after(20))
    with pytest.raises(RigError, match="server: cannot start: 'fall silent'"):
        run(transport, "fall silent", deadline_s=0.2)


def test_a_channel_of_a_broken_connection_is_closed_without_an_error() -> None:
    channel = Mock(spec=paramiko.Channel)
    for error in (EOFError(), OSError("Socket is closed")):
        channel.close.side_effect = error
        transport_module._close(channel)
    assert channel.close.call_count == 2


def test_input_is_given_while_a_command_runs(transport: Transport) -> None:
    command = transport.start(["head", "-c", "1"], Deadline.after(20))
    command.feed(b"c")
    assert command.wait(Deadline.after(20)).stdout == "c"


def test_a_command_that_closes_its_output_is_still_waited_for(transport: Transport) -> None:
    assert run(transport, "sh", "-c", "exec >&- 2>&-; sleep 0.1; exit 5").status == 5


def test_a_connection_that_breaks_is_the_rigs_fault(server: Server, transport: Transport) -> None:
    command = transport.start(["sleep", "5"], Deadline.after(20))
    server.transports[0].close()
    with pytest.raises(RigError, match="server: the SSH connection broke during: sleep 5"):
        command.wait(Deadline.after(20))
    with pytest.raises(RigError, match="server: no SSH connection is open"):
        run(transport, "true")


@pytest.mark.parametrize("transport", ["without python3"], indirect=True)
def test_a_connection_that_breaks_while_something_is_sent_is_the_rigs_fault(
    server: Server, transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = transport.start(["sleep", "5"], Deadline.after(20))
    assert isinstance(command, ChannelCommand)
    ssh = command.channel.get_transport()

    def break_off(message: object) -> None:
        server.transports[0].close()
        raise EOFError

    monkeypatch.setattr(ssh, "_send_user_message", break_off)  # what paramiko does when the socket is closed meanwhile
    with pytest.raises(RigError, match="server: the SSH connection broke during: sleep 5"):
        command.wait(Deadline.after(20), b"input")
    command.feed(b"more")


def test_a_wrong_host_key_is_refused(server: Server) -> None:
    stranger = LabKeys(user=KEYS.user, host=KeyPair.generate())
    with pytest.raises(RigError, match="SSH login refused, or unexpected host key"):
        transport_to(server, stranger).connect(Deadline.after(20))


def test_a_rejected_user_is_reported(server: Server) -> None:
    stranger = LabKeys(user=KeyPair.generate(), host=KEYS.host)
    with pytest.raises(RigError, match="SSH login refused, or unexpected host key"):
        transport_to(server, stranger).connect(Deadline.after(20))


def test_a_machine_without_an_ssh_server_is_reported(server: Server) -> None:
    server.close()
    with pytest.raises(DeadlineExceeded, match="gave up waiting for SSH on server"):
        transport_to(server).connect(Deadline.after(0.1))


def test_a_machine_that_has_died_is_not_waited_for(server: Server) -> None:
    server.close()

    def dead() -> None:
        raise RigError("its kernel ended")

    with pytest.raises(RigError, match="its kernel ended"):
        transport_to(server).connect(Deadline.after(1000), dead)


def test_closing_ends_a_login_that_another_thread_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "ATTEMPT_S", 1000.0)
    mute = socket.create_server(("127.0.0.1", 0))  # the kernel accepts; nobody ever says a word
    transport = Transport("server", LabLogin("10.77.0.10", KEYS, lambda: redirected(mute.getsockname())))
    closed, ended = threading.Event(), threading.Event()

    def still_possible() -> None:
        if closed.is_set():
            raise RigError("the lab is closed")

    def log_in() -> None:
        with pytest.raises(RigError, match="the lab is closed"):
            transport.connect(Deadline.after(1000), still_possible)
        ended.set()

    threading.Thread(target=log_in, daemon=True).start()
    with mute, mute.accept()[0]:
        closed.set()
        transport.close()
        assert ended.wait(60), "the handshake goes on to its own time limit"


def test_words_are_quoted_for_the_login_shell() -> None:
    # What RemoteCommand relies on: join and the shell's own splitting are inverse to each other.
    argv = ["a b", "c'd", "$e"]
    assert shlex.split(shlex.join(argv)) == argv
