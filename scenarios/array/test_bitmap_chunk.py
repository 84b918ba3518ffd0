"""An array has the requested bitmap chunk size (mdadm --bitmap-chunk); an unsupported size is refused."""

import pytest

from raidproof.core.command import CommandFailed
from raidproof.core.errors import RequestError
from raidproof.core.units import KIB
from raidproof.lab.lab import Lab
from raidproof.pytest_plugin.fixtures import DISK_SIZE, stack_of
from raidproof.storage.array import MdArray, MdSpec


def spec(level: str, chunk: int) -> MdSpec:
    array = stack_of(level, bitmap_chunk=chunk).array
    assert isinstance(array, MdSpec)
    return array


@pytest.mark.parametrize(("level", "least"), [("5", 16 * KIB), ("10", 32 * KIB)])
def test_bitmap_chunk_is_as_requested_and_unsupported_sizes_are_refused(lab: Lab, level: str, least: int) -> None:
    finer = spec(level, least // 2)
    with pytest.raises(RequestError, match="mdadm has room for chunks of"):
        finer.refuse_size(DISK_SIZE)
    with pytest.raises(CommandFailed, match="bitmap chunk size not supported"):
        MdArray(finer, lab.server).create()
    asked = spec(level, least)
    asked.refuse_size(DISK_SIZE)
    array = MdArray(asked, lab.server)
    array.create()
    assert array.state().top.bitmap_chunk == least
    assert {one.region_size for one in array.bitmaps().values()} == {least}
    array.deactivate()


def test_a_bit_of_the_bitmap_of_a_small_array_covers_some_per_cent(lab: Lab) -> None:
    asked = stack_of("5").array
    assert isinstance(asked, MdSpec)
    array = MdArray(asked, lab.server)
    array.create()
    chunk = array.state().top.bitmap_chunk
    assert chunk is not None
    assert 0.02 <= chunk / DISK_SIZE <= 0.04
    # The superblock of the bitmap on each member has it, too.
    assert {one.region_size for one in array.bitmaps().values()} == {chunk}
    array.deactivate()
