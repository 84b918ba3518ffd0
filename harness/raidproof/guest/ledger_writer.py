"""The ledger's program in a client: it writes self-describing blocks and names, and reports each operation.

The file is copied into machines and runs there on a minimal Python: standard library only. The harness imports it too,
so that format and naming have one home. Run as ``ledger_writer.py CONFIG``; `ledger_reader` reads its work back.

Each worker has a connection of its own to the harness, and reports an operation before it begins it and after it has
returned. The harness stamps both at arrival, outside everything that may crash; the program's own stamps are beside.
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
"""Bytes of a ledger block: the client's page, the smallest unit that NFS writes back."""

HEADER = struct.Struct("<8sQQQQ")  # magic, file, offset in bytes, generation, seed
UNIT = struct.Struct("<QQQQ")  # what the rest repeats: file, offset, generation, all mixed with the seed, seed
CHECKSUM = struct.Struct("<I")  # CRC-32 of all that stands before it
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
    "pages",  # write of pages that do not follow each other, then one fsync: UNSTABLE WRITEs and a COMMIT
    "unaligned",  # the same of blocks that straddle pages
    "replace",  # rename over a name that exists
    "unlink",  # of a file's last name
    "rmdir", "setxattr",
    "allocate",  # fallocate(2) beyond the end of the file
    "punch",  # fallocate(2) with FALLOC_FL_PUNCH_HOLE
    "copy",  # copy_file_range(2), then fsync
    "clone",  # ioctl FICLONE
    "o_append",  # write to a file opened with O_APPEND, then fsync, under a lock that clients take in turn
)  # fmt: skip
# Kinds of operation that change names and attributes; the history of one directory is judged as a whole.
METADATA = (
    *KINDS[3:12], "replace", "unlink", "rmdir", "setxattr", "allocate", "punch", "copy", "clone",
)  # fmt: skip
TREES = ("metadata", "extents")  # workers that take one directory after the other through a list of changes
APPENDED = 100  # bytes of one append
TRUNCATED = 10  # bytes that a truncate leaves
CREATED = 0o600  # the mode with which create makes a file
MODE = 0o640  # what setattr sets
XATTR, XATTR_VALUE = "user.raidproof", "set"  # what setxattr sets
# In blocks of a file of an extents worker: what is written, allocated, punched, and copied from its beginning.
WRITTEN, ALLOCATED, PUNCHED, COPIED = 4, 2, 1, 2
GROUPS = 20000  # the RPCs of a worker carry this group plus its number: in a capture it identifies whose they are
BREATH_S = 0.05  # after an error that a worker endures: it comes at once, and the next one would too
LOCK_S = 0.01  # between two tries to take the lock that another client has
UNCUT = "+0"  # what the scan says of a file that holds what append wrote, zeroed from where truncate is to cut it off
OTHER_CONTENT = "?"  # what the scan says of a file that holds anything but what append wrote

BLANK = bytes(BLOCK)
# What the scan says of a block that is not simply there in some generation.
ABSENT, GARBAGE, MISPLACED, UNREADABLE = 0, -1, -2, -3
OLD = -4  # what the disk held before the run
OLD_MAGIC = b"OLDDATA1"  # begins each block that was never written, where a lab's disks hold old data


def block(file: int, offset: int, generation: int, seed: int) -> bytes:
    """Return the block that says of itself where it belongs and how new it is."""
    header = HEADER.pack(MAGIC, file, offset, generation, seed)
    # The body differs from block to block too, so that a torn block cannot pass for a whole one.
    unit = UNIT.pack(file ^ seed, offset ^ seed, generation ^ seed, seed)
    rest = BLOCK - HEADER.size - CHECKSUM.size
    content = header + (unit * (rest // len(unit) + 1))[:rest]
    return content + CHECKSUM.pack(zlib.crc32(content))


def generation_of(data: bytes, start: int, seed: int) -> int:
    """Return what the part of a block from there on says of its generation; any number if it is no such part."""
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
    """Return the signature of the block that was written at a place of a file."""
    return "%d.%d" % (place, generation)


def write_whole(fd: int, data: bytes, position: int | None = None) -> None:
    """Write all of it: a write may do less than it was given. Without a position, where the descriptor stands."""
    done = 0
    while done < len(data):
        rest = data[done:]
        done += os.write(fd, rest) if position is None else os.pwrite(fd, rest, position + done)


def position_of(worker: dict[str, Any], index: int) -> int:
    """Return where a block of a worker lies in its file, in bytes."""
    if worker.get("files"):
        index %= worker.get("span", 1)
    return int(index * worker.get("step", 1) * BLOCK + worker.get("shift", 0))


class Worker:
    """One thread that does one operation after the other, and reports each."""

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
        self.endured = config.get("endured", ())
        self.failed = False
        self.pending = b""
        self.sequence = 0
        self.connection = socket.create_connection((config["host"], config["port"]))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self) -> Iterator[None]:
        """Yield after each operation until stopped or done, and report that."""
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
        """Whether there is another operation to do; a worker that failed has none: what follows would mean nothing."""
        return self.sequence < self.limit and not self.failed and not self.stop.is_set()

    def do(self, kind: str, index: int, generation: int, action: Callable[[], object]) -> bool:
        """Report, act, and keep the result to be reported with the next operation's beginning; whether it was done."""
        code, failure = KINDS.index(kind), 0
        said = (code, self.number, self.sequence, index, generation)
        self.pending += FRAME.pack(ISSUE, *said, 0, monotonic_ns())
        self.connection.sendall(self.pending)
        try:
            action()
        except OSError as error:
            failure = error.errno or errno.EIO
            self.failed = failure not in self.endured
            self.stop.wait(BREATH_S)
        self.pending = FRAME.pack(ACKNOWLEDGE, *said, failure, monotonic_ns())
        self.sequence += 1
        if self.quiet_s:
            # The next operation, and the report of its beginning, may be of another worker.
            self.connection.sendall(self.pending)
            self.pending = b""
            self.stop.wait(self.quiet_s)
        return not failure


FLAGS = {"o_sync": os.O_SYNC, "o_dsync": os.O_DSYNC, "o_direct": os.O_DIRECT}  # with which a kind opens its file
AFTER = {"o_sync": "", "o_dsync": "", "fdatasync": "fdatasync"}  # what a kind calls when it has written; else fsync


class Blocks(Worker):
    """Writes blocks in generations, round after round, in one file or in a file for each operation of a round."""

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
        """Write, and make durable what was written."""
        path = self.name_of(place)
        if path not in self.open:
            self.open[path] = os.open(path, os.O_WRONLY | os.O_CREAT | FLAGS.get(self.kind, 0), 0o644)
        fd = self.open[path]
        for position, data in self.pieces(place, generation):
            write_whole(fd, self.aligned(data) if self.kind == "o_direct" else data, position)
        if after := AFTER.get(self.kind, "fsync"):
            getattr(os, after)(fd)

    def aligned(self, data: bytes) -> Any:
        """Return data in memory that is aligned as O_DIRECT needs it."""
        if self.mapping is None:
            self.mapping = import_module("mmap").mmap(-1, BLOCK)
        self.mapping[:] = data
        return memoryview(self.mapping)

    def write_and_close(self, place: int, generation: int) -> None:
        """Write a file; close is what makes it durable."""
        fd = os.open(self.name_of(place), os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            for position, data in self.pieces(place, generation):
                write_whole(fd, data, position)
        finally:
            os.close(fd)

    def write_mapped(self, place: int, generation: int) -> None:
        """Write to a mapping of the file, and msync what was written."""
        if self.mapping is None:
            fd = self.open[self.path] = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            size = (self.worker.get("first", 0) + self.worker["blocks"]) * BLOCK
            os.ftruncate(fd, size)
            self.mapping = import_module("mmap").mmap(fd, size)
        for position, data in self.pieces(place, generation):
            self.mapping[position : position + BLOCK] = data
            self.mapping.flush(position, BLOCK)


class Appends(Worker):
    """Appends records to a file to which other clients append too, under a lock on it."""

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
            # Else no other client would ever find it free.
            self.stop.wait(LOCK_S)
        os.close(fd)

    def take(self, fd: int) -> bool:
        """Try to take the lock. Without waiting in the kernel, which asks the server less and less often."""
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
    """Takes one small directory after the other through a round of changes."""

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
    """A directory, and the changes that a worker takes it through. What each leaves is in `raidproof.verdict.tree`."""

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
        """Make a file: `a`, and after it `t`."""
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
        """Call fallocate(2) for blocks of `a`: posix_fallocate(3), which Python has, writes where it cannot."""
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
        """Let a new file, `c`, share all blocks of `a`."""
        with opened(self.a, os.O_RDONLY) as source, opened(self.c, os.O_WRONLY | os.O_CREAT) as target:
            import_module("fcntl").ioctl(target, 0x40049409, source)  # FICLONE


@contextmanager
def opened(path: str, flags: int) -> Iterator[int]:
    """Open a file while the body runs."""
    fd = os.open(path, flags, CREATED)
    try:
        yield fd
    finally:
        os.close(fd)


FORMS: dict[str, type[Worker]] = {"metadata": Trees, "extents": Trees, "o_append": Appends}


def mark_rpcs(number: int) -> None:
    """Let the AUTH_SYS credentials of all that this thread does carry a group of the worker's own (setfsgid(2))."""
    # It changes this thread alone, where os.setegid changes all. A minimal Python has no ctypes, and marks nothing.
    with suppress(ImportError):
        import_module("ctypes").CDLL(None).setfsgid(GROUPS + number)


def write(config: dict[str, Any]) -> None:
    """Run all workers of one client until the harness says stop, on standard input, or hangs up."""
    mapped = [worker for worker in config["workers"] if worker["kind"] == "msync" and not config.get("quiet_s")]
    children = []
    for worker in mapped:
        # A page that cannot be read or written kills the process that maps it, by SIGBUS.
        if not (child := os.fork()):
            work(config, [worker])
            os._exit(0)
        children.append(child)
    work(config, [worker for worker in config["workers"] if worker not in mapped])
    for child in children:
        os.waitpid(child, 0)


def work(config: dict[str, Any], mine: list[dict[str, Any]]) -> None:
    """Run some workers, side by side or, where nothing is to disturb an operation, in turn."""
    stop = threading.Event()
    workers = [FORMS.get(worker["kind"], Blocks)(config, worker, stop) for worker in mine]
    groups = [workers] if config.get("quiet_s") else [[worker] for worker in workers]
    threads = [threading.Thread(target=take_turns, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and not stop.is_set():
            thread.join(0.05)
            # A worker may be done by itself; look in between whether all are to stop.
            if stop_asked():
                stop.set()
        thread.join()


def stop_asked() -> bool:
    """Whether the harness has closed our standard input."""
    return bool(select.select([0], [], [], 0)[0])


def take_turns(workers: list[Worker]) -> None:
    """Let each worker do one operation, and so on until all are done."""
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
