"""The flags of md's members: requests, commands, and the flags that sysfs shows."""

from typing import Any

import pytest

from raidproof.core.errors import NotEffective, RequestError
from raidproof.core.layer import differences, require_effective
from raidproof.plan.axes import axes
from raidproof.storage.array import ExpectedDeviation, MdSpec, parse_md
from raidproof.storage.array.array import asked_of
from raidproof.storage.array.mdadm import add_command, bitmap_command, create_command
from raidproof.storage.array.state import found_of
from tests.guest_files import parse_read
from tests.storage.array.test_state import DATA, disks, names_of

PATHS = [f"/dev/disk/by-id/raidproof-{serial}" for serial in disks(3)]
TEXT = (DATA / "linux-6.12-raid1-write-mostly.txt").read_text()
"""Members disk0 to disk2 with the flag failfast, the last one write-mostly, with 256 writes behind."""


def mirror(**asked: Any) -> MdSpec:
    return MdSpec.model_validate({"level": 1, "members": disks(3), **asked})


FLAGGED = mirror(write_mostly=1, write_behind=256, failfast=True)


def differing(spec: MdSpec, text: str = TEXT) -> list[str]:
    (md,) = spec.devices
    found = found_of(parse_md(md, names_of(spec, "6.12"), parse_read(text)))
    return [one.field for one in differences(asked_of(md, spec), found)]


def test_flags_follow_the_bitmap_and_come_before_their_members() -> None:
    words = create_command(FLAGGED.devices[0])
    assert words[words.index("--bitmap=internal") :] == [
        *("--bitmap=internal", "--write-behind=256", "--failfast", *PATHS[:2], "--write-mostly", PATHS[2])
    ]
    plain = create_command(mirror().devices[0])
    assert plain[-3:] == PATHS
    assert not any(word.startswith(("--write", "--fail")) for word in plain)


def test_a_replaced_member_and_a_replaced_bitmap_keep_the_settings() -> None:
    (md,) = FLAGGED.devices
    assert add_command(md, PATHS[2])[2:] == ["--add", "--failfast", "--write-mostly", PATHS[2]]
    assert add_command(md, PATHS[0])[2:] == ["--add", "--failfast", PATHS[0]]
    assert (bitmap_command(md) or [])[-1] == "--write-behind=256"


def test_flags_are_read_back() -> None:
    assert differing(FLAGGED) == []


@pytest.mark.parametrize(
    ("right", "wrong", "field"),
    [
        ("in_sync,write_mostly,failfast", "in_sync,failfast", "write_mostly"),
        ("state:in_sync,failfast", "state:in_sync,write_mostly,failfast", "write_mostly"),
        ("in_sync,write_mostly,failfast", "in_sync,write_mostly", "failfast"),
        ("backlog:256", "backlog:0", "write_behind"),
        ("/sys/block/md0/md/bitmap/backlog:256\n", "", "write_behind"),
    ],
)
def test_other_flags_than_the_requested_are_found(right: str, wrong: str, field: str) -> None:
    assert right in TEXT
    assert differing(FLAGGED, TEXT.replace(right, wrong)) == [field]


def test_flags_that_nobody_requested_are_found() -> None:
    assert differing(mirror()) == ["write_mostly", "write_behind", "failfast"]


def test_a_flagged_member_may_be_missing_if_a_fault_took_it() -> None:
    (md,) = FLAGGED.devices
    text = "".join(line for line in TEXT.splitlines(keepends=True) if "dev-vdc/" not in line)
    found = found_of(parse_md(md, names_of(FLAGGED, "6.12"), parse_read(text)))
    asked = asked_of(md, FLAGGED)
    taken = ExpectedDeviation(absent=frozenset({"disk2"}))
    require_effective("md0", taken.accepted(md, asked, found), found)
    with pytest.raises(NotEffective, match="inputs"):
        require_effective("md0", ExpectedDeviation().accepted(md, asked, found), found)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"level": 5, "write_mostly": 1}, "write-mostly: md ignores it on RAID5; it takes effect on RAID1"),
        ({"level": 5, "failfast": True}, "takes effect on RAID1 and 10"),
        ({"level": "1+0", "members": disks(4), "failfast": True}, "takes effect on RAID1 and 10"),
        ({"write_mostly": 3}, "leaves no other member of 3"),
        ({"write_mostly": 1, "spares": ("hot",)}, "would make the spares write-mostly"),
        ({"write_behind": 5}, "write_mostly requests none"),
        ({"write_mostly": 1, "write_behind": 5, "bitmap": "none"}, "needs a write-intent bitmap"),
        ({"write_mostly": 1, "write_behind": 16384}, "16383"),
        ({"write_mostly": -1}, "greater than or equal to 0"),
    ],
)
def test_flags_without_an_effect_are_refused(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        mirror(**asked)


def test_axes_of_flags_are_left_out_of_levels_that_ignore_them() -> None:
    known = axes()
    for name in ("write_mostly", "write_behind"):
        assert known[name].applies({"level": "1"})
        assert not known[name].applies({"level": "10"})
        assert not known[name].applies({"level": "1", "raid": "lvm"})
    assert known["failfast"].applies({"level": "10"})
    assert not known["failfast"].applies({})
