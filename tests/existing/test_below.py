import json
from typing import Any

import pytest

from raidproof.core.errors import RequestError
from raidproof.existing.below import below
from raidproof.existing.given import Given
from raidproof.existing.reports import Kind, Reports, Text, reports_of

MDSTAT = "Personalities : [raid1]\nmd0 : active raid1 sdb[1] sda[0]\n 9 blocks [2/2] [UU]\nunused devices: <none>\n"
SECOND = MDSTAT.replace("unused", "md1 : active raid1 sdd[1] sdc[0]\n 9 blocks [2/2] [UU]\nunused")


def reports(**texts: str) -> Reports:
    kinds: dict[str, Kind] = {"mdstat": "mdstat", "fstab": "fstab", "lsblk": "lsblk", "xfs": "xfs-info"}
    return reports_of([Text(kinds[name], Given(name, text)) for name, text in texts.items()])


def lsblk(*devices: Any) -> str:
    return json.dumps({"blockdevices": list(devices)})


def disk(name: str, *above: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "disk", "children": list(above), **more}


def test_fstab_names_the_array() -> None:
    found = below(reports(mdstat=SECOND, fstab="/dev/md1 /srv ext4 defaults\n"), "/srv/data")
    assert (found.array.name, found.filesystem, found.filesystem_source) == ("md1", "ext4", "fstab:1")


def test_the_only_array_is_taken_if_fstab_names_it_in_another_way() -> None:
    assert below(reports(mdstat=MDSTAT, fstab="UUID=1 /srv ext4 defaults\n"), "/srv").array.name == "md0"


def test_of_several_arrays_none_is_guessed() -> None:
    with pytest.raises(RequestError, match=r"says on which of several arrays /srv is: md0, md1 \(give --lsblk"):
        below(reports(mdstat=SECOND, fstab="UUID=1 /srv ext4 defaults\n"), "/srv")


def test_a_mount_that_lsblk_lists_counts_before_a_shorter_one_of_fstab() -> None:
    array = {"name": "md1", "type": "raid1", "fstype": "xfs", "mountpoint": "/srv/data"}
    texts = {
        "mdstat": SECOND,
        "fstab": "/dev/md0 /srv ext4 defaults\n",
        "lsblk": lsblk(disk("sdc", array), disk("sdd", array)),
    }
    found = below(reports(**texts), "/srv/data/x")
    assert (found.array.name, found.filesystem, found.mount) == ("md1", "xfs", None)


def test_an_array_with_another_name_is_known_by_its_members() -> None:
    array = {"name": "md127", "type": "raid1", "fstype": "xfs", "mountpoint": "/srv"}
    assert (
        below(reports(mdstat=MDSTAT, lsblk=lsblk(disk("sda", array), disk("sdb", array))), "/srv").array.name == "md0"
    )


def test_without_mdadm_the_array_is_as_lsblk_describes_it() -> None:
    array = {"name": "md0", "type": "raid6", "fstype": "xfs", "mountpoint": "/srv"}
    found = below(reports(lsblk=lsblk(*(disk(f"sd{letter}", array) for letter in "abcd"))), "/srv").array
    assert (found.level, found.raid_devices, found.chunk_size) == ("raid6", 4, None)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"mdstat": MDSTAT}, "none of the given files names the file system of /srv"),
        ({"fstab": "/dev/md0 /srv ext4 defaults\n"}, "no array below /srv is known"),
        (
            {"mdstat": MDSTAT, "fstab": "/dev/md0 /srv jfs defaults\n"},
            "is on jfs: raidproof can create xfs and ext4 only",
        ),
        (
            {"lsblk": lsblk(disk("sda", fstype="ext4", mountpoint="/srv"))},
            "/srv is not on an md array, but on sda",
        ),
        (
            {"lsblk": lsblk(disk("sda", {"name": "drbd0", "fstype": "ext4", "mountpoint": "/srv"}))},
            "is on drbd0, which raidproof cannot create",
        ),
        (
            {"mdstat": MDSTAT, "lsblk": lsblk(disk("x", {"name": "md9", "fstype": "xfs", "mountpoint": "/srv"}))},
            "md9 is not among the arrays that were given: md0",
        ),
        (
            {"lsblk": lsblk(disk("x", {"name": "md9", "fstype": "xfs", "mountpoint": "/srv"}))},
            "the level of md9 is not known",
        ),
    ],
)
def test_a_server_without_one_md_array_is_refused(texts: dict[str, str], said: str) -> None:
    with pytest.raises(RequestError, match=said) as refused:
        below(reports(**texts), "/srv")
    assert "(" in str(refused.value)
