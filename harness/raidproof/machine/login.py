"""The login to a machine over SSH: address, user, and the keys of both sides."""

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
"""The transport of an SSH connection."""
CONNECT_S = 0.25
"""Seconds; a SYN that is lost during boot is repeated only after 1 s: give up early, and try again."""


@dataclass(frozen=True)
class KeyPair:
    """An Ed25519 key in OpenSSH's format."""

    private: str
    public: str

    @classmethod
    def generate(cls) -> "KeyPair":
        """Generate a new key."""
        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        return cls(private.decode(), public.decode() + "\n")

    def for_paramiko(self) -> paramiko.PKey:
        """Return the key for the SSH library."""
        return paramiko.Ed25519Key.from_private_key(StringIO(self.private))

    def __repr__(self) -> str:
        return f"KeyPair({self.public.strip()!r})"


@dataclass(frozen=True)
class LabKeys:
    """The key of the user who may log in (``user``), and the host key of the machines (``host``)."""

    user: KeyPair
    host: KeyPair

    @classmethod
    def generate(cls) -> "LabKeys":
        """Generate the keys of a new lab."""
        return cls(user=KeyPair.generate(), host=KeyPair.generate())


class Login(Protocol):
    """The login to one machine."""

    def connect(self) -> Way:
        """Return a new connection to its SSH port.

        Raises:
            OSError: the machine does not answer now.
        """

    def authenticate(self, client: paramiko.SSHClient, way: Way, timeout_s: float) -> None:
        """Log in over a connection. Only known host keys are accepted."""

    def command(self, argv: Sequence[str]) -> str:
        """Return the SSH command that runs as root: one string for the login shell, quoted word by word."""


def as_root(argv: Sequence[str]) -> str:
    """Return the command for the login shell of a user, whatever shell that is, that runs as root by sudo(8)."""
    # With a shell for root, because some commands are shell built-ins: `command -v`.
    return shlex.join(["sudo", "-n", "--", "/bin/sh", "-c", shlex.join(argv)])


def connect_in_lab(make_socket: Callable[[], socket.socket], address: str, port: int = 22) -> socket.socket:
    """Return a new connection on the lab's network.

    Raises:
        OSError: the address does not answer now.
    """
    connection = make_socket()
    try:
        # Otherwise each command waits 40 ms for the guest's delayed acknowledgement of the previous one's end.
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
    """Log in over a connection, with a key or with one of several files of keys.

    Raises:
        paramiko.SSHException: the machine has another host key, or refuses the login.
    """
    name = address if port == 22 else f"[{address}]:{port}"
    client.get_host_keys().add(name, host_key.get_name(), host_key)
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    client.connect(
        address,
        port=port,
        username=user,
        pkey=key,
        key_filename=[str(path) for path in key_files] or None,  # type: ignore[arg-type]  # its types know of no list
        sock=way,
        look_for_keys=False,
        allow_agent=False,
        timeout=timeout_s,
        banner_timeout=timeout_s,
        auth_timeout=timeout_s,
    )


@dataclass(frozen=True)
class LabLogin:
    """The login to a machine that raidproof made, as root, with the keys of its lab."""

    address: str
    keys: LabKeys
    make_socket: Callable[[], socket.socket]
    """Makes a TCP socket on the lab's network."""

    def connect(self) -> socket.socket:
        """Connect on the lab's network.

        Raises:
            OSError: the machine does not answer now.
        """
        return connect_in_lab(self.make_socket, self.address)

    def authenticate(self, client: paramiko.SSHClient, way: Way, timeout_s: float) -> None:
        """Log in as root; the machine must present the lab's host key."""
        user, host = self.keys.user.for_paramiko(), self.keys.host.for_paramiko()
        host = paramiko.PKey.from_type_string("ssh-ed25519", host.asbytes())
        log_in(client, way, timeout_s, self.address, host_key=host, key=user)

    def command(self, argv: Sequence[str]) -> str:
        """Return the command; the user is root already."""
        return shlex.join(argv)
