"""What the plan of an existing server leaves out, and the reasons for its defaults."""

import json
from typing import Any

import pytest

from raidproof.core.errors import RequestError
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
    "mdstat": "mdstat",
    "mdadm": "mdadm",
    "examine": "examine",
    "lvs": "lvs",
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


@pytest.mark.parametrize(
    ("accepted", "setting"),
    [
        ("none", None),
        ("none:tls:mtls", None),
        ("tls:none", None),
        ("tls", "tls"),
        ("mtls:tls", "tls"),
        ("mtls", "mtls"),
    ],
)
def test_the_plan_has_the_transport_security_that_the_export_requires(accepted: str, setting: str | None) -> None:
    exports = f"/srv *(rw,xprtsec={accepted})\n"
    found = server(exports=exports).settings.get("xprtsec")
    assert (None if found is None else found.value) == setting
    assert left_out(exports=exports) == []


@pytest.mark.parametrize(
    ("accepted", "setting"),
    [("sys", None), ("krb5p:sys", None), ("krb5p", "krb5p"), ("krb5:krb5i:krb5p", "krb5"), ("krb5p:krb5i", "krb5i")],
)
def test_the_plan_has_the_least_security_of_requests_that_the_export_accepts(
    accepted: str, setting: str | None
) -> None:
    exports = f"/srv *(rw,sec={accepted})\n"
    found = server(exports=exports).settings.get("sec")
    assert (None if found is None else found.value) == setting
    assert left_out(exports=exports) == []


def test_an_unknown_security_of_requests_is_left_out() -> None:
    (one,) = (text for text in left_out(exports="/srv *(rw,sec=none)\n") if "sec=none" in text)
    assert one.endswith("unknown security: a lab has sys, krb5, krb5i, krb5p")


def test_an_old_client_of_an_export_that_requires_tls_is_re_created_without_it() -> None:
    texts = [Text(kind, Given(kind, text)) for kind, text in BASE.items() if kind != "exports"]
    texts.append(Text("exports", Given("exports", "/srv *(rw,xprtsec=mtls)\n")))
    found = server_of(reports_of(texts, [Given("client", "nas:/srv /mnt nfs vers=3 0 0\n")]), "/srv")
    assert found.settings["vers"].value == "3"
    assert "xprtsec" not in found.settings
    (one,) = (str(one) for one in found.left_out if "xprtsec" in str(one))
    assert one.startswith("export option xprtsec=mtls (exports:1): a lab has TLS only with NFS version 4.1 and 4.2")
    assert "unknown" in " ".join(left_out(exports="/srv *(rw,xprtsec=ssl)\n"))


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
    encrypted = {"name": "data", "type": "crypt", "children": [volume]}
    array = {"name": "md0", "type": "raid1", "children": [encrypted]}
    disks = [{"name": name, "type": "disk", "children": [array]} for name in ("sda", "sdb")]
    assert (
        "LVM (vg0-data) (lsblk): the lab has at most one device between file system and array: dm-crypt, or a linear "
        "or thin volume" in left_out(lsblk=json.dumps({"blockdevices": disks}), fstab="")
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


def test_a_thin_volume_and_its_pool_are_one_volume() -> None:
    volume = {"name": "vg0-data", "type": "lvm", "fstype": "xfs", "mountpoint": "/srv"}
    pool = {"name": "vg0-thin-tpool", "type": "lvm", "children": [volume]}
    parts = [{"name": f"vg0-thin_{part}", "type": "lvm", "children": [pool]} for part in ("tmeta", "tdata")]
    found = on_array(*parts)
    assert found.settings["volume"] == read("thin", "lsblk")
    assert found.left_out == ()


def test_a_logical_volume_with_other_hidden_parts_is_left_out() -> None:
    volume = {"name": "vg0-data", "type": "lvm", "fstype": "xfs", "mountpoint": "/srv"}
    origin = {"name": "vg0-data-real", "type": "lvm", "children": [volume]}
    found = on_array(origin)
    assert "volume" not in found.settings
    assert [one.what for one in found.left_out] == ["LVM (vg0-data)", "LVM (vg0-data-real)"]


def lvs(**volumes: dict[str, str]) -> str:
    """Return a report of lvs about volumes of the group vg0, with some columns of each."""
    names = ("vg_name", "lv_name", "segtype", "pool_lv", "chunk_size", "discards")
    base = dict.fromkeys(names, "") | {"vg_name": "vg0", "chunk_size": "0"}
    rows = [base | {"lv_name": name} | columns for name, columns in volumes.items()]
    return json.dumps({"report": [{"lv": rows}]})


THIN = {
    "data": {"segtype": "thin", "pool_lv": "thin"},
    "thin": {"segtype": "thin-pool", "chunk_size": "131072", "discards": "nopassdown"},
    "[thin_tdata]": {"segtype": "linear"},
}


def test_lvs_has_the_settings_of_a_thin_pool() -> None:
    volume = {"name": "vg0-data", "type": "lvm", "fstype": "xfs", "mountpoint": "/srv"}
    found = on_array({"name": "vg0-thin-tpool", "type": "lvm", "children": [volume]}, lvs=lvs(**THIN))
    assert {name: found.settings.get(name) for name in ("volume", "thin_chunk", "thin_discards")} == {
        "volume": read("thin", "lvs"),
        "thin_chunk": read(131072, "lvs"),
        "thin_discards": read("nopassdown", "lvs"),
    }
    passing = lvs(**THIN).replace("nopassdown", "passdown")
    assert "thin_discards" not in on_array(volume, lvs=passing).settings


@pytest.mark.parametrize(("segments", "kind"), [(["linear", "linear"], "linear"), (["linear", "striped"], None)])
def test_a_volume_with_segments_of_several_kinds_is_left_out(segments: list[str], kind: str | None) -> None:
    volume = {"name": "vg0-my--data", "type": "lvm", "fstype": "xfs", "mountpoint": "/srv"}
    report = json.loads(lvs(data={}))
    (row,) = report["report"][0]["lv"]
    report["report"][0]["lv"] = [{**row, "lv_name": "my-data", "segtype": one} for one in segments]
    fact = on_array(volume, lvs=json.dumps(report)).settings.get("volume")
    assert (fact.value if fact else None) == kind


@pytest.mark.parametrize("text", ["[]", "{}", '{"report": [{"lv": [{"lv_name": "data"}]}]}', "no JSON"])
def test_another_text_than_a_report_of_lvs_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="lvs:1"):
        server(lvs=text)


def test_a_size_with_a_unit_is_refused() -> None:
    with pytest.raises(RequestError, match=r"chunk_size: not a number of bytes: '64.00k'"):
        server(lvs=lvs(thin={"chunk_size": "64.00k"}))


def on_array(*volumes: dict[str, Any], **texts: str) -> ExistingServer:
    """Return the imported server with these devices on a RAID1."""
    array = {"name": "md0", "type": "raid1", "children": list(volumes)}
    disks = [{"name": name, "type": "disk", "children": [array]} for name in ("sda", "sdb")]
    return server(lsblk=json.dumps({"blockdevices": disks}), fstab="", **texts)


MOSTLY = """Personalities : [raid1]
md0 : active raid1 sdc1[2] sdb1[1] sda1[0](W)
      976630464 blocks super 1.2 [3/3] [UUU]
      bitmap: 0/8 pages [0KB], 65536KB chunk

unused devices: <none>
"""


def test_write_mostly_members_are_the_last_ones_with_their_write_behind() -> None:
    found = server(mdstat=MOSTLY, sysfs="/sys/block/md0/md/bitmap/backlog:256\n")
    assert [one.name for one in found.drives] == ["sdb1", "sdc1", "sda1"]
    assert found.settings["write_mostly"] == read(1, "mdstat:2")
    assert found.settings["write_behind"] == read(256, "sysfs:1")
    plain = server(mdstat=MOSTLY, sysfs="/sys/block/md0/md/bitmap/backlog:0\n")
    assert "write_behind" not in plain.settings


def test_a_missing_member_stands_before_the_write_mostly_ones() -> None:
    text = MOSTLY.replace("sdc1[2] ", "").replace("[3/3] [UUU]", "[3/2] [UU_]")
    assert [one.name for one in server(mdstat=text).drives] == ["sdb1", "missing", "sda1"]


def test_write_mostly_members_beside_a_spare_are_left_out() -> None:
    found = server(mdstat=MOSTLY.replace("sdc1[2] ", "sdd1[3](S) sdc1[2] "))
    assert "write_mostly" not in found.settings
    assert "sda1: write-mostly" in [one.what for one in found.left_out]


@pytest.mark.parametrize(
    ("second", "failfast"),
    [("active sync failfast", True), ("active sync", None), ("spare rebuilding failfast", True)],
)
def test_failfast_of_all_members_is_re_created(second: str, failfast: bool | None) -> None:
    rows = ["active sync failfast", second]
    table = "".join(f"       {slot}  8  {slot}  {slot}      {row}   /dev/sd{slot}\n" for slot, row in enumerate(rows))
    detail = f"/dev/md0:\n        Raid Level : raid1\n      Raid Devices : 2\n\n{table}"
    found = server(mdadm=detail)
    fact = found.settings.get("failfast")
    assert (fact.value if fact else None) == failfast
    assert ("sd0: failfast" in [one.what for one in found.left_out]) == (failfast is None)


def test_flags_of_superblocks_are_read() -> None:
    part = (
        "/dev/sd{}1:\n          Magic : a92b4efc\n        Version : 1.2\n    Feature Map : 0x1\n"
        "           Name : host:0\n     Array UUID : 4a6ebb1c:0a1ab9e3:bd3c1b92:6a0b5d55\n"
        "     Raid Level : raid1\n   Raid Devices : 2\n"
        "{}   Device Role : Active device {}\n"
    )
    text = part.format("a", "", 0) + part.format("b", "          Flags : write-mostly quux\n", 1)
    found = server(examine=text)
    assert found.settings["write_mostly"].value == 1
    assert [one.what for one in found.left_out if "Flags" in one.what] == ["Flags : quux"]
