"""The ledger's worker that lists directories in parts, also across a fault.

The harness copies this file into machines: standard library only.
"""

import os
import stat
import struct
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

# In a machine both files are in one folder, in the harness in a package.
ledger = import_module("raidproof.guest.ledger_format" if __package__ else "ledger_format")
if TYPE_CHECKING:
    from raidproof.guest.ledger_worker import Worker
else:
    Worker = import_module("raidproof.guest.ledger_worker" if __package__ else "ledger_worker").Worker

PAUSE_S = 0.03  # pause in seconds between two parts: a fault strikes most often in the middle of a listing
FIRST_NAMES = 12  # names that are created before the first listing: few, for a crash test waits for listings
CHANGES = 4  # names that are created between two listings; one follows each part
MOST_NAMES = 400  # names from which on each creation follows the removal of the oldest name
LENGTH = 200  # bytes of a name: a part has few of them
PART = 1024  # size in bytes of the buffer of one getdents64(2): four names
MANY_LENGTH, MANY_PART = 24, 8192  # the same for the directory of many names: a part has 170 names
ENTRY = struct.Struct("=QqHB")  # struct linux_dirent64 before the name: inode, offset, length, type


class Listing(Worker):
    """Worker that lists directories in parts, and changes each between two parts, so that a client asks again.

    Its own directory has few names, which are long: only with a small rsize does one READDIR return a part of them.
    The other one has `ledger_format.MANY_NAMES` names from before (`fill`): the client always continues with a cookie
    of the server.
    """

    def work(self) -> Iterator[None]:
        """Create names, list the directories in turn, and yield after each call."""
        self.set_up(lambda: os.makedirs(self.path, exist_ok=True))
        directories = [Names(self.path, LENGTH, MOST_NAMES, PART)]
        if self.config.get("filled") == self.number:
            names = map(many_name, range(ledger.MANY_NAMES))
            path = os.path.join(self.path, ledger.MANY)
            directories.append(Names(path, MANY_LENGTH, ledger.MANY_NAMES, MANY_PART, names))
        number = 0
        while self.more() and number < self.limit:
            one = directories[number % len(directories)]
            number += 1
            yield from self.list_one(one, number)
            self.stop.wait(PAUSE_S)
        for one in directories:
            self.step("last close", one.close)

    def list_one(self, one: "Names", number: int) -> Iterator[None]:
        """Create names in a directory, list the directory, and yield after each call."""
        for _ in range(CHANGES if one.names else FIRST_NAMES):
            self.step("change names", one.change, number, len(one.names))
            yield
            if not self.more():
                break
        if self.step("last close", one.close) and self.step("set-up", one.begin):
            while self.step("list names", one.list_part, number, len(one.names)):
                yield
                self.step("change names", one.change, number, len(one.names))
                yield
                self.stop.wait(PAUSE_S)
        yield


class Names:
    """The names in a directory, which one worker changes and lists.

    A listing has each name once that was there from its begin to its end; a name that was created or removed
    meanwhile, or whose call failed, may be there.
    """

    def __init__(self, path: str, length: int, most: int, part: int, names: Iterable[str] = ()) -> None:
        """``length``: bytes of a name; ``most``: see `MOST_NAMES`; ``part``: see `PART`; ``names``: the first ones."""
        self.ctypes: Any = import_module("ctypes")
        self.libc = self.ctypes.CDLL(None, use_errno=True)
        self.path, self.length, self.most, self.part = path, length, most, part
        self.names: dict[str, None] = dict.fromkeys(names)
        self.created = len(self.names)
        self.unsure: set[str] = set()
        self.changed: set[str] = set()
        self.found: list[str] = []
        self.fd: int | None = None

    def change(self) -> None:
        """Create a name; if the directory has the most names, remove its oldest name first."""
        if len(self.names) >= self.most:
            oldest = next(iter(self.names))
            del self.names[oldest]
            self.unsure.add(oldest)
            self.changed.add(oldest)
            os.unlink(os.path.join(self.path, oldest))
            self.unsure.remove(oldest)
        name = name_of(self.created, self.length)
        self.created += 1
        self.unsure.add(name)
        self.changed.add(name)
        os.close(os.open(os.path.join(self.path, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        self.unsure.remove(name)
        self.names[name] = None

    def begin(self) -> None:
        """Open the directory for a listing."""
        self.found = []
        self.changed = set()
        self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)

    def close(self) -> None:
        """Close the directory of the last listing."""
        fd, self.fd = self.fd, None
        if fd is not None:
            os.close(fd)

    def list_part(self) -> bool:
        """Read the next names; at the end of the directory compare all of them; return whether more may follow.

        Raises:
            OSError: getdents64(2) failed, or the names are wrong (`ledger_format.NAME_MISSING`, for example).
        """
        buffer = self.ctypes.create_string_buffer(self.part)
        size = self.libc.getdents64(self.fd, buffer, self.part)
        if size < 0:
            raise OSError(self.ctypes.get_errno(), "getdents64")
        self.found += names_in(buffer.raw[:size])
        if not size:
            self.compare()
        return bool(size)

    def compare(self) -> None:
        """Compare the names of a whole listing with those that must be there.

        Raises:
            OSError: a name is missing, occurs twice, or was created by no client.
        """
        counted = Counter(self.found)
        if missing := [name for name in self.names if name not in self.changed and name not in counted]:
            raise OSError(ledger.NAME_MISSING, "%d names are missing" % len(missing))
        if twice := [name for name, count in counted.items() if count > 1]:
            raise OSError(ledger.NAME_TWICE, "%d names occur twice" % len(twice))
        known = self.unsure | self.changed
        if unknown := [name for name in counted if name not in self.names and name not in known]:
            raise OSError(ledger.NAME_UNKNOWN, "%d names were created by no client" % len(unknown))


def name_of(number: int, length: int) -> str:
    """Return a name of ``length`` bytes."""
    return ("%06d" % number).ljust(length, "n")


def many_name(number: int) -> str:
    """Return one of the names that `fill` makes."""
    return name_of(number, MANY_LENGTH)


def fill(path: str, owner: int) -> None:
    """Make the directory of a worker with one of `ledger_format.MANY_NAMES` names in it, which ``owner`` may change.

    On the server: over NFS it takes many seconds. The names are those of one file, which is cheap, too.
    """
    many = os.path.join(path, ledger.MANY)
    os.makedirs(many)
    first = os.path.join(many, many_name(0))
    os.mknod(first, 0o644 | stat.S_IFREG)
    for number in range(1, ledger.MANY_NAMES):
        os.link(first, os.path.join(many, many_name(number)))
    for one in (first, many, path):
        os.chown(one, owner, -1)
    os.sync()


def names_in(data: bytes) -> list[str]:
    """Return the names in the result of getdents64(2), without ``.`` and ``..``, and the directory of many names."""
    found, at = [], 0
    while at < len(data):
        length = ENTRY.unpack_from(data, at)[2]
        found.append(os.fsdecode(data[at + ENTRY.size : at + length].split(b"\0", 1)[0]))
        at += length
    return [name for name in found if name not in (".", "..", ledger.MANY)]


def main() -> None:
    """Make the directory of many names: the command line has the worker's path and its owner."""
    fill(sys.argv[1], int(sys.argv[2]))
