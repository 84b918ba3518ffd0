import re
import struct

import pytest

from raidproof.crash.redundancy import LOCKLESS, Bitmap, accuracy_of, bitmaps_of, dirty, parse_bitmap
from raidproof.storage.array.striping import ROW, Assembled, Difference, Striping
from raidproof.storage.array.superblock import HEADER, IN_SYNC, Feature, parse_superblock
from tests.crash.md_members import MD, Disks, member

NAMES = ("raid5-clean-disk1", "raid5-dirty-disk0", "raid5-dirty-disk1", "raid10-disk1")
STRIPING = Striping(5, 2, 2 * ROW, 4, 64 * ROW)
CHUNK = 8 * ROW
AT = 8192
WITH_BITMAP: dict[str, object] = {"features": Feature.BITMAP, "bitmap_offset": AT}
ROWS = (Difference(3, 0), Difference(60, 0))


def bitmap_of(name: str) -> Bitmap:
    found = parse_bitmap(member(name)[AT : AT + HEADER], AT)
    assert found is not None
    return found


@pytest.mark.parametrize("name", NAMES)
def test_says_what_mdadm_says(name: str) -> None:
    found = bitmap_of(name)
    text = (MD / f"mdadm-4.4-examine-bitmap-{name}.txt").read_text()
    said = {key.strip(): value.strip() for key, _, value in (line.partition(" : ") for line in text.splitlines())}
    assert found.uuid == said["UUID"]
    assert str(found.version) == said["Version"]
    assert (str(found.events), str(found.events_cleared)) == (said["Events"], said["Events Cleared"])
    assert f"{found.chunk_size >> 20} MB" == said["Chunksize"]
    assert str(found.sync_size // 1024) == said["Sync Size"].split()[0]
    counted = re.match(r"(\d+) bits \(chunks\), (\d+) dirty", said["Bitmap"])
    assert counted is not None
    assert str(found.chunks) == counted[1]
    read = lambda _, at, length: member(name)[at : at + length]  # noqa: E731
    assert dirty({0: found}, read) == {0: int(counted[2])}


def test_marks_lie_where_the_real_array_was_written() -> None:
    """At 0, 5 and 200 MiB of the array: of three members of data, so a third of that on each."""
    found = bitmap_of("raid5-dirty-disk0")
    read = lambda _, at, length: member("raid5-dirty-disk0")[at : at + length]  # noqa: E731
    marked = [chunk for chunk in range(found.chunks) if found.marked(read, 0, chunk << 20)]
    assert marked == [0, 1, 66]


def test_real_members_are_judged() -> None:
    members = {number: member(f"raid5-dirty-disk{number}") for number in (0, 1)}
    read = lambda number, at, length: members.get(number, members[1])[at : at + length]  # noqa: E731
    supers = {number: parse_superblock(data[4096:8192]) for number, data in members.items()}
    array = Assembled.of(supers)
    assert array is not None
    assert [one is not None for one in bitmaps_of(array, read).values()] == [True, True]
    assert accuracy_of(array, read, [Difference(0, 0)]).unchecked == "2 of 4 members are missing"


@pytest.mark.parametrize("data", [b"", bytes(HEADER), b"bitm" + bytes(8)])
def test_what_is_no_bitmap_is_none(data: bytes) -> None:
    assert parse_bitmap(data, 0) is None


class Marked(Disks):
    """A RAID5 with a bitmap on each member."""

    def __init__(self, chunks: dict[int, set[int]], events: int = 7, version: int = 4, **changes: object) -> None:
        super().__init__(STRIPING, 1, **{**WITH_BITMAP, **changes})
        for role, disk in enumerate(self.disks):
            head = struct.pack("<II16sQQQIIIIII", 0x6D746962, version, b"", events, 0, 64 * 8, 0, CHUNK, 5, 0, 0, 0)
            bits = sum(1 << chunk for chunk in chunks.get(role, set()))
            disk[AT : AT + len(head)] = head
            disk[AT + HEADER : AT + HEADER + 8] = bits.to_bytes(8, "little")


def everywhere(*chunks: int) -> dict[int, set[int]]:
    return {role: set(chunks) for role in range(4)}


def test_an_array_without_redundancy_has_no_policy() -> None:
    disks = Disks(Striping(0, 0, 2 * ROW, 4, 64 * ROW))
    judged = accuracy_of(disks.array, disks.read, ())
    assert (judged.policy, judged.unchecked) == ("none", "RAID0 has no redundancy")


def test_rows_that_are_marked_everywhere_are_right() -> None:
    disks = Marked(everywhere(0, 7))
    judged = accuracy_of(disks.array, disks.read, ROWS)
    assert judged.kept
    assert (judged.policy, judged.differ) == ("bitmap", ROWS)
    assert str(judged) == "2 rows differ"


def test_marks_on_everything_prove_nothing_and_say_so() -> None:
    disks = Marked(everywhere(*range(8)))
    judged = accuracy_of(disks.array, disks.read, ROWS)
    assert judged.all_marked
    assert str(judged).endswith("the bitmap marks all chunks")
    other = Marked(everywhere(*range(7)))
    assert not accuracy_of(other.array, other.read, ROWS[:1]).all_marked


def test_a_row_that_is_marked_nowhere_is_a_broken_promise() -> None:
    disks = Marked(everywhere(7))
    judged = accuracy_of(disks.array, disks.read, ROWS)
    assert (judged.unmarked, judged.uneven) == ((ROWS[0],), ())
    assert not judged.kept
    assert "md would not resync: 1, the first row 3" in str(judged)


def test_a_row_that_is_marked_on_some_members_is_told_apart() -> None:
    disks = Marked({**everywhere(0, 7), 2: {7}})
    judged = accuracy_of(disks.array, disks.read, ROWS)
    assert (judged.unmarked, judged.uneven) == ((), (ROWS[0],))
    assert not judged.kept
    assert "only some members mark" in str(judged)


def test_a_bitmap_that_is_out_of_date_has_everything_resynced() -> None:
    disks = Marked({}, events=6)
    assert accuracy_of(disks.array, disks.read, ROWS).kept


def test_a_member_without_its_bitmap_marks_nothing() -> None:
    disks = Marked(everywhere(0, 7))
    disks.disks[1][AT : AT + 4] = bytes(4)
    assert accuracy_of(disks.array, disks.read, ROWS).uneven == ROWS


def test_marks_help_nothing_if_the_superblock_says_clean() -> None:
    disks = Marked(everywhere(0, 7), resync_offset=IN_SYNC)
    assert accuracy_of(disks.array, disks.read, ROWS).unmarked == ROWS


def test_marks_before_the_resync_offset_are_not_resynced() -> None:
    disks = Marked(everywhere(0, 7), resync_offset=2 * CHUNK)
    assert accuracy_of(disks.array, disks.read, ROWS).unmarked == (ROWS[0],)


def test_without_a_bitmap_the_superblock_must_not_say_clean() -> None:
    dirty_one, clean = Disks(STRIPING), Disks(STRIPING, resync_offset=IN_SYNC)
    assert accuracy_of(dirty_one.array, dirty_one.read, ROWS).kept
    judged = accuracy_of(clean.array, clean.read, ROWS)
    assert (judged.policy, judged.unmarked) == ("resync", ROWS)


def test_without_a_bitmap_what_lies_before_the_resync_offset_stays() -> None:
    disks = Disks(STRIPING, resync_offset=4 * ROW)
    assert accuracy_of(disks.array, disks.read, ROWS).unmarked == (ROWS[0],)
    straddling = Disks(STRIPING, resync_offset=3 * ROW + 512)
    assert accuracy_of(straddling.array, straddling.read, ROWS).kept


def test_raid10_counts_in_bytes_of_the_array() -> None:
    striping = Striping(10, 0x102, 2 * ROW, 4, 64 * ROW)
    disks = Disks(striping, resync_offset=100 * ROW)
    one = Difference(60, 120 * ROW)
    assert accuracy_of(disks.array, disks.read, [one]).kept
    assert not accuracy_of(disks.array, disks.read, [Difference(60, 90 * ROW)]).kept


@pytest.mark.parametrize("feature", [Feature.PPL, Feature.MULTIPLE_PPLS, Feature.JOURNAL])
def test_logs_are_not_judged_and_say_so(feature: Feature) -> None:
    disks = Disks(STRIPING, features=feature, resync_offset=IN_SYNC)
    judged = accuracy_of(disks.array, disks.read, ROWS)
    assert judged.kept
    assert str(judged).startswith("redundancy not checked: ")


def test_a_lockless_bitmap_is_not_judged() -> None:
    disks = Marked(everywhere(), version=LOCKLESS)
    assert accuracy_of(disks.array, disks.read, ROWS).unchecked == "the bitmap has version 6"


def test_where_nothing_differs_nothing_is_wrong() -> None:
    disks = Disks(STRIPING, resync_offset=IN_SYNC)
    assert accuracy_of(disks.array, disks.read, []).kept
