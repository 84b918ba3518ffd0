# A minimal Python, where each import costs: no pathlib.
"""One process of a client that holds files open and locked, and does with them what the harness says.

The file is copied into machines and runs there alone, on a minimal Python: standard library only. Run as
``lock_agent.py HOST PORT``. It connects there, takes orders, JSON, one a line, and answers each, once it has returned,
with ``{"errno": 0, "value": ...}``. A POSIX lock belongs to a process: this one is one owner. It ends, and lets go of
all that it holds, when the connection ends.
"""

import ctypes
import errno
import fcntl
import json
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

KINDS = {"read": fcntl.LOCK_SH, "write": fcntl.LOCK_EX, "none": fcntl.LOCK_UN}
FLAGS = {
    "read": os.O_RDONLY,
    "write": os.O_RDWR | os.O_CREAT,
    "new": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
    "direct": os.O_RDONLY | os.O_DIRECT,
}
LETTERS = "ascii"
SYNC_FILE_RANGE_WRITE = 2


def open_file(path: str, how: str) -> int:
    """Open a file for ``read``, for ``write``, as a ``new`` one, or to read past the client's cache (``direct``)."""
    return os.open(path, FLAGS[how], 0o644)


def close_file(file: int) -> None:
    """Close it; locks of this process on the same file go with it (POSIX)."""
    os.close(file)


def lock(file: int, kind: str, length: int = 0) -> None:
    """Lock the first bytes of a file, 0 being all, or fail at once."""
    fcntl.lockf(file, KINDS[kind] | (0 if kind == "none" else fcntl.LOCK_NB), length)


def write_text(file: int, text: str, offset: int = 0) -> int:
    """Write characters, one byte each."""
    return os.pwrite(file, text.encode(LETTERS), offset)


def pour(file: int, size: int, letter: str, step: int = 1 << 20) -> int:
    """Write the same letter all over a range, and have the client begin to send it; that is not waited for.

    The server is asked to make it durable only after all of it has arrived: until then its WRITEs are unstable.
    """
    for offset in range(0, size, step):
        os.pwrite(file, letter.encode(LETTERS) * min(step, size - offset), offset)
    begin, length = ctypes.c_long(0), ctypes.c_long(size)
    if ctypes.CDLL(None, use_errno=True).sync_file_range(file, begin, length, SYNC_FILE_RANGE_WRITE):
        raise OSError(ctypes.get_errno(), "sync_file_range")
    return size


def sync_file(file: int) -> None:
    """Make durable what was written, and learn of what could not be written."""
    os.fsync(file)


def read_text(file: int, length: int, offset: int = 0) -> str:
    """Read bytes, as characters."""
    return os.pread(file, length, offset).decode("latin-1")


def letters(file: int) -> dict[str, int]:
    """Return how often each byte stands in a file."""
    counted: dict[str, int] = {}
    offset = 0
    while data := os.pread(file, 1 << 20, offset):
        for byte in set(data):
            counted[chr(byte)] = counted.get(chr(byte), 0) + data.count(byte)
        offset += len(data)
    return counted


def status(file: int) -> dict[str, int]:
    """Return inode, size and number of names of an open file."""
    found = os.fstat(file)
    return {"inode": found.st_ino, "size": found.st_size, "names": found.st_nlink}


ORDERS: dict[str, Callable[..., Any]] = {
    "open": open_file,
    "close": close_file,
    "lock": lock,
    "write": write_text,
    "pour": pour,
    "fsync": sync_file,
    "read": read_text,
    "letters": letters,
    "status": status,
    "unlink": os.unlink,
}


def answer(line: str) -> dict[str, Any]:
    """Carry out one order."""
    order = json.loads(line)
    try:
        return {"errno": 0, "value": ORDERS[order["do"]](*order["with"])}
    except OSError as error:
        return {"errno": error.errno or errno.EIO, "value": None}


def main(host: str, port: int) -> None:
    """Serve until the connection ends."""
    with socket.create_connection((host, port)) as connection, connection.makefile("rw", encoding=LETTERS) as stream:
        for line in stream:
            stream.write(json.dumps(answer(line)) + "\n")
            stream.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
