"""What a machine tells on a port of its own is heard here, through its SSH connection: no port is open in between."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import paramiko

CHUNK = 1 << 16
LOOPBACK = "127.0.0.1"


def forward(transport: paramiko.Transport, connect: Callable[[], socket.socket]) -> int:
    """Let whoever connects to the returned port on the machine's loopback be heard by what ``connect`` connects to.

    It takes the place of an earlier one, and ends with the SSH connection.

    Raises:
        paramiko.SSHException: the machine's SSH server does not allow it.
    """

    def accept(channel: paramiko.Channel, _origin: tuple[str, int], _to: tuple[str, int]) -> None:
        threading.Thread(target=_carry, args=(channel, connect), daemon=True, name="forward").start()

    return transport.request_port_forward(LOOPBACK, 0, accept)


def _carry(channel: paramiko.Channel, connect: Callable[[], socket.socket]) -> None:
    """Carry what comes until either side ends; nothing is ever said to the machine."""
    with suppress(OSError, EOFError), connect() as heard:
        while data := channel.recv(CHUNK):
            heard.sendall(data)
    channel.close()
