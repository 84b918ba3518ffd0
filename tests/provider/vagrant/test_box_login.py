"""The login to a user's box, with a real SSH server on the loopback interface in this process."""

import shlex
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import paramiko
import pytest
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL

from raidproof.core.errors import DeadlineExceeded, RigError
from raidproof.core.waiting import Deadline
from raidproof.machine.login import KeyPair
from raidproof.machine.transport import Transport
from raidproof.provider.vagrant.box import BoxLogin, learn_host_key, saved

USERS = KeyPair.generate()
HOST = "127.0.0.1"


class LetsIn(paramiko.ServerInterface):
    """An SSH server that accepts the box's user."""

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        right = username == "vagrant" and key.asbytes() == USERS.for_paramiko().asbytes()
        return AUTH_SUCCESSFUL if right else AUTH_FAILED


class Server:
    """Present the current host key."""

    def __init__(self) -> None:
        self.host = KeyPair.generate()
        self.listener = socket.create_server((HOST, 0))
        self.port: int = self.listener.getsockname()[1]
        self.transports: list[paramiko.Transport] = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            transport = paramiko.Transport(connection)
            transport.add_server_key(self.host.for_paramiko())
            self.transports.append(transport)
            with suppress(paramiko.SSHException, EOFError, OSError):
                transport.start_server(server=LetsIn())

    def close(self) -> None:
        self.listener.close()
        for transport in self.transports:
            transport.close()


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.close()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "insecure_private_key"
    path.write_text(USERS.private)
    return path


def login(server: Server, key: Path, user: str = "vagrant") -> BoxLogin:
    shown = learn_host_key(socket.socket, HOST, server.port, Deadline.after(20))
    return BoxLogin(HOST, server.port, user, (key,), shown, socket.socket)


def test_what_the_first_boot_shows_is_what_later_ones_must_show(server: Server, key: Path) -> None:
    way = login(server, key)
    assert way.host_key.asbytes() == server.host.for_paramiko().asbytes()
    transport = Transport("client1", way)
    transport.connect(Deadline.after(20))
    assert transport.alive
    transport.close()


def test_another_host_key_than_at_the_first_boot_is_refused(server: Server, key: Path) -> None:
    way = login(server, key)
    server.host = KeyPair.generate()
    with pytest.raises(RigError, match="does not match"):
        Transport("client1", way).connect(Deadline.after(20))


def test_an_unknown_user_is_rejected(server: Server, key: Path) -> None:
    with pytest.raises(RigError):
        Transport("client1", login(server, key, "nobody")).connect(Deadline.after(20))


def test_a_machine_that_shows_no_key_in_time() -> None:
    with socket.socket() as deaf:
        deaf.bind((HOST, 0))  # and does not listen
        with pytest.raises(DeadlineExceeded, match=HOST):
            learn_host_key(socket.socket, HOST, deaf.getsockname()[1], Deadline.after(0.1))


def test_commands_run_as_root(server: Server, key: Path) -> None:
    argv = ["printf", "%s", "it's $HOME"]
    command = login(server, key).command(argv)
    *sudo, said = shlex.split(command)
    assert sudo == ["sudo", "-n", "--", "/bin/sh", "-c"]
    assert shlex.split(said) == argv
    assert shlex.split(login(server, key, "root").command(argv)) == argv


def test_a_later_login_uses_the_same_way_and_host_key(server: Server, key: Path, tmp_path: Path) -> None:
    way = login(server, key)
    way.save(tmp_path, "client1")
    found = saved(tmp_path, "client1", socket.socket)
    assert found is not None
    assert (found.user, found.keys) == ("vagrant", (key,))
    transport = Transport("client1", found)
    transport.connect(Deadline.after(20))
    transport.close()
    server.host = KeyPair.generate()
    with pytest.raises(RigError, match="does not match"):
        Transport("client1", found).connect(Deadline.after(20))
    assert saved(tmp_path, "server", socket.socket) is None
