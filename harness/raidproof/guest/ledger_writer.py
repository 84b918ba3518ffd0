"""Writer of the ledger in a client: it writes blocks, changes names, and reports each operation to the harness.

The harness copies this file into machines, where it runs on a minimal Python: standard library only. The harness also
imports this file, so that formats and names are defined once. The command line names the configuration, a JSON file.
`ledger_reader` reads the files.

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
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

# In a machine both files are in one folder, in the harness in a package.
application = import_module("raidproof.guest.application" if __package__ else "application")
ledger = import_module("raidproof.guest.ledger_format" if __package__ else "ledger_format")
pieces = import_module("raidproof.guest.ledger_pieces" if __package__ else "ledger_pieces")
base = import_module("raidproof.guest.ledger_worker" if __package__ else "ledger_worker")
holders = import_module("raidproof.guest.ledger_holders" if __package__ else "ledger_holders")
listing = import_module("raidproof.guest.ledger_listing" if __package__ else "ledger_listing")
if TYPE_CHECKING:
    from raidproof.guest.ledger_worker import Worker
else:
    Worker = base.Worker

MAPPING = ("msync", "sizes")  # kinds of worker that map files
# open(2) flags by kind of operation
FLAGS = {
    "o_sync": os.O_SYNC, "o_dsync": os.O_DSYNC, "o_direct": os.O_DIRECT, "o_direct_sync": os.O_DIRECT | os.O_SYNC,
}  # fmt: skip
# Call after a write by kind of operation; other kinds: fsync
AFTER = {"o_sync": "", "o_dsync": "", "o_direct_sync": "", "fdatasync": "fdatasync"}
Data = Iterator[tuple[int, bytes]]  # the position in a file and the data of each write of an operation


class Writing(Worker):
    """Base class of the workers that write data at positions of a file, each by one of the ways to make it durable."""

    def __init__(self, config: dict[str, Any], worker: dict[str, Any], stop: threading.Event) -> None:
        super().__init__(config, worker, stop)
        self.mappings: dict[Any, Any] = {}

    def put(self, kind: str, path: str, data: Data, size: int = 0) -> None:
        """Write data to a file, and make it durable by the calls of a kind of operation.

        ``size``: the size that a file gets that is mapped.
        """
        if kind == "close":
            self.write_and_close(path, data)
        elif kind == "msync":
            self.write_mapped(path, data, size)
        else:
            self.write(kind, path, data)

    def write(self, kind: str, path: str, data: Data) -> None:
        """Write to a file that stays open, and make the data durable by the call of a kind of operation."""
        if path not in self.open:
            self.open[path] = os.open(path, os.O_WRONLY | os.O_CREAT | FLAGS.get(kind, 0), 0o644)
        fd = self.open[path]
        for position, part in data:
            ledger.write_whole(fd, self.aligned(part) if kind in ("o_direct", "o_direct_sync") else part, position)
        if after := AFTER.get(kind, "fsync"):
            getattr(os, after)(fd)

    def aligned(self, data: bytes) -> Any:
        """Return a copy of the data in memory that is aligned as O_DIRECT requires."""
        size = len(data)
        if size not in self.mappings:
            self.mappings[size] = import_module("mmap").mmap(-1, size)
        self.mappings[size][:] = data
        return memoryview(self.mappings[size])

    def write_and_close(self, path: str, data: Data) -> None:
        """Write a file and close it: an NFS client makes the data durable at close."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            for position, part in data:
                ledger.write_whole(fd, part, position)
        finally:
            os.close(fd)

    def write_mapped(self, path: str, data: Data, size: int) -> None:
        """Write to a mapping of a file of ``size`` bytes, and call msync(2)."""
        if path not in self.mappings:
            fd = self.open[path] = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            os.ftruncate(fd, size)
            self.mappings[path] = import_module("mmap").mmap(fd, size)
        for position, part in data:
            self.mappings[path][position : position + len(part)] = part
            page = position - position % ledger.BLOCK
            self.mappings[path].flush(page, position + len(part) - page)


class Blocks(Writing):
    """Worker that overwrites blocks in rounds, one generation per round; in one file, or one file per operation."""

    def work(self) -> Iterator[None]:
        """Write blocks, and yield after each operation."""
        count, first = self.worker["blocks"], self.worker.get("first", 0)
        size = (first + count) * ledger.BLOCK
        if self.worker.get("files"):
            self.set_up(lambda: os.makedirs(self.path, exist_ok=True))
        while self.more():
            place, generation = first + self.sequence % count, self.sequence // count + 1
            name, data = self.name_of(place), self.pieces(place, generation)
            self.do(self.kind, place, generation, lambda: self.put(self.kind, name, data, size))  # noqa: B023  at once
            yield
        self.close_files()

    def name_of(self, place: int) -> str:
        """Return the path of the file that an operation writes."""
        return os.path.join(self.path, "f%d" % place) if self.worker.get("files") else self.path

    def pieces(self, place: int, generation: int) -> Data:
        """Yield the position in the file and the data of each block that an operation writes."""
        span = self.worker.get("span", 1)
        for index in range(place * span, (place + 1) * span):
            position = ledger.position_of(self.worker, index)
            yield position, ledger.block(self.file, index * ledger.BLOCK, generation, self.seed)


class Sizes(Writing):
    """Worker that writes pieces of many sizes at many positions, each in a file of its own, in rounds."""

    def work(self) -> Iterator[None]:
        """Write pieces, and yield after each operation."""
        self.set_up(lambda: os.makedirs(self.path, exist_ok=True))
        count = len(self.worker["pieces"])
        while self.more():
            place, generation = self.sequence % count, self.sequence // count + 1
            one, path = self.worker["pieces"][place], os.path.join(self.path, "f%d" % place)
            content = pieces.content(self.file, place, count, generation, self.seed, one["size"])
            data, size = (
                iter([(pieces.slot_of(one, generation), content)]),
                one["position"] + one["slots"] * one["size"],
            )
            self.do(one["kind"], place, generation, lambda: self.put(one["kind"], path, data, size))  # noqa: B023
            yield
        self.close_files()


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
        p, r, x, y = [os.path.join(path, name) for name in "prxy"]
        self.changes: dict[str, Callable[[], object]] = {
            "mkdir": lambda: os.mkdir(path),
            "create": self.create,
            "append": self.append,
            "setattr": lambda: os.chmod(a, ledger.MODE),
            "setxattr": lambda: os.setxattr(a, ledger.XATTR, ledger.XATTR_VALUE.encode()),
            "link": lambda: os.link(a, b),
            "symlink": lambda: os.symlink("a", s),
            "rename": lambda: os.rename(a, c),
            "truncate": lambda: os.truncate(c, ledger.TRUNCATED),
            "remove": lambda: os.unlink(b),
            "replace": lambda: os.rename(a, t),
            "unlink": lambda: os.unlink(t if self.created > 1 else a),
            "rmdir": lambda: os.rmdir(path),
            "pages": lambda: self.write_blocks(range(ledger.WRITTEN)),
            "fragments": lambda: self.write_blocks(ledger.FRAGMENTS),
            "allocate": lambda: self.reserve(0, ledger.WRITTEN, ledger.ALLOCATED),
            # FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE
            "punch": lambda: self.reserve(3, ledger.PUNCHED, 1),
            "zero_range": lambda: self.reserve(16, ledger.ZEROED, 1),  # FALLOC_FL_ZERO_RANGE
            "copy": self.copy,
            "clone": self.clone,
            "shrink": lambda: os.truncate(a, ledger.PUNCHED * ledger.BLOCK + ledger.CUT),
            "grow": lambda: os.truncate(a, ledger.WRITTEN * ledger.BLOCK),
            "subdirectory": lambda: os.mkdir(x),
            "rename_into": lambda: os.rename(a, os.path.join(x, "a")),
            "rename_directory": lambda: os.rename(x, y),
            "link_into": lambda: os.link(a, os.path.join(x, "b")),
            "rename_symlink": lambda: os.rename(s, r),
            "mknod": lambda: os.mknod(p, stat.S_IFIFO | ledger.CREATED),
            "recreate": lambda: self.create_file(a),
            "long_name": lambda: self.create_file(os.path.join(path, ledger.LONG_NAME)),
            "chown": lambda: os.chown(a, ledger.OWNER, ledger.GROUP),
            "utimes": lambda: os.utime(a, (ledger.MTIME_S, ledger.MTIME_S)),
        }

    def create(self) -> None:
        """Create the file `a` at the first call, `t` at the second."""
        path = self.t if self.created else self.a
        self.created += 1
        self.create_file(path)

    @staticmethod
    def create_file(path: str) -> None:
        """Create an empty file with a new name."""
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, ledger.CREATED))

    def append(self) -> None:
        """Append `APPENDED` bytes to the file `a`, and call fsync."""
        with ledger.opened(self.a, os.O_WRONLY | os.O_APPEND) as fd:
            ledger.write_whole(fd, b"+" * ledger.APPENDED)
            os.fsync(fd)

    def write_blocks(self, places: Iterable[int]) -> None:
        """Write blocks of the file `a`, and call fsync."""
        with ledger.opened(self.a, os.O_WRONLY) as fd:
            for place in places:
                ledger.write_whole(
                    fd, ledger.block(self.file, place * ledger.BLOCK, self.number + 1, self.seed), place * ledger.BLOCK
                )
            os.fsync(fd)

    def reserve(self, mode: int, first: int, count: int) -> None:
        """Call fallocate(2) on blocks of the file `a`. Python has only posix_fallocate(3), which may write instead."""
        ctypes = import_module("ctypes")
        libc = ctypes.CDLL(None, use_errno=True)
        libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        with ledger.opened(self.a, os.O_WRONLY) as fd:
            if libc.fallocate(fd, mode, first * ledger.BLOCK, count * ledger.BLOCK):
                raise OSError(ctypes.get_errno(), "fallocate")

    def copy(self) -> None:
        """Copy the first `COPIED` blocks of the file `a` to a new file `b`, and call fsync."""
        with ledger.opened(self.a, os.O_RDONLY) as source, ledger.opened(self.b, os.O_WRONLY | os.O_CREAT) as target:
            left = ledger.COPIED * ledger.BLOCK
            while left:
                done = os.copy_file_range(source, target, left)
                if not done:
                    raise OSError(errno.EIO, "copy_file_range: the source file is shorter than the copied range")
                left -= done
            os.fsync(target)

    def clone(self) -> None:
        """Clone all blocks of the file `a` to a new file `c`."""
        with ledger.opened(self.a, os.O_RDONLY) as source, ledger.opened(self.c, os.O_WRONLY | os.O_CREAT) as target:
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
            self.stop.wait(base.PAUSE_S)
            yield
        running.end()

    def take_turn(self) -> None:
        """Continue: the application has its own schedule, and its connection."""


# Other kinds of worker: Blocks.
CLASSES: dict[str, type[Worker]] = {
    **dict.fromkeys(ledger.TREES, Trees), "sizes": Sizes, "o_append": holders.Appends,
    ledger.LOCKS: holders.Locks, ledger.REMOVED: holders.Removed, ledger.LISTING: listing.Listing,
    ledger.APPLICATION: Application,
}  # fmt: skip


def identify(number: int, uid: int) -> None:
    """Set the user of this thread's RPCs, and the group in their AUTH_SYS credentials to that of a worker."""
    # A minimal Python without ctypes can neither mark RPCs nor act as a user.
    with suppress(*() if uid else (ImportError,)):
        ledger.act_as(uid, ledger.GROUPS + number)


def end_at_errors(arguments: threading.ExceptHookArgs) -> None:
    """End the program with status 1 if a worker's code fails, so that the harness does not take a dead worker as idle.

    If only the connection to the harness is lost, which network faults cause, the other workers continue. The harness
    misses the report of the worker's end.
    """
    threading.__excepthook__(arguments)
    if not issubclass(arguments.exc_type, base.Disconnected):
        sys.stderr.flush()
        os._exit(1)


def write(config: dict[str, Any]) -> None:
    """Run all workers of one client until the harness closes standard input."""
    threading.excepthook = end_at_errors
    mapped = [worker for worker in config["workers"] if worker["kind"] in MAPPING and not config.get("quiet_s")]
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
            connection.sendall(base.end_of(worker, 0, status))


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
    going = {worker.number: (worker, worker.run()) for worker in workers}
    marked: int | None = None
    while going:
        for number, (worker, run) in list(going.items()):
            if number != marked and worker.marks_rpcs:
                identify(number, worker.worker.get("uid", 0))
                marked = number
            worker.take_turn()
            if next(run, True):
                del going[number]


def main() -> None:
    """Run the workers of the configuration that the command line names."""
    with open(sys.argv[1]) as config_file:
        write(json.load(config_file))
