"""Pieces of the ledger: what was written is read, whole, torn or damaged, wherever it lies and however small it is."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.guest.ledger_format import GARBAGE, MISPLACED, OLD, OLD_MAGIC, TORN, block, parts_of_torn
from raidproof.guest.ledger_pieces import MARKS, PieceReader, content, slot_of
from raidproof.guest.ledger_reader import read_back

FILE, SEED, PLACES, SECTOR = 7, 1, 4, 512


def piece(size: int, position: int = 0, slots: int = 1) -> dict[str, Any]:
    return {"kind": "fsync", "size": size, "position": position, "slots": slots}


PIECES = [piece(1, 0, 64), piece(1_000, 3_000, 8), piece(20_000, 100), piece(65_536), piece(4_000, 2**31 - 2_000)]
LARGE = [one for one in PIECES if one["slots"] == 1]


def reader(one: dict[str, Any], place: int = 2) -> PieceReader:
    other = piece(1)
    pieces = [one if number == place else other for number in range(PLACES)]
    return PieceReader({"path": "w", "file": FILE, "pieces": pieces}, place, SEED)


def written(one: dict[str, Any], generations: range, place: int = 2) -> bytearray:
    """The content of the slots of a piece after these generations were written."""
    data = bytearray(one["size"] * one["slots"])
    for generation in generations:
        at = slot_of(one, generation) - one["position"]
        data[at : at + one["size"]] = content(FILE, place, PLACES, generation, SEED, one["size"])
    return data


def expected(one: dict[str, Any], last: int) -> list[int]:
    slots = one["slots"]
    return [last - (last - 1 - slot) % slots if slot < last else 0 for slot in range(slots)]


@given(one=st.sampled_from(PIECES), last=st.integers(0, 300))
def test_each_slot_has_the_newest_generation_that_was_written_to_it(one: dict[str, Any], last: int) -> None:
    begin = max(1, last - one["slots"] + 1)
    assert reader(one).states_of(bytes(written(one, range(begin, last + 1)))) == expected(one, last)


def test_marks_of_single_bytes_do_not_repeat_before_the_last_round() -> None:
    one = PIECES[0]
    last = MARKS * one["slots"]
    assert reader(one).states_of(bytes(written(one, range(last - 63, last + 1)))) == expected(one, last)


@given(one=st.sampled_from(LARGE), old=st.integers(1, 50), sector=st.integers(1, 127))
def test_a_cut_between_pages_leaves_the_older_generation(one: dict[str, Any], old: int, sector: int) -> None:
    # The first pages have the new generation, the others the old one.
    position, size = one["position"], one["size"]
    at = sector * 4096 - position % 4096
    if not 0 < at < size:
        at = size // 4096 * 4096 - position % 4096
    if not 0 < at < size:
        return
    before, after = written(one, range(old, old + 1)), written(one, range(old + 1, old + 2))
    found = reader(one).states_of(bytes(after[:at] + before[at:]))
    assert found == [old]


@given(one=st.sampled_from(LARGE), old=st.integers(0, 50), sector=st.integers(1, 127))
def test_a_cut_within_a_page_tears_the_piece(one: dict[str, Any], old: int, sector: int) -> None:
    at = sector * SECTOR - one["position"] % SECTOR
    if not 0 < at < one["size"] or (at + one["position"]) % 4096 in {0, *range(4096 - SECTOR, 4096)}:
        return
    before = written(one, range(old, old + 1)) if old else bytearray(one["size"])
    after = written(one, range(old + 1, old + 2))
    (found,) = reader(one).states_of(bytes(after[:at] + before[at:]))
    assert found <= TORN, found
    assert parts_of_torn(found) == (old, old + 1)


@given(one=st.sampled_from(PIECES[1:]), last=st.integers(1, 100), bit=st.integers(0, 8 * 1_000 - 1))
def test_a_flipped_bit_is_never_taken_for_the_same_generation(one: dict[str, Any], last: int, bit: int) -> None:
    data = written(one, range(max(1, last - one["slots"] + 1), last + 1))
    slot = (last - 1) % one["slots"]
    data[slot * one["size"] + bit // 8] ^= 1 << bit % 8
    state = reader(one).states_of(bytes(data))[slot]
    assert state != last
    assert state in {GARBAGE, MISPLACED} or state <= TORN


@pytest.mark.parametrize("one", PIECES[1:])
def test_data_of_another_piece_or_slot_or_disk_are_named(one: dict[str, Any]) -> None:
    size, slots = one["size"], one["slots"]
    other = content(FILE, 3, PLACES, 1, SEED, size)
    assert reader(one).states_of(other + bytes(size * (slots - 1)))[0] in {GARBAGE, MISPLACED}
    if slots > 1:
        assert reader(one).states_of(content(FILE, 2, PLACES, 2, SEED, size))[0] == MISPLACED
    old = (OLD_MAGIC + bytes(range(1, 249))) * (size // 256 + 1)
    assert reader(one).states_of(old[:size])[0] == OLD
    assert reader(one).states_of(b"\xa5" * size)[0] == GARBAGE


def test_generation_equal_to_the_seed_is_torn_like_any_other() -> None:
    # Their XOR, which the units of a block have, is zero.
    one = LARGE[0]
    before, after = written(one, range(SEED, SEED + 1)), written(one, range(SEED + 1, SEED + 2))
    at = 2 * SECTOR - one["position"] % SECTOR
    (found,) = reader(one).states_of(bytes(after[:at] + before[at:]))
    assert parts_of_torn(found) == (SEED, SEED + 1)


def test_blocks_of_two_pieces_differ() -> None:
    assert content(FILE, 1, PLACES, 1, SEED, 8192)[4096:] == block(FILE, (1 + PLACES) * 4096, 1, SEED)


def scan(tmp_path: Path) -> dict[str, Any]:
    worker = {"number": 0, "kind": "sizes", "path": "w", "file": FILE, "files": True, "pieces": PIECES, "blocks": 5}
    found: dict[str, Any] = read_back({"root": str(tmp_path), "seed": SEED, "workers": [worker]})["w"]
    return found


def test_a_scan_has_the_slots_of_all_pieces_and_what_lies_beside_them(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    for place, one in enumerate(PIECES):
        with (tmp_path / "w" / f"f{place}").open("wb") as file:
            file.seek(slot_of(one, 1))
            file.write(content(FILE, place, len(PIECES), 1, SEED, one["size"]))
    found = scan(tmp_path)
    assert found["blocks"] == [1, *[0] * 63, 1, *[0] * 7, 1, 1, 1]
    assert found["names"] == [f"f{place}" for place in range(5)]
    assert "strange" not in found
    with (tmp_path / "w" / "f4").open("r+b") as file:
        file.seek(2**31 - 3_000)
        file.write(b"foreign")
    with (tmp_path / "w" / "f2").open("ab") as file:
        file.write(b"more")
    assert scan(tmp_path)["strange"] == [
        "w/f2: 4 bytes behind its end",
        "w/f2: content behind byte 20100 that no client wrote",
        f"w/f4: content behind byte {2**31 - 4096} that no client wrote",
    ]
    (tmp_path / "w" / "f3").unlink()
    assert scan(tmp_path)["blocks"][-2:] == [0, 1]
