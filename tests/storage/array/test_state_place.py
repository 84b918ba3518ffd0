import pytest

from raidproof.core.errors import RequestError
from raidproof.core.units import KIB
from raidproof.storage.array.state import Area, members_at, place_of
from raidproof.storage.array.striping import ROW, Striping
from raidproof.storage.array.superblock import Superblock, parse_superblock
from tests.crash.md_members import Disks, member

DATA = 2048 * 512


def of(name: str) -> Superblock:
    found = parse_superblock(member(name)[4096:8192])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "offset", "area"),
    [
        ("raid5-dirty-disk1", 0, Area.UNUSED),
        ("raid5-dirty-disk1", 4096, Area.SUPERBLOCK),
        ("raid5-dirty-disk1", 8192 + 256, Area.BITMAP),
        ("raid5-dirty-disk1", 4096 + 16 * 512, Area.BAD_BLOCKS),
        ("raid5-dirty-disk1", 4096 + 24 * 512, Area.UNUSED),
        ("raid5-ppl-disk1", 4096 + 8 * 512, Area.PPL),
        ("raid5-ppl-disk1", 4096 + 2056 * 512 - 1, Area.PPL),
        ("raid5-ppl-disk1", 4096 + 2056 * 512, Area.BAD_BLOCKS),
        ("raid5-journal-disk4", DATA, Area.JOURNAL),
        ("raid1-disk1", 8192, Area.UNUSED),
    ],
)
def test_metadata_of_real_members(name: str, offset: int, area: Area) -> None:
    place = place_of(of(name), offset)
    assert (place.area, place.array_offset) == (area, None)
    assert str(place) == area.value


def test_data_and_parity_of_a_real_member() -> None:
    """Left-symmetric, four members: disk1 holds the second chunk, then parity in the third stripe."""
    first = place_of(of("raid5-dirty-disk1"), DATA + 5)
    assert (first.area, first.stripe, first.chunk, first.array_offset) == (Area.DATA, 0, 1, 64 * KIB + 5)
    assert str(first) == f"stripe 0, data chunk 1, array byte {64 * KIB + 5}"
    parity = place_of(of("raid5-dirty-disk1"), DATA + 2 * 64 * KIB)
    assert (parity.area, parity.stripe, parity.array_offset) == (Area.P, 2, None)
    assert str(parity) == "stripe 2, parity"


def test_behind_the_data_nothing_is_used() -> None:
    one = of("raid5-dirty-disk1")
    assert place_of(one, one.data_offset + one.data_size).area is Area.UNUSED


def test_a_byte_of_the_array_is_found_on_its_members() -> None:
    disks = Disks(Striping(5, 2, 2 * ROW, 4, 16 * ROW))
    ((number, at),) = members_at(disks.array, 3 * 2 * ROW + 7)
    assert (number, at) == (3, 16384 + 2 * ROW + 7)
    with pytest.raises(RequestError, match=r"array offset .* is outside"):
        members_at(disks.array, 48 * ROW)
