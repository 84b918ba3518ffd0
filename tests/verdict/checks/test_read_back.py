"""A client that reads its own cache is found out."""

from typing import Any

import pytest

from raidproof.guest.ledger_format import BLOCK
from raidproof.record.observation import ReadBack
from raidproof.record.outcome import Outcome
from raidproof.verdict.checks.read_back import Least, judge_read_back, least_of
from raidproof.workload.history import PieceSpec, WorkerSpec

FOUND: dict[str, Any] = {
    "client1-0-fsync@0": {"blocks": [3, 2, 0, 1], "names": ["client1-0-fsync"]},
    "shared@0": {"blocks": [1, 0], "names": ["shared"]},
    "shared@256": {"blocks": [2, 0], "names": ["shared"]},
    "client1-3-close": {"blocks": [1, 0, 1, -3], "names": ["f0", "f2", "f3"]},
    "client1-4-metadata": {"d0": [0o40755, 6, 2, None], "d0/c": [0o100640, 10, 1, "+"]},
}
NEEDED = Least(7 * BLOCK, 4)


def test_only_blocks_that_hold_something_count_and_each_file_once() -> None:
    assert least_of(FOUND) == NEEDED


@pytest.mark.parametrize(
    ("fetched", "calls", "outcome"),
    [
        (NEEDED.bytes, NEEDED.calls, Outcome.PASS),
        (1 << 20, 100, Outcome.PASS),
        (NEEDED.bytes - 1, 100, Outcome.FAIL),
        (1 << 20, NEEDED.calls - 1, Outcome.FAIL),
    ],
)
def test_what_was_read_must_have_been_fetched(fetched: int, calls: int, outcome: Outcome) -> None:
    verdict = judge_read_back(ReadBack(client="client2", bytes=fetched, calls=calls), FOUND)
    assert verdict.outcome is outcome
    assert (str(verdict.blame) == "the client's cache") is (outcome is Outcome.FAIL)


def test_where_nothing_is_left_nothing_need_be_fetched() -> None:
    assert judge_read_back(ReadBack(client="client2", bytes=0, calls=0), {}).outcome is Outcome.PASS


def test_of_a_piece_the_bytes_that_were_written_count_and_each_file_once() -> None:
    pieces = (PieceSpec(kind="fsync", size=1, slots=3), PieceSpec(kind="o_sync", size=10_000))
    worker = WorkerSpec(
        number=0, client="client1", kind="sizes", path="w", file=0, files=True, pieces=pieces, blocks=2
    )
    found = {"w": {"blocks": [4, 2, 0, 1], "names": ["f0", "f1"]}}
    assert least_of(found, {"w": worker}) == Least(10_002, 2)
