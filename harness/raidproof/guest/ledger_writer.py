"""Writer of the ledger in a client: it writes blocks, changes names, and reports each operation to the harness.

The harness copies this file into machines, where it runs on a minimal Python: standard library only. The harness also
imports this file, so that formats and names are defined once. Run as ``ledger_writer.py CONFIG``, where CONFIG is a
JSON file. `ledger_reader` reads the files.

Each worker has its own connection to the harness. A worker reports an operation before it begins and after it has
returned. The harness records the arrival of both reports on the host, which no fault affects. A report also contains
the client's time stamp. Every other call of a worker to the file system is a step, which is reported in the same way.
At last a worker reports its end.
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

# In a machine both files are in one folder, in the harness in a package.
application = import_module("raidproof.guest.application" if __package__ else "application")

BLOCK = 4096
"""Bytes of a ledger block: the client's page size, the smallest unit that an NFS client writes back."""

HEADER = struct.Struct("<8sQQQQ")  # magic, file, offset in bytes, generation, seed
# The body of a block, repeated up to the checksum: file, offset and generation, each XORed with the seed; seed.
UNIT = struct.Struct("<QQQQ")
CHECKSUM = struct.Struct("<I")  # CRC-32 of all preceding bytes of the block
MAGIC = b"RAIDPRF1"

FRAME = struct.Struct("<BBHIIIiQ")  # type, kind, worker, sequence, index, generation, errno, CLOCK_MONOTONIC in ns
ISSUE, ACKNOWLEDGE, END, STEP, STEPPED = 1, 2, 3, 4, 5  # STEP and STEPPED: begin and end of a step

# The kinds of operation. An index in this tuple is the number in a frame, so new kinds go to the end.
KINDS = (
    "fsync",  # write of a block, then fsync
    "o_sync",  # write to a file opened with O_SYNC
    "close",  # write of several pages of a file, then close
    "mkdir", "create", "append", "setattr", "link", "symlink", "rename", "truncate",
    "remove",  # of one of two names of a file
    "fdatasync",  # write, then fdatasync
    "o_dsync",  # write to a file opened with O_DSYNC
    "o_direct",  # write to a file opened with O_DIRECT, then fsync
    "msync",  # write to a mapping, then msync with MS_SYNC
    "pages",  # write of pages that are not adjacent, then one fsync: UNSTABLE WRITEs and a COMMIT
    "unaligned",  # as pages, with blocks that lie in two pages
    "replace",  # rename over a name that exists
    "unlink",  # of a file's last name
    "rmdir", "setxattr",
    "allocate",  # fallocate(2) beyond the end of the file
    "punch",  # fallocate(2) with FALLOC_FL_PUNCH_HOLE
    "copy",  # copy_file_range(2), then fsync
    "clone",  # ioctl FICLONE
    "o_append",  # write to a file opened with O_APPEND, then fsync, under a lock that clients take in turn
    "application",  # of the user's own application, whose number is the index in a frame
)  # fmt: skip
# The kinds of step: calls of a worker that belong to none of its operations. The index is the number in a frame.
STEPS = (
    "set-up",  # creation of the worker's own file or directory
    "lock",  # attempt to lock the file to which several clients append
    "unlock",
    "last close",  # of a file that the worker keeps open
)
# Kinds of operation that change names, attributes or extents. The verdict considers all changes of a directory
# together.
METADATA = (
    *KINDS[3:12], "replace", "unlink", "rmdir", "setxattr", "allocate", "punch", "copy", "clone",
)  # fmt: skip
TREES = ("metadata", "extents")  # kinds of worker that create directories and apply a list of changes to each
APPENDED = 100  # bytes of one append
TRUNCATED = 10  # bytes that a truncate leaves
CREATED = 0o600  # the mode with which create makes a file
MODE = 0o640  # the mode that setattr sets
XATTR, XATTR_VALUE = "user.raidproof", "set"  # the extended attribute that setxattr sets
# Number of blocks of an extents worker's file that pages writes, allocate allocates, punch deallocates, copy copies.
WRITTEN, ALLOCATED, PUNCHED, COPIED = 4, 2, 1, 2
APPLICATION = "application"  # kind of worker that runs the user's own application, and kind of its operations
GROUPS = 20000  # the group id in the RPCs of worker n is GROUPS + n, which identifies the worker in a capture
PAUSE_S = 0.05  # pause in seconds after a tolerated error, which may recur at once
LOCK_S = 0.01  # pause in seconds between two attempts to take a lock that another client holds
UNCUT = "+0"  # code in a scan: a file with the data of append, in which zeroes follow the length that truncate sets
OTHER_CONTENT = "?"  # code in a scan: a file with other data than append writes

BLANK = bytes(BLOCK)
# Codes in a scan instead of the generation of a block: the block is missing or zero; is damaged; is a valid block of
# another position; cannot be read.
ABSENT, GARBAGE, MISPLACED, UNREADABLE = 0, -1, -2, -3
OLD = -4  # the block has data that the disk contained before the run
OLD_MAGIC = b"OLDDATA1"  # first bytes of each unwritten block of a disk that a lab filled with old data


def block(file: int, offset: int, generation: int, seed: int) -> bytes:
    """Return a block that contains its file, offset, generation and seed."""
    header = HEADER.pack(MAGIC, file, offset, generation, seed)
    # The body differs between blocks too, so that a torn block is not taken for a complete block.
    unit = UNIT.pack(file ^ seed, offset ^ seed, generation ^ seed, seed)
    rest = BLOCK - HEADER.size - CHECKSUM.size
    content = header + (unit * (rest // len(unit) + 1))[:rest]
    return content + CHECKSUM.pack(zlib.crc32(content))


def generation_of(data: bytes, start: int, seed: int) -> int:
    """Return the generation in the part of a block from byte ``start`` on; an arbitrary number for a damaged part."""
    if start < HEADER.size:
        return int(HEADER.unpack_from(data)[3])
    unit = HEADER.size + -(-(start - HEADER.size) // UNIT.size) * UNIT.size
    return int(UNIT.unpack_from(data, unit)[2] ^ seed) if unit + UNIT.size <= BLOCK - CHECKSUM.size else 0


def identity(data: bytes, seed: int) -> tuple[int, int, int] | int:
    """Return (file, offset, generation) of a block, or an error code if it is no complete block of this seed."""
    if data == BLANK or not any(data):
        return ABSENT
    if len(data) != BLOCK or CHECKSUM.unpack_from(data, BLOCK - 4)[0] != zlib.crc32(data[:-4]):
        return OLD if OLD_MAGIC in data else GARBAGE
    magic, file, offset, generation, its_seed = HEADER.unpack_from(data)
    return (file, offset, generation) if magic == MAGIC and its_seed == seed else GARBAGE


def signed(place: int, generation: int) -> str:
    """Return the signature of a block: its place (block index) in the file, and its generation."""
    return "%d.%d" % (place, generation)


def write_whole(fd: int, data: bytes, position: int | None = None) -> None:
    """Write all of the data at ``position``, or at the file offset: one write(2) may write less than requested."""
    done = 0
    while done < len(data):
        rest = data[done:]
        done += os.write(fd, rest) if position is None else os.pwrite(fd, rest, position + done)


def position_of(worker: dict[str, Any], index: int) -> int:
    """Return the position in bytes of block number ``index`` in a worker's file."""
    if worker.get("files"):
        index %= worker.get("span", 1)
    return int(index * worker.get("step", 1) * BLOCK + worker.get("shift", 0))


class Disconnected(Exception):
    """The connection of a worker to the harness is lost: the worker cannot report any more."""


class Worker:
    """Base class of the workers: a worker carries out one operation after another, and reports each to the harness."""

    marks_rpcs = True  # whether the group id in the RPCs of the worker's thread is that of the worker

    def __init__(self, config: dict[str, Any], worker: dict[str, Any], stop: threading.Event) -> None:
        self.config = config
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
        self.steps = 0
        self.open: dict[str, int] = {}
        self.connection = socket.create_connection((config["host"], config["port"]))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self) -> Iterator[None]:
        """Carry out the operations, and yield after each; then report the end of the worker."""
        try:
            yield from self.work()
            self.pending += end_of(self.number, self.sequence, 0)
            self.send()
        finally:
            self.connection.close()

    def work(self) -> Iterator[None]:
        """Carry out the operations, and yield after each."""
        raise NotImplementedError

    def more(self) -> bool:
        """Return whether to continue: not after the limit, a request to stop, or an error that is not tolerated."""
        return self.sequence < self.limit and not self.failed and not self.stop.is_set()

    def send(self) -> None:
        """Send the queued reports.

        Raises:
            Disconnected: the connection to the harness is lost.
        """
        try:
            self.connection.sendall(self.pending)
        except OSError as error:
            raise Disconnected("worker %d: %s" % (self.number, error)) from error
        self.pending = b""

    def do(self, kind: str, index: int, generation: int, action: Callable[[], object]) -> bool:
        """Report that an operation begins, call ``action``, and queue the report of the end; return its success."""
        fields = (KINDS.index(kind), self.number, self.sequence, index, generation)
        failure, _ = self.call(ISSUE, ACKNOWLEDGE, fields, action)
        self.sequence += 1
        if self.quiet_s:
            # The next operation may be another worker's, which would not send this worker's queued report.
            self.send()
            self.stop.wait(self.quiet_s)
        return not failure

    def step(self, kind: str, action: Callable[[], object]) -> bool:
        """Report a step as `do` reports an operation; return whether it succeeded, and did not return False."""
        failure, result = self.call(STEP, STEPPED, (STEPS.index(kind), self.number, self.steps, 0, 0), action)
        self.steps += 1
        if self.quiet_s:
            self.send()
        return not failure and result is not False

    def call(self, begin: int, end: int, fields: tuple[int, ...], action: Callable[[], object]) -> tuple[int, object]:
        """Send the report ``begin``, call ``action``, and queue the report ``end``; return errno and result.

        ``fields``: the fields of both frames after the type. The errno is 0 if the call succeeded.
        """
        self.pending += FRAME.pack(begin, *fields, 0, monotonic_ns())
        self.send()
        failure, result = 0, None
        try:
            result = action()
        except OSError as error:
            failure = self.fail(error)
        self.pending = FRAME.pack(end, *fields, failure, monotonic_ns())
        return failure, result

    def fail(self, error: OSError) -> int:
        """Return the errno of a failed call, after a pause; an error that is not tolerated ends the worker."""
        failure = error.errno or errno.EIO
        self.failed = self.failed or failure not in self.tolerated_errnos
        self.stop.wait(PAUSE_S)
        return failure

    def set_up(self, call: Callable[[], object]) -> None:
        """Create the worker's own file or directory; repeat the call after an error that is tolerated."""
        while self.more() and not self.step("set-up", call):
            pass

    def close_files(self) -> None:
        """Close the files that the worker has kept open."""
        for fd in self.open.values():
            self.step("last close", lambda: os.close(fd))  # noqa: B023  called at once


FLAGS = {"o_sync": os.O_SYNC, "o_dsync": os.O_DSYNC, "o_direct": os.O_DIRECT}  # open(2) flags by kind
AFTER = {"o_sync": "", "o_dsync": "", "fdatasync": "fdatasync"}  # call after a write by kind; other kinds: fsync


class Blocks(Worker):
    """Worker that overwrites blocks in rounds, one generation per round; in one file, or one file per operation."""

    def work(self) -> Iterator[None]:
        """Write blocks, and yield after each operation."""
        count, first = self.worker["blocks"], self.worker.get("first", 0)
        self.mapping: Any = None
        if self.worker.get("files"):
            self.set_up(lambda: os.makedirs(self.path, exist_ok=True))
        act = {"close": self.write_and_close, "msync": self.write_mapped}.get(self.kind, self.write)
        while self.more():
            place, generation = first + self.sequence % count, self.sequence // count + 1
            self.do(self.kind, place, generation, lambda: act(place, generation))  # noqa: B023  called at once
            yield
        self.close_files()

    def name_of(self, place: int) -> str:
        """Return the path of the file that an operation writes."""
        return os.path.join(self.path, "f%d" % place) if self.worker.get("files") else self.path

    def pieces(self, place: int, generation: int) -> Iterator[tuple[int, bytes]]:
        """Yield the position in the file and the data of each block that an operation writes."""
        span = self.worker.get("span", 1)
        for index in range(place * span, (place + 1) * span):
            yield position_of(self.worker, index), block(self.file, index * BLOCK, generation, self.seed)

    def write(self, place: int, generation: int) -> None:
        """Write the blocks of one operation, and make them durable by the call of the worker's kind."""
        path = self.name_of(place)
        if path not in self.open:
            self.open[path] = os.open(path, os.O_WRONLY | os.O_CREAT | FLAGS.get(self.kind, 0), 0o644)
        fd = self.open[path]
        for position, data in self.pieces(place, generation):
            write_whole(fd, self.aligned(data) if self.kind == "o_direct" else data, position)
        if after := AFTER.get(self.kind, "fsync"):
            getattr(os, after)(fd)

    def aligned(self, data: bytes) -> Any:
        """Return a copy of the data in memory that is aligned as O_DIRECT requires."""
        if self.mapping is None:
            self.mapping = import_module("mmap").mmap(-1, BLOCK)
        self.mapping[:] = data
        return memoryview(self.mapping)

    def write_and_close(self, place: int, generation: int) -> None:
        """Write a file and close it: an NFS client makes the data durable at close."""
        fd = os.open(self.name_of(place), os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            for position, data in self.pieces(place, generation):
                write_whole(fd, data, position)
        finally:
            os.close(fd)

    def write_mapped(self, place: int, generation: int) -> None:
        """Write the blocks to a mapping of the file, and call msync(2)."""
        if self.mapping is None:
            fd = self.open[self.path] = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            size = (self.worker.get("first", 0) + self.worker["blocks"]) * BLOCK
            os.ftruncate(fd, size)
            self.mapping = import_module("mmap").mmap(fd, size)
        for position, data in self.pieces(place, generation):
            self.mapping[position : position + BLOCK] = data
            self.mapping.flush(position, BLOCK)


class Appends(Worker):
    """Worker that appends records to a file to which all clients append, under a lock on the file."""

    def work(self) -> Iterator[None]:
        """Append records, and yield after each."""
        self.locks: Any = import_module("fcntl")
        self.set_up(self.open_file)
        while self.more():
            fd = self.open[self.path]
            if self.step("lock", lambda: self.take(fd)):  # noqa: B023  called at once
                place = self.sequence
                self.do(self.kind, place, 1, lambda: self.append(fd, place))  # noqa: B023  called at once
                self.step("unlock", lambda: self.locks.lockf(fd, self.locks.LOCK_UN))  # noqa: B023  called at once
            yield
            # Without this pause, other clients would never get the lock.
            self.stop.wait(LOCK_S)
        self.close_files()

    def open_file(self) -> None:
        """Open the file to which all clients append."""
        self.open[self.path] = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def take(self, fd: int) -> bool:
        """Try to lock the file; return whether it was free. A waiting fcntl(2) would retry more and more rarely."""
        try:
            self.locks.lockf(fd, self.locks.LOCK_EX | self.locks.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def append(self, fd: int, place: int) -> None:
        """Append one record, and call fsync."""
        write_whole(fd, block(self.file, place * BLOCK, 1, self.seed))
        os.fsync(fd)


class Trees(Worker):
    """Worker that creates one directory after another, and applies a round of changes to each."""

    def work(self) -> Iterator[None]:
        """Change names and attributes, and yield after each operation."""
        self.set_up(lambda: os.makedirs(self.path, exist_ok=True))
        rounds, number = self.worker["rounds"], 0
        while self.more():
            directory = Directory(os.path.join(self.path, "d%d" % number), self.file, number, self.seed)
            for step, kind in enumerate(rounds[number % len(rounds)], start=1):
                if not (self.more() and self.do(kind, number, step, directory.changes[kind])):
                    break
                yield
            number += 1


class Directory:
    """A directory, with a function for each kind of change; `raidproof.verdict.tree` has the expected effects."""

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
        """Create the file `a` at the first call, `t` at the second."""
        path = self.t if self.created else self.a
        self.created += 1
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, CREATED))

    def append(self) -> None:
        """Append `APPENDED` bytes to the file `a`, and call fsync."""
        with opened(self.a, os.O_WRONLY | os.O_APPEND) as fd:
            write_whole(fd, b"+" * APPENDED)
            os.fsync(fd)

    def pages(self) -> None:
        """Write the first `WRITTEN` blocks of the file `a`, and call fsync."""
        with opened(self.a, os.O_WRONLY) as fd:
            for place in range(WRITTEN):
                write_whole(fd, block(self.file, place * BLOCK, self.number + 1, self.seed), place * BLOCK)
            os.fsync(fd)

    def reserve(self, mode: int, first: int, count: int) -> None:
        """Call fallocate(2) on blocks of the file `a`. Python has only posix_fallocate(3), which may write instead."""
        ctypes = import_module("ctypes")
        libc = ctypes.CDLL(None, use_errno=True)
        libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        with opened(self.a, os.O_WRONLY) as fd:
            if libc.fallocate(fd, mode, first * BLOCK, count * BLOCK):
                raise OSError(ctypes.get_errno(), "fallocate")

    def copy(self) -> None:
        """Copy the first `COPIED` blocks of the file `a` to a new file `b`, and call fsync."""
        with opened(self.a, os.O_RDONLY) as source, opened(self.b, os.O_WRONLY | os.O_CREAT) as target:
            left = COPIED * BLOCK
            while left:
                done = os.copy_file_range(source, target, left)
                if not done:
                    raise OSError(errno.EIO, "copy_file_range: the source file is shorter than the copied range")
                left -= done
            os.fsync(target)

    def clone(self) -> None:
        """Clone all blocks of the file `a` to a new file `c`."""
        with opened(self.a, os.O_RDONLY) as source, opened(self.c, os.O_WRONLY | os.O_CREAT) as target:
            import_module("fcntl").ioctl(target, 0x40049409, source)  # FICLONE


class Application(Worker):
    """Worker that runs the user's own application, which itself reports its operations over the connection."""

    marks_rpcs = False

    def __init__(self, config: dict[str, Any], worker: dict[str, Any], stop: threading.Event) -> None:
        # Before the connection, by which the harness knows that the worker is ready.
        application.prepare(config, worker, os.path.join(config["root"], worker["path"]))
        super().__init__(config, worker, stop)

    def run(self) -> Iterator[None]:
        """Run the application until it ends, or until the harness stops this program."""
        running = application.Running(self.config, self.worker, self.path, self.connection)
        while running.goes_on() and not self.stop.is_set():
            self.stop.wait(PAUSE_S)
            yield
        running.end()


@contextmanager
def opened(path: str, flags: int) -> Iterator[int]:
    """Open a file, yield its descriptor, and close it after the body."""
    fd = os.open(path, flags, CREATED)
    try:
        yield fd
    finally:
        os.close(fd)


# Other kinds of worker: Blocks.
CLASSES: dict[str, type[Worker]] = {
    "metadata": Trees, "extents": Trees, "o_append": Appends, APPLICATION: Application,
}  # fmt: skip


def mark_rpcs(number: int) -> None:
    """Set the group id in the AUTH_SYS credentials of this thread's RPCs to that of a worker (setfsgid(2))."""
    # setfsgid affects one thread, os.setegid all threads. A minimal Python without ctypes cannot mark RPCs.
    with suppress(ImportError):
        import_module("ctypes").CDLL(None).setfsgid(GROUPS + number)


def end_of(worker: int, sequence: int, status: int) -> bytes:
    """Return the frame that reports the end of a worker; ``status``: minus the signal that killed it, or 0."""
    return FRAME.pack(END, 0, worker, sequence, 0, 0, status, monotonic_ns())


def end_at_errors(arguments: threading.ExceptHookArgs) -> None:
    """End the program with status 1 if a worker's code fails, so that the harness does not take a dead worker as idle.

    If only the connection to the harness is lost, which network faults cause, the other workers continue. The harness
    misses the report of the worker's end.
    """
    threading.__excepthook__(arguments)
    if not issubclass(arguments.exc_type, Disconnected):
        sys.stderr.flush()
        os._exit(1)


def write(config: dict[str, Any]) -> None:
    """Run all workers of one client until the harness closes standard input."""
    threading.excepthook = end_at_errors
    mapped = [worker for worker in config["workers"] if worker["kind"] == "msync" and not config.get("quiet_s")]
    children = []
    for worker in mapped:
        # The kernel kills a process by SIGBUS if a mapped page cannot be read or written.
        if not (child := os.fork()):
            work(config, [worker])
            os._exit(0)
        children.append((child, worker["number"]))
    waiting = [threading.Thread(target=wait_for, args=(config, *one)) for one in children]
    for thread in waiting:
        thread.start()
    work(config, [worker for worker in config["workers"] if worker not in mapped])
    for thread in waiting:
        thread.join()


def wait_for(config: dict[str, Any], child: int, worker: int) -> None:
    """Wait for the process of a worker; report the worker's end if a signal killed it, and end after other errors."""
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status > 0:
        os._exit(1)
    if status < 0:
        with socket.create_connection((config["host"], config["port"])) as connection:
            connection.sendall(end_of(worker, 0, status))


def work(config: dict[str, Any], mine: list[dict[str, Any]]) -> None:
    """Run workers at the same time; with ``quiet_s``, one operation at a time."""
    stop = threading.Event()
    workers = [CLASSES.get(worker["kind"], Blocks)(config, worker, stop) for worker in mine]
    groups = [workers] if config.get("quiet_s") else [[worker] for worker in workers]
    threads = [threading.Thread(target=take_turns, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and not stop.is_set():
            thread.join(0.05)
            # Poll: the thread may end without a stop request, or a request may come before it ends.
            if stop_asked():
                stop.set()
        thread.join()


def stop_asked() -> bool:
    """Return whether the harness has closed the standard input of this program."""
    return bool(select.select([0], [], [], 0)[0])


def take_turns(workers: list[Worker]) -> None:
    """Let each worker carry out one operation at a time, in turn, until all are done."""
    going = {worker.number: worker.run() for worker in workers}
    marking = {worker.number for worker in workers if worker.marks_rpcs}
    marked: int | None = None
    while going:
        for number, run in list(going.items()):
            if number != marked and number in marking:
                mark_rpcs(number)
                marked = number
            if next(run, True):
                del going[number]


if __name__ == "__main__":
    with open(sys.argv[1]) as config_file:
        write(json.load(config_file))
