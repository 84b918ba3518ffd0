"""What the plan of an existing server leaves out, and the reasons for its defaults."""

import json

import pytest

from raidproof.existing.fact import default, read
from raidproof.existing.given import Given
from raidproof.existing.reports import Kind, Text, reports_of
from raidproof.existing.server import ExistingServer, server_of

MDSTAT = (
    "Personalities : [raid1]\nmd0 : active raid1 sdb[1] sda[0]\n 9 blocks super 1.2 [2/2] [UU]\n"
    "unused devices: <none>\n"
)
BASE: dict[Kind, str] = {"mdstat": MDSTAT, "fstab": "/dev/md0 /srv xfs defaults\n", "exports": "/srv *(rw)\n"}


USUAL = "exports:1 (not written: the default of exports(5))"
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


@pytest.mark.parametrize(
    ("options", "squash", "all_squash"),
    [
        ("", True, None),
        ("root_squash,", True, None),
        ("all_squash,", True, True),
        ("no_root_squash,", False, None),
        ("all_squash,no_all_squash,no_root_squash,", False, None),
        ("no_root_squash,root_squash,", True, None),
    ],
)
def test_squashing_is_re_created_however_it_is_written(options: str, squash: bool, all_squash: bool | None) -> None:
    exports = f"/srv *({options}rw)\n"
    assert left_out(exports=exports) == []
    settings = server(exports=exports).settings
    assert settings["root_squash"].value is squash
    assert settings["root_squash"].source == ("exports:1" if "root" in options else USUAL)
    assert settings.get("all_squash") == (None if all_squash is None else read(True, "exports:1"))


def test_without_exports_the_plan_has_the_default_of_exports_5() -> None:
    given = {kind: text for kind, text in BASE.items() if kind != "exports"}
    found = server_of(reports_of([Text(kind, Given(kind, text)) for kind, text in given.items()]), "/srv")
    assert found.settings["root_squash"] == default(True, "no --exports was given; exports(5)")


def test_options_of_the_export_are_re_created_or_have_a_reason() -> None:
    text = (
        "anonuid=1025,anonuid=7,anongid=-2,insecure,fsid=root,mp=/srv,crossmnt,no_auth_nlm,nohide,no_acl,fsid=0,pnfs"
    )
    exports = f"/srv *(rw,{text},subtree_check,synoacl,mountpoint=/x)\n"
    settings = {name: fact.value for name, fact in server(exports=exports).settings.items()}
    assert {name: settings.get(name) for name in ("anonuid", "anongid", "insecure", "subtree_check", "fsid")} == {
        "anonuid": 7,
        "anongid": None,
        "insecure": True,
        "subtree_check": True,
        "fsid": "0",
    }
    assert settings["export_options"] == "mountpoint,crossmnt,insecure_locks,nohide"
    whys = [one.partition(" (exports:1): ") for one in left_out(exports=exports)]
    assert [(what.removeprefix("export option "), why[:20]) for what, _, why in whys] == [
        ("anongid=-2", "not a number from 0 "),
        ("no_acl", "the kernel ignores i"),
        ("pnfs", "with a layout, the w"),
        ("synoacl", "a plan has no settin"),
        ("mountpoint=/x", "the lab exports anot"),
    ]


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
