# A minimal Python, where each import costs: no pathlib.
"""One process of a client that holds files open and locked, and operates on them as the harness requests.

The harness copies this file into machines, where it runs on a minimal Python: standard library only. Run as
``lock_agent.py HOST PORT``. The agent connects to that address, reads orders (JSON, one per line), and answers each
after it has returned with ``{"errno": 0, "value": ...}``. POSIX locks belong to a process, so this process is one lock
owner. When the connection ends, the agent ends, which releases its locks.
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
    """Open a file for ``read``, for ``write``, as a ``new`` one, or to read around the client's cache (``direct``)."""
    return os.open(path, FLAGS[how], 0o644)


def close_file(file: int) -> None:
    """Close the file; this releases all locks of this process on the same file (POSIX)."""
    os.close(file)


def lock(file: int, kind: str, length: int = 0) -> None:
    """Lock the first ``length`` bytes of a file (0: all), or fail at once."""
    fcntl.lockf(file, KINDS[kind] | (0 if kind == "none" else fcntl.LOCK_NB), length)


def write_text(file: int, text: str, offset: int = 0) -> int:
    """Write characters, one byte each."""
    return os.pwrite(file, text.encode(LETTERS), offset)


def pour(file: int, size: int, letter: str, step: int = 1 << 20) -> int:
    """Fill a range with one letter, and let the client begin to send it; do not wait for the data.

    The client sends a COMMIT only after all data has arrived: until then its WRITEs are UNSTABLE.
    """
    for offset in range(0, size, step):
        os.pwrite(file, letter.encode(LETTERS) * min(step, size - offset), offset)
    begin, length = ctypes.c_long(0), ctypes.c_long(size)
    if ctypes.CDLL(None, use_errno=True).sync_file_range(file, begin, length, SYNC_FILE_RANGE_WRITE):
        raise OSError(ctypes.get_errno(), "sync_file_range")
    return size


def sync_file(file: int) -> None:
    """Make written data durable; raises the errors of earlier writes."""
    os.fsync(file)


def read_text(file: int, length: int, offset: int = 0) -> str:
    """Read bytes, as characters."""
    return os.pread(file, length, offset).decode("latin-1")


def letters(file: int) -> dict[str, int]:
    """Return how often each byte occurs in a file."""
    counted: dict[str, int] = {}
    offset = 0
    while data := os.pread(file, 1 << 20, offset):
        for byte in set(data):
            counted[chr(byte)] = counted.get(chr(byte), 0) + data.count(byte)
        offset += len(data)
    return counted


def status(file: int) -> dict[str, int]:
    """Return inode, size in bytes and link count of an open file."""
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
