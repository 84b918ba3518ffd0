"""Attaches an export of an NBD server to an NBD device of the kernel. Runs in a machine: standard library only.

Run as ``nbd_guest.py HOST PORT EXPORT DEVICE``. The process ends when the connection to the server ends.
"""

import fcntl
import os
import socket
import struct
import sys

SECTOR = 512
# ioctls of include/uapi/linux/nbd.h
SET_SOCK, SET_BLKSIZE, DO_IT, SET_SIZE_BLOCKS, SET_FLAGS = 0xAB00, 0xAB01, 0xAB03, 0xAB07, 0xAB0A
FIXED_NEWSTYLE_NO_ZEROES = 3
EXPORT_NAME = 1


def receive(connection: socket.socket, size: int) -> bytes:
    """Return exactly ``size`` bytes from a connection."""
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise SystemExit(f"NBD: the server closed the connection after {len(data)} of {size} bytes")
        data += more
    return data


def attach(host: str, port: int, export: str, device: str) -> None:
    """Connect to the NBD server, and attach an export to a device until the connection ends."""
    connection = socket.create_connection((host, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    magic, option, _ = struct.unpack(">8s8sH", receive(connection, 18))
    if (magic, option) != (b"NBDMAGIC", b"IHAVEOPT"):
        raise SystemExit(f"NBD: {host}:{port} is no NBD server: it sent {magic!r}, {option!r}")
    name = export.encode()
    connection.sendall(struct.pack(">I8sII", FIXED_NEWSTYLE_NO_ZEROES, b"IHAVEOPT", EXPORT_NAME, len(name)) + name)
    size, flags = struct.unpack(">QH", receive(connection, 10))
    fd = os.open(device, os.O_RDWR)
    for request, value in (
        (SET_BLKSIZE, SECTOR),
        (SET_SIZE_BLOCKS, size // SECTOR),
        (SET_FLAGS, flags),
        (SET_SOCK, connection.fileno()),
        (DO_IT, 0),
    ):
        fcntl.ioctl(fd, request, value)


if __name__ == "__main__":
    attach(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
