# No pathlib: on the minimal Python of a guest each import takes time.
"""Process in a client that opens and locks files, and reads and writes them, as the harness requests.

The harness copies this file into machines, where it runs on a minimal Python: standard library only. Run as
``lock_agent.py HOST PORT``. The agent connects to this address and reads requests, one JSON object per line: ``{"do":
NAME, "with": [ARGUMENT, ...]}``, with a name of `CALLS`. After the call has returned, the agent answers with
``{"errno": 0, "value": ...}``. A process is one owner of POSIX locks. When the connection ends, the agent ends, which
releases its locks.
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
"""Operation of lockf by kind of lock; ``none`` unlocks."""
FLAGS = {
    "read": os.O_RDONLY,
    "write": os.O_RDWR | os.O_CREAT,
    "new": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
    "direct": os.O_RDONLY | os.O_DIRECT,
}
"""Flags of open(2) by mode."""
LETTERS = "ascii"
"""Encoding of texts in files and requests."""
SYNC_FILE_RANGE_WRITE = 2
"""Flag of sync_file_range(2): begin to write the range, and do not wait."""


def open_file(path: str, how: str) -> int:
    """Open a file to ``read``, to ``write``, as ``new`` (to write, truncated), or ``direct`` (to read, O_DIRECT)."""
    return os.open(path, FLAGS[how], 0o644)


def close_file(file: int) -> None:
    """Close a file; by POSIX this also releases all locks of this process on the file."""
    os.close(file)


def lock(file: int, kind: str, length: int = 0) -> None:
    """Lock the first ``length`` bytes of a file (0: the whole file); fail at once if another process has a lock."""
    fcntl.lockf(file, KINDS[kind] | (0 if kind == "none" else fcntl.LOCK_NB), length)


def write_text(file: int, text: str, offset: int = 0) -> int:
    """Write an ASCII text at an offset in bytes; return the number of bytes written."""
    return os.pwrite(file, text.encode(LETTERS), offset)


def pour(file: int, size: int, letter: str, step: int = 1 << 20) -> int:
    """Fill the first ``size`` bytes of a file with one letter; the NFS client begins to send UNSTABLE WRITEs.

    Return before the server has the data. The client sends a COMMIT only after the server has all of it.
    """
    for offset in range(0, size, step):
        os.pwrite(file, letter.encode(LETTERS) * min(step, size - offset), offset)
    begin, length = ctypes.c_long(0), ctypes.c_long(size)
    if ctypes.CDLL(None, use_errno=True).sync_file_range(file, begin, length, SYNC_FILE_RANGE_WRITE):
        raise OSError(ctypes.get_errno(), "sync_file_range")
    return size


def sync_file(file: int) -> None:
    """Call fsync(2), which also reports the errors of earlier writes."""
    os.fsync(file)


def read_text(file: int, length: int, offset: int = 0) -> str:
    """Return bytes of a file as characters of Latin-1."""
    return os.pread(file, length, offset).decode("latin-1")


def letters(file: int) -> dict[str, int]:
    """Return the number of occurrences of each byte value in a file, by its Latin-1 character."""
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


CALLS: dict[str, Callable[..., Any]] = {
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
"""The functions by the name in a request."""


def answer(line: str) -> dict[str, Any]:
    """Carry out one request, and return the answer."""
    request = json.loads(line)
    try:
        return {"errno": 0, "value": CALLS[request["do"]](*request["with"])}
    except OSError as error:
        return {"errno": error.errno or errno.EIO, "value": None}


def main(host: str, port: int) -> None:
    """Connect to the harness, and answer requests until the connection ends."""
    with socket.create_connection((host, port)) as connection, connection.makefile("rw", encoding=LETTERS) as stream:
        for line in stream:
            stream.write(json.dumps(answer(line)) + "\n")
            stream.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
