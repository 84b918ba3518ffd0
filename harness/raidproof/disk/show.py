"""What a write log changes on members that are there already: read and checked as a whole before anything is done."""

from collections.abc import Sequence
from pathlib import Path

from raidproof.disk.cache import Member
from raidproof.disk.writelog import Flag, Kind, LogError, Record, WriteLog

_CHANGES = {Kind.WRITE, Kind.ZERO, Kind.DISCARD}


class Change:
    """What a write log asks of members, each of its requests that took effect, in order.

    Raises:
        LogError: it is no whole write log with data, belongs to other members, or reaches beyond one's end.
    """

    def __init__(self, path: Path, members: Sequence[Member]) -> None:
        try:
            log = WriteLog(path)
        except OSError as error:
            raise LogError(f"cannot read {path}: {error.strerror}") from error
        if not log.with_data:
            raise LogError(f"{path}: written without data, there is nothing to show")
        theirs, ours = [(m.serial, m.size) for m in log.members], [(m.serial, m.size) for m in members]
        if theirs != ours:
            raise LogError(f"{path}: a log of {_listed(theirs)}; here are {_listed(ours)}")
        self._members = members
        self._records: list[Record] = [
            record for record in log if record.kind in _CHANGES and not record.flags & Flag.IN_FLIGHT
        ]
        if log.ending is None or not log.ending.complete:
            raise LogError(f"{path}: the log has no end")
        for record in self._records:
            if record.member >= len(members) or record.offset + record.length > members[record.member].size:
                raise LogError(f"{path}: record {record.sequence} reaches beyond the end of its member")

    def apply(self) -> None:
        """Do all of it, as requests that no flush has covered."""
        for record in self._records:
            member = self._members[record.member]
            if record.kind is Kind.WRITE:
                member.write(record.data, record.offset)
            else:
                member.zero(record.offset, record.length)


def _listed(members: list[tuple[str, int]]) -> str:
    return ", ".join(f"{serial} ({size} bytes)" for serial, size in members) or "nothing"
