"""What a write log says the disks held: its records repeated on fresh members."""

import json
from collections.abc import Callable
from typing import TypeAlias

from raidproof.disk.cache import CacheMode, CutPolicy, Member
from raidproof.disk.drive import cut
from raidproof.disk.writelog import Flag, Kind, LogError, Record, WriteLog, kept_by

_Handler: TypeAlias = Callable[[list[Member], Record], None]
_CHANGES = frozenset({Kind.WRITE, Kind.DISCARD, Kind.ZERO})


def replay(log: WriteLog, until_ns: int | None = None) -> dict[str, Member]:
    """Return the members of a log as they were after every request completed by ``until_ns`` (default: its end).

    Raises:
        LogError: the log has no data, or the disks were not blank when it began.
    """
    if not log.with_data:
        raise LogError(f"{log.path}: written without data, it shows times only")
    if not log.blank:
        raise LogError(f"{log.path}: begun on disks that were not blank, nothing says what they held")
    members = [Member(info.serial, info.size, info.mode, old=info.old) for info in log.members]
    numbers: dict[int, int] = {}
    for record in log:
        if until_ns is not None and record.completed_ns > until_ns:
            break
        if record.flags & Flag.IN_FLIGHT:
            continue
        if record.kind is Kind.RESET:
            _reset(members, log, record)
        elif record.kind is Kind.FLUSH:
            kept = [numbers[sequence] for sequence in kept_by(record)]
            members[record.member].flush(lied=bool(record.flags & Flag.LIED), kept=kept)
        elif handler := _HANDLERS.get(record.kind):
            if record.kind in _CHANGES:
                numbers[record.sequence] = members[record.member].acknowledged
            handler(members, record)
    return {member.serial: member for member in members}


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
    decision = json.loads(bytes(record.data))
    for member in members:
        cut(member, CutPolicy(decision["policy"]), decision["seed"])


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
