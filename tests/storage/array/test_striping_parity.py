import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raidproof.storage.array.striping import ROW, Assembled, Striping, differences
from raidproof.storage.array.superblock import Feature
from tests.crash.md_members import Disks, superblock

SHAPES = [
    Striping(1, 0, 32 * ROW, 2, 32 * ROW),
    Striping(4, 0, 2 * ROW, 3, 32 * ROW),
    Striping(5, 2, 2 * ROW, 4, 32 * ROW),
    Striping(6, 2, 2 * ROW, 5, 32 * ROW),
    Striping(6, 9, 2 * ROW, 5, 32 * ROW),
    Striping(6, 18, 2 * ROW, 5, 32 * ROW),
    Striping(10, 0x102, 2 * ROW, 4, 32 * ROW),
    Striping(10, 0x102, 2 * ROW, 3, 32 * ROW),
]
ALL = range(32)


@pytest.mark.parametrize("striping", SHAPES)
def test_an_array_that_agrees_has_no_differences(striping: Striping) -> None:
    disks = Disks(striping)
    assert not differences(disks.array, disks.read, ALL)


@pytest.mark.parametrize("striping", SHAPES)
@settings(max_examples=20, deadline=None)
@given(role=st.integers(0, 4), row=st.integers(0, 31), byte=st.integers(0, ROW - 1), bits=st.integers(1, 255))
def test_one_wrong_byte_of_any_member_is_found(striping: Striping, role: int, row: int, byte: int, bits: int) -> None:
    disks, role = Disks(striping), role % striping.members
    disks.disks[role][16384 + row * ROW + byte] ^= bits
    found = differences(disks.array, disks.read, ALL)
    if striping.chunk(role, row * ROW).part == "unused":
        assert not found
    elif striping.level == 10:
        # The other copy may lie one stripe further: then both rows show it.
        assert {one.array_offset for one in found} == {striping.chunk(role, row * ROW).offset}
    else:
        assert [one.row for one in found] == [row]


def test_all_of_q_depends_on_the_order_of_the_members() -> None:
    disks = Disks(SHAPES[3])
    first, second = disks.striping.raid.row(0).data[:2]
    one, other = (bytes(disks.disks[role][16384 : 16384 + ROW]) for role in (first, second))
    disks.page(first, 0, other)
    disks.page(second, 0, one)
    # P is the same for two members that were swapped: only Q tells.
    assert [one.row for one in differences(disks.array, disks.read, ALL)] == [0]


def test_rows_are_those_that_the_writes_touched() -> None:
    array = Disks(SHAPES[2]).array
    assert array.rows_of([(0, 16384 + ROW - 1, 2)]) == [0, 1]
    assert array.rows_of([(0, 4096, 4096), (9, 16384, ROW), (1, 16384, 0)]) == []
    assert array.rows_of([(0, 8192, 8192 + 1), (3, 16384 + 31 * ROW, 5 * ROW)]) == [0, 31]


@pytest.mark.parametrize(
    ("striping", "left_out", "reason"),
    [(SHAPES[2], 1, "1 of 4 members are missing"), (Striping(0, 0, ROW, 2, 4 * ROW), None, "no redundancy")],
)
def test_the_reason_against_a_comparison_is_reported(striping: Striping, left_out: int | None, reason: str) -> None:
    supers = {role: superblock(striping, role) for role in range(striping.members) if role != left_out}
    array = Assembled.of(supers)
    assert array is not None
    assert array.incomplete is not None
    assert reason in array.incomplete
    assert not differences(array, Disks(SHAPES[2]).read, ALL)


def test_a_member_that_md_would_leave_out_is_not_compared() -> None:
    striping = SHAPES[2]
    for stale in ({"events": 5}, {"whole": False}, {"uuid": "b"}, {"features": Feature.RECOVERY_OFFSET}):
        supers = {role: superblock(striping, role, **(stale if role == 2 else {})) for role in range(4)}
        array = Assembled.of(supers)
        assert array is not None
        assert array.incomplete


def test_a_member_that_is_whole_is_compared_whatever_else_its_superblock_has() -> None:
    more = Feature.BITMAP | Feature.BAD_BLOCKS | Feature.PPL
    array = Assembled.of({role: superblock(SHAPES[2], role, features=more) for role in range(4)})
    assert array is not None
    assert array.incomplete is None


def test_one_update_behind_is_taken_in() -> None:
    supers = {role: superblock(SHAPES[2], role, events=7 - (role == 2)) for role in range(4)}
    array = Assembled.of(supers)
    assert array is not None
    assert array.incomplete is None


def test_no_superblock_is_no_array() -> None:
    assert Assembled.of({0: None, 1: None}) is None


def test_serials_may_be_in_another_order_than_roles() -> None:
    """Only Q depends on the order of the members; P does not."""
    disks = Disks(SHAPES[3])
    array = Assembled.of({number: superblock(SHAPES[3], 4 - number) for number in range(5)})
    assert array is not None
    assert not differences(array, lambda number, at, length: disks.read(4 - number, at, length), ALL)
    assert differences(array, disks.read, ALL)
