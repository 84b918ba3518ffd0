import zlib
from functools import reduce
from operator import xor
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.units import SECTOR
from raidproof.crash.page.hash import NONE, page_hash, part_hash
from raidproof.guest.ledger_format import BLOCK, block
from raidproof.storage.array.raid import PAGE, product_table
from raidproof.storage.array.striping import Striping

seeds = st.integers(0, 1 << 32)
factors = st.integers(0, 255)


def page_of(seed: int) -> bytes:
    return Random(seed).randbytes(PAGE)


def xor_of(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one) ^ int.from_bytes(other)).to_bytes(PAGE)


@given(seeds, seeds, factors)
def test_hash_is_linear(one: int, other: int, factor: int) -> None:
    both = xor_of(page_of(one), page_of(other))
    assert page_hash(both, factor) == page_hash(page_of(one), factor) ^ page_hash(page_of(other), factor)


@given(seeds, factors)
def test_hash_of_a_page_is_the_sum_of_its_sectors(seed: int, factor: int) -> None:
    page = page_of(seed)
    parts = (part_hash(page[at : at + SECTOR], at, factor) for at in range(0, PAGE, SECTOR))
    assert reduce(xor, parts) == page_hash(page, factor)


def test_blank_pages_and_pages_without_a_factor_have_no_hash() -> None:
    assert page_hash(bytes(PAGE), 7) == page_hash(page_of(1), 0) == NONE


@given(st.integers(0, PAGE - 1), st.integers(1, 255))
def test_a_change_of_one_byte_is_seen(at: int, change: int) -> None:
    page = bytearray(PAGE)
    page[at] = change
    assert page_hash(bytes(page)) != NONE


def test_bits_of_the_hash_are_independent() -> None:
    """The hashes of the single bits of a sector span all 64 bits, so that a random difference is missed by 2^-64."""
    basis: list[int] = []
    for bit in range(SECTOR * 8):
        value = part_hash((1 << bit).to_bytes(SECTOR), 0)
        for one in basis:
            value = min(value, value ^ one)
        if value:
            basis.append(value)
    assert len(basis) == 64


@given(seeds, seeds)
def test_blocks_of_the_ledger_differ_although_they_contain_a_crc(one: int, other: int) -> None:
    blocks = [block(1, 4096 * seed, seed, 7) for seed in (one % 1000, 1000 + other % 1000)]
    difference = xor_of(*blocks)
    assert len(blocks[0]) == BLOCK
    # The CRC-32 of the project's own blocks is the trap: a plain CRC-32 of their difference is that of zeroes.
    assert zlib.crc32(blocks[0]) == zlib.crc32(blocks[1])
    assert page_hash(difference) >> 32
    assert page_hash(difference) & 0xFFFFFFFF


@given(st.integers(0, 255), st.integers(0, 255), st.integers(0, 255))
def test_products_are_those_of_a_field(one: int, other: int, third: int) -> None:
    assert product_table(one)[other] == product_table(other)[one]
    assert product_table(one)[other ^ third] == product_table(one)[other] ^ product_table(one)[third]
    assert product_table(2)[0x80] == 0x1D


LAYOUTS = [
    (4, 0, 4),
    *((5, layout, 4) for layout in range(6)),
    *((6, layout, 5) for layout in (0, 2, 5, 8, 9, 10, 18)),
]


@pytest.mark.parametrize(("level", "layout", "members"), LAYOUTS)
@given(stripe=st.integers(0, 40), seed=seeds, damaged=st.sets(st.integers(0, 4), max_size=2), sector=st.booleans())
def test_hashes_decide_parity_as_bytes_do(
    level: int, layout: int, members: int, stripe: int, seed: int, damaged: set[int], sector: bool
) -> None:
    striping = Striping(level, layout, PAGE, members, 64 * PAGE)
    row, draw = striping.raid.row(stripe), Random(seed)
    pages = [draw.randbytes(PAGE) for _ in range(members)]
    for slot, parity in striping.raid.parities(row, [int.from_bytes(page) for page in pages]).items():
        pages[slot] = parity.to_bytes(PAGE)
    for slot in damaged & set(range(members)):
        pages[slot] = draw.randbytes(SECTOR) + pages[slot][SECTOR:] if sector else draw.randbytes(PAGE)
    values = [int.from_bytes(page) for page in pages]
    parities = striping.raid.parities(row, values)
    by_bytes = [values[slot] == parity for slot, parity in parities.items()]
    by_hashes = [
        reduce(xor, (page_hash(page, factor) for page, factor in zip(pages, factors, strict=True))) == NONE
        for factors in striping.factors(stripe)
    ]
    assert by_hashes == by_bytes
    assert all(by_hashes) == (not damaged & set(range(members)))
