"""The predicate for md's early commit block, on requests that were recorded with kernels of both kinds."""

import csv
import struct
from pathlib import Path

import pytest

from findings.flush_order import LONG_NS, FlushOrder, flush_order, is_barrier
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
                memoryview(bytes.fromhex(row["beginning"])),
            )
            for number, row in enumerate(csv.DictReader(file))
        ]


def request(kind: Kind, member: int, issued_ms: float, ended_ms: float, data: bytes = b"") -> Record:
    times = int(issued_ms * 1e6), int(ended_ms * 1e6)
    return Record(0, kind, Flag(0), member, 1 << 21, len(data), *times, memoryview(data))


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


def test_a_short_flush_shows_nothing() -> None:
    waited = [request(Kind.FLUSH, 3, 0, LONG_NS / 2e6), request(Kind.WRITE, 1, 20, 21, COMMIT)]
    assert flush_order(waited) == FlushOrder(barriers=0, early=0)


def test_copies_of_one_commit_block_are_one_barrier() -> None:
    flush = request(Kind.FLUSH, 3, 0, 20)
    copies = [request(Kind.WRITE, member, 1 + member, 4, COMMIT) for member in (0, 1)]
    assert flush_order([flush, *copies]) == FlushOrder(barriers=1, early=1)
    caught = flush._replace(flags=Flag.IN_FLIGHT)
    assert flush_order([caught, *copies]) == FlushOrder(barriers=0, early=0)
