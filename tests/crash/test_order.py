"""Barrier writes that survive without an earlier write."""

import pytest

from raidproof.crash.order import BARRIERS, broken_order
from raidproof.disk.writelog import Flag, Kind
from tests.crash.conftest import Did, Record

DATA, FLUSH = Did(Kind.WRITE, 0, 4096), Did(Kind.FLUSH, 0)
COMMIT = Did(Kind.WRITE, 1, 8192, 8192, byte=7)


@pytest.fixture(autouse=True)
def barriers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each write that contains 7 be a barrier write."""
    monkeypatch.setattr("raidproof.crash.order.BARRIERS", {"commit": rb"\x07"})


def test_each_file_system_with_a_journal_names_its_barrier_writes() -> None:
    assert {"XFS log record", "ext4 journal commit block"} <= BARRIERS.keys()


def test_a_barrier_write_that_survived_without_an_earlier_write_is_found(record: Record) -> None:
    found = broken_order(record(DATA, Did(Kind.WRITE, 1, 0), COMMIT, FLUSH), [0], 4)
    assert found is not None
    assert (found.barrier.request, found.barrier.structure, found.lost.request) == (2, "commit", 0)
    assert not found.barrier.torn
    assert not found.lost.torn


@pytest.mark.parametrize(
    ("absent", "cut"),
    [
        ([0, 2], 4),  # the barrier write is lost, too
        ([1], 2),  # the barrier write was issued after the cut
        ([3], 4),  # the lost write came after the barrier write
        ([], 4),
    ],
)
def test_no_order_is_broken(record: Record, absent: list[int], cut: int) -> None:
    recording = record(DATA, Did(Kind.WRITE, 1, 0), COMMIT, Did(Kind.WRITE, 0, 0))
    assert broken_order(recording, absent, cut) is None


def test_a_write_that_ended_after_the_barrier_write_began_may_be_lost(record: Record) -> None:
    recording = record(Did(Kind.WRITE, 1, 0), COMMIT, DATA._replace(took=2))
    assert broken_order(recording, [2], 3) is None


def test_a_write_in_flight_at_the_cut_may_be_lost(record: Record) -> None:
    recording = record(Did(Kind.WRITE, 1, 0), COMMIT, Did(Kind.FREEZE), DATA._replace(flags=int(Flag.IN_FLIGHT)))
    assert broken_order(recording, [2], 2) is None
