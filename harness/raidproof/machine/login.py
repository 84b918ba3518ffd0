"""The login to a machine over SSH: address, user, the user's key and the machine's host key."""

import shlex
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Protocol

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

Way = socket.socket | paramiko.ProxyCommand
"""The byte stream below an SSH connection: a TCP socket, or the pipe of a proxy command."""
CONNECT_S = 0.25
"""Seconds of one attempt to connect; short, as TCP repeats a SYN that was lost during the boot only after 1 s."""


@dataclass(frozen=True)
class KeyPair:
    """An Ed25519 key pair in the formats of OpenSSH."""

    private: str
    """The private key, as in a file id_ed25519."""
    public: str
    """The public key, as a line of a file authorized_keys."""

    @classmethod
    def generate(cls) -> "KeyPair":
        """Generate a new key pair."""
        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        return cls(private.decode(), public.decode() + "\n")

    def for_paramiko(self) -> paramiko.PKey:
        """Return the private key as an object of paramiko."""
        return paramiko.Ed25519Key.from_private_key(StringIO(self.private))

    def __repr__(self) -> str:
        return f"KeyPair({self.public.strip()!r})"


@dataclass(frozen=True)
class LabKeys:
    """The key pair with which the harness logs in (``user``), and the host key of all machines of a lab (``host``)."""

    user: KeyPair
    host: KeyPair

    @classmethod
    def generate(cls) -> "LabKeys":
        """Generate the user's key pair and the host key pair of a new lab."""
        return cls(user=KeyPair.generate(), host=KeyPair.generate())


class Login(Protocol):
    """The interface of a login to one machine: connect, authenticate, and quote commands."""

    def connect(self) -> Way:
        """Return a new connection to the machine's SSH port.

        Raises:
            OSError: the machine did not accept the connection.
        """

    def authenticate(self, client: paramiko.SSHClient, way: Way, timeout_s: float) -> None:
        """Log in over the connection ``way``; reject unknown host keys. Each step may take ``timeout_s`` seconds."""

    def command(self, argv: Sequence[str]) -> str:
        """Return the text that makes the login shell of the SSH server run ``argv`` as root; each word is quoted."""


def as_root(argv: Sequence[str]) -> str:
    """Return the text that makes any login shell run ``argv`` as root by sudo(8); each word is quoted."""
    # sudo runs a shell, because some commands are built-ins of shells, for example `command -v`.
    return shlex.join(["sudo", "-n", "--", "/bin/sh", "-c", shlex.join(argv)])


def connect_in_lab(make_socket: Callable[[], socket.socket], address: str, port: int = 22) -> socket.socket:
    """Return a new TCP connection on the lab's network; ``make_socket`` returns a TCP socket in this network.

    Raises:
        OSError: the address did not accept the connection.
    """
    connection = make_socket()
    try:
        # With Nagle's algorithm, each command waits 40 ms for the guest's delayed acknowledgement of a packet.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(CONNECT_S)
        connection.connect((address, port))
    except OSError:
        connection.close()
        raise
    return connection


def log_in(
    client: paramiko.SSHClient,
    way: Way,
    timeout_s: float,
    address: str,
    *,
    host_key: paramiko.PKey,
    port: int = 22,
    user: str = "root",
    key: paramiko.PKey | None = None,
    key_files: Sequence[Path] = (),
) -> None:
    """Log in over the connection ``way``, with a private key or with one of several files of private keys.

    Raises:
        paramiko.SSHException: the machine has another host key than ``host_key``, or refuses the login.
    """
    name = address if port == 22 else f"[{address}]:{port}"
    client.get_host_keys().add(name, host_key.get_name(), host_key)
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    client.connect(
        address,
        port=port,
        username=user,
        pkey=key,
        key_filename=[str(path) for path in key_files] or None,  # type: ignore[arg-type]  # the stubs lack lists
        sock=way,
        look_for_keys=False,
        allow_agent=False,
        timeout=timeout_s,
        banner_timeout=timeout_s,
        auth_timeout=timeout_s,
    )


@dataclass(frozen=True)
class LabLogin:
    """The login to a machine that raidproof created, as root, with the keys of the machine's lab."""

    address: str
    keys: LabKeys
    make_socket: Callable[[], socket.socket]
    """Returns a new TCP socket in the lab's network."""

    def connect(self) -> socket.socket:
        """Return a new connection to the machine's SSH port.

        Raises:
            OSError: the machine did not accept the connection.
        """
        return connect_in_lab(self.make_socket, self.address)

    def authenticate(self, client: paramiko.SSHClient, way: Way, timeout_s: float) -> None:
        """Log in as root; the machine must present the lab's host key."""
        user, host = self.keys.user.for_paramiko(), self.keys.host.for_paramiko()
        host = paramiko.PKey.from_type_string("ssh-ed25519", host.asbytes())
        log_in(client, way, timeout_s, self.address, host_key=host, key=user)

    def command(self, argv: Sequence[str]) -> str:
        """Return the text that makes the login shell of root run ``argv``; each word is quoted."""
        return shlex.join(argv)
