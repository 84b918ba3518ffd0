"""Against a real SSH server on the loopback interface, in this process."""

import shlex
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import paramiko
import pytest
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL

from raidproof.core.command import Completed
from raidproof.core.errors import DeadlineExceeded, RigError
from raidproof.core.waiting import Deadline
from raidproof.machine import transport as transport_module
from raidproof.machine.keys import KeyPair, LabKeys
from raidproof.machine.login import LabLogin
from raidproof.machine.transport import SHOWN, Transport

KEYS = LabKeys.generate()
OPENED = 0
"""paramiko's OPEN_SUCCEEDED, which its type stubs do not know."""
PLENTY = 3 << 20
"""More than a channel's window (2 MiB): a stream that nobody drains stops its command."""


class Login(paramiko.ServerInterface):
    """Lets the lab's user in and runs what is asked for on this host."""

    def __init__(self) -> None:
        self.silent = threading.Event()

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        right = username == "root" and key.asbytes() == KEYS.user.for_paramiko().asbytes()
        return AUTH_SUCCESSFUL if right else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPENED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        if command == b"'fall silent'":
            self.silent.wait()
        threading.Thread(target=carry_out, args=(channel, command.decode()), daemon=True).start()
        return True


def carry_out(channel: paramiko.Channel, command: str) -> None:
    if command == "vanish":
        channel.get_transport().close()
        return
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
    """Return a socket that goes there, wherever it is told to go."""

    class Redirected(socket.socket):
        def connect(self, address: object) -> None:
            super().connect(there)

    return Redirected()


class Server:
    """Listens until it is closed."""

    def __init__(self, host_key: KeyPair) -> None:
        self.host_key = host_key.for_paramiko()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        self.transports: list[paramiko.Transport] = []
        self.accepted = 0
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
            transport.start_server(event=threading.Event(), server=Login())
            self.transports.append(transport)

    def close(self) -> None:
        with suppress(OSError):  # closed before
            self.listener.shutdown(socket.SHUT_RDWR)  # closing alone would let the waiting accept() go on
        self.listener.close()
        for transport in self.transports:
            transport.close()

    def socket(self) -> socket.socket:
        """Return a socket that comes here."""
        return redirected(self.address)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(KEYS.host)
    yield made
    made.close()


def transport_to(server: Server, keys: LabKeys = KEYS) -> Transport:
    return Transport("server", LabLogin("10.77.0.10", keys, server.socket))


@pytest.fixture
def transport(server: Server) -> Iterator[Transport]:
    made = transport_to(server)
    made.connect(Deadline.after(20))
    yield made
    made.close()


def run(transport: Transport, *argv: str, stdin: bytes = b"", deadline_s: float = 20) -> Completed:
    deadline = Deadline.after(deadline_s)
    return transport.start(argv, deadline).wait(deadline, stdin)


def test_a_command_says_and_ends(transport: Transport) -> None:
    completed = run(transport, "sh", "-c", "echo out; echo error >&2; exit 3")
    assert (completed.status, completed.stdout, completed.stderr) == (3, "out\n", "error\n")
    assert completed.where == "server"


@pytest.mark.parametrize("word", ["two words", "$HOME", "a'b\"c", "*", "", ";", "é\n"])
def test_a_word_arrives_as_it_is(transport: Transport, word: str) -> None:
    assert run(transport, "printf", "%s", word).stdout == word


@pytest.mark.parametrize(
    "order", ["head -c {0} /dev/zero >&2; head -c {0} /dev/zero", "head -c {0} /dev/zero; head -c {0} /dev/zero >&2"]
)
def test_both_streams_are_drained_whichever_comes_first(transport: Transport, order: str) -> None:
    completed = run(transport, "sh", "-c", order.format(PLENTY))
    assert (len(completed.stdout), len(completed.stderr)) == (PLENTY, PLENTY)


def test_input_goes_in_while_output_comes_out(transport: Transport) -> None:
    data = bytes(range(ord("a"), ord("z"))) * (PLENTY // 25)
    assert run(transport, "cat", stdin=data).stdout.encode() == data


def test_input_that_nobody_reads_does_not_block(transport: Transport) -> None:
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


def test_a_machine_that_never_says_that_it_has_begun(transport: Transport) -> None:
    with pytest.raises(RigError, match="server: cannot start: 'fall silent'"):
        run(transport, "fall silent", deadline_s=0.2)


def test_input_is_given_while_a_command_runs(transport: Transport) -> None:
    command = transport.start(["head", "-c", "1"], Deadline.after(20))
    command.feed(b"c")
    assert command.wait(Deadline.after(20)).stdout == "c"


def test_a_command_that_closes_its_output_is_still_waited_for(transport: Transport) -> None:
    assert run(transport, "sh", "-c", "exec >&- 2>&-; sleep 0.1; exit 5").status == 5


def test_a_connection_that_breaks_is_the_rigs_fault(transport: Transport) -> None:
    with pytest.raises(RigError, match=r"server: (the connection broke during|cannot start): vanish"):
        run(transport, "vanish")
    with pytest.raises(RigError, match="server: no connection"):
        run(transport, "true")


def test_a_wrong_host_key_is_refused(server: Server) -> None:
    stranger = LabKeys(user=KEYS.user, host=KeyPair.generate())
    with pytest.raises(RigError, match="answers, but not as the machine that it should be"):
        transport_to(server, stranger).connect(Deadline.after(20))


def test_a_user_who_is_not_let_in(server: Server) -> None:
    stranger = LabKeys(user=KeyPair.generate(), host=KEYS.host)
    with pytest.raises(RigError, match="answers, but not as the machine that it should be"):
        transport_to(server, stranger).connect(Deadline.after(20))


def test_nobody_answers(server: Server) -> None:
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
