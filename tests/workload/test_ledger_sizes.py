"""The pieces of the ledger: each way of writing and each class of sizes comes soon."""

from math import gcd

import pytest

from raidproof.guest.ledger_format import HEADER
from raidproof.guest.ledger_pieces import MARKS
from raidproof.workload.ledger import LEAST_SIZES, LedgerSpec
from raidproof.workload.ledger_sizes import PIECES, SIZE_CLASSES, WAYS, class_of, pieces_from


def test_every_way_writes_a_byte_a_part_of_a_page_and_many_pages() -> None:
    assert {(one.kind, one.size) for one in PIECES} >= {(way, size) for way in WAYS for size in (1, 1_000, 65_536)}
    assert len({*PIECES}) == len(PIECES)


@pytest.mark.parametrize("first", range(len(PIECES)))
def test_the_least_number_of_operations_has_every_class_of_sizes(first: int) -> None:
    assert {class_of(one.size) for one in pieces_from(first, ())[:LEAST_SIZES]} == {*SIZE_CLASSES}


def test_workers_of_two_clients_begin_apart_and_write_every_piece() -> None:
    one, other = LedgerSpec(kinds=("sizes",)).workers(["client1", "client2"])
    assert one.pieces[0] != other.pieces[0]
    assert {*one.pieces} == {*other.pieces} == {*PIECES}
    assert {*one.kinds} == {*WAYS}


def test_an_omitted_way_is_not_written() -> None:
    spec = LedgerSpec(kinds=("sizes",), omit=("o_direct", "msync"))
    (worker,) = spec.workers(["client1"])
    assert {*worker.kinds} == {*WAYS} - {"o_direct", "msync"}
    assert spec.doing() == {*worker.kinds, "sizes"}


def test_the_marks_of_a_piece_without_a_header_tell_its_generations_apart() -> None:
    assert all(gcd(one.slots, MARKS) == 1 for one in PIECES if one.size < HEADER.size)
