"""The predicate for md's early commit block, on requests that were recorded with kernels of both kinds."""

import csv
import struct
from pathlib import Path

import pytest

from findings.flush_order import FlushOrder, flush_order, is_barrier
from raidproof.disk.writelog import Flag, Kind, Record

DATA = Path(__file__).parents[1] / "data" / "findings"
COMMIT = struct.pack(">III", 0xC03B3998, 2, 7)
DESCRIPTOR = struct.pack(">III", 0xC03B3998, 1, 7)


def recorded(release: str) -> list[Record]:
    """Return 200 requests of `dd oflag=dsync` on ext4 on RAID5 of 4 with a slow disk3; a write has its first bytes."""
    with (DATA / f"ext4-{release}.csv").open() as file:
        return [
            Record(
                number,
                Kind[row["kind"]],
                Flag(0),
                int(row["member"]),
                int(row["offset"]),
                int(row["length"]),
                int(row["issued_ns"]),
                int(row["completed_ns"]),
                bytes.fromhex(row["beginning"]),
            )
            for number, row in enumerate(csv.DictReader(file))
        ]


def request(kind: Kind, member: int, issued_ms: float, ended_ms: float, data: bytes = b"") -> Record:
    times = int(issued_ms * 1e6), int(ended_ms * 1e6)
    return Record(0, kind, Flag(0), member, 1 << 21, len(data), *times, data)


def test_a_kernel_that_waits_is_not_affected() -> None:
    assert flush_order(recorded("6.1.176")) == FlushOrder(barriers=16, early=0)


def test_a_kernel_that_does_not_wait_is_affected() -> None:
    found = flush_order(recorded("6.12.101"))
    assert found.early > found.barriers / 3
    assert str(found).startswith(f"{found.early} of {found.barriers} barrier writes")


def test_a_flush_that_ends_later_makes_a_right_order_wrong() -> None:
    right = recorded("6.1.176")
    commits = [one for one in right if is_barrier(one.data)]
    flush = max(one for one in right if one.kind is Kind.FLUSH and one.issued_ns < commits[-1].issued_ns)
    later = flush._replace(completed_ns=commits[-1].issued_ns + 1)
    assert flush_order([later if one is flush else one for one in right]).early == 1


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (COMMIT, True),
        (DESCRIPTOR, False),
        (bytes(4096) + COMMIT, True),
        (bytes(512) + COMMIT, False),
        (struct.pack(">III", 0xFEEDBABE, 1, 2), True),
        (b"", False),
    ],
)
def test_a_barrier_write_is_known_by_its_content(data: bytes, expected: bool) -> None:
    assert is_barrier(data) is expected


DATA_OF = {member: request(Kind.WRITE, member, 0, 1, b"data") for member in (0, 1)}
COPIES = [request(Kind.WRITE, member, 5 + member, 8, COMMIT) for member in (0, 1)]


def flushes(begun_ms: float, ended_ms: float, *members: int) -> list[Record]:
    return [request(Kind.FLUSH, member, begun_ms, ended_ms) for member in members]


@pytest.mark.parametrize(
    ("between", "early"),
    [
        (flushes(2, 4, 0, 1), 0),
        (flushes(2, 4, 0), 1),  # the other member was not flushed
        (flushes(9, 10, 0, 1), 1),  # the flushes begin after the commit block, as on RAID1
        (flushes(2, 7, 0, 1), 1),  # the flushes are open
        (flushes(0.5, 0.9, 0, 1), 1),  # the flushes begin before the data are written
        ([], 1),
    ],
)
def test_a_barrier_write_must_wait_for_a_flush_of_each_member(between: list[Record], early: int) -> None:
    found = flush_order([*DATA_OF.values(), *between, *COPIES])
    assert found == FlushOrder(barriers=1, early=early)


def test_without_a_write_before_nothing_must_be_flushed() -> None:
    assert flush_order(COPIES) == FlushOrder(barriers=0, early=0)
    assert flush_order([*DATA_OF.values(), *flushes(2, 4, 0, 1), *COPIES, *COPIES]).barriers == 1


def test_what_was_in_flight_at_a_power_cut_does_not_count() -> None:
    caught = [one._replace(flags=Flag.IN_FLIGHT) for one in DATA_OF.values()]
    assert flush_order([*caught, *COPIES]) == FlushOrder(barriers=0, early=0)


def test_the_metadata_of_md_is_no_write_of_the_file_system() -> None:
    superblock = DATA_OF[0]._replace(offset=4096)
    assert flush_order([superblock, *COPIES]) == FlushOrder(barriers=0, early=0)
