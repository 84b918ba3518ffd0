"""The ledger's blocks are found in the data of write requests, wherever the file system placed them."""

from raidproof.guest.ledger_format import BLOCK, HEADER, block
from raidproof.workload.ledger_blocks import blocks_in


def test_blocks_are_found_by_their_headers() -> None:
    data = block(3, 0, 1, 7) + bytes(BLOCK) + block(4, 5 * BLOCK, 9, 7)
    assert list(blocks_in(memoryview(data))) == [(3, 0, 1), (4, 5 * BLOCK, 9)]
    assert list(blocks_in(bytes(BLOCK))) == []
    assert list(blocks_in(bytes(1000) + data)) == [(3, 0, 1), (4, 5 * BLOCK, 9)]


def test_a_file_system_may_place_a_block_at_any_of_its_own_blocks() -> None:
    assert list(blocks_in(bytes(1024) + block(3, 0, 1, 7))) == [(3, 0, 1)]


def test_a_block_is_found_where_a_request_has_its_first_part_only() -> None:
    whole = block(3, 0, 1, 7)
    assert list(blocks_in(whole[:1024])) == [(3, 0, 1)]
    assert list(blocks_in(whole[1024:])) == []
    assert list(blocks_in(whole[: HEADER.size - 1])) == []
