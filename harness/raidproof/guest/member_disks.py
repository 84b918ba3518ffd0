# No pathlib, no subprocess: on the minimal Python of a guest each import takes time.
"""The member disks of a checker, in the memory of its machine.

The harness copies this file into machines, into the folder of check_agent.py: standard library only.

The base content of a member is on a RAM disk of the kernel module brd. The md devices use a device-mapper snapshot of
that RAM disk, with a second RAM disk for all that is written. A new snapshot undoes whatever was written to the last
one, and takes the same time however much that was. The format of the ioctl calls is that of linux/dm-ioctl.h.
"""

import fcntl
import mmap
import os
import struct
from collections.abc import Callable, Sequence
from functools import cache

CONTROL = "/dev/mapper/control"
_HEAD = struct.Struct("=3I I I I i I I I Q 128s 129s 7s")
"""struct dm_ioctl: version, size and start of data, number of targets, open count, flags, event, padding, device."""
_TARGET = struct.Struct("=QQiI16s")
"""struct dm_target_spec: first sector, number of sectors, status, offset of the next target, type."""
_DEV = 10
"""Index of the device number in `_HEAD`."""
_VERSION = (4, 0, 0)
_ROOM = 16384
_IOCTL = 0xC138FD00
"""_IOWR(DM_IOCTL, 0, struct dm_ioctl); a command is added to it."""
CREATE, SUSPEND, LOAD, STATUS = 3, 6, 9, 12
"""DM_DEV_CREATE, DM_DEV_SUSPEND (without its flag: resume, with the loaded table), DM_TABLE_LOAD, DM_TABLE_STATUS."""
RAM_MAJOR = 1
"""Major number of the RAM disks; the minor number is that of the disk (Documentation/admin-guide/devices.txt)."""
SECTOR = 512
CHUNK_SECTORS = 128
"""Unit of a snapshot's copies, in sectors. device-mapper divides each request at these units: smaller ones make many
requests of the reads of a file system's log, larger ones make each small write a large copy."""
_BUFFER = 1 << 20

Run = Sequence[int]
"""A member's number, an offset on it, and a number of bytes."""
Source = Callable[[memoryview], int]
"""Fills a buffer with the next bytes, and returns how many."""


class SnapshotLost(Exception):
    """A snapshot became invalid: the machine's memory did not suffice for what was written."""


@cache
def control_device() -> int:
    """Return the descriptor of `CONTROL`, which stays open: a check sends about twenty commands."""
    return os.open(CONTROL, os.O_RDWR | os.O_CLOEXEC)


def control(command: int, name: str, targets: bytes = b"") -> tuple[int, bytes]:
    """Send a command to device-mapper; return the number of the device, and the data of the answer.

    Raises:
        OSError: the kernel refused the command.
    """
    head = _HEAD.pack(*_VERSION, _ROOM, _HEAD.size, bool(targets), 0, 0, 0, 0, 0, name.encode(), b"", b"")
    room = bytearray(head + targets).ljust(_ROOM, b"\0")
    fcntl.ioctl(control_device(), _IOCTL | command, room)
    return _HEAD.unpack_from(room)[_DEV], bytes(room[_HEAD.size :])


def target(sectors: int, kind: str, arguments: str) -> bytes:
    """Return the table of a device with one target, for DM_TABLE_LOAD."""
    text = arguments.encode() + b"\0"
    size = -(-(_TARGET.size + len(text)) // 8) * 8
    return (_TARGET.pack(0, sectors, 0, size, kind.encode()) + text).ljust(size, b"\0")


def status_of(name: str) -> str:
    """Return the status line of a device with one target."""
    return control(STATUS, name)[1][_TARGET.size :].partition(b"\0")[0].decode()


class MemberDisks:
    """The members of a checker. ``links``: a path for each member, which becomes a link to its device.

    The modules brd and dm_snapshot must be loaded, with two RAM disks for each member.

    Raises:
        OSError: a RAM disk does not exist, or the kernel refused a device.
    """

    def __init__(self, sizes: Sequence[int], links: Sequence[str]) -> None:
        self.sizes = sizes
        self._buffer = mmap.mmap(-1, _BUFFER)  # O_DIRECT needs aligned memory
        self._bases = [self._open("/dev/ram%d" % number) for number in range(len(sizes))]
        # Tools such as btrfs-check(8) scan all devices in /dev, and take a RAM disk that holds a copied superblock for
        # a member. The kernel finds the disks by their numbers.
        for number in range(2 * len(sizes)):
            os.unlink("/dev/ram%d" % number)
        self._shown: list[str] = []
        for number, link in enumerate(links):
            device = control(CREATE, self._name(number))[0]
            # The encoding of struct dm_ioctl: minor number in the bits 0 to 7 and 20 to 31.
            path = "/dev/dm-%d" % (device & 0xFF | device >> 12 & 0xFFF00)
            self._shown.append(path)
            os.makedirs(os.path.dirname(link), exist_ok=True)
            os.symlink(path, link)
        self.renew()

    @staticmethod
    def _name(number: int) -> str:
        return "member%d" % number

    @staticmethod
    def _open(path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_DIRECT)

    def renew(self) -> None:
        """Give each member a new snapshot of its base. No program may have a member open."""
        for number, size in enumerate(self.sizes):
            base, written = ("%d:%d" % (RAM_MAJOR, disk) for disk in (number, len(self.sizes) + number))
            # A snapshot takes over the content of a snapshot with the same second disk (snapshot_ctr in the kernel's
            # dm-snap.c); the linear table between both ends the old one first.
            for kind, arguments in (
                ("linear", base + " 0"),
                ("snapshot", "%s %s N %d" % (base, written, CHUNK_SECTORS)),
            ):
                control(LOAD, self._name(number), target(size // SECTOR, kind, arguments))
                control(SUSPEND, self._name(number))

    def advance(self, runs: Sequence[Run], source: Source) -> None:
        """Write to the bases; the snapshots are invalid until `show`."""
        for number, offset, length in runs:
            self._write(self._bases[number], offset, length, source)

    def show(self, runs: Sequence[Run], source: Source) -> None:
        """Give each member the content of its base with these writes."""
        self.renew()
        fds: dict[int, int] = {}
        try:
            for number, offset, length in runs:
                if number not in fds:
                    fds[number] = self._open(self._shown[number])
                self._write(fds[number], offset, length, source)
        finally:
            for fd in fds.values():
                os.close(fd)

    def require_valid(self) -> None:
        """Check that the snapshots hold all that was written.

        Raises:
            SnapshotLost: a snapshot is invalid; what was read from this member is worthless.
        """
        for number in range(len(self.sizes)):
            status = status_of(self._name(number))
            if not status[:1].isdigit():
                raise SnapshotLost(
                    "member %d: the snapshot is %r: the machine has too little memory" % (number, status)
                )

    def _write(self, fd: int, offset: int, length: int, source: Source) -> None:
        whole = memoryview(self._buffer)
        while length:
            part = whole[: min(length, _BUFFER)]
            filled = 0
            while filled < len(part):
                filled += source(part[filled:])
            if os.pwritev(fd, [part], offset) != len(part):
                raise OSError("short write at %d" % offset)
            offset += len(part)
            length -= len(part)
