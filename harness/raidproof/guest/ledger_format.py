"""The format of the ledger: its blocks, its kinds of operation, the frames of its reports, the codes of its scans.

`ledger_writer` writes the ledger in a client, `ledger_reader` reads it, and the harness judges it: all of them import
this file, which the harness also copies into machines. Standard library only.
"""

import errno
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

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
    "o_direct_sync",  # write to a file opened with O_DIRECT and O_SYNC
    # Of workers of kind names:
    "subdirectory",
    "rename_into",  # of a file, into the subdirectory
    "rename_directory",  # of the subdirectory with the file
    "link_into",  # of a file, into the subdirectory
    "rename_symlink", "mknod",
    "recreate",  # of a name that a removed file had
    "long_name",  # create of a file with a name of 255 bytes
    "chown", "utimes",
    # Of workers of kind extents:
    "shrink",  # truncate(2) to a size within a block
    "grow",  # truncate(2) to the size before
    "fragments",  # write of blocks with holes between them, then fsync
    "zero_range",  # fallocate(2) with FALLOC_FL_ZERO_RANGE
)  # fmt: skip
PAUSE_STEP = "pause"  # kind of step: no call, but the time from a `PAUSE` of the harness until the worker continues
# The kinds of step: calls of a worker that belong to none of its operations. The index is the number in a frame.
STEPS = (
    "set-up",  # creation of the worker's own file or directory
    "lock",  # attempt to lock the file to which several clients append
    "unlock",
    "last close",  # of a file that the worker keeps open
    "claim",  # attempt to lock a range of a file, without waiting
    "guarded write",  # to a locked range, by a descriptor opened with O_DSYNC
    "release",  # of the lock of a range
    "open and remove",  # creation of a file that stays open, and removal of its name
    "use removed",  # a write to this file, and a read of all of its blocks
    PAUSE_STEP,
    "change names",  # creation of a name in a directory that is listed, and removal of its oldest name if it has many
    "list names",  # one getdents64(2) of this directory; the last one compares the names
)
# Requests of the harness, bytes over the connection of a worker: pause before the next operation; carry out one
# operation, then pause again; continue.
PAUSE, ONE, CONTINUE = b"p", b"1", b"c"
# Kinds of operation that change names, attributes or extents. The verdict considers all changes of a directory
# together.
METADATA = (
    *KINDS[3:12], "replace", "unlink", "rmdir", "setxattr", "allocate", "punch", "copy", "clone", "shrink", "grow",
    "fragments", "zero_range",
    "subdirectory", "rename_into", "rename_directory", "link_into", "rename_symlink", "mknod", "recreate", "long_name",
    "chown", "utimes",
)  # fmt: skip
TREES = ("metadata", "extents", "names")  # kinds of worker that create directories and apply a list of changes to each
APPENDED = 100  # bytes of one append
TRUNCATED = 10  # bytes that a truncate leaves
CREATED = 0o600  # the mode with which create makes a file
MODE = 0o640  # the mode that setattr sets
OWNER, GROUP = 12345, 23456  # the owner and the group that chown sets
MTIME_S = 1000000000  # the modification time that utimes sets, in seconds since 1970
LONG_NAME = "n" * 255  # the longest name that a file may have (limits.h)
XATTR, XATTR_VALUE = "user.raidproof", "set"  # the extended attribute that setxattr sets
# Number of blocks of an extents worker's file that pages writes, allocate allocates, punch deallocates, copy copies.
WRITTEN, ALLOCATED, PUNCHED, COPIED = 4, 2, 1, 2
# The blocks that fragments writes: their 32 extents do not fit into an inode of XFS or ext4.
FRAGMENTS = (0, *range(1, 64, 2))
ZEROED = 3  # the block that zero_range zeroes
LOCKS = "locks"  # kind of worker that locks ranges of a file that the workers of all clients share
REMOVED = "removed"  # kind of worker that keeps files open whose last names it has removed
LISTING = "listing"  # kind of worker that lists a directory of many names
MANY, MANY_NAMES = "many", 2000  # directory of a worker that lists, and number of names that the server made there
HOLDERS = (LOCKS, REMOVED, LISTING)  # kinds of worker that have steps, and no operations
# The errors of "list names" for a name that is missing, that occurs twice, and that no client created. No file system
# returns them for getdents64(2).
NAME_MISSING, NAME_TWICE, NAME_UNKNOWN = errno.ENOMSG, errno.ENOTUNIQ, errno.EBADMSG
REFUSED = (errno.EAGAIN, errno.EACCES)  # errors of a claim while another client holds the lock (fcntl(2))
CUT = BLOCK // 2  # bytes that shrink leaves of a block: the first of those that are shrunk
USERS, FIRST_UID = 3, 1001  # number of ordinary users as whom workers work, and number of the first of them
APPLICATION = "application"  # kind of worker that runs the user's own application, and kind of its operations
GROUPS = 20000  # the group id in the RPCs of worker n is GROUPS + n, which identifies the worker in a capture
UNCUT = "+0"  # code in a scan: a file with the data of append, in which zeroes follow the length that truncate sets
OTHER_CONTENT = "?"  # code in a scan: a file with other data than append writes

BLANK = bytes(BLOCK)
# Codes in a scan instead of the generation of a block: the block is missing or zero; is damaged; is a valid block of
# another position; cannot be read.
ABSENT, GARBAGE, MISPLACED, UNREADABLE = 0, -1, -2, -3
OLD = -4  # the block has data that the disk contained before the run
OLD_MAGIC = b"OLDDATA1"  # first bytes of each unwritten block of a disk that a lab filled with old data
TORN = -16  # in a scan of an older version: the block may be torn; codes below it: the block is torn, see `torn`
TORN_SHIFT = 48


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


def signed(place: int, generation: int, cut: bool = False) -> str:
    """Return the signature of a block: its place (block index) in the file, and its generation.

    ``cut``: whether shrink has left only its first `CUT` bytes, and zeroes or the end of the file follow.
    """
    return "%d.%d%s" % (place, generation, "c" if cut else "")


def torn(oldest: int, newest: int) -> int:
    """Return the code in a scan for a torn block with parts of these generations."""
    return TORN - 1 - (oldest << TORN_SHIFT | newest)


def parts_of_torn(code: int) -> tuple[int, int]:
    """Return the oldest and the newest generation that the code of a torn block states."""
    oldest, newest = divmod(TORN - 1 - code, 1 << TORN_SHIFT)
    return oldest, newest


def read_whole(fd: int, size: int, position: int) -> bytes:
    """Return ``size`` bytes of a file at ``position``, or fewer at the end of the file."""
    data = os.pread(fd, size, position)
    while len(data) < size:
        # A read returns fewer bytes at the end of the file, and also before an unreadable page.
        more = os.pread(fd, size - len(data), position + len(data))
        if not more:
            break
        data += more
    return data


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


def act_as(uid: int, gid: int = -1) -> None:
    """Let this thread access files as a user, and, unless ``gid`` is -1, with a group (setfsuid(2), setfsgid(2)).

    NFS requests then have this user and group. Other threads are not affected; the user has no capabilities of root.

    Raises:
        OSError: the kernel refused.
        ImportError: this Python has no ctypes.
    """
    libc = import_module("ctypes").CDLL(None)
    for call, number in ((libc.setfsgid, gid), (libc.setfsuid, uid)):
        call(number)
        # The call has no error: a second one with an invalid number returns the number in effect.
        if number != -1 and call(-1) != number:
            raise OSError(errno.EPERM, "the kernel refuses to act as user %d, group %d" % (uid, gid))


@contextmanager
def acting_as(uid: int) -> Iterator[None]:
    """Let this thread, which is root, access files as a user during the body; nothing changes if the user is root."""
    if not uid:
        yield
        return
    act_as(uid)
    try:
        yield
    finally:
        act_as(0)


@contextmanager
def opened(path: str, flags: int) -> Iterator[int]:
    """Open a file, yield its descriptor, and close it after the body."""
    fd = os.open(path, flags, CREATED)
    try:
        yield fd
    finally:
        os.close(fd)
