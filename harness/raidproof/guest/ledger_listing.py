"""The ledger's worker that lists a directory of many names in parts, also across a fault.

The harness copies this file into machines: standard library only.
"""

import os
import struct
from collections import Counter
from collections.abc import Iterator
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
ENTRY = struct.Struct("=QqHB")  # struct linux_dirent64 before the name: inode, offset, length, type


class Listing(Worker):
    """Worker that creates names in a directory of its own, and lists the directory in parts.

    It changes the directory between two parts: a client must then ask the server again. Only with a small rsize, or
    many names, does one READDIR return a part of them, so that the client continues with a cookie of the server.
    A listing has each name once that was there from its begin to its end; a name that was created or removed
    meanwhile, or whose call failed, may be there.
    """

    def __init__(self, config: dict[str, Any], worker: dict[str, Any], stop: Any) -> None:
        super().__init__(config, worker, stop)
        self.ctypes: Any = import_module("ctypes")
        self.libc = self.ctypes.CDLL(None, use_errno=True)
        self.created = 0
        self.names: dict[str, None] = {}
        self.unsure: set[str] = set()
        self.changed: set[str] = set()
        self.found: list[str] = []

    def work(self) -> Iterator[None]:
        """Create names, list the directory, and yield after each call."""
        self.set_up(lambda: os.makedirs(self.path, exist_ok=True))
        number = 0
        while self.more() and number < self.limit:
            number += 1
            for _ in range(CHANGES if self.names else FIRST_NAMES):
                self.step("change names", self.change, number, len(self.names))
                yield
                if not self.more():
                    break
            if self.step("last close", self.close) and self.step("set-up", self.begin):
                while self.step("list names", self.list_part, number, len(self.names)):
                    yield
                    self.step("change names", self.change, number, len(self.names))
                    yield
                    self.stop.wait(PAUSE_S)
            yield
            self.stop.wait(PAUSE_S)
        self.close_files()

    def change(self) -> None:
        """Create a name; if the directory has `MOST_NAMES`, remove its oldest name first."""
        if len(self.names) >= MOST_NAMES:
            oldest = next(iter(self.names))
            del self.names[oldest]
            self.unsure.add(oldest)
            self.changed.add(oldest)
            os.unlink(os.path.join(self.path, oldest))
            self.unsure.remove(oldest)
        name = ("%06d" % self.created).ljust(LENGTH, "n")
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
        self.open[self.path] = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)

    def close(self) -> None:
        """Close the directory of the last listing."""
        if (fd := self.open.pop(self.path, None)) is not None:
            os.close(fd)

    def list_part(self) -> bool:
        """Read the next names; at the end of the directory compare all of them; return whether more may follow.

        Raises:
            OSError: getdents64(2) failed, or the names are wrong (`ledger_format.NAME_MISSING`, for example).
        """
        buffer = self.ctypes.create_string_buffer(PART)
        size = self.libc.getdents64(self.open[self.path], buffer, PART)
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


def names_in(data: bytes) -> list[str]:
    """Return the names in the result of getdents64(2), without ``.`` and ``..``."""
    found, at = [], 0
    while at < len(data):
        length = ENTRY.unpack_from(data, at)[2]
        found.append(os.fsdecode(data[at + ENTRY.size : at + length].split(b"\0", 1)[0]))
        at += length
    return [name for name in found if name not in (".", "..")]
