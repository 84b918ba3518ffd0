"""Blocks that say of themselves where they belong."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from harness.workload.agent import ABSENT, BLOCK, GARBAGE, MISPLACED, OTHER_CONTENT, block, names, read_block

numbers = st.integers(min_value=0, max_value=2**40)
generations = st.integers(min_value=1, max_value=2**40)


@given(numbers, numbers, generations, numbers)
def test_a_block_is_read_back_in_its_generation(file: int, offset: int, generation: int, seed: int) -> None:
    data = block(file, offset, generation, seed)
    assert len(data) == BLOCK
    assert read_block(data, file, offset, seed) == generation


@given(generations, generations, st.integers(min_value=1, max_value=7))
def test_a_torn_block_is_garbage(old: int, new: int, sectors: int) -> None:
    before, after = block(1, 0, old, 7), block(1, 0, new, 7)
    torn = after[: sectors * 512] + before[sectors * 512 :]
    expected = old if old == new else GARBAGE
    assert read_block(torn, 1, 0, 7) == expected


@given(st.integers(min_value=0, max_value=BLOCK * 8 - 1))
def test_any_flipped_bit_is_garbage(bit: int) -> None:
    data = bytearray(block(3, 4096, 5, 9))
    data[bit // 8] ^= 1 << bit % 8
    assert read_block(bytes(data), 3, 4096, 9) == GARBAGE


def test_a_block_of_another_place_is_misplaced() -> None:
    data = block(1, 4096, 2, 7)
    assert read_block(data, 1, 8192, 7) == MISPLACED
    assert read_block(data, 2, 4096, 7) == MISPLACED


def test_a_block_of_another_run_is_garbage() -> None:
    assert read_block(block(1, 0, 2, seed=7), 1, 0, seed=8) == GARBAGE


def test_zeros_and_the_end_of_the_file_are_absent() -> None:
    assert read_block(bytes(BLOCK), 1, 0, 7) == ABSENT
    assert read_block(b"", 1, 0, 7) == ABSENT


def test_a_short_block_is_garbage() -> None:
    assert read_block(block(1, 0, 2, 7)[:1000], 1, 0, 7) == GARBAGE


def test_a_directory_that_is_not_there_has_no_names(tmp_path: Path) -> None:
    assert names(str(tmp_path / "gone")) == {}


def test_names_tell_what_a_file_holds(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"+" * 100)
    (tmp_path / "b").write_bytes(bytes(100))
    (tmp_path / "s").symlink_to("a")
    found = names(str(tmp_path))
    assert [found[name][3] for name in "abs"] == ["+", OTHER_CONTENT, "a"]
