from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RigError
from raidproof.storage.array import (
    EVENT_MARGIN,
    Identity,
    examine_command,
    parse_bitmaps,
    parse_examine,
    serial_of,
    stale,
)

DATA = Path(__file__).parents[2] / "data" / "mdadm"
SERIALS = ["disk0", "disk1", "disk2", "disk3"]


def examined(name: str) -> dict[str, Identity]:
    said = (DATA / f"examine-4.4-{name}.txt").read_text()
    return {serial_of(path): one for path, one in parse_examine(said).items()}


def test_members_of_a_whole_array() -> None:
    found = examined("whole")
    assert [(serial, one.slot) for serial, one in found.items()] == list(zip(SERIALS, range(4), strict=True))
    assert len({one.array_uuid for one in found.values()}) == len({one.created for one in found.values()}) == 1
    assert len({one.device_uuid for one in found.values()}) == 4
    assert stale(found) == {}
    assert {one.recovery_offset for one in found.values()} == {None}
    assert {one.reshape_position for one in found.values()} == {None}


def test_a_member_that_was_taken_out_lags_behind() -> None:
    found = examined("member-out")
    assert stale(found) == {"disk1": found["disk0"].events - found["disk1"].events}
    assert found["disk1"].role == "Active device 1"


def test_the_progress_of_a_rebuild_is_read_from_the_member() -> None:
    found = examined("rebuilding")
    assert {serial: one.recovery_offset for serial, one in found.items() if one.recovery_offset is not None} == {
        "disk1": 0
    }
    assert stale(found) == {}


def test_the_progress_of_a_reshape_is_read_from_the_members() -> None:
    assert {one.reshape_position for one in examined("reshaping").values()} == {5760}


def test_a_journal_has_no_place_among_the_members() -> None:
    found = examined("journal")
    assert [one.role for one in found.values()][-1] == "Journal"
    assert [one.slot for one in found.values()] == [0, 1, 2, None]


def test_a_disk_without_metadata_is_left_out() -> None:
    assert parse_examine("") == {}


def test_damaged_metadata_is_none() -> None:
    said = (DATA / "examine-4.4-whole.txt").read_text().replace(" - correct", " - expected 1234abcd", 1)
    assert list(map(serial_of, parse_examine(said))) == SERIALS[1:]


WHOLE = (DATA / "examine-4.4-whole.txt").read_text()


@given(st.integers(0, len(WHOLE)))
def test_output_that_was_cut_off_is_never_read_as_something_else(length: int) -> None:
    try:
        found = parse_examine(WHOLE[:length])
    except RigError:
        return
    # The last line, of which nothing is read, and the end of a role or of its blanks may be missing.
    whole = parse_examine(WHOLE)
    for path, one in found.items():
        assert one.model_copy(update={"role": whole[path].role}) == whole[path]
        assert whole[path].role.startswith(one.role)


def test_one_event_behind_is_current() -> None:
    found = examined("whole")
    one = found["disk2"]
    late = found | {"disk2": one.model_copy(update={"events": one.events - EVENT_MARGIN})}
    assert stale(late) == {}
    late["disk2"] = one.model_copy(update={"events": one.events - EVENT_MARGIN - 1})
    assert stale(late) == {"disk2": EVENT_MARGIN + 1}


def test_arrays_are_compared_with_themselves_only() -> None:
    found = examined("whole")
    other = found["disk3"].model_copy(update={"array_uuid": "another", "events": 1000})
    assert stale(found | {"disk3": other}) == {}


def test_all_members_are_read_by_one_command() -> None:
    assert examine_command(["/dev/a", "/dev/b"]) == ["mdadm", "--examine", "/dev/a", "/dev/b"]


def test_bitmaps() -> None:
    said = (DATA / "examine-bitmap-4.4.txt").read_text()
    found = {serial_of(path): one for path, one in parse_bitmaps(said).items()}
    assert list(found) == SERIALS
    assert {(one.regions, one.region_size) for one in found.values()} == {(5, 64 << 20)}
    assert found["disk0"].dirty <= 5
    assert found["disk1"].events < found["disk0"].events


@pytest.mark.parametrize("line", ["Chunksize", "Bitmap", "Events Cleared"])
def test_a_bitmap_that_is_not_all_there_is_the_rigs_fault(line: str) -> None:
    said = (DATA / "examine-bitmap-4.4.txt").read_text()
    kept = "".join(one for one in said.splitlines(keepends=True) if f"{line} :" not in one)
    with pytest.raises(RigError, match="bitmap"):
        parse_bitmaps(kept)
