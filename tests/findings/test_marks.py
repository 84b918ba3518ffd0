"""The writes to an array whose regions have no mark are found in a write log of made-up requests."""

import struct
from pathlib import Path

import pytest

from raidproof.crash.states import Recording
from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import Kind, LogWriter, MemberInfo, WriteLog
from raidproof.storage.array.striping import ROW, Striping
from raidproof.storage.array.superblock import OFFSET, Feature
from scenarios.crash.marks import writes
from tests.crash.md_members import packed, superblock

DATA, BITMAP, REGION = 16384, 8192, 8192
SIZE = 1 << 18
STRIPING = Striping(level=5, layout=2, chunk_size=ROW, members=3, size=16 * ROW)


def bitmap(*marked: int) -> bytes:
    """Return the page of a bitmap with the bits of these regions set."""
    head = struct.pack("<II16sQQQIII", 0x6D746962, 4, b"a" * 16, 7, 7, STRIPING.size // 512, 0, REGION, 5)
    bits = sum(1 << region for region in marked)
    return head.ljust(256, b"\0") + bits.to_bytes(256, "little")


class Log:
    """A write log in which each request takes effect before the next is issued."""

    def __init__(self, path: Path) -> None:
        infos = [MemberInfo(f"disk{one}", SIZE, CacheMode.VOLATILE, CacheMode.VOLATILE) for one in range(3)]
        self._path, self._writer, self._now = path, LogWriter(path, infos, 0), 0

    def _times(self) -> tuple[int, int]:
        self._now += 1000
        return self._now - 500, self._now

    def write(self, member: int, offset: int, data: bytes) -> None:
        self._writer.write(0, member, offset, self._times(), data)

    def flush(self, member: int) -> None:
        self._writer.note(Kind.FLUSH, 0, member, (0, 0), self._times())

    def recording(self) -> Recording:
        self._writer.close(self._now + 1000)
        return Recording(WriteLog(self._path))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Return a log in which the array has its superblocks and an empty bitmap, both durable."""
    made = Log(tmp_path / "write.log")
    for member in range(3):
        changes = {"features": Feature.BITMAP, "bitmap_offset": BITMAP, "data_offset": DATA}
        made.write(member, OFFSET, packed(superblock(STRIPING, member, **changes)))
        made.write(member, BITMAP, bitmap())
        made.flush(member)
    return made


FIRST = 9
"""Number of the first request after those of the fixture ``log``."""


@pytest.mark.parametrize(
    ("marked_on", "flushed_on", "early"),
    [
        ((0, 1, 2), (0, 1, 2), False),
        ((0, 1), (0, 1), True),
        # The mark is only in the volatile cache of the last member.
        ((0, 1, 2), (0, 1), True),
        ((), (), True),
    ],
)
def test_a_write_is_early_unless_its_mark_is_durable_on_all_members(
    log: Log, marked_on: tuple[int, ...], flushed_on: tuple[int, ...], early: bool
) -> None:
    for member in marked_on:
        log.write(member, BITMAP, bitmap(1))
    for member in flushed_on:
        log.flush(member)
    log.write(0, DATA + REGION, b"x" * ROW)
    (row,) = writes(log.recording(), FIRST).items()
    assert row == (REGION // ROW, [(FIRST + len(marked_on) + len(flushed_on), early)])


def test_the_mark_of_another_region_does_not_count(log: Log) -> None:
    for member in range(3):
        log.write(member, BITMAP, bitmap(1))
        log.flush(member)
    log.write(0, DATA, b"x" * ROW)
    assert [early for _, early in writes(log.recording(), FIRST)[0]] == [True]
