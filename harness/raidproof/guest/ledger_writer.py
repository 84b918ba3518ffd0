"""Writer of the ledger in a client: writes self-describing blocks and names, and reports each operation.

The harness copies this file into machines, where it runs on a minimal Python: standard library only. The harness
imports it too, so that format and naming are defined once. Run as ``ledger_writer.py CONFIG``; `ledger_reader` reads
its work back.

Each worker has its own connection to the harness. It reports an operation before it begins and after it has returned.
The harness stamps both reports at arrival, outside of everything that may crash; the reports also carry the program's
own stamps.
"""

import errno
import json
import os
import select
import socket
import struct
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from time import monotonic_ns
from typing import Any

BLOCK = 4096
"""Bytes of a ledger block: the client's page size, the smallest unit that an NFS client writes back."""

HEADER = struct.Struct("<8sQQQQ")  # magic, file, offset in bytes, generation, seed
UNIT = struct.Struct("<QQQQ")  # repeats up to the checksum: file, offset, generation, all XORed with the seed; seed
CHECKSUM = struct.Struct("<I")  # CRC-32 of all bytes before it
MAGIC = b"RAIDPRF1"

FRAME = struct.Struct("<BBHIIIiQ")  # type, kind, worker, sequence, index, generation, errno, CLOCK_MONOTONIC in ns
ISSUE, ACKNOWLEDGE, END = 1, 2, 3

# The kinds of operation. The order is the number on the wire: append only.
KINDS = (
    "fsync",  # write, then fsync, of a block in a preallocated range
    "o_sync",  # write to a file opened with O_SYNC
    "close",  # write of several pages of a file, then close
    "mkdir", "create", "append", "setattr", "link", "symlink", "rename", "truncate",
    "remove",  # of one of two names of a file
    "fdatasync",  # write, then fdatasync
    "o_dsync",  # write to a file opened with O_DSYNC
    "o_direct",  # write to a file opened with O_DIRECT, then fsync
    "msync",  # write to a mapping, then msync with MS_SYNC
    "pages",  # write of pages that are not adjacent, then one fsync: UNSTABLE WRITEs and a COMMIT
    "unaligned",  # the same with blocks that straddle pages
    "replace",  # rename over a name that exists
    "unlink",  # of a file's last name
    "rmdir", "setxattr",
    "allocate",  # fallocate(2) beyond the end of the file
    "punch",  # fallocate(2) with FALLOC_FL_PUNCH_HOLE
    "copy",  # copy_file_range(2), then fsync
    "clone",  # ioctl FICLONE
    "o_append",  # write to a file opened with O_APPEND, then fsync, under a lock that clients take in turn
)  # fmt: skip
# Kinds of operation that change names and attributes; the history of a directory is judged as a whole.
METADATA = (
    *KINDS[3:12], "replace", "unlink", "rmdir", "setxattr", "allocate", "punch", "copy", "clone",
)  # fmt: skip
TREES = ("metadata", "extents")  # workers that take one directory after another through a list of changes
APPENDED = 100  # bytes of one append
TRUNCATED = 10  # bytes that a truncate leaves
CREATED = 0o600  # the mode with which create makes a file
MODE = 0o640  # what setattr sets
XATTR, XATTR_VALUE = "user.raidproof", "set"  # what setxattr sets
# In blocks of a file of an extents worker: written, allocated, punched, and copied from its beginning.
WRITTEN, ALLOCATED, PUNCHED, COPIED = 4, 2, 1, 2
GROUPS = 20000  # the RPCs of a worker carry this group plus its number, which identifies the worker in a capture
BREATH_S = 0.05  # pause after an error that a worker endures: it returns at once, and the next one would too
LOCK_S = 0.01  # pause between two attempts to take the lock that another client holds
UNCUT = "+0"  # the scan's code for a file that holds what append wrote, zeroed beyond the length that truncate sets
OTHER_CONTENT = "?"  # the scan's code for a file that holds anything but what append wrote

BLANK = bytes(BLOCK)
# The scan's codes for a block that does not simply exist in some generation.
ABSENT, GARBAGE, MISPLACED, UNREADABLE = 0, -1, -2, -3
OLD = -4  # what the disk held before the run
OLD_MAGIC = b"OLDDATA1"  # begins each block that was never written, where a lab's disks hold old data


def block(file: int, offset: int, generation: int, seed: int) -> bytes:
    """Return the block that encodes its file, offset and generation."""
    header = HEADER.pack(MAGIC, file, offset, generation, seed)
    # The body also differs from block to block, so that a torn block cannot pass for a whole one.
    unit = UNIT.pack(file ^ seed, offset ^ seed, generation ^ seed, seed)
    rest = BLOCK - HEADER.size - CHECKSUM.size
    content = header + (unit * (rest // len(unit) + 1))[:rest]
    return content + CHECKSUM.pack(zlib.crc32(content))


def generation_of(data: bytes, start: int, seed: int) -> int:
    """Return the generation in the part of a block from ``start`` on; an arbitrary number if it is no such part."""
    if start < HEADER.size:
        return int(HEADER.unpack_from(data)[3])
    unit = HEADER.size + -(-(start - HEADER.size) // UNIT.size) * UNIT.size
    return int(UNIT.unpack_from(data, unit)[2] ^ seed) if unit + UNIT.size <= BLOCK - CHECKSUM.size else 0


def identity(data: bytes, seed: int) -> tuple[int, int, int] | int:
    """Return (file, offset, generation) of a block that was read; a code if it is not a whole block of this seed."""
    if data == BLANK or not any(data):
        return ABSENT
    if OLD_MAGIC in data:
        return OLD
    if len(data) != BLOCK or CHECKSUM.unpack_from(data, BLOCK - 4)[0] != zlib.crc32(data[:-4]):
        return GARBAGE
    magic, file, offset, generation, its_seed = HEADER.unpack_from(data)
    return (file, offset, generation) if magic == MAGIC and its_seed == seed else GARBAGE


def signed(place: int, generation: int) -> str:
    """Return the signature of the block that was written at a place (block index) of a file."""
    return "%d.%d" % (place, generation)


def write_whole(fd: int, data: bytes, position: int | None = None) -> None:
    """Write all of the data (write(2) may write less than requested); without a position, at the file offset."""
    done = 0
    while done < len(data):
        rest = data[done:]
        done += os.write(fd, rest) if position is None else os.pwrite(fd, rest, position + done)


def position_of(worker: dict[str, Any], index: int) -> int:
    """Return the position of a worker's block in its file, in bytes."""
    if worker.get("files"):
        index %= worker.get("span", 1)
    return int(index * worker.get("step", 1) * BLOCK + worker.get("shift", 0))


class Worker:
    """One thread that carries out one operation after another, and reports each."""

    def __init__(self, config: dict[str, Any], worker: dict[str, Any], stop: threading.Event) -> None:
        self.worker = worker
        self.number = worker["number"]
        self.file = worker["file"]
        self.kind = worker["kind"]
        self.seed = config["seed"]
        self.path = os.path.join(config["root"], worker["path"])
        self.limit = worker.get("operations") or 1 << 62
        self.stop = stop
        self.quiet_s = config.get("quiet_s", 0.0)
        self.tolerated_errnos = config.get("tolerated_errnos", ())
        self.failed = False
        self.pending = b""
        self.sequence = 0
        self.connection = socket.create_connection((config["host"], config["port"]))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self) -> Iterator[None]:
        """Yield after each operation until stopped or done, then report the end."""
        try:
            yield from self.work()
        finally:
            self.pending += FRAME.pack(END, 0, self.number, self.sequence, 0, 0, 0, monotonic_ns())
            self.connection.sendall(self.pending)
            self.connection.close()

    def work(self) -> Iterator[None]:
        """Yield after each operation."""
        raise NotImplementedError

    def more(self) -> bool:
        """Return whether the worker has another operation; none after a failure, as later ones would prove nothing."""
        return self.sequence < self.limit and not self.failed and not self.stop.is_set()

    def do(self, kind: str, index: int, generation: int, action: Callable[[], object]) -> bool:
        """Report the issue, act, and queue the result for the next report; return whether the action succeeded."""
        code, failure = KINDS.index(kind), 0
        said = (code, self.number, self.sequence, index, generation)
        self.pending += FRAME.pack(ISSUE, *said, 0, monotonic_ns())
        self.connection.sendall(self.pending)
        try:
            action()
        except OSError as error:
            failure = error.errno or errno.EIO
            self.failed = failure not in self.tolerated_errnos
            self.stop.wait(BREATH_S)
        self.pending = FRAME.pack(ACKNOWLEDGE, *said, failure, monotonic_ns())
        self.sequence += 1
        if self.quiet_s:
            # The next operation, and the report of its issue, may belong to another worker.
            self.connection.sendall(self.pending)
            self.pending = b""
            self.stop.wait(self.quiet_s)
        return not failure


FLAGS = {"o_sync": os.O_SYNC, "o_dsync": os.O_DSYNC, "o_direct": os.O_DIRECT}  # open(2) flags by kind
AFTER = {"o_sync": "", "o_dsync": "", "fdatasync": "fdatasync"}  # call after a write; default: fsync


class Blocks(Worker):
    """Writes blocks in generations, round after round, to one file or to one file for each operation of a round."""

    def work(self) -> Iterator[None]:
        """Write, and yield after each operation."""
        count, first = self.worker["blocks"], self.worker.get("first", 0)
        self.open: dict[str, int] = {}
        self.mapping: Any = None
        if self.worker.get("files"):
            os.makedirs(self.path, exist_ok=True)
        act = {"close": self.write_and_close, "msync": self.write_mapped}.get(self.kind, self.write)
        while self.more():
            place, generation = first + self.sequence % count, self.sequence // count + 1
            self.do(self.kind, place, generation, lambda: act(place, generation))  # noqa: B023  called at once
            yield
        for fd in self.open.values():
            os.close(fd)

    def name_of(self, place: int) -> str:
        """Return the path of the file that an operation writes."""
        return os.path.join(self.path, "f%d" % place) if self.worker.get("files") else self.path

    def pieces(self, place: int, generation: int) -> Iterator[tuple[int, bytes]]:
        """Yield position and data of each block that an operation writes."""
        span = self.worker.get("span", 1)
        for index in range(place * span, (place + 1) * span):
            yield position_of(self.worker, index), block(self.file, index * BLOCK, generation, self.seed)

    def write(self, place: int, generation: int) -> None:
        """Write the blocks and make them durable."""
        path = self.name_of(place)
        if path not in self.open:
            self.open[path] = os.open(path, os.O_WRONLY | os.O_CREAT | FLAGS.get(self.kind, 0), 0o644)
        fd = self.open[path]
        for position, data in self.pieces(place, generation):
            write_whole(fd, self.aligned(data) if self.kind == "o_direct" else data, position)
        if after := AFTER.get(self.kind, "fsync"):
            getattr(os, after)(fd)

    def aligned(self, data: bytes) -> Any:
        """Return the data in memory that is aligned for O_DIRECT."""
        if self.mapping is None:
            self.mapping = import_module("mmap").mmap(-1, BLOCK)
        self.mapping[:] = data
        return memoryview(self.mapping)

    def write_and_close(self, place: int, generation: int) -> None:
        """Write a file and close it; close makes the data durable."""
        fd = os.open(self.name_of(place), os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            for position, data in self.pieces(place, generation):
                write_whole(fd, data, position)
        finally:
            os.close(fd)

    def write_mapped(self, place: int, generation: int) -> None:
        """Write to a mapping of the file, and msync."""
        if self.mapping is None:
            fd = self.open[self.path] = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            size = (self.worker.get("first", 0) + self.worker["blocks"]) * BLOCK
            os.ftruncate(fd, size)
            self.mapping = import_module("mmap").mmap(fd, size)
        for position, data in self.pieces(place, generation):
            self.mapping[position : position + BLOCK] = data
            self.mapping.flush(position, BLOCK)


class Appends(Worker):
    """Appends records to a file that other clients append to, too, under a lock on the file."""

    def work(self) -> Iterator[None]:
        """Append, and yield after each operation."""
        self.locks: Any = import_module("fcntl")
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        while self.more():
            if self.take(fd):
                place = self.sequence
                self.do(self.kind, place, 1, lambda: self.append(fd, place))  # noqa: B023  called at once
                self.locks.lockf(fd, self.locks.LOCK_UN)
            yield
            # Otherwise no other client would ever get the lock.
            self.stop.wait(LOCK_S)
        os.close(fd)

    def take(self, fd: int) -> bool:
        """Try to take the lock. Do not wait in the kernel, which retries less and less often."""
        try:
            self.locks.lockf(fd, self.locks.LOCK_EX | self.locks.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def append(self, fd: int, place: int) -> None:
        """Append one record and make it durable."""
        write_whole(fd, block(self.file, place * BLOCK, 1, self.seed))
        os.fsync(fd)


class Trees(Worker):
    """Takes one small directory after another through a round of changes."""

    def work(self) -> Iterator[None]:
        """Change names and attributes, and yield after each operation."""
        os.makedirs(self.path, exist_ok=True)
        rounds, number = self.worker["rounds"], 0
        while self.more():
            directory = Directory(os.path.join(self.path, "d%d" % number), self.file, number, self.seed)
            for step, kind in enumerate(rounds[number % len(rounds)], start=1):
                if not (self.more() and self.do(kind, number, step, directory.changes[kind])):
                    break
                yield
            number += 1


class Directory:
    """A directory and the changes that a worker applies to it; `raidproof.verdict.tree` has the effect of each."""

    def __init__(self, path: str, file: int, number: int, seed: int) -> None:
        self.file, self.number, self.seed = file, number, seed
        self.created = 0
        a, b, c, s, t = self.a, self.b, self.c, _, self.t = [os.path.join(path, name) for name in "abcst"]
        self.changes: dict[str, Callable[[], object]] = {
            "mkdir": lambda: os.mkdir(path),
            "create": self.create,
            "append": self.append,
            "setattr": lambda: os.chmod(a, MODE),
            "setxattr": lambda: os.setxattr(a, XATTR, XATTR_VALUE.encode()),
            "link": lambda: os.link(a, b),
            "symlink": lambda: os.symlink("a", s),
            "rename": lambda: os.rename(a, c),
            "truncate": lambda: os.truncate(c, TRUNCATED),
            "remove": lambda: os.unlink(b),
            "replace": lambda: os.rename(a, t),
            "unlink": lambda: os.unlink(t if self.created > 1 else a),
            "rmdir": lambda: os.rmdir(path),
            "pages": self.pages,
            "allocate": lambda: self.reserve(0, WRITTEN, ALLOCATED),
            # FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE
            "punch": lambda: self.reserve(3, PUNCHED, 1),
            "copy": self.copy,
            "clone": self.clone,
        }

    def create(self) -> None:
        """Create a file: `a` first, then `t`."""
        path = self.t if self.created else self.a
        self.created += 1
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, CREATED))

    def append(self) -> None:
        """Append to `a`."""
        with opened(self.a, os.O_WRONLY | os.O_APPEND) as fd:
            write_whole(fd, b"+" * APPENDED)
            os.fsync(fd)

    def pages(self) -> None:
        """Write the first blocks of `a`."""
        with opened(self.a, os.O_WRONLY) as fd:
            for place in range(WRITTEN):
                write_whole(fd, block(self.file, place * BLOCK, self.number + 1, self.seed), place * BLOCK)
            os.fsync(fd)

    def reserve(self, mode: int, first: int, count: int) -> None:
        """Call fallocate(2) on blocks of `a`: Python's posix_fallocate(3) falls back to writing."""
        ctypes = import_module("ctypes")
        libc = ctypes.CDLL(None, use_errno=True)
        libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        with opened(self.a, os.O_WRONLY) as fd:
            if libc.fallocate(fd, mode, first * BLOCK, count * BLOCK):
                raise OSError(ctypes.get_errno(), "fallocate")

    def copy(self) -> None:
        """Copy the beginning of `a` to a new file, `b`."""
        with opened(self.a, os.O_RDONLY) as source, opened(self.b, os.O_WRONLY | os.O_CREAT) as target:
            left = COPIED * BLOCK
            while left:
                done = os.copy_file_range(source, target, left)
                if not done:
                    raise OSError(errno.EIO, "the file to be copied from ended early")
                left -= done
            os.fsync(target)

    def clone(self) -> None:
        """Clone all blocks of `a` to a new file, `c`."""
        with opened(self.a, os.O_RDONLY) as source, opened(self.c, os.O_WRONLY | os.O_CREAT) as target:
            import_module("fcntl").ioctl(target, 0x40049409, source)  # FICLONE


@contextmanager
def opened(path: str, flags: int) -> Iterator[int]:
    """Keep a file open while the body runs."""
    fd = os.open(path, flags, CREATED)
    try:
        yield fd
    finally:
        os.close(fd)


FORMS: dict[str, type[Worker]] = {"metadata": Trees, "extents": Trees, "o_append": Appends}


def mark_rpcs(number: int) -> None:
    """Give the AUTH_SYS credentials of this thread's RPCs a group that identifies the worker (setfsgid(2))."""
    # setfsgid changes this thread only, os.setegid all. A minimal Python has no ctypes: then RPCs are not marked.
    with suppress(ImportError):
        import_module("ctypes").CDLL(None).setfsgid(GROUPS + number)


def write(config: dict[str, Any]) -> None:
    """Run all workers of one client until the harness closes standard input."""
    mapped = [worker for worker in config["workers"] if worker["kind"] == "msync" and not config.get("quiet_s")]
    children = []
    for worker in mapped:
        # The kernel kills a process by SIGBUS if a mapped page cannot be read or written.
        if not (child := os.fork()):
            work(config, [worker])
            os._exit(0)
        children.append(child)
    work(config, [worker for worker in config["workers"] if worker not in mapped])
    for child in children:
        os.waitpid(child, 0)


def work(config: dict[str, Any], mine: list[dict[str, Any]]) -> None:
    """Run workers concurrently or, if operations must not disturb each other, in turn."""
    stop = threading.Event()
    workers = [FORMS.get(worker["kind"], Blocks)(config, worker, stop) for worker in mine]
    groups = [workers] if config.get("quiet_s") else [[worker] for worker in workers]
    threads = [threading.Thread(target=take_turns, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and not stop.is_set():
            thread.join(0.05)
            # All workers may end without a stop request, so check for both.
            if stop_asked():
                stop.set()
        thread.join()


def stop_asked() -> bool:
    """Whether the harness has closed our standard input."""
    return bool(select.select([0], [], [], 0)[0])


def take_turns(workers: list[Worker]) -> None:
    """Let each worker carry out one operation at a time, in turn, until all are done."""
    going = {worker.number: worker.run() for worker in workers}
    marked: int | None = None
    while going:
        for number, run in list(going.items()):
            if number != marked:
                mark_rpcs(number)
                marked = number
            if next(run, True):
                del going[number]


if __name__ == "__main__":
    with open(sys.argv[1]) as config_file:
        write(json.load(config_file))
