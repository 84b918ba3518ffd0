"""The write log: all writes, discards and flushes of a lab's members, in the order of their effect, on one clock.

File format, all numbers little-endian:

    header   8s magic "RPWRLOG\\0" | u32 version | u32 flags | u64 opened_ns | u32 length of the text | text
             version: 1, or 2 if a member has old data
             flags: 1 the log includes the written data, 2 every member was blank when the log was opened
             text: JSON list of {"serial", "size", "mode", "first_mode", "old"}, one item for each member; a record's
             "member" is an index into this list. "mode": the disk's cache mode when the log was opened; "first_mode":
             the initial cache mode, which a reset restores. "old": regions that were never written read as old data
             (`sparse_image.OLD_DATA`), not as zeroes
    record   u8 kind | u8 flags | u16 member | u32 data length | u64 offset | u64 length | u64 issued_ns
             | u64 completed_ns | data

The engine appends a record when its request completes. So the order of the records is the order in which the requests
took effect. A record's index is its sequence number. All times are CLOCK_MONOTONIC in nanoseconds. At time t a request
is in flight if issued_ns <= t < completed_ns. A request in flight at a power cut has the flag IN_FLIGHT and
completed_ns 0, and never took effect. A write of only zeroes has the flag ZEROES and no data. The data of a FLUSH
with the flag LIED are the sequence numbers (u64) of the requests that the flush made durable. Events that affect all
members have member 0xFFFF, and JSON or a text as data. A log that was closed has END as its last record.
"""

import json
import os
import struct
import threading
import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple, overload

from raidproof.core.errors import RigError
from raidproof.disk.cache import CacheMode
from raidproof.disk.sparse_image import Buffer

MAGIC = b"RPWRLOG\0"
VERSION = 2
"""File format version of logs with `sparse_image.OLD_DATA`; a reader of version 1 would read zeroes instead."""
ALL_MEMBERS = 0xFFFF
"""Member number in the record of an event that affects all members."""

_HEADER = struct.Struct("<8sIIQI")
_RECORD = struct.Struct("<BBHIQQQQ")
_WITH_DATA = 1
_WAS_BLANK = 2
_DROP = 16 << 20  # bytes of new log after which the writer drops older pages from the page cache


class LogError(RigError):
    """A write log cannot be read, is damaged, or lacks the content that an operation needs."""


class Kind(IntEnum):
    """The kind of a record in a write log."""

    WRITE = 1
    FLUSH = 2
    DISCARD = 3
    ZERO = 4
    """A write-zeroes request."""
    MODE = 16
    """The cache mode of a member changed; data: the name of the new mode."""
    FREEZE = 17
    """The power was cut: the engine served no request from this instant on."""
    RESOLVE = 18
    """The cut policy was applied to the caches; data: JSON with ``policy`` and ``seed``."""
    POWER_ON = 19
    """The power was switched on."""
    RESET = 20
    """The content of all members was discarded, and their initial cache modes restored.

    Data: JSON list of the serial numbers of members that read as `sparse_image.OLD_DATA`; empty if there are none."""
    MARK = 21
    """An event that is no request, such as the setting of a disk fault; data: a text."""
    SWAP = 22
    """Two members exchanged their content; data: the numbers of the two members."""
    END = 255
    """The log was closed."""


CHANGES = frozenset({Kind.WRITE, Kind.DISCARD, Kind.ZERO})
"""Kinds of requests that change the content of a member."""
_KINDS = {kind.value: kind for kind in Kind}


class Flag(IntFlag):
    """A property of a record in a write log."""

    FUA = 1
    LIED = 2
    """The disk acknowledged a FLUSH or FUA without making all its data durable."""
    IN_FLIGHT = 4
    """The request was in flight at a power cut: the disk did not answer it, and it did not take effect."""
    NO_DATA = 8
    """The data of the write is not in the log."""
    ZEROES = 16
    """The data of the write is only zeroes, and is not in the file; the reader returns zeroes."""


class MemberInfo(NamedTuple):
    """One member disk in the header of a write log."""

    serial: str
    size: int
    """Size in bytes."""
    mode: CacheMode
    """Cache mode when the log was opened."""
    first_mode: CacheMode
    """Initial cache mode, which a reset restores."""
    old: bool = False
    """Whether regions that were never written read as `sparse_image.OLD_DATA` when the log was opened."""


_WINDOW = 1 << 16
"""Number of bytes that are read at a time in search of the next records."""
_FLAGS = tuple(map(Flag, range(256)))
_ZEROES = int(Flag.ZEROES)
_BLANK = bytes(4096)


class Stored(NamedTuple):
    """Data in the file of a write log, which is read from the file whenever it is needed."""

    log: "WriteLog"
    at: int
    """Offset in the file in bytes."""
    size: int
    """Number of bytes."""

    def read(self) -> bytes:
        """Return the data."""
        return self.log.read(self.at, self.size)

    def part(self, start: int, end: int) -> "Stored":
        """Return a part of the data, which is not read yet."""
        return Stored(self.log, self.at + start, end - start)


class Joined(NamedTuple):
    """Data in several pieces of equal size, which are read whenever they are needed."""

    pieces: Sequence[bytes | Stored]
    each: int
    """Size of a piece in bytes."""
    size: int
    """Number of bytes; the last piece may be cut off."""

    def read(self) -> bytes:
        """Return the data."""
        return b"".join(map(data_of, self.pieces))[: self.size]

    def part(self, start: int, end: int) -> bytes | Stored:
        """Return a part of the data; it is not read if it is one piece."""
        first, last = start // self.each, -(-end // self.each)
        if start == first * self.each and end == last * self.each == start + self.each:
            return self.pieces[first]
        return b"".join(map(data_of, self.pieces[first:last]))[start - first * self.each :][: end - start]


def data_of(data: bytes | Stored) -> bytes:
    """Return data that is in memory, or in the file of a write log."""
    return data.read() if isinstance(data, Stored) else data


class Record(NamedTuple):
    """One record of a write log: a request to a member, or an event."""

    sequence: int
    """Index of the record in the log."""
    kind: Kind
    flags: Flag
    member: int
    """Index of the member in `WriteLog.members`, or `ALL_MEMBERS`."""
    offset: int
    """First byte of the request on the member."""
    length: int
    """Number of bytes of the request."""
    issued_ns: int
    """Arrival of the request at the engine (CLOCK_MONOTONIC)."""
    completed_ns: int
    """Instant at which the request took effect (CLOCK_MONOTONIC); 0 for a request in flight at a power cut."""
    source: Stored | Joined | bytes | None
    """The data of the record, or where it is; None: zeroes, which are not in the file."""

    @property
    def data(self) -> bytes:
        """Data of the record, read from the file."""
        if self.source is None:
            return bytes(self.length)
        return self.source if isinstance(self.source, bytes) else self.source.read()

    def part(self, start: int, end: int) -> bytes | Stored:
        """Return a part of the data, by offsets in the data; what is in the file is not read yet."""
        if self.source is None:
            # Whole blocks of zeroes share one object.
            return _BLANK[: end - start] if end - start <= len(_BLANK) else bytes(end - start)
        return self.source[start:end] if isinstance(self.source, bytes) else self.source.part(start, end)


class LogWriter:
    """Creates a write log and appends records.

    The process does not buffer records: a record survives if SIGKILL ends the process.

    Raises:
        OSError: the file exists, or cannot be written.
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
        """Append a WRITE record; ``times``: (issued, completed) in ns.

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
        """Append a record of another kind than WRITE; ``span``: (offset, length); ``times``: (issued, completed), ns.

        Raises:
            OSError: the file cannot be written.
        """
        self._put(_RECORD.pack(kind, flags, member, len(data), *span, *times), data)

    def close(self, now_ns: int) -> None:
        """Append an END record and close the file.

        Raises:
            OSError: the END record cannot be written; the file is closed nevertheless.
        """
        try:
            self._append(_RECORD.pack(Kind.END, 0, ALL_MEMBERS, 0, 0, 0, now_ns, now_ns), b"")
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file without an END record."""
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
        """Drop the log's old pages from the page cache, in a thread of its own, so that no request waits.

        The log is not read soon, and its pages take memory from the guests. Allocating a page of memory takes up to
        five times as long as filling the page.
        """
        while (end := self._written.get()) is not None:
            os.posix_fadvise(self._fd, max(0, end - 8 * _DROP), 8 * _DROP, os.POSIX_FADV_DONTNEED)


@contextmanager
def new_log(path: Path, members: Sequence[MemberInfo], *, blank: bool = True) -> Iterator[LogWriter]:
    """Create a write log; the end of the context adds the END record, unless an exception ends the context.

    ``blank``: whether the log shall state that its disks were blank when it began.

    Raises:
        OSError: the file exists, or cannot be written.
    """
    log = LogWriter(path, members, 0, blank=blank)
    try:
        yield log
        log.close(0)
    except BaseException:
        log.abandon()
        raise


@dataclass(frozen=True)
class Ending:
    """The end of a write log, as a reader found it."""

    complete: bool
    """Whether the log ends with an END record; False if the engine was killed."""
    records: int
    """Number of complete records, without END."""
    lost_bytes: int
    """Bytes of an incomplete record at the end of the file."""


class WriteLog:
    """A write log that is open for reading; iterate over its records, then read ``ending``.

    Raises:
        LogError: the file is not a write log, or has a version that this program cannot read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            self._file = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._file)
        self._size = os.fstat(self._file).st_size
        if self._size < _HEADER.size:
            raise LogError(f"{path}: too short for a write log: {self._size} bytes, the header has {_HEADER.size}")
        magic, version, flags, self.opened_ns, text_size = _HEADER.unpack(self.read(0, _HEADER.size))
        if magic != MAGIC:
            raise LogError(f"{path}: not a write log")
        if not 1 <= version <= VERSION:
            raise LogError(f"{path}: the write log has version {version}; this program reads versions 1 to {VERSION}")
        self.with_data = bool(flags & _WITH_DATA)
        self.blank = bool(flags & _WAS_BLANK)
        self._start = _HEADER.size + text_size
        if self._start > self._size:
            raise LogError(f"{path}: the header is cut off: {self._size} bytes instead of {self._start}")
        self.members = _members(path, self.read(_HEADER.size, text_size))
        self.ending: Ending | None = None

    def read(self, at: int, size: int) -> bytes:
        """Return bytes of the file. Thread-safe.

        Raises:
            LogError: the file has become shorter since it was opened.
        """
        data = os.pread(self._file, size, at)
        if len(data) < size:
            raise LogError(f"{self.path}: the write log was truncated while it was read: {size} bytes at byte {at}")
        return data

    def require_content(self, *, blank: bool = True) -> None:
        """Check that the content of the disks can be computed from the log.

        ``blank``: the disks must have been blank when the log began; False: their content is known otherwise.

        Raises:
            LogError: the log has no data, or its disks were not blank when it began.
        """
        if not self.with_data:
            raise LogError(f"{self.path}: the write log has no data, only the times and sizes of requests")
        if blank and not self.blank:
            raise LogError(f"{self.path}: the disks were not blank when the write log began: their content is unknown")

    def number(self, serial: str) -> int:
        """Return the index of a member in ``members``, which is its number in the records.

        Raises:
            LogError: no member of the log has this serial number.
        """
        for index, member in enumerate(self.members):
            if member.serial == serial:
                return index
        members = ", ".join(member.serial for member in self.members)
        raise LogError(f"{self.path}: no member has serial number {serial!r}; members: {members}")

    def __iter__(self) -> Iterator[Record]:
        """Yield the records in order, then set ``ending``.

        Raises:
            LogError: a record is invalid: the file is damaged. A truncated file raises no error.
        """
        at, count = self._start, 0
        begin, window = 0, b""
        while at + _RECORD.size <= self._size:
            if at + _RECORD.size > begin + len(window):
                begin, window = at, self.read(at, min(_WINDOW, self._size - at))
            kind, flags, member, size, offset, length, issued_ns, completed_ns = _RECORD.unpack_from(
                window, at - begin
            )
            if kind not in _KINDS or not (member < len(self.members) or member == ALL_MEMBERS):
                raise LogError(f"{self.path}: the write log is damaged at byte {at}, after {count} records")
            end = at + _RECORD.size + size
            if end > self._size:
                break
            if kind == Kind.END.value:
                self.ending = Ending(True, count, self._size - end)
                return
            source = None if flags & _ZEROES else Stored(self, at + _RECORD.size, size)
            yield Record(count, _KINDS[kind], _FLAGS[flags], member, offset, length, issued_ns, completed_ns, source)
            at, count = end, count + 1
        self.ending = Ending(False, count, self._size - at)


class Records(Sequence[Record]):
    """Records in order, as columns of 56 bytes for each record, without the data that are in a write log's file.

    A record is made whenever it is read. Who needs one field of many records reads its column.
    """

    def __init__(self, log: WriteLog, records: Iterable[Record] = ()) -> None:
        """``log``: the write log of all records whose data are in a file."""
        self._log = log
        self._sequences = array("q")
        self._places = array("q")
        """Offset in the file of the data of each record; -1: the record's source is in ``_sources``."""
        self._sources: dict[int, Joined | bytes | None] = {}
        self._sizes = array("I")
        self._offsets = array("Q")
        self.kinds = bytearray()
        self.flags = bytearray()
        self.members = array("H")
        self.lengths = array("Q")
        """Numbers of bytes of the requests."""
        self.issued_ns = array("Q")
        self.completed_ns = array("Q")
        for record in records:
            self.append(record)

    def append(self, record: Record) -> None:
        """Append a record."""
        if isinstance(record.source, Stored):
            self._places.append(record.source.at)
            self._sizes.append(record.source.size)
        else:
            self._sources[len(self)] = record.source
            self._places.append(-1)
            self._sizes.append(0)
        self.kinds.append(record.kind)
        self.flags.append(record.flags)
        self.members.append(record.member)
        self._sequences.append(record.sequence)
        self._offsets.append(record.offset)
        self.lengths.append(record.length)
        self.issued_ns.append(record.issued_ns)
        self.completed_ns.append(record.completed_ns)

    def __len__(self) -> int:
        return len(self.kinds)

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...

    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        kind, at = self.kinds[index], self._places[index]
        return Record(
            self._sequences[index],
            _KINDS[kind],
            _FLAGS[self.flags[index]],
            self.members[index],
            self._offsets[index],
            self.lengths[index],
            self.issued_ns[index],
            self.completed_ns[index],
            Stored(self._log, at, self._sizes[index]) if at >= 0 else self._sources[index % len(self)],
        )


def pack_kept(sequences: Sequence[int]) -> bytes:
    """Return the data of a lying FLUSH record: the sequence numbers of the requests that the flush made durable."""
    logged = [one for one in sequences if one >= 0]
    return struct.pack(f"<{len(logged)}Q", *logged)


def kept_by(flush: Record) -> tuple[int, ...]:
    """Return the sequence numbers of the requests that a lying FLUSH made durable."""
    return struct.unpack(f"<{len(flush.data) // 8}Q", flush.data)


def _zeroes(data: Buffer) -> bool:
    """Return whether data is only zeroes; a new file system writes many zeroes to its log."""
    # Most data begins or ends with a byte that is not zero, so that the full comparison is rare.
    return not data[0] and not data[-1] and bytes(data) == bytes(len(data))


def _members(path: Path, text: bytes) -> tuple[MemberInfo, ...]:
    try:
        return tuple(
            MemberInfo(m["serial"], m["size"], CacheMode(m["mode"]), CacheMode(m["first_mode"]), m.get("old", False))
            for m in json.loads(text)
        )
    except (ValueError, KeyError, TypeError) as error:
        raise LogError(f"{path}: the list of members in the header is damaged: {error}") from error
