"""The write log: all changes requested of members, in the order in which they took effect, on one clock.

File format, all numbers little-endian:

    header   8s magic "RPWRLOG\\0" | u32 version | u32 flags | u64 opened_ns | u32 length of the text | text
             flags: 1 data is included, 2 every member was blank when the log was opened
             text: JSON list of {"serial", "size", "mode", "first_mode", "old"}, the members in the order of their
             numbers; "old": unwritten parts read as old data (`sparse_image.OLD_DATA`), not as zeroes
             version 1, where no member is old, or 2
    record   u8 kind | u8 flags | u16 member | u32 data length | u64 offset | u64 length | u64 issued_ns
             | u64 completed_ns | data

A record is appended when its request completes, so that the order of records is the order in which requests took
effect, and a record's index is its sequence number. At time t a request is in flight if issued_ns <= t < completed_ns.
A request in flight at a power cut has the flag IN_FLIGHT and 0 for ``completed_ns``: it never took effect. A write of
only zeroes has the flag ZEROES and no data. All times are CLOCK_MONOTONIC in nanoseconds. A FLUSH with the flag LIED
may have data: the sequence numbers, u64 each, of the only requests that it made durable. Events that concern all
members have member 0xFFFF and carry JSON (or a text) as data. A log that was closed properly ends with a record END.
"""

import json
import mmap
import os
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from raidproof.core.errors import RigError
from raidproof.disk.cache import CacheMode
from raidproof.disk.sparse_image import Buffer

MAGIC = b"RPWRLOG\0"
VERSION = 2
"""For logs with old disks: a reader of version 1 would take their disks for zeroed ones."""
ALL_MEMBERS = 0xFFFF

_HEADER = struct.Struct("<8sIIQI")
_RECORD = struct.Struct("<BBHIQQQQ")
_WITH_DATA = 1
_WAS_BLANK = 2
_DROP = 16 << 20  # bytes of log after which older pages are written out and dropped from the page cache


class LogError(RigError):
    """A write log cannot be written, or has a format that this version does not read."""


class Kind(IntEnum):
    """The kind of a record."""

    WRITE = 1
    FLUSH = 2
    DISCARD = 3
    ZERO = 4
    MODE = 16
    """A member's cache mode changed; data: the mode's name."""
    FREEZE = 17
    """The power cut: from this instant no request was served."""
    RESOLVE = 18
    """The cut policy was applied; data: JSON with ``policy`` and ``seed``."""
    POWER_ON = 19
    RESET = 20
    """All members were made blank, in their initial modes; data: JSON list of those that are old (none: b"")."""
    MARK = 21
    """A mark at this instant; data: the text."""
    SWAP = 22
    """Two members exchanged their content; data: their numbers."""
    END = 255


_KINDS = {kind.value: kind for kind in Kind}


class Flag(IntFlag):
    """Properties of a record."""

    FUA = 1
    LIED = 2
    """The disk acknowledged a FLUSH or FUA without making the data durable, or a FLUSH that covered a part only."""
    IN_FLIGHT = 4
    """In flight at a power cut: the request was not answered and did not take effect."""
    NO_DATA = 8
    """A write whose data is not in the log."""
    ZEROES = 16
    """A write of only zeroes: without data in the file; the reader returns zeroes."""


class MemberInfo(NamedTuple):
    """One member in the log's header."""

    serial: str
    size: int
    mode: CacheMode
    """The mode when the log was opened."""
    first_mode: CacheMode
    """The mode after a reset."""
    old: bool = False
    """Whether unwritten parts read as old data when the log was opened."""


class Record(NamedTuple):
    """One record of a log. ``data`` is a view of the file, valid while the log is open."""

    sequence: int
    kind: Kind
    flags: Flag
    member: int
    offset: int
    length: int
    issued_ns: int
    completed_ns: int
    data: memoryview


class LogWriter:
    """Appends records without buffering them in the process: an appended record survives SIGKILL of the process.

    Raises:
        OSError: the file exists already, or cannot be written.
    """

    def __init__(
        self, path: Path, members: Sequence[MemberInfo], opened_ns: int, *, data: bool = True, blank: bool = True
    ) -> None:
        self.path = path
        self.with_data = data
        self.records = 0
        self.bytes = 0
        self._drop_at = _DROP
        self._written: SimpleQueue[int | None] = SimpleQueue()
        named = [{**m._asdict(), "mode": m.mode.value, "first_mode": m.first_mode.value} for m in members]
        text = json.dumps(named).encode()
        flags = (_WITH_DATA if data else 0) | (_WAS_BLANK if blank else 0)
        self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            version = VERSION if any(member.old for member in members) else 1
            self._append(_HEADER.pack(MAGIC, version, flags, opened_ns, len(text)) + text, b"")
        except OSError:
            os.close(self._fd)
            raise
        self._dropper = threading.Thread(target=self._drop, name="log", daemon=True)
        self._dropper.start()

    def write(self, flags: int, member: int, offset: int, times: tuple[int, int], data: Buffer) -> None:
        """Append a WRITE; ``times``: issued, completed.

        Raises:
            OSError: the file cannot be written.
        """
        size = len(data)
        if self.with_data and _zeroes(data):
            self._put(_RECORD.pack(1, flags | 16, member, 0, offset, size, *times), b"")
        elif self.with_data:
            head = _RECORD.pack(1, flags, member, size, offset, size, *times)
            self._put(head, data)
        else:
            self._put(_RECORD.pack(1, flags | 8, member, 0, offset, size, *times), b"")

    def note(
        self, kind: Kind, flags: int, member: int, span: tuple[int, int], times: tuple[int, int], *, data: bytes = b""
    ) -> None:
        """Append a record of any other kind; ``span``: offset, length.

        Raises:
            OSError: the file cannot be written.
        """
        self._put(_RECORD.pack(kind, flags, member, len(data), *span, *times), data)

    def close(self, now_ns: int) -> None:
        """Append END and close the file.

        Raises:
            OSError: the file cannot be written; it is closed nevertheless.
        """
        try:
            self._append(_RECORD.pack(Kind.END, 0, ALL_MEMBERS, 0, 0, 0, now_ns, now_ns), b"")
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file as it is."""
        self._written.put(None)
        self._dropper.join()
        os.close(self._fd)

    def _put(self, head: bytes, data: Buffer) -> None:
        self._append(head, data)
        self.records += 1
        if self.bytes >= self._drop_at:
            self._drop_at = self.bytes + _DROP
            self._written.put(self.bytes)

    def _append(self, head: bytes, data: Buffer) -> None:
        total = len(head) + len(data)
        done = os.writev(self._fd, (head, data))
        if done < total:
            rest = memoryview(head + bytes(data))[done:]
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        self.bytes += total

    def _drop(self) -> None:
        """Write out and drop the log's old pages from the page cache, in a thread, so that no request waits for that.

        The log is not read soon. Each page that it keeps is new memory, which the guests lack, and allocating a page
        costs up to five times as much as filling it.
        """
        while (end := self._written.get()) is not None:
            os.posix_fadvise(self._fd, max(0, end - 8 * _DROP), 8 * _DROP, os.POSIX_FADV_DONTNEED)


@dataclass(frozen=True)
class Ending:
    """The end of a log: ``complete`` is false after a run that was killed."""

    complete: bool
    records: int
    lost_bytes: int
    """Bytes of an incomplete last record."""


class WriteLog:
    """A log opened for reading: iterate over its records, then read ``ending``.

    Raises:
        LogError: this is no write log, or one of another version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            self._size = os.fstat(file.fileno()).st_size
            if self._size < _HEADER.size:
                raise LogError(f"{path}: too short for a write log ({self._size} bytes)")
            self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        magic, version, flags, self.opened_ns, text_size = _HEADER.unpack_from(self._map)
        if magic != MAGIC:
            raise LogError(f"{path}: not a write log")
        if not 1 <= version <= VERSION:
            raise LogError(f"{path}: write log of version {version}, this program reads 1 to {VERSION}")
        self.with_data = bool(flags & _WITH_DATA)
        self.blank = bool(flags & _WAS_BLANK)
        self._start = _HEADER.size + text_size
        if self._start > self._size:
            raise LogError(f"{path}: the header is cut off")
        self.members = _members(path, self._map[_HEADER.size : self._start])
        self.ending: Ending | None = None

    def number(self, serial: str) -> int:
        """Return the number of a member in the records.

        Raises:
            LogError: the log has no such member.
        """
        for index, member in enumerate(self.members):
            if member.serial == serial:
                return index
        raise LogError(f"{self.path}: no member {serial!r}, it has {', '.join(m.serial for m in self.members)}")

    def __iter__(self) -> Iterator[Record]:
        """Yield the records in order, then set ``ending``.

        Raises:
            LogError: a record is invalid: the file is damaged, not only truncated.
        """
        view, at, count = memoryview(self._map), self._start, 0
        while at + _RECORD.size <= self._size:
            kind, flags, member, size, offset, length, issued_ns, completed_ns = _RECORD.unpack_from(view, at)
            if kind not in _KINDS or not (member < len(self.members) or member == ALL_MEMBERS):
                raise LogError(f"{self.path}: damaged at byte {at}, after {count} records")
            end = at + _RECORD.size + size
            if end > self._size:
                break
            if kind == Kind.END.value:
                self.ending = Ending(True, count, self._size - end)
                return
            data = memoryview(bytes(length)) if flags & Flag.ZEROES else view[at + _RECORD.size : end]
            yield Record(count, _KINDS[kind], Flag(flags), member, offset, length, issued_ns, completed_ns, data)
            at, count = end, count + 1
        self.ending = Ending(False, count, self._size - at)


def pack_kept(sequences: Sequence[int]) -> bytes:
    """Pack the sequence numbers of the requests that a lying FLUSH made durable nevertheless."""
    logged = [one for one in sequences if one >= 0]
    return struct.pack(f"<{len(logged)}Q", *logged)


def kept_by(flush: Record) -> tuple[int, ...]:
    """Unpack the result of `pack_kept`."""
    return struct.unpack(f"<{len(flush.data) // 8}Q", flush.data)


def _zeroes(data: Buffer) -> bool:
    """Return whether data is only zeroes, as in a new file system's log: a large part of a short run's writes."""
    # The ends of most data are not zero; only the rest is compared wholly.
    return not data[0] and not data[-1] and bytes(data) == bytes(len(data))


def _members(path: Path, text: bytes) -> tuple[MemberInfo, ...]:
    try:
        return tuple(
            MemberInfo(m["serial"], m["size"], CacheMode(m["mode"]), CacheMode(m["first_mode"]), m.get("old", False))
            for m in json.loads(text)
        )
    except (ValueError, KeyError, TypeError) as error:
        raise LogError(f"{path}: the list of members is damaged") from error
