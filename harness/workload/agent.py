"""The ledger's hand in a machine: writes self-describing blocks, tells of each operation, and reads them back.

The file is copied into machines and runs there alone, on a minimal Python: standard library only. The harness imports
it too, so that format and naming have one home. Run as ``agent.py write CONFIG`` or ``agent.py scan CONFIG``.

Each worker has a connection of its own to the harness and tells of an operation before it begins it and after it has
returned. The harness stamps both at arrival, outside everything that may crash.
"""

import errno
import json
import os
import select
import socket
import stat
import struct
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

BLOCK = 4096
"""Bytes of a ledger block: the client's page, the smallest unit that NFS writes back."""

HEADER = struct.Struct("<8sQQQQ")  # magic, file, offset in bytes, generation, seed
CHECKSUM = struct.Struct("<I")  # CRC-32 of all that stands before it
MAGIC = b"RAIDPRF1"

FRAME = struct.Struct("<BBHIIIi")  # type, kind, worker, sequence, index, generation, errno
ISSUE, ACKNOWLEDGE, END = 1, 2, 3

# The kinds of operation. The order is the number on the wire: append only.
KINDS = (
    "fsync",  # write, then fsync, of a block in a preallocated range
    "o_sync",  # write to a file opened with O_SYNC
    "close",  # write to a file, then close
    "mkdir",
    "create",
    "append",
    "setattr",
    "link",
    "symlink",
    "rename",
    "truncate",
    "remove",
)
METADATA = KINDS[3:]
APPENDED = 100  # bytes of one append
TRUNCATED = 10  # bytes that a truncate leaves
MODE = 0o640  # what setattr sets
GROUPS = 20000  # the RPCs of a worker carry this group plus its number: in a capture it identifies whose they are
BREATH_S = 0.05  # after an error that a worker endures: it comes at once, and the next one would too
UNCUT = "+0"  # what the scan says of one that holds what append wrote, zeroed from where truncate is to cut it off
OTHER_CONTENT = "?"  # what the scan says of a file that holds anything but what append wrote

BLANK = bytes(BLOCK)
# What the scan says of a block that is not simply there in some generation.
ABSENT, GARBAGE, MISPLACED, UNREADABLE = 0, -1, -2, -3


def block(file: int, offset: int, generation: int, seed: int) -> bytes:
    """Return the block that says of itself where it belongs and how new it is."""
    header = HEADER.pack(MAGIC, file, offset, generation, seed)
    # The body differs from block to block too, so that a torn block cannot pass for a whole one.
    unit = struct.pack("<QQQQ", file ^ seed, offset ^ seed, generation ^ seed, seed)
    rest = BLOCK - HEADER.size - CHECKSUM.size
    content = header + (unit * (rest // len(unit) + 1))[:rest]
    return content + CHECKSUM.pack(zlib.crc32(content))


def read_block(data: bytes, file: int, offset: int, seed: int) -> int:
    """Return the generation of a block that was read, or what is wrong with it."""
    if data == BLANK or not any(data):
        return ABSENT
    if len(data) != BLOCK or CHECKSUM.unpack_from(data, BLOCK - 4)[0] != zlib.crc32(data[:-4]):
        return GARBAGE
    generation: int
    magic, its_file, its_offset, generation, its_seed = HEADER.unpack_from(data)
    if magic != MAGIC or its_seed != seed:
        return GARBAGE
    if (its_file, its_offset) != (file, offset):
        return MISPLACED
    return generation


class Worker:
    """One thread that does one operation after the other in files of its own, or in its part of a shared one."""

    def __init__(self, config: dict[str, Any], worker: dict[str, Any], stop: threading.Event) -> None:
        self.worker = worker
        self.number = worker["number"]
        self.seed = config["seed"]
        self.path = os.path.join(config["root"], worker["path"])
        self.limit = worker.get("operations") or 1 << 62
        self.stop = stop
        self.endured = config.get("endured", ())
        self.failed = False
        self.pending = b""
        self.sequence = 0
        self.connection = socket.create_connection((config["host"], config["port"]))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self) -> None:
        """Work until told to stop or done, then say so."""
        mark_rpcs(self.number)
        try:
            kind = self.worker["kind"]
            if kind == "metadata":
                self.metadata()
            elif kind == "close":
                self.closing()
            else:
                self.blocks(kind)
        finally:
            self.pending += FRAME.pack(END, 0, self.number, self.sequence, 0, 0, 0)
            self.connection.sendall(self.pending)
            self.connection.close()

    def more(self) -> bool:
        """Whether there is another operation to do; a worker that failed has none: what follows would mean nothing."""
        return self.sequence < self.limit and not self.failed and not self.stop.is_set()

    def do(self, kind: str, index: int, generation: int, action: Callable[[], object]) -> bool:
        """Tell, act, and keep what it returned to be told with the next operation's beginning; whether it was done."""
        code = KINDS.index(kind)
        self.pending += FRAME.pack(ISSUE, code, self.number, self.sequence, index, generation, 0)
        self.connection.sendall(self.pending)
        failure = 0
        try:
            action()
        except OSError as error:
            failure = error.errno or errno.EIO
            self.failed = failure not in self.endured
            self.stop.wait(BREATH_S)
        self.pending = FRAME.pack(ACKNOWLEDGE, code, self.number, self.sequence, index, generation, failure)
        self.sequence += 1
        return not failure

    def positions(self) -> Iterator[tuple[int, int]]:
        """Yield (index, generation): round after round over the worker's blocks or files."""
        count, first = self.worker["blocks"], self.worker.get("first", 0)
        while self.more():
            yield first + self.sequence % count, self.sequence // count + 1

    def blocks(self, kind: str) -> None:
        """Write block after block of one file, each made durable before the next."""
        flags = os.O_WRONLY | os.O_CREAT | (os.O_SYNC if kind == "o_sync" else 0)
        fd = os.open(self.path, flags, 0o644)
        file, seed, synced = self.worker["file"], self.seed, kind == "o_sync"

        def write(data: bytes, offset: int) -> None:
            os.pwrite(fd, data, offset)
            if not synced:
                os.fsync(fd)

        for index, generation in self.positions():
            data = block(file, index * BLOCK, generation, seed)
            self.do(kind, index, generation, lambda: write(data, index * BLOCK))  # noqa: B023  called at once
        os.close(fd)

    def closing(self) -> None:
        """Write small files, one after the other; close is what makes them durable."""
        os.makedirs(self.path, exist_ok=True)

        def write(index: int, generation: int) -> None:
            fd = os.open(os.path.join(self.path, "f%d" % index), os.O_WRONLY | os.O_CREAT, 0o644)
            try:
                os.pwrite(fd, block(self.worker["file"], index * BLOCK, generation, self.seed), 0)
            finally:
                os.close(fd)

        for index, generation in self.positions():
            self.do("close", index, generation, lambda: write(index, generation))  # noqa: B023  called at once

    def metadata(self) -> None:
        """Take one small directory after the other through every change that NFS promises to keep."""
        os.makedirs(self.path, exist_ok=True)
        number = 0
        while self.more():
            for kind, action in self.changes(os.path.join(self.path, "d%d" % number)):
                if not (self.more() and self.do(kind, number, 1, action)):
                    break
            number += 1

    @staticmethod
    def changes(directory: str) -> tuple[tuple[str, Callable[[], object]], ...]:
        """Return the operations on one directory, in their order."""
        a, b, c, s = (os.path.join(directory, name) for name in "abcs")

        def create() -> None:
            os.close(os.open(a, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))

        def append() -> None:
            fd = os.open(a, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(fd, b"+" * APPENDED)
                os.fsync(fd)
            finally:
                os.close(fd)

        return (
            ("mkdir", lambda: os.mkdir(directory)),
            ("create", create),
            ("append", append),
            ("setattr", lambda: os.chmod(a, MODE)),
            ("link", lambda: os.link(a, b)),
            ("symlink", lambda: os.symlink("a", s)),
            ("rename", lambda: os.rename(a, c)),
            ("truncate", lambda: os.truncate(c, TRUNCATED)),
            ("remove", lambda: os.unlink(b)),
        )


def mark_rpcs(number: int) -> None:
    """Let the AUTH_SYS credentials of all that this thread does carry a group of the worker's own (setfsgid(2))."""
    # It changes this thread alone, where os.setegid changes all. A minimal Python has no ctypes, and marks nothing.
    with suppress(ImportError):
        import_module("ctypes").CDLL(None).setfsgid(GROUPS + number)


def write(config: dict[str, Any]) -> None:
    """Run all workers of one client until the harness says stop, on standard input, or hangs up."""
    stop = threading.Event()
    workers = [Worker(config, worker, stop) for worker in config["workers"]]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        # A worker may be done by itself; ask for the harness's word in between.
        while thread.is_alive() and not stop.is_set():
            thread.join(0.05)
            if stop_asked():
                stop.set()
        thread.join()


def stop_asked() -> bool:
    """Whether the harness has closed our standard input."""
    return bool(select.select([0], [], [], 0)[0])


def scan(config: dict[str, Any]) -> None:
    """Print what is found of every worker's files, as one JSON object."""
    json.dump(read_back(config), sys.stdout, separators=(",", ":"))


def read_back(config: dict[str, Any]) -> dict[str, Any]:
    """Return what is found of every worker's files, by the worker's path, and its first block where it shares it."""
    found: dict[str, Any] = {}
    seed = config["seed"]
    for worker in config["workers"]:
        path = os.path.join(config["root"], worker["path"])
        file, count = worker["file"], worker["blocks"]
        if worker["kind"] == "metadata":
            found[worker["path"]] = names(path)
        elif worker["kind"] == "close":
            blocks = [read_blocks(os.path.join(path, "f%d" % i), file, i, 0, 1, seed)[0] for i in range(count)]
            found[worker["path"]] = {"blocks": blocks, "names": listed(path)}
        else:
            first = worker.get("first", 0)
            found[worker["path"] + "@%d" % first] = {
                "blocks": read_blocks(path, file, first, first * BLOCK, count, seed),
                "names": [worker["path"]] if os.path.exists(path) else None,
            }
    return found


def read_blocks(path: str, file: int, index: int, position: int, count: int, seed: int) -> list[int]:
    """Return what stands in so many blocks of one file; ``index`` and ``position`` (bytes) are those of the first."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return [ABSENT] * count
    except OSError:
        return [UNREADABLE] * count
    try:
        try:
            data = pread_all(fd, count * BLOCK, position)
        except OSError:
            return [read_at(fd, file, index + i, position + i * BLOCK, seed) for i in range(count)]
        return [read_block(data[i * BLOCK : (i + 1) * BLOCK], file, (index + i) * BLOCK, seed) for i in range(count)]
    finally:
        os.close(fd)


def pread_all(fd: int, size: int, position: int) -> bytes:
    """Read that much of a file, or up to its end: one call where nothing is wrong."""
    data = os.pread(fd, size, position)
    while len(data) < size:
        # A read ends early at the end of the file, and also before a page that cannot be read.
        more = os.pread(fd, size - len(data), position + len(data))
        if not more:
            break
        data += more
    return data


def read_at(fd: int, file: int, index: int, position: int, seed: int) -> int:
    """Return what stands in one block of one file."""
    try:
        data = os.pread(fd, BLOCK, position)
    except OSError:
        return UNREADABLE
    return read_block(data, file, index * BLOCK, seed)


def listed(path: str) -> list[str] | None:
    """Return the names in a directory, or None if it is not there or cannot be read."""
    try:
        return sorted(os.listdir(path))
    except OSError:
        return None


def content(path: str) -> str:
    """Return what a small file of the metadata worker holds: what append wrote, that and zeroes behind it, or else."""
    fd = os.open(path, os.O_RDONLY)
    try:
        # Of one that is longer its size tells enough.
        data = os.read(fd, APPENDED + 1)
    finally:
        os.close(fd)
    if not data.strip(b"+"):
        return "+"
    return UNCUT if data == b"+" * TRUNCATED + bytes(APPENDED - TRUNCATED) else OTHER_CONTENT


def names(path: str) -> dict[str, list[Any]]:
    """Return every name below a directory with mode, size, links, and a symbolic link's target or a file's content."""
    found: dict[str, list[Any]] = {}
    start = len(os.path.join(path, ""))

    def unreadable(error: OSError) -> None:
        if error.errno == errno.ENOENT:
            return
        found[os.path.relpath(error.filename, path)] = [0, 0, 0, errno.errorcode.get(error.errno or 0, "?")]

    for directory, subdirectories, files in os.walk(path, onerror=unreadable):
        for name in subdirectories + files:
            full = os.path.join(directory, name)
            try:
                status = os.lstat(full)
                if stat.S_ISLNK(status.st_mode):
                    held: str | None = os.readlink(full)
                else:
                    held = content(full) if stat.S_ISREG(status.st_mode) else None
                found[full[start:]] = [status.st_mode, status.st_size, status.st_nlink, held]
            except OSError as error:
                # os.read names no file.
                error.filename = full
                unreadable(error)
    return found


if __name__ == "__main__":
    with open(sys.argv[2]) as config_file:
        {"write": write, "scan": scan}[sys.argv[1]](json.load(config_file))
