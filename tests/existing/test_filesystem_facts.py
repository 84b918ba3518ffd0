import re
from typing import Any

import pytest

from raidproof.core.errors import RequestError
from raidproof.existing.given import Given
from raidproof.existing.reports import Kind, Text, reports_of
from raidproof.existing.server import ExistingServer, server_of
from tests.existing.servers import SERVERS

SET = SERVERS / "debian-11-raid5-xfs"
DUMPE2FS = (SERVERS / "debian-12-raid6-ext4-async" / "dumpe2fs.txt").read_text()


def served(**changes: str) -> ExistingServer:
    texts: dict[Kind, str] = {
        "exports": (SET / "exports").read_text(),
        "mdadm": (SET / "mdadm.txt").read_text(),
        "fstab": "/dev/md0 /srv/data xfs defaults\n",
    }
    texts |= {name.replace("_", "-"): text for name, text in changes.items()}  # type: ignore[misc]
    return server_of(reports_of([Text(kind, Given(kind, text)) for kind, text in texts.items()]), "/srv/data")


def values(**changes: str) -> dict[str, Any]:
    return {name: fact.value for name, fact in served(**changes).settings.items()}


@pytest.mark.parametrize(
    ("type_", "options", "kept"),
    [
        ("xfs", "defaults,noatime,nofail,x-systemd.device-timeout=9", "noatime"),
        ("xfs", "allocsize=64m,logbufs=8", "allocsize=64m,logbufs=8"),
        ("xfs", "nobarrier,inode64", "inode64"),
        ("ext4", "barrier=0,commit=30,data=journal", "nobarrier,commit=30"),
        ("ext4", "errors=remount-ro", None),
    ],
)
def test_mount_options_that_change_writes_are_kept(type_: str, options: str, kept: str | None) -> None:
    assert values(fstab=f"/dev/md0 /srv/data {type_} {options}\n").get("mount_options") == kept


def test_barriers_are_known_only_if_the_options_are() -> None:
    assert served(fstab="/dev/md0 /srv/data xfs nobarrier\n").configuration.barriers is False
    assert served().configuration.barriers is True


def test_the_log_on_a_disk_of_a_member_is_recognized() -> None:
    lsblk = (SET / "lsblk.json").read_text().replace('"name": "sde1"', '"name": "sda2", "pkname": "sda"')
    fstab = "/dev/md0 /srv/data xfs logdev=/dev/sda2\n"
    found = served(lsblk=lsblk, fstab=fstab)
    assert found.configuration.log_place == "member's disk"
    assert found.settings["log"].value == "external"
    assert [one.duty for one in found.drives] == ["member"] * 4 + ["log"]


def test_the_data_mode_and_a_missing_journal_of_ext4() -> None:
    fstab = "/dev/md0 /srv/data ext4 data=writeback\n"
    assert values(fstab=fstab, dumpe2fs=DUMPE2FS)["data"] == "writeback"
    without = DUMPE2FS.replace("has_journal ", "")
    found = served(fstab=fstab, dumpe2fs=without)
    assert found.settings["journal"].value is False
    assert "data" not in found.settings
    assert found.configuration.log_place == "none"


def test_a_read_only_export_and_an_unknown_path_are_refused() -> None:
    with pytest.raises(RequestError, match="exports:1: /srv/data is read-only"):
        served(exports="/srv/data *(ro)\n")
    with pytest.raises(RequestError, match="/srv/data is not exported; exported: /srv/x"):
        served(exports="/srv/x *(rw)\n")


def test_features_of_the_superblock_are_re_created() -> None:
    features = "Filesystem features:      has_journal bigalloc fast_commit metadata_csum\nCluster size:  65536"
    text = re.sub(r"^Filesystem features: .*$", features, DUMPE2FS, flags=re.MULTILINE)
    found = values(fstab="/dev/md0 /srv/data ext4 defaults\n", dumpe2fs=text)
    names = ("fast_commit", "inline_data", "orphan_file", "cluster_size")
    assert {name: found.get(name) for name in names} == {
        "fast_commit": True,
        "inline_data": False,
        "orphan_file": False,
        "cluster_size": 65536,
    }
    assert "cluster_size" not in values(fstab="/dev/md0 /srv/data ext4 defaults\n", dumpe2fs=DUMPE2FS)


def test_a_feature_that_an_old_xfs_info_does_not_list_is_left_to_mkfs() -> None:
    info = (SET / "xfs_info.txt").read_text()
    assert values(xfs_info=info)["reflink"] is True
    assert values(xfs_info=info)["rmapbt"] is False
    old = re.sub(r" *(?:reflink|rmapbt)=[01]", "", info)
    assert not {"reflink", "rmapbt"} & values(xfs_info=old).keys()
