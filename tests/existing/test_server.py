"""What the plan of an existing server leaves out, and the reasons for its defaults."""

import json

import pytest

from raidproof.existing.given import Given
from raidproof.existing.reports import Kind, Text, reports_of
from raidproof.existing.server import ExistingServer, server_of

MDSTAT = (
    "Personalities : [raid1]\nmd0 : active raid1 sdb[1] sda[0]\n 9 blocks super 1.2 [2/2] [UU]\n"
    "unused devices: <none>\n"
)
BASE: dict[Kind, str] = {"mdstat": MDSTAT, "fstab": "/dev/md0 /srv xfs defaults\n", "exports": "/srv *(rw)\n"}


KINDS: dict[str, Kind] = {
    "nfs_conf": "nfs-conf",
    "sysfs": "sysfs",
    "lsblk": "lsblk",
    "exports": "exports",
    "fstab": "fstab",
}


def server(**texts: str) -> ExistingServer:
    given = BASE | {KINDS[name]: text for name, text in texts.items()}
    return server_of(reports_of([Text(kind, Given(kind, text)) for kind, text in given.items()]), "/srv")


def left_out(**texts: str) -> list[str]:
    return [str(one) for one in server(**texts).left_out]


@pytest.mark.parametrize("option", ["", "root_squash,", "all_squash,"])
def test_squashing_has_one_reason_however_it_is_written(option: str) -> None:
    (said,) = left_out(exports=f"/srv *({option}rw)\n")
    squash = "all_squash" if "all" in option else "root_squash"
    assert said.startswith(f"export option {squash} (exports:1): plans export with no_root_squash")


def test_a_write_cache_that_the_profile_does_not_have_is_named() -> None:
    exports = "/srv *(rw,no_root_squash)\n"
    lines = [f"/sys/block/{name}/queue/write_cache:write through\n" for name in ("sda", "sdb")]
    assert left_out(exports=exports, sysfs="".join(lines)) == [
        "drives with no write cache: sda, sdb (sysfs:1): disks with profile hdd-7200-sata have a volatile write cache"
    ]
    assert left_out(exports=exports, sysfs=lines[0].replace("through", "back")) == []
    assert left_out(exports=exports) == []


def test_what_is_between_file_system_and_array_is_named_with_a_reason() -> None:
    volume = {"name": "vg0-data", "type": "lvm", "fstype": "xfs", "mountpoint": "/srv"}
    array = {"name": "md0", "type": "raid1", "children": [volume]}
    disks = [{"name": name, "type": "disk", "children": [array]} for name in ("sda", "sdb")]
    assert "LVM (vg0-data) (lsblk): the lab's file system is directly on the array" in left_out(
        lsblk=json.dumps({"blockdevices": disks}), fstab=""
    )


@pytest.mark.parametrize(
    ("conf", "why"),
    [
        ("", "10 s in place of the server's default of 90 s, to keep tests short"),
        ("[nfsd]\nlease-time=90\n", "10 s in place of the server's 90 s (nfs-conf:2), to keep tests short"),
        ("[nfsd]\nlease-time=5\n", "10 s; nfsd refuses the 5 s of nfs-conf:2: it accepts 10 to 3600 s"),
    ],
)
def test_the_reason_for_a_short_lease(conf: str, why: str) -> None:
    assert server(nfs_conf=conf).defaults["lease"] == why
