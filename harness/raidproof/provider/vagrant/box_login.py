"""The way into a machine of a user's box: as Vagrant would log in, with the host key that its first boot showed."""

import base64
import json
import shlex
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko

from raidproof.core.waiting import Deadline, wait_until
from raidproof.machine.login import Way, connect_in_lab

SCAN_S = 5.0
"""What one attempt to read a host key may take."""


@dataclass(frozen=True)
class BoxLogin:
    """The way in by a user's name and keys; what needs root goes through sudo."""

    address: str
    port: int
    user: str
    keys: tuple[Path, ...]
    """Private keys that the box accepts."""
    host_key: paramiko.PKey
    """By which the machine must prove itself, at each connection."""
    make_socket: Callable[[], socket.socket]
    """Makes a TCP socket on the lab's network."""

    def connect(self) -> socket.socket:
        """Connect on the lab's network.

        Raises:
            OSError: it does not answer now.
        """
        return connect_in_lab(self.make_socket, self.address, self.port)

    def authenticate(self, client: paramiko.SSHClient, way: Way, timeout_s: float) -> None:
        """Log in; a machine with another host key than at its first boot is refused."""
        name = self.address if self.port == 22 else f"[{self.address}]:{self.port}"
        client.get_host_keys().add(name, self.host_key.get_name(), self.host_key)
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        client.connect(
            self.address,
            port=self.port,
            username=self.user,
            key_filename=[str(path) for path in self.keys],  # type: ignore[arg-type]  # its types know of no list
            sock=way,
            look_for_keys=False,
            allow_agent=False,
            timeout=timeout_s,
            banner_timeout=timeout_s,
            auth_timeout=timeout_s,
        )

    def command(self, argv: Sequence[str]) -> str:
        """Return the command for the login shell, whatever shell that is, as root."""
        if self.user == "root":
            return shlex.join(argv)
        # A shell of root's, because some of what is asked is the shell's own: `command -v`.
        return shlex.join(["sudo", "-n", "--", "/bin/sh", "-c", shlex.join(argv)])

    def save(self, directory: Path, machine: str) -> None:
        """Write it into a lab's directory, for whoever logs in to a kept lab."""
        said: dict[str, Any] = {
            "address": self.address,
            "port": self.port,
            "user": self.user,
            "keys": [str(one) for one in self.keys],
        }
        said["host_key"] = [self.host_key.get_name(), self.host_key.get_base64()]
        _file(directory, machine).write_text(json.dumps(said))


def saved(directory: Path, machine: str, make_socket: Callable[[], socket.socket]) -> BoxLogin | None:
    """Return the way into a machine of a kept lab, with its host key as it was pinned; None if it is of our making."""
    if not (file := _file(directory, machine)).exists():
        return None
    said = json.loads(file.read_text())
    name, blob = said["host_key"]
    host_key = paramiko.PKey.from_type_string(name, base64.b64decode(blob))
    keys = tuple(map(Path, said["keys"]))
    return BoxLogin(said["address"], said["port"], said["user"], keys, host_key, make_socket)


def _file(directory: Path, machine: str) -> Path:
    return directory / f"{machine}.login.json"


def learn_host_key(
    make_socket: Callable[[], socket.socket], address: str, port: int, deadline: Deadline
) -> paramiko.PKey:
    """Return the key by which a machine proves itself, unproven: to be read once, right after its first boot.

    That is safe here and nowhere else: the lab's network is in a namespace of its own, its bridge carries nothing but
    the lab's machines, and DHCP gives each address to one hardware address. Whoever answers is the machine meant.

    Raises:
        DeadlineExceeded: it did not show one.
    """
    return wait_until(lambda: _shown(make_socket, address, port), deadline, f"the host key of {address}")


def _shown(make_socket: Callable[[], socket.socket], address: str, port: int) -> paramiko.PKey | None:
    try:
        connection = connect_in_lab(make_socket, address, port)
    except OSError:
        return None
    connection.settimeout(SCAN_S)
    transport = paramiko.Transport(connection)
    try:
        transport.start_client(timeout=SCAN_S)
        return transport.get_remote_server_key()
    except (OSError, EOFError, paramiko.SSHException):
        return None
    finally:
        transport.close()
        connection.close()
