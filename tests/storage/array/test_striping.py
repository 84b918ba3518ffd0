import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError
from raidproof.storage.array.level import Part
from raidproof.storage.array.striping import Striping
from tests.crash.md_members import superblock

CHUNK = 65536
RAID6 = (0, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20)


@st.composite
def stripings(draw: st.DrawFn) -> Striping:
    level = draw(st.sampled_from([0, 1, 4, 5, 6, 10]))
    members = draw(st.integers(4 if level == 6 else 3 if level in {4, 5} else 2, 7))
    layout = {
        5: st.integers(0, 5),
        6: st.sampled_from(RAID6),
        10: st.integers(2, members).map(lambda copies: 0x100 | copies),
    }.get(level, st.just(0))
    chunks = draw(st.integers(1, 60))
    return Striping(level, draw(layout), CHUNK if level != 1 else chunks * CHUNK, members, chunks * CHUNK)


@given(stripings(), st.data())
def test_every_byte_of_the_array_is_found_where_it_lies(striping: Striping, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, striping.capacity - 1))
    places = striping.places(offset)
    assert len(set(places)) == len({role for role, _ in places}) == striping.raid.copies
    for role, at in places:
        assert 0 <= at < striping.size
        chunk = striping.chunk(role, at)
        assert (chunk.part, chunk.offset) == (Part.DATA, offset)


@given(stripings())
def test_places_are_bijective_and_leave_only_parity(striping: Striping) -> None:
    step = CHUNK
    used = [place for offset in range(0, striping.capacity, step) for place in striping.places(offset)]
    assert len(used) == len(set(used))
    rest = {(role, at) for role in range(striping.members) for at in range(0, striping.size, step)} - set(used)
    parts = [striping.chunk(role, at).part for role, at in rest]
    assert Part.DATA not in parts
    parities = {4: 1, 5: 1, 6: 2}.get(striping.level, 0)
    assert len([part for part in parts if part is not Part.UNUSED]) == parities * striping.size // step


@given(stripings())
def test_a_row_has_each_member_once(striping: Striping) -> None:
    if striping.level in {4, 5, 6}:
        for stripe in range(60):
            row = striping.raid.row(stripe)
            roles = [*row.data, row.p, *([row.q] if striping.level == 6 else [])]
            assert sorted(one for one in roles if one is not None) == list(range(striping.members))


def test_left_symmetric_is_what_the_books_show() -> None:
    striping = Striping(5, 2, CHUNK, 4, 100 * CHUNK)
    assert [striping.raid.row(stripe).p for stripe in range(5)] == [3, 2, 1, 0, 3]
    assert [striping.raid.row(stripe).data for stripe in range(3)] == [(0, 1, 2), (3, 0, 1), (2, 3, 0)]


def test_beyond_the_data_nothing_is_used() -> None:
    striping = Striping(5, 2, CHUNK, 4, 10 * CHUNK)
    assert striping.chunk(0, 10 * CHUNK).part is Part.UNUSED
    odd = Striping(10, 0x102, CHUNK, 3, CHUNK)
    assert odd.capacity == CHUNK
    assert odd.chunk(2, 0).part is Part.UNUSED


@pytest.mark.parametrize(
    ("level", "layout", "reason"),
    [(5, 6, "RAID5 layout 6"), (6, 7, "RAID6 layout 7"), (10, 0x201, "near copies"), (-1, 0, "level -1")],
)
def test_refuses_what_it_does_not_know(level: int, layout: int, reason: str) -> None:
    shape = superblock(Striping(5, 2, CHUNK, 4, 10 * CHUNK), 0, level=level, layout=layout)
    with pytest.raises(RequestError, match=reason):
        Striping.of(shape)


def test_refuses_a_reshape() -> None:
    sound = superblock(Striping(5, 2, CHUNK, 4, 10 * CHUNK), 0)
    changing = superblock(Striping(5, 2, CHUNK, 4, 10 * CHUNK), 0, features=sound.features.RESHAPE)
    assert Striping.of(sound).members == 4
    with pytest.raises(RequestError, match="reshaped"):
        Striping.of(changing)
