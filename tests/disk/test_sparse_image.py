import errno
import mmap
from pathlib import Path
from random import Random
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.disk.sparse_image import CHUNK, OLD_DATA, SparseImage, save_platter

SIZE = 5 * CHUNK + 3 * 4096
places = st.sampled_from([0, 512, 4096, CHUNK - 512, CHUNK, CHUNK + 4096, 3 * CHUNK, 4 * CHUNK + 512])
lengths = st.sampled_from([512, 4096, CHUNK - 4096, CHUNK, CHUNK + 512, 2 * CHUNK, SIZE])
steps = st.lists(st.tuples(st.sampled_from(["write", "zeroes", "zero", "blank"]), places, lengths), max_size=12)


def before(*, old: bool) -> bytes:
    return (OLD_DATA * (SIZE // len(OLD_DATA) + 1))[:SIZE] if old else bytes(SIZE)


@pytest.mark.parametrize("old", [False, True])
@given(done=steps)
def test_a_platter_is_an_array_of_bytes(old: bool, done: list[tuple[str, int, int]]) -> None:
    platter, model = SparseImage(SIZE, old=old), bytearray(before(old=old))
    for number, (what, offset, wanted) in enumerate(done):
        length = min(wanted, SIZE - offset)
        content = {
            "write": bytes([number % 255 + 1]) * length,
            "blank": before(old=old)[offset : offset + length],
        }.get(what, bytes(length))
        model[offset : offset + length] = content
        if what in {"write", "zeroes"}:
            platter.write(content, offset)
        elif what == "zero":
            platter.zero(offset, length)
        else:
            platter.blank(offset, length)
        assert platter.content(0, SIZE) == model
    assert platter.duplicate().content(0, SIZE) == model
    for start, end in ((700, 9000), (CHUNK - 1, CHUNK + 1), (4096, SIZE - 512)):
        assert platter.content(start, end - start) == model[start:end]
        copied = platter.copy(start, end - start)
        assert (before(old=old)[start:end] if copied is None else copied) == model[start:end]
    held = bytearray(before(old=old))
    for start, end in platter.extents():
        held[start:end] = platter.view(start, end)
    assert held == model


def test_old_data_takes_no_memory_and_neither_do_zeroes_over_it() -> None:
    platter = SparseImage(1 << 32, old=True)
    assert platter.content((1 << 31) + 8, 16) == b"OLDDATA1" * 2
    platter.zero(0, 1 << 20)
    assert (platter.content(0, 8), list(platter.extents())) == (bytes(8), [(0, 1 << 20)])
    platter.blank(0, 1 << 32)
    assert (platter.content(0, 8), list(platter.extents())) == (b"OLDDATA1", [])


def test_old_data_is_read_in_pieces_of_any_size() -> None:
    platter, rng = SparseImage(4 << 20, old=True), Random(1)
    whole = OLD_DATA * (platter.size // len(OLD_DATA))
    for _ in range(20):
        start = rng.randrange(platter.size)
        length = rng.randrange(1, platter.size - start + 1)
        assert platter.content(start, length) == whole[start : start + length]


def test_a_kernel_that_gives_no_memory_in_advance_gives_it_with_the_first_byte() -> None:
    class OldKernel:
        asked = 0

        def madvise(self, *_: int) -> None:
            self.asked += 1
            raise OSError(errno.EINVAL, "no such advice")

    platter, kernel = SparseImage(SIZE), OldKernel()
    platter._map = cast("mmap.mmap", kernel)
    for at in (0, CHUNK):
        platter.write(b"x" * CHUNK, at)
    assert platter.content(0, SIZE) == b"x" * 2 * CHUNK + bytes(SIZE - 2 * CHUNK)
    assert kernel.asked == 1, "it is asked once"


@pytest.mark.parametrize("old", [False, True])
def test_an_image_holds_what_the_disk_reads_as(old: bool, tmp_path: Path) -> None:
    platter = SparseImage(SIZE, old=old)
    platter.write(b"new" * 1000, CHUNK + 5)
    platter.zero(0, 512)
    save_platter(platter, tmp_path / "image", whole=True)
    assert (tmp_path / "image").read_bytes() == platter.content(0, SIZE)
    save_platter(platter, tmp_path / "sparse")
    written = bytearray(SIZE)
    for start, end in platter.extents():
        written[start:end] = platter.view(start, end)
    assert (tmp_path / "sparse").read_bytes() == written


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize(
    ("at", "length", "first", "last"),
    [(0, CHUNK, 0, 1), (CHUNK, CHUNK, 1, 2), (CHUNK, CHUNK + 1, 1, 3), (CHUNK - 1, 2, 0, 2), (5, 1, 0, 1)],
)
def test_memory_is_taken_for_the_chunks_that_are_written_and_no_others(
    old: bool, at: int, length: int, first: int, last: int
) -> None:
    platter = SparseImage(SIZE, old=old)
    platter.write(b"x" * length, at)
    assert list(platter.extents()) == [(first * CHUNK, last * CHUNK)]


def test_an_image_takes_room_only_for_what_was_written_unless_the_rest_is_old(tmp_path: Path) -> None:
    def room(*, old: bool, whole: bool) -> int:
        platter = SparseImage(SIZE, old=old)
        platter.write(b"new" * 1000, CHUNK)
        save_platter(platter, tmp_path / "image", whole=whole)
        return (tmp_path / "image").stat().st_blocks * 512

    assert room(old=False, whole=False) <= CHUNK
    assert room(old=False, whole=True) <= CHUNK
    assert room(old=True, whole=False) <= CHUNK
    assert room(old=True, whole=True) >= SIZE
