"""The write log: what every member was asked to change, in the order in which it took effect, on one clock.

File format, all numbers little-endian:

    header   8s magic "RPWRLOG\\0" | u32 version | u32 flags | u64 opened_ns | u32 length of the text | text
             flags: 1 data is included, 2 every member was blank when the log was opened
             text: JSON list of {"serial", "size", "mode", "first_mode", "old"}, the members in the order of their
             numbers; "old": where nothing was written it reads as old data (`platter.OLD_DATA`), not as zeroes
             version 1, where no member is old, or 2
    record   u8 kind | u8 flags | u16 member | u32 data length | u64 offset | u64 length | u64 issued_ns
             | u64 completed_ns | data

A record is appended when its request completes, so the order of records is the order in which requests took effect,
and a record's place is its sequence number. What was in flight is told by ``issued_ns``: at time t a request is in
flight if issued_ns <= t < completed_ns. A request that a power cut caught unanswered has the flag IN_FLIGHT and 0 for
``completed_ns``: it never took effect. A write of nothing but zeroes has the flag ZEROES and no data. All times are
CLOCK_MONOTONIC in nanoseconds. A FLUSH with the flag LIED may have data: the sequence numbers, u64 each, of the only
requests that it made durable. Events that concern all members have member 0xFFFF and carry JSON (or a text) as data.
A log that was closed properly ends with a record END.
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
"""Of a log that a reader of version 1 would take for one of disks that began with zeroes."""
ALL_MEMBERS = 0xFFFF

_HEADER = struct.Struct("<8sIIQI")
_RECORD = struct.Struct("<BBHIQQQQ")
_WITH_DATA = 1
_WAS_BLANK = 2
_DROP = 16 << 20  # bytes of log after which what was written before is sent to the disk and leaves the memory


class LogError(RigError):
    """A write log cannot be written, or is not one that this version reads."""


class Kind(IntEnum):
    """What a record tells."""

    WRITE = 1
    FLUSH = 2
    DISCARD = 3
    ZERO = 4
    MODE = 16
    """A member's cache mode changed; data: the mode's name."""
    FREEZE = 17
    """From this instant no request was served: the power cut."""
    RESOLVE = 18
    """What the cut left was decided; data: JSON with ``policy`` and ``seed``."""
    POWER_ON = 19
    RESET = 20
    """All members were made blank, in the modes they began with; data: JSON list of those that are old (none: b"")."""
    MARK = 21
    """Somebody marked this instant; data: the text."""
    SWAP = 22
    """Two members exchanged all that they hold; data: their numbers."""
    END = 255


_KINDS = {kind.value: kind for kind in Kind}


class Flag(IntFlag):
    """What is special about a record."""

    FUA = 1
    LIED = 2
    """The disk acknowledged a FLUSH or FUA and kept nothing, or a FLUSH and kept a part."""
    IN_FLIGHT = 4
    """The request was never answered and never took effect: the power went away."""
    NO_DATA = 8
    """A write whose data the log leaves out."""
    ZEROES = 16
    """A write of nothing but zeroes: not in the file, but the reader gives them."""


class MemberInfo(NamedTuple):
    """One member as the log's header describes it."""

    serial: str
    size: int
    mode: CacheMode
    """When the log was opened."""
    first_mode: CacheMode
    """After a reset."""
    old: bool = False
    """When the log was opened: whether it reads as old data where nothing was written."""


class Record(NamedTuple):
    """One entry of a log. ``data`` is a view of the file: valid while the log is open."""

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
    """Appends records, each by one system call, so that a killed process loses none that was acknowledged.

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
            OSError: the file cannot take it.
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
            OSError: the file cannot take it.
        """
        self._put(_RECORD.pack(kind, flags, member, len(data), *span, *times), data)

    def close(self, now_ns: int) -> None:
        """Append END and close the file.

        Raises:
            OSError: the file cannot take it; it is closed all the same.
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
        """Send what was written to the disk and out of the memory, beside the requests that wait for no disk.

        Nobody reads the log soon. Kept, each page of it is fresh memory, taken from the guests too, and getting one
        costs up to five times as much as filling it.
        """
        while (end := self._written.get()) is not None:
            os.posix_fadvise(self._fd, max(0, end - 8 * _DROP), 8 * _DROP, os.POSIX_FADV_DONTNEED)


@dataclass(frozen=True)
class Ending:
    """How a log ends: ``complete`` is false after a run that was killed."""

    complete: bool
    records: int
    lost_bytes: int
    """Bytes of an unfinished last record."""


class WriteLog:
    """A log opened for reading: iterate over it for its records, then ask ``ending``.

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
        """Return the number that a member has in the records.

        Raises:
            LogError: the log has no such member.
        """
        for index, member in enumerate(self.members):
            if member.serial == serial:
                return index
        raise LogError(f"{self.path}: no member {serial!r}, it has {', '.join(m.serial for m in self.members)}")

    def __iter__(self) -> Iterator[Record]:
        """Yield the records in order; afterwards ``ending`` says whether the log is whole.

        Raises:
            LogError: a record makes no sense: the file is damaged, not just cut off.
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
    """Write what a FLUSH that is a lie made durable all the same: the sequence numbers of requests."""
    logged = [one for one in sequences if one >= 0]
    return struct.pack(f"<{len(logged)}Q", *logged)


def kept_by(flush: Record) -> tuple[int, ...]:
    """Return what `pack_kept` wrote."""
    return struct.unpack(f"<{len(flush.data) // 8}Q", flush.data)


def _zeroes(data: Buffer) -> bool:
    """Whether there is nothing else, as in a new file system's log: much of what a short run writes."""
    # Most data shows at its ends that it is something else; only the rest is worth a copy.
    return not data[0] and not data[-1] and bytes(data) == bytes(len(data))


def _members(path: Path, text: bytes) -> tuple[MemberInfo, ...]:
    try:
        return tuple(
            MemberInfo(m["serial"], m["size"], CacheMode(m["mode"]), CacheMode(m["first_mode"]), m.get("old", False))
            for m in json.loads(text)
        )
    except (ValueError, KeyError, TypeError) as error:
        raise LogError(f"{path}: the list of members is damaged") from error
