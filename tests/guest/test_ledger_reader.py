"""Each block contains its place, and a scan returns the content of files and directories."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raidproof.guest.ledger_format import (
    ABSENT,
    BLOCK,
    GARBAGE,
    MISPLACED,
    OLD,
    OLD_MAGIC,
    OTHER_CONTENT,
    TORN,
    UNCUT,
    UNREADABLE,
    block,
    parts_of_torn,
)
from raidproof.guest.ledger_format import torn as torn_code
from raidproof.guest.ledger_reader import LARGEST, LedgerReader, Part, names, read_back, read_block, records

numbers = st.integers(min_value=0, max_value=2**40)
generations = st.integers(min_value=1, max_value=2**40)


@given(numbers, numbers, generations, numbers)
def test_a_block_is_read_back_in_its_generation(file: int, offset: int, generation: int, seed: int) -> None:
    data = block(file, offset, generation, seed)
    assert len(data) == BLOCK
    assert read_block(data, file, offset, seed) == generation


@example(old=1, new=7, sectors=1)
@given(generations, generations, st.integers(min_value=1, max_value=7))
def test_a_torn_block_states_its_generations(old: int, new: int, sectors: int) -> None:
    before, after = block(1, 0, old, 7), block(1, 0, new, 7)
    torn = after[: sectors * 512] + before[sectors * 512 :]
    expected = old if old == new else torn_code(min(old, new), max(old, new))
    assert read_block(torn, 1, 0, 7) == expected
    assert old == new or parts_of_torn(expected) == (min(old, new), max(old, new))


@example(words=64, new=7, old=0)
@example(words=64, new=7, old=3)
# The last 64 bytes need not have a generation by which they are known.
@given(st.integers(min_value=0, max_value=BLOCK // 8 - 8), generations, st.sampled_from([0, 3]))
def test_a_block_that_is_divided_between_any_two_words_is_torn(words: int, new: int, old: int) -> None:
    before = block(1, 0, old, 7) if old else bytes(BLOCK)
    mixed = block(1, 0, new, 7)[: words * 8] + before[words * 8 :]
    found = read_block(mixed, 1, 0, 7)
    # Not each part depends on the generation.
    low, high = min(old, new), max(old, new)
    assert found in {old, new, *(torn_code(*parts) for parts in ((low, high), (old, old), (new, new)))}


@given(st.binary(min_size=8, max_size=64), st.integers(min_value=1, max_value=7))
def test_any_other_content_in_a_sector_is_garbage(other: bytes, sector: int) -> None:
    whole, at = block(1, 0, 5, 7), sector * 512
    content = (b"x" + other).ljust(512, b"y")
    assert read_block(whole[:at] + content + whole[at + 512 :], 1, 0, 7) in {GARBAGE, OLD}
    assert read_block(content + whole[512:], 1, 0, 7) in {GARBAGE, OLD}


def test_a_sector_of_another_block_and_one_unit_of_another_generation_are_garbage() -> None:
    whole, other = block(1, 0, 5, 7), block(1, BLOCK, 5, 7)
    assert read_block(whole[:512] + other[512:1024] + whole[1024:], 1, 0, 7) == GARBAGE
    newer = block(1, 0, 6, 7)
    assert read_block(whole[:1064] + newer[1064:1096] + whole[1096:], 1, 0, 7) == GARBAGE
    assert read_block(whole[:512] + newer[512:1024] + whole[1024:], 1, 0, 7) == torn_code(5, 6)


@given(st.integers(min_value=0, max_value=BLOCK * 8 - 1))
def test_a_block_with_a_flipped_bit_is_garbage_or_has_a_generation_at_one_end_that_no_other_part_has(bit: int) -> None:
    data = bytearray(block(3, 4096, 5, 9))
    data[bit // 8] ^= 1 << bit % 8
    found = read_block(bytes(data), 3, 4096, 9)
    assert found == GARBAGE or (found <= TORN and 5 in parts_of_torn(found) and not 48 * 8 <= bit < 4048 * 8)


def test_a_block_of_another_place_is_misplaced() -> None:
    data = block(1, 4096, 2, 7)
    assert read_block(data, 1, 8192, 7) == MISPLACED
    assert read_block(data, 2, 4096, 7) == MISPLACED


def test_a_block_of_another_run_is_garbage() -> None:
    assert read_block(block(1, 0, 2, seed=7), 1, 0, seed=8) == GARBAGE


def test_zeros_and_the_end_of_the_file_are_absent() -> None:
    assert read_block(bytes(BLOCK), 1, 0, 7) == ABSENT
    assert read_block(b"", 1, 0, 7) == ABSENT


def test_old_data_of_the_disk_is_no_garbage() -> None:
    assert read_block(OLD_MAGIC.ljust(BLOCK, b"o"), 1, 0, 7) == OLD
    assert read_block(b"o" * 1000 + OLD_MAGIC.ljust(BLOCK - 1000, b"o"), 1, 0, 7) == OLD


def test_the_missing_part_of_a_short_block_counts_as_zero() -> None:
    assert read_block(block(1, 0, 2, 7)[:1000], 1, 0, 7) == torn_code(0, 2)


def test_a_directory_that_is_not_there_has_no_names(tmp_path: Path) -> None:
    assert names(str(tmp_path / "gone")) == {}


def test_names_determine_the_kind_of_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"+" * 100)
    (tmp_path / "b").write_bytes(bytes(100))
    (tmp_path / "s").symlink_to("a")
    found = names(str(tmp_path))
    assert [found[name][3] for name in "abs"] == ["+", OTHER_CONTENT, "a"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change owners")
def test_names_of_another_owner_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "d0").mkdir()
    (tmp_path / "d0" / "a").touch()
    (tmp_path / "d0" / "s").symlink_to("a")
    os.mkfifo(tmp_path / "d0" / "p")
    usual = names(str(tmp_path))
    assert {len(entry) for entry in usual.values()} == {4}
    for name in ("d0", "d0/a", "d0/s", "d0/p"):
        os.chown(tmp_path / name, 1001, 7, follow_symlinks=False)
        found = names(str(tmp_path))
        assert found[name][:6] == [*usual[name], None, "1001:7"]
        assert {other: entry for other, entry in found.items() if other != name} == {
            other: entry for other, entry in usual.items() if other != name
        }
        assert names(str(tmp_path), owner=1001)[name] == usual[name]
        os.chown(tmp_path / name, 0, 0, follow_symlinks=False)


def test_a_damaged_file_of_any_size_is_read_in_bounded_memory(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(block(1, 0, 1, 7))
    os.truncate(tmp_path / "a", 1 << 40)
    _, size, _, content, *_ = names(str(tmp_path), 1, 7)["a"]
    assert size == 1 << 40
    assert content == ["0.1", *["-"] * (LARGEST // BLOCK - 1)]


def test_records_of_a_damaged_file_are_read_up_to_a_long_part_without_one(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        for position in (0, LARGEST, 2 * LARGEST + (5 << 20)):
            file.seek(position)
            file.write(block(1, position, 1, 7))
        file.truncate(1 << 40)
    found = records(str(path), 1, 7)
    assert [one for one in found if one != ABSENT] == [1, LARGEST // BLOCK + 1], "a record far behind the others"
    os.truncate(path, LARGEST + BLOCK)
    assert records(str(path), 1, 7) == [1, *[ABSENT] * (LARGEST // BLOCK - 1), LARGEST // BLOCK + 1]


@pytest.mark.parametrize(
    ("data", "held"),
    [
        (b"", "+"),
        (b"+" * 10, "+"),
        (b"+" * 10 + bytes(90), UNCUT),
        (b"+" * 9 + bytes(91), OTHER_CONTENT),
        (b"+" * 11 + bytes(89), OTHER_CONTENT),
        (b"+" * 10 + bytes(89), OTHER_CONTENT),
        (b"+" * 10 + bytes(89) + b"+", OTHER_CONTENT),
        (b"+" * 10 + bytes(90) + b"\0", OTHER_CONTENT),
    ],
)
def test_a_tail_of_zeroes_is_where_truncate_cuts_and_nowhere_else(tmp_path: Path, data: bytes, held: str) -> None:
    (tmp_path / "a").write_bytes(data)
    assert names(str(tmp_path))["a"][3] == held


def read_part(worker: dict[str, Any], path: str, index: int, count: int, seed: int) -> list[int]:
    folder, name = os.path.split(path)
    return Part(worker, name, index, count, seed).read(folder)


def one_by_one(path: Path, file: int, first: int, count: int) -> list[int]:
    with path.open("rb") as opened:
        data = opened.read()
    places = [(index, data[index * BLOCK : (index + 1) * BLOCK]) for index in range(first, first + count)]
    return [read_block(block, file, index * BLOCK, 7) for index, block in places]


@given(st.lists(st.sampled_from("newx0"), max_size=6), st.integers(0, 3), st.integers(0, 6), st.integers(0, BLOCK - 1))
def test_many_blocks_are_read_as_one_by_one(holds: list[str], first: int, count: int, cut: int) -> None:
    kinds = {"n": lambda i: block(1, i * BLOCK, 2, 7), "e": lambda i: block(1, i * BLOCK, 1, 7)}
    kinds |= {"w": lambda _: block(2, 0, 2, 7), "x": lambda _: b"x" * BLOCK, "0": lambda _: bytes(BLOCK)}
    data = b"".join(kinds[kind](place) for place, kind in enumerate(holds))
    with NamedTemporaryFile() as file:
        path = Path(file.name)
        path.write_bytes(data[: len(data) - cut if len(data) > cut else None])
        assert read_part({"file": 1}, str(path), first, count, 7) == one_by_one(path, 1, first, count)


def test_a_file_that_is_not_there_is_absent_and_one_that_cannot_be_read_is_unreadable(tmp_path: Path) -> None:
    assert read_part({"file": 1}, str(tmp_path / "gone"), 0, 2, 7) == [ABSENT, ABSENT]
    assert read_part({"file": 1}, str(tmp_path), 0, 2, 7) == [UNREADABLE, UNREADABLE]
    (tmp_path / "file").write_text("")
    assert read_part({"file": 1}, str(tmp_path / "file" / "below"), 0, 1, 7) == [UNREADABLE]


def test_around_a_block_that_cannot_be_read_the_others_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"".join(block(1, index * BLOCK, 3, 7) for index in range(4)))
    pread = os.pread

    def sick(fd: int, size: int, position: int) -> bytes:
        """Read as the kernel does: return the bytes before the bad page, or an error if there are none."""
        if position <= 2 * BLOCK < position + size:
            if position == 2 * BLOCK:
                raise OSError(errno.EIO, "sick")
            size = 2 * BLOCK - position
        return pread(fd, size, position)

    monkeypatch.setattr(os, "pread", sick)
    assert read_part({"file": 1}, str(path), 0, 4, 7) == [3, 3, UNREADABLE, 3]


def test_reading_back_covers_every_worker(tmp_path: Path) -> None:
    (tmp_path / "blocks").write_bytes(block(0, 0, 1, 7))
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "f1").write_bytes(block(1, BLOCK, 1, 7))
    (tmp_path / "many").mkdir()
    (tmp_path / "many" / "f0").write_bytes(block(5, 0, 1, 7))
    (tmp_path / "appended").write_bytes(block(3, 0, 1, 7) + block(4, 0, 1, 7) + block(3, BLOCK, 1, 7))
    (tmp_path / "tree" / "d0").mkdir(parents=True)
    workers = [
        {"kind": "fsync", "path": "blocks", "file": 0, "blocks": 2, "first": 0},
        {"kind": "close", "path": "closed", "file": 1, "blocks": 2},
        {"kind": "metadata", "path": "tree", "file": 2, "blocks": 0, "rounds": [["mkdir"]]},
        {"kind": "o_append", "path": "appended", "file": 3, "number": 8, "blocks": 0},
        {"kind": "o_append", "path": "appended", "file": 4, "number": 9, "blocks": 0},
        {"kind": "pages", "path": "many", "file": 5, "blocks": 2, "files": True},
    ]
    found = read_back({"root": str(tmp_path), "seed": 7, "workers": workers})
    assert found["blocks@0"] == {"blocks": [1, ABSENT], "names": ["blocks"]}
    assert found["closed"] == {"blocks": [ABSENT, 1], "names": ["f1"]}
    assert list(found["tree"]) == ["d0"]
    assert found["appended@8"] == {"records": [1, MISPLACED, 2], "names": ["appended"]}
    assert found["appended@9"] == {"records": [MISPLACED, 1, MISPLACED], "names": ["appended"]}
    assert found["many"] == {"blocks": [1, ABSENT], "names": ["f0"]}


def test_an_unreadable_file_is_reported_with_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"+")

    def sick(_fd: int, _size: int) -> bytes:
        raise OSError(errno.EIO, "sick")

    monkeypatch.setattr(os, "read", sick)
    assert names(str(tmp_path)) == {"a": [0, 0, 0, "EIO"]}


@given(st.integers(1, BLOCK - 1), generations, generations, numbers, st.integers(0, 2**63))
@example(shift=4072, one=1, other=2, place=0, seed=0)
def test_a_block_that_straddles_pages_is_in_the_older_of_its_generations(
    shift: int, one: int, other: int, place: int, seed: int
) -> None:
    first = BLOCK - shift
    mixed = block(3, place, one, seed)[:first] + block(3, place, other, seed)[first:]
    readable = first >= 40 and shift >= 100
    found = read_block(mixed, 3, place, seed, shift)
    if mixed == block(3, place, other, seed):
        # The first bytes of a block do not depend on its generation.
        assert found == other
    elif mixed == block(3, place, one, seed):
        assert found == one
    else:
        assert found == min(one, other) or (not readable and (found in {GARBAGE, ABSENT} or found <= TORN))


def test_half_a_block_that_straddles_pages_is_absent_and_rubbish_in_it_is_garbage() -> None:
    whole, shift = block(3, 0, 5, 7), 1000
    assert read_block(whole[: BLOCK - shift] + bytes(shift), 3, 0, 7, shift) == ABSENT
    assert read_block(bytes(BLOCK - shift) + whole[BLOCK - shift :], 3, 0, 7, shift) == ABSENT
    assert read_block(whole[: BLOCK - shift] + b"x" * shift, 3, 0, 7, shift) == GARBAGE
    assert read_block(whole[: BLOCK - shift] + bytes(shift), 3, 0, 7) == torn_code(0, 5)
    assert read_block(block(4, 0, 5, 7)[: BLOCK - shift] + whole[BLOCK - shift :], 3, 0, 7, shift) == GARBAGE


@given(st.lists(st.sampled_from("ab0"), min_size=1, max_size=6))
def test_a_reader_reads_each_state_as_a_new_reader_does(states: list[str]) -> None:
    """A reader remembers the data of the last state, and the state has changed, or has not."""
    kinds = {"a": block(0, 0, 1, 7) + block(0, BLOCK, 1, 7), "b": block(0, 0, 2, 7) + b"x" * BLOCK, "0": b""}
    workers = [{"kind": "fsync", "path": "blocks", "file": 0, "blocks": 2, "first": 0}]
    with TemporaryDirectory() as folder:
        config = {"root": folder, "seed": 7, "workers": workers}
        reader = LedgerReader(config)
        for state in states:
            (Path(folder) / "blocks").write_bytes(kinds[state])
            assert reader.read(folder) == read_back(config)


SPARSE = {"kind": "pages", "path": "p", "file": 0, "blocks": 1, "span": 2, "step": 2, "shift": 1000, "files": True}
SHARED = [{"kind": "fsync", "path": "s", "file": 1, "blocks": 1, "first": first} for first in (0, 1)]
"""Two blocks with a page between them, at byte 1000 and 9192; and two workers with a block each in one file."""


def rest(tamper: Callable[[Path], object]) -> dict[str, Any]:
    """Return a scan of whole files after a change of the folder: what is beside the blocks, by worker."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "p").mkdir()
        with (folder / "p" / "f0").open("wb") as file:
            for index, position in enumerate((1000, 9192)):
                file.seek(position)
                file.write(block(0, index * BLOCK, 1, 7))
        (folder / "s").write_bytes(block(1, 0, 1, 7) + block(1, BLOCK, 1, 7))
        tamper(folder)
        found = read_back({"root": name, "seed": 7, "workers": [SPARSE, *SHARED]})
        assert found["p"]["blocks"] == [1, 1]
        return {
            key: {word: entry[word] for word in ("strange", "old") if entry.get(word)} for key, entry in found.items()
        }


def put(name: str, at: int, data: bytes) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        with (folder / name).open("r+b") as file:
            file.seek(at)
            file.write(data)

    return change


def test_files_of_the_ledger_have_nothing_beside_their_blocks() -> None:
    assert rest(lambda _: None) == {"p": {}, "s@0": {}, "s@1": {}}
    # Zeros are no content, and a client keeps a removed file under another name.
    assert rest(put("p/f0", 6000, bytes(100))) == {"p": {}, "s@0": {}, "s@1": {}}
    assert rest(lambda folder: (folder / ".nfs0001").touch()) == {"p": {}, "s@0": {}, "s@1": {}}


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        (put("p/f0", 0, b"x"), "p/f0: content behind byte 0 that no client wrote"),
        (put("p/f0", 999, b"x"), "p/f0: content behind byte 0 that no client wrote"),
        (put("p/f0", 5096, block(9, 0, 1, 7)), "p/f0: content behind byte 5096 that no client wrote"),
        (put("p/f0", 9191, b"x"), "p/f0: content behind byte 5096 that no client wrote"),
        (put("p/f0", 9192 + BLOCK, b"xy"), "p/f0: 2 bytes behind its end"),
        (put("p/f0", 9192 + BLOCK, bytes(3)), "p/f0: 3 bytes behind its end"),
        (lambda folder: (folder / "p" / "f0").chmod(0o4777), "p/f0: mode 4777"),
        (lambda folder: os.link(folder / "p" / "f0", folder / "p" / "f0again"), "p/f0: 2 names"),
        (lambda folder: os.utime(folder / "p" / "f0", (9, 9)), "p/f0: modification time 9"),
        (lambda folder: os.setxattr(folder / "p" / "f0", "user.new", b"1"), "p/f0: attributes user.new"),
        pytest.param(
            lambda folder: os.chown(folder / "p" / "f0", 1001, 0),
            "p/f0: owner 1001:0",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root may change owners"),
        ),
        (lambda folder: (folder / "foreign").touch(), "foreign: a name that no client created"),
    ],
)
def test_what_is_beside_the_blocks_is_strange(tamper: Callable[[Path], object], says: str) -> None:
    assert says in rest(tamper)["p"]["strange"]


@pytest.mark.parametrize(("error", "says"), [(errno.ENOTSUP, None), (errno.EIO, "attributes that cannot be read: ")])
def test_attributes_that_cannot_be_read_are_strange_if_the_file_system_has_some(
    monkeypatch: pytest.MonkeyPatch, error: int, says: str | None
) -> None:
    def listxattr(_: int) -> list[str]:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "listxattr", listxattr)
    found = rest(lambda _: None)["p"]
    assert found == {} if says is None else says in found["strange"][0]


def test_a_file_of_several_workers_is_read_once() -> None:
    found = rest(put("s", 2 * BLOCK, b"x" * 9))
    assert found == {
        "p": {},
        "s@0": {"strange": ["s: 9 bytes behind its end", f"s: content behind byte {2 * BLOCK} that no client wrote"]},
        "s@1": {},
    }


def test_old_data_of_the_disk_beside_the_blocks_is_told_from_other_content() -> None:
    assert rest(put("p/f0", 6000, OLD_MAGIC))["p"] == {"old": ["p/f0: old data of the disk behind byte 5096"]}
