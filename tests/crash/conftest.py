"""Write logs as the engine writes them, made up."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from raidproof.crash.states import Recording
from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import ALL_MEMBERS, Flag, Kind, LogWriter, MemberInfo, WriteLog

SIZE = 1 << 18


class Did(NamedTuple):
    """One request of a made-up log; what one byte says fills a write."""

    kind: Kind
    member: int = 0
    offset: int = 0
    length: int = 4096
    byte: int = 1
    flags: int = 0
    took: int = 0
    """How many requests complete between its issue and its completion."""
    mode: CacheMode | None = None
    """Which a change of mode names."""


def write_log(
    path: Path,
    done: Sequence[Did],
    members: int = 2,
    mode: CacheMode = CacheMode.VOLATILE,
    *,
    blank: bool = True,
) -> WriteLog:
    """Write a log whose requests complete at 1000, 2000, ... ns."""
    infos = [MemberInfo(f"disk{number}", SIZE, mode, mode) for number in range(members)]
    log = LogWriter(path, infos, 0, blank=blank)
    for place, one in enumerate(done, 1):
        at = place * 1000
        times = (at - 500 - 1000 * one.took, 0 if one.flags & Flag.IN_FLIGHT else at)
        if one.kind is Kind.WRITE:
            log.write(one.flags, one.member, one.offset, times, bytes([one.byte]) * one.length)
        elif one.kind in (Kind.ZERO, Kind.DISCARD):
            log.note(one.kind, one.flags, one.member, (one.offset, one.length), times)
        elif one.kind is Kind.MODE and one.mode is not None:
            log.note(one.kind, 0, one.member, (0, 0), times, data=one.mode.value.encode())
        elif one.kind is Kind.FLUSH:
            log.note(one.kind, one.flags, one.member, (0, 0), times)
        else:
            log.note(one.kind, 0, ALL_MEMBERS, (0, 0), times)
    log.close(len(done) * 1000 + 1000)
    return WriteLog(path)


Record = Callable[..., Recording]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Make a recording of made-up requests."""

    def make(*done: Did, members: int = 2, mode: CacheMode = CacheMode.VOLATILE) -> Recording:
        return Recording(write_log(tmp_path / "write.log", done, members, mode))

    return make
