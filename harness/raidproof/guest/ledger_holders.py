"""The ledger's workers that hold something of the server across a fault: locks, and open files without a name.

The harness copies this file into machines: standard library only.
"""

import errno
import os
import struct
from collections.abc import Iterator
from importlib import import_module
from time import monotonic_ns, sleep
from typing import TYPE_CHECKING, Any

# In a machine both files are in one folder, in the harness in a package.
ledger = import_module("raidproof.guest.ledger_format" if __package__ else "ledger_format")
if TYPE_CHECKING:
    from raidproof.guest.ledger_worker import Worker
else:
    Worker = import_module("raidproof.guest.ledger_worker" if __package__ else "ledger_worker").Worker

LOCK_S = 0.01  # pause in seconds between two attempts to take a lock that another client holds
# Of fcntl(2) on x86-64 and arm64: F_SETLK and F_OFD_SETLK, F_WRLCK and F_UNLCK.
SET_LOCK, LOCK_EXCLUSIVE, LOCK_NONE = (6, 37), 1, 2
TURNS = 16  # number of writes under one lock, or to one removed file
LAST_TURNS = 4  # writes that a worker of kind locks still makes after a request to stop, and after a delay by a fault
LONG_NS = 500_000_000  # duration of a turn in nanoseconds from which on a fault has delayed it


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
        ledger.write_whole(fd, ledger.block(self.file, place * ledger.BLOCK, 1, self.seed))
        os.fsync(fd)


class Locks(Worker):
    """Worker that holds the lock of its own range of a file, writes there, and claims the ranges of other clients.

    It holds its lock for most of the time, so also across a fault, and for some turns after a request to stop: only
    so others can claim a lock after the fault that was held before it.
    """

    def work(self) -> Iterator[None]:
        """Claim, write and release, and yield after each turn."""
        self.set_up(self.open_file)
        mine, ranges, number = self.worker["first"], self.worker["blocks"], 0
        while self.more() and number < self.limit:
            number += 1
            if self.claim(mine, number):
                left, since = TURNS, monotonic_ns()
                while left and self.guard(mine, number):
                    left -= 1
                    if self.stop.is_set():
                        left = min(left, LAST_TURNS)
                    elif monotonic_ns() - since > LONG_NS:
                        left = max(left, LAST_TURNS)  # a fault has delayed the write: others must claim after it
                    since = monotonic_ns()
                    self.visit((mine + 1 + left % (ranges - 1)) % ranges, number)
                    yield
                    sleep(LOCK_S)
                self.release(mine, number)
            yield
            self.stop.wait(LOCK_S)
        self.close_files()

    def visit(self, index: int, number: int) -> None:
        """Claim the range of another client; if it is free, write to it and release it."""
        if self.claim(index, number):
            self.guard(index, number)
            self.release(index, number)

    def open_file(self) -> None:
        """Open the file whose ranges all clients lock."""
        self.open[self.path] = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_DSYNC, 0o644)

    def claim(self, index: int, number: int) -> bool:
        """Try to lock a range; return whether it was free."""
        return self.step("claim", lambda: self.lock(index, number, LOCK_EXCLUSIVE), index, number)

    def guard(self, index: int, number: int) -> bool:
        """Write to a locked range: if the server has lost the lock, this fails."""
        data = ledger.block(self.file, index * ledger.BLOCK, number, self.seed)
        write = lambda: ledger.write_whole(self.open[self.path], data, index * ledger.BLOCK)  # noqa: E731
        return self.step("guarded write", write, index, number)

    def release(self, index: int, number: int) -> None:
        """Unlock a range."""
        self.step("release", lambda: self.lock(index, number, LOCK_NONE), index, number)

    def lock(self, index: int, number: int, kind: int) -> None:
        """Lock or unlock a range: in turn by a lock of the process, and by one of the open file (fcntl(2))."""
        request = struct.pack("hhqqi0q", kind, os.SEEK_SET, index * ledger.BLOCK, ledger.BLOCK, 0)
        import_module("fcntl").fcntl(self.open[self.path], SET_LOCK[number % 2], request)


class Removed(Worker):
    """Worker that keeps a file open whose last name it has removed, and writes and reads it, also across a fault.

    An NFS client renames such a file on the server, and removes it at the last close.
    """

    def work(self) -> Iterator[None]:
        """Open and remove a file, write and read it for some turns, close it, and yield after each turn."""
        self.set_up(lambda: os.makedirs(self.path, exist_ok=True))
        number = 0
        while self.more() and number < self.limit:
            number += 1
            if self.step("open and remove", lambda: self.begin(number), number):  # noqa: B023  called at once
                for turn in range(1, TURNS + 1):
                    # After a request to stop, once more: so the file is also used after a fault.
                    last = self.stop.is_set()
                    if not self.step("use removed", lambda: self.use(turn), number, turn) or last:  # noqa: B023
                        break
                    yield
                    sleep(LOCK_S)
            self.close_files()
            self.open.clear()
            yield
            self.stop.wait(LOCK_S)

    def begin(self, number: int) -> None:
        """Create a file, open it, and remove its name."""
        path = os.path.join(self.path, "r%d" % number)
        self.open[self.path] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_DSYNC, 0o644)
        os.unlink(path)

    def use(self, turn: int) -> None:
        """Write the next block of the removed file, and read all of its blocks from the server."""
        fd = self.open[self.path]
        ledger.write_whole(fd, ledger.block(self.file, turn * ledger.BLOCK, 1, self.seed), (turn - 1) * ledger.BLOCK)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        wanted = b"".join(ledger.block(self.file, one * ledger.BLOCK, 1, self.seed) for one in range(1, turn + 1))
        if ledger.read_whole(fd, len(wanted) + 1, 0) != wanted:
            raise OSError(errno.EBADMSG, "the removed file has other content")
