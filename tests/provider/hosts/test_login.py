"""The login, with OpenSSH's server on the loopback interface."""

import getpass
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError, RigError
from raidproof.core.waiting import Deadline
from raidproof.machine.login import KeyPair
from raidproof.machine.transport import Transport
from raidproof.provider.hosts.login import HostLogin, require_root

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
needs_sshd = pytest.mark.skipif(SSHD is None, reason="openssh-server is not installed")
SERVER = """\
HostKey {folder}/host
AuthorizedKeysFile {folder}/authorized
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
PermitRootLogin prohibit-password
"""
CLIENT = """\
Host storage
    HostName 127.0.0.1
    Port {port}
    User {user}
    IdentityFile {folder}/user
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile {folder}/known
"""
PIPE = """\
import socket, sys, threading
there = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def pump():
    while data := sys.stdin.buffer.raw.read(65536):
        there.sendall(data)
threading.Thread(target=pump, daemon=True).start()
while data := there.recv(65536):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
"""


@dataclass
class Server:
    folder: Path
    port: int
    host: KeyPair

    def configure(self, more: str = "", name: str | None = None) -> Path:
        """Write the client's configuration, and the host key under a name."""
        (self.folder / "known").write_text(f"{name or f'[127.0.0.1]:{self.port}'} {self.host.public}")
        path = self.folder / "config"
        path.write_text(CLIENT.format(port=self.port, user=getpass.getuser(), folder=self.folder) + more)
        return path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    host, user = KeyPair.generate(), KeyPair.generate()
    for name, key in (("host", host), ("user", user)):
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).write_text(key.private)
    (tmp_path / "authorized").write_text(user.public)
    (tmp_path / "sshd").write_text(SERVER.format(folder=tmp_path))
    # Where the server gives up its privileges; the package's own unit makes it.
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    argv = [str(SSHD), "-i", "-e", "-f", str(tmp_path / "sshd")]

    class OneConnection(BaseRequestHandler):
        def handle(self) -> None:
            subprocess.run(argv, stdin=self.request, stdout=self.request, stderr=subprocess.DEVNULL, check=False)

    # The port is ours from the start: one that sshd is to bind itself could be somebody else's by then.
    with ThreadingTCPServer(("127.0.0.1", 0), OneConnection) as listener:
        threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True).start()
        yield Server(tmp_path, listener.server_address[1], host)
        listener.shutdown()


def said_by(login: HostLogin, argv: Sequence[str] = ("echo", "two words")) -> str:
    transport = Transport("storage", login)
    transport.connect(Deadline.after(10))
    try:
        return transport.start(argv, Deadline.after(10)).wait(Deadline.after(10)).stdout
    finally:
        transport.close()


@needs_sshd
def test_the_alias_is_enough_for_a_login(server: Server) -> None:
    login = HostLogin("storage", config=server.configure())
    assert said_by(login) == "two words\n"
    assert login.answers()


@needs_sshd
def test_an_unknown_machine_is_refused_with_its_fingerprint(server: Server) -> None:
    config = server.configure()
    (server.folder / "known").write_text("")
    login = HostLogin("storage", config=config)
    with pytest.raises(RequestError, match=rf"not in known_hosts.*SHA256:.*ssh-keyscan -p {server.port} 127\.0\.0\.1"):
        said_by(login)


@needs_sshd
def test_another_machine_than_it_was_is_refused(server: Server) -> None:
    server.host = KeyPair.generate()
    with pytest.raises(RigError, match="SSH login refused, or unexpected host key"):
        said_by(HostLogin("storage", config=server.configure()))


@needs_sshd
def test_a_key_that_the_server_does_not_accept_is_reported(server: Server) -> None:
    (server.folder / "authorized").write_text("")
    with pytest.raises(RigError, match="SSH login refused, or unexpected host key"):
        said_by(HostLogin("storage", config=server.configure()))


@needs_sshd
def test_an_alias_of_the_host_key_has_no_port(server: Server) -> None:
    config = server.configure("    HostKeyAlias rack7\n", name="rack7")
    assert said_by(HostLogin("storage", config=config)) == "two words\n"


@needs_sshd
def test_a_proxy_command_carries_the_connection(server: Server) -> None:
    pipe = server.folder / "pipe.py"
    pipe.write_text(PIPE)
    config = server.configure(f"    ProxyCommand {sys.executable} {pipe} %p\n")
    login = HostLogin("storage", config=config)
    assert said_by(login) == "two words\n"
    assert login.answers()


def test_a_port_without_a_server_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raidproof.provider.hosts.login.CONNECT_S", 0.1)
    config = tmp_path / "config"
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and nobody else can
        config.write_text(f"Host storage\n    HostName 127.0.0.1\n    Port {silent.getsockname()[1]}\n")
        assert not HostLogin("storage", config=config).answers()
    config.write_text("Host storage\n    ProxyCommand false\n")
    assert not HostLogin("storage", config=config).answers()


@pytest.mark.parametrize(
    ("jump", "proxy"),
    [
        ("none", None),
        ("gate", "-W '[10.0.0.7]:2222' ssh://gate"),
        ("a, me@gate:24", "-J a -W '[10.0.0.7]:2222' ssh://me@gate:24"),
    ],
)
def test_a_jump_is_a_proxy(tmp_path: Path, jump: str, proxy: str | None) -> None:
    config = tmp_path / "config"
    config.write_text(f"Host storage\n    HostName 10.0.0.7\n    Port 2222\n    ProxyJump {jump}\n")
    found = HostLogin("storage", config=config).proxy
    strict = "ssh -o BatchMode=yes -o StrictHostKeyChecking=yes "
    assert found == (proxy and strict + proxy)


def test_a_machine_without_an_alias_is_its_own_name(tmp_path: Path) -> None:
    login = HostLogin("storage.example.org", "admin", config=tmp_path / "none")
    assert (login.hostname, login.port, login.user) == ("storage.example.org", 22, "admin")
    assert login.proxy is None


@pytest.mark.parametrize("text", ["Host storage\n    Port many\n", "Host storage\n  garbage\n", "\xff"])
def test_a_configuration_that_makes_no_sense_is_refused(tmp_path: Path, text: str) -> None:
    config = tmp_path / "config"
    config.write_bytes(text.encode("latin-1"))
    with pytest.raises(RequestError, match="config"):
        HostLogin("storage", config=config)


def test_sudo_reaches_the_command_whole(tmp_path: Path) -> None:
    carried = HostLogin("storage", sudo=True, config=tmp_path / "none").command(["printf", "%s|", "two words", "$x"])
    assert carried.startswith("sudo -n -- ")
    # What a login shell makes of it, with a sudo that lets everybody be root.
    (tmp_path / "sudo").write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
    (tmp_path / "sudo").chmod(0o755)
    ended = subprocess.run(
        ["/bin/sh", "-c", carried], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, check=True
    )
    assert ended.stdout == b"two words|$x|"


@dataclass
class Fake:
    answer: Completed
    name: str = "storage"

    def run(self, argv: Sequence[str], *, deadline_s: float = 0) -> Completed:
        return self.answer


def test_root_is_root() -> None:
    require_root(Fake(Completed(("id", "-u"), 0, "0\n", "")))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Completed((), 1, "", "sudo: a password is required\n"), "storage: sudo asks for a password.*NOPASSWD"),
        (Completed((), 1, "", "sudo: a terminal is required to read the password\n"), "asks for a password"),
        (Completed((), 0, "1000\n", ""), "not run as root: .*user id 1000"),
        (Completed((), 127, "", "sh: sudo: not found\n"), "not run as root: sh: sudo: not found"),
    ],
)
def test_a_user_other_than_root_gets_a_remedy(answer: Completed, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        require_root(Fake(answer))
