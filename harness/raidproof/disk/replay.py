"""Replays of a write log: to member disks, and to a log in the format of the kernel's dm-log-writes target."""

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeAlias

from raidproof.disk.cache import CacheMode, CutPolicy, Member
from raidproof.disk.connection import choices, cut
from raidproof.disk.sparse_image import SparseImage
from raidproof.disk.writelog import ALL_MEMBERS, CHANGES, Flag, Kind, LogError, Record, WriteLog, kept_by

_Handler: TypeAlias = Callable[[list[Member], Record], None]

MAGIC = 0x6A736677736872
VERSION = 1
SECTOR = 512
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8
_SUPER = struct.Struct("<QQQI")
_ENTRY = struct.Struct("<QQQQ")
_LARGEST_DISCARD = 128 << 20  # bytes: replay-log skips longer discards on a device without discard support
_LARGEST_ZERO = 16 << 20
_LARGEST_OLD = 1 << 20
_ENDS = frozenset({Kind.FREEZE, Kind.RESET, Kind.SWAP})


def replay(log: WriteLog, until_ns: int | None = None) -> dict[str, Member]:
    """Return the members of a write log, by serial number, with all requests completed until ``until_ns`` applied.

    ``until_ns``: CLOCK_MONOTONIC, ns; None: the end of the log.

    Raises:
        LogError: the log has no data, or its disks were not blank when it began.
    """
    replayed = _Replayed(log)
    for record in log:
        if until_ns is not None and record.completed_ns > until_ns:
            break
        replayed.add(record)
    return {member.serial: member for member in replayed.members}


def cut_of(log: WriteLog) -> dict[str, dict[int, tuple[tuple[int, int], ...]]] | None:
    """Return the requests that the first power cut of a write log could lose, with their surviving regions.

    By serial number of the member, and by sequence number of the request; without regions the request was lost. None:
    the log has no power cut. If the disks had simulated service times, a flush may have covered fewer requests.

    Raises:
        LogError: the log has no data, or its disks were not blank when it began.
    """
    replayed = _Replayed(log)
    for record in log:
        if record.kind is Kind.RESOLVE:
            policy, seed = _decision(record)
            return {
                member.serial: {
                    replayed.sequences[place, number]: regions
                    for number, regions in member.survivors(policy, choices(member, seed))
                }
                for place, member in enumerate(replayed.members)
            }
        replayed.add(record)
    return None


class _Replayed:
    """The members of a write log after some of its records."""

    def __init__(self, log: WriteLog) -> None:
        log.require_content()
        self.log = log
        self.members = [Member(info.serial, info.size, info.mode, old=info.old) for info in log.members]
        self._numbers: dict[int, int] = {}
        """The value of `Member.acknowledged` before each request, by sequence number."""
        self.sequences: dict[tuple[int, int], int] = {}
        """The sequence number of the last request of a member with such a value."""

    def add(self, record: Record) -> None:
        """Apply the next record."""
        if record.flags & Flag.IN_FLIGHT:
            return
        members = self.members
        if record.kind is Kind.RESET:
            _reset(members, self.log, record)
        elif record.kind is Kind.FLUSH:
            kept = [self._numbers[sequence] for sequence in kept_by(record)]
            members[record.member].flush(lied=bool(record.flags & Flag.LIED), kept=kept)
        elif handler := _HANDLERS.get(record.kind):
            if record.kind in CHANGES:
                number = self._numbers[record.sequence] = members[record.member].acknowledged
                self.sequences[record.member, number] = record.sequence
            handler(members, record)


def _reset(members: list[Member], log: WriteLog, record: Record) -> None:
    old = json.loads(bytes(record.data) or b"[]")
    for member, info in zip(members, log.members, strict=True):
        member.mode = info.first_mode
        member.blank(old=member.serial in old)


def _write(members: list[Member], record: Record) -> None:
    members[record.member].write(record.data, record.offset, *_forced(record))


def _zero(members: list[Member], record: Record) -> None:
    members[record.member].zero(record.offset, record.length, *_forced(record))


def _forced(record: Record) -> tuple[bool, bool]:
    return bool(record.flags & Flag.FUA), bool(record.flags & Flag.LIED)


def _mode(members: list[Member], record: Record) -> None:
    members[record.member].mode = CacheMode(bytes(record.data).decode())


def _resolve(members: list[Member], record: Record) -> None:
    for member in members:
        cut(member, *_decision(record))


def _decision(record: Record) -> tuple[CutPolicy, int]:
    """Return the policy and the seed of a power cut."""
    decision = json.loads(bytes(record.data))
    return CutPolicy(decision["policy"]), decision["seed"]


def _power_on(members: list[Member], record: Record) -> None:  # noqa: ARG001  a handler's signature
    for member in members:
        member.power_on()


def _swap(members: list[Member], record: Record) -> None:
    one, other = map(int, bytes(record.data).split())
    members[one], members[other] = members[other], members[one]
    members[one].serial, members[other].serial = members[other].serial, members[one].serial


_HANDLERS: dict[Kind, _Handler] = {
    Kind.WRITE: _write,
    Kind.DISCARD: _zero,
    Kind.ZERO: _zero,
    Kind.MODE: _mode,
    Kind.RESOLVE: _resolve,
    Kind.POWER_ON: _power_on,
    Kind.SWAP: _swap,
}


def export_dm_log_writes(log: WriteLog, serial: str, path: Path) -> int:
    """Write the requests to one member as a log of dm-log-writes to ``path``; return the number of entries.

    The result ends at the first power cut, reset or exchange of disks. The order is that of dm-log-writes: a write
    appears when a flush has covered it, a FUA write when it completed. Unflushed writes that a FUA write overlaps
    appear before the FUA write, so that a replay gives the member's image. For a disk with old data, writes of the old
    data appear first.

    Raises:
        LogError: the log has no such member or no data, or a request does not consist of whole sectors.
    """
    if not log.with_data:
        raise LogError(f"{log.path}: the write log has no data, so that it cannot be exported")
    number, entries = log.number(serial), 0
    with path.open("wb") as file:
        file.seek(SECTOR)
        if log.members[number].old:
            entries += _append_old_data(file, log.members[number].size)
        for record in _ordered(log, number):
            entries += _append(file, log, record)
        file.truncate(file.tell())
        file.seek(0)
        file.write(_SUPER.pack(MAGIC, VERSION, entries, SECTOR).ljust(SECTOR, b"\0"))
    return entries


def _ordered(log: WriteLog, number: int) -> Iterator[Record]:
    waiting: list[Record] = []
    for record in log:
        if record.kind in _ENDS:
            break
        if record.member == ALL_MEMBERS and record.kind is Kind.MARK:
            yield record
        elif record.member != number:
            continue
        elif record.kind is Kind.FLUSH:
            yield from waiting
            waiting = []
            yield record
        elif record.kind in CHANGES and record.flags & Flag.FUA:
            beneath = [index for index, other in enumerate(waiting) if _overlap(other, record)]
            count = beneath[-1] + 1 if beneath else 0
            yield from waiting[:count]
            waiting = waiting[count:]
            yield record
        elif record.kind in CHANGES:
            waiting.append(record)
    yield from waiting


def _overlap(one: Record, other: Record) -> bool:
    return one.offset < other.offset + other.length and other.offset < one.offset + one.length


def _append(file: BinaryIO, log: WriteLog, record: Record) -> int:
    if (record.offset | record.length) % SECTOR:
        raise LogError(
            f"{log.path}: request {record.sequence} (offset {record.offset}, {record.length} bytes) "
            f"does not consist of whole sectors of {SECTOR} bytes"
        )
    fua = FUA if record.flags & Flag.FUA else 0
    if record.kind is Kind.MARK:
        text = bytes(record.data)[: SECTOR - _ENTRY.size - 1]
        file.write((_ENTRY.pack(0, 0, MARK, len(text)) + text).ljust(SECTOR, b"\0"))
        return 1
    if record.kind is Kind.FLUSH:
        _write_entry(file, 0, 0, FLUSH)
        return 1
    if record.kind is Kind.WRITE:
        _write_entry(file, record.offset, record.length, fua)
        file.write(record.data)
        return 1
    largest = _LARGEST_DISCARD if record.kind is Kind.DISCARD else _LARGEST_ZERO
    starts = range(record.offset, record.offset + record.length, largest)
    for start in starts:
        length = min(largest, record.offset + record.length - start)
        if record.kind is Kind.DISCARD:
            _write_entry(file, start, length, DISCARD | fua)
        else:
            _write_entry(file, start, length, fua)
            file.seek(length, 1)
    return len(starts)


def _append_old_data(file: BinaryIO, size: int) -> int:
    old = SparseImage(size, old=True)
    starts = range(0, size, _LARGEST_OLD)
    for start in starts:
        length = min(_LARGEST_OLD, size - start)
        _write_entry(file, start, length, 0)
        file.write(old.content(start, length))
    return len(starts)


def _write_entry(file: BinaryIO, offset: int, length: int, flags: int) -> None:
    file.write(_ENTRY.pack(offset // SECTOR, length // SECTOR, flags, 0).ljust(SECTOR, b"\0"))
