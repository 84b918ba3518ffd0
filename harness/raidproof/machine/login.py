"""The login to a machine over SSH: address, user, and the keys of both sides."""

import shlex
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import StringIO
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
        client.get_host_keys().add(
            self.address,
            "ssh-ed25519",
            paramiko.PKey.from_type_string("ssh-ed25519", self.keys.host.for_paramiko().asbytes()),
        )
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        client.connect(
            self.address,
            username="root",
            pkey=self.keys.user.for_paramiko(),
            sock=way,
            look_for_keys=False,
            allow_agent=False,
            timeout=timeout_s,
            banner_timeout=timeout_s,
            auth_timeout=timeout_s,
        )

    def command(self, argv: Sequence[str]) -> str:
        """Return the command; the user is root already."""
        return shlex.join(argv)
