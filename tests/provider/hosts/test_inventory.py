from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError
from raidproof.provider.hosts.inventory import BY_ID, load_inventory, parse_inventory, why_unstable
from raidproof.provider.hosts.power import SysrqControl

GOOD = """
[server]
name = "server"
host = "nas"
user = "admin"
sudo = true
address = "192.0.2.10"

[[client]]
name = "client1"
host = "192.0.2.21"

[[disk]]
id = "/dev/disk/by-id/ata-DRIVE_A1"
size = "4TiB"
[[disk]]
id = "/dev/disk/by-id/wwn-0x5000c500b2"

[power.server]
kind = "sysrq"
"""


def test_an_inventory_is_read() -> None:
    inventory = parse_inventory(GOOD)
    assert [machine.name for machine in inventory.machines] == ["server", "client1"]
    assert list(inventory.disks) == ["disk0", "disk1"]
    assert inventory.disks["disk0"].size == 4 << 40
    assert inventory.power == {"server": SysrqControl(kind="sysrq")}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("sudo", "sudoo", "HostSpec has no field 'sudoo'; did you mean 'sudo'"),
        ('"client1"', '"server"', "machine name used twice: server"),
        ('"192.0.2.21"', '"nas"', "host used twice: nas"),
        ("wwn-0x5000c500b2", "ata-DRIVE_A1", "disk used twice"),
        ("[power.server]", "[power.sever]", "[power.sever]: no machine has this name"),
        ('kind = "sysrq"', 'kind = "sysreq"', "did you mean 'sysrq'"),
        (
            'kind = "sysrq"',
            'kind = "ipmi"\naddress = "bmc"\nuser = "u"\npassword = "secret"',
            "has no field 'password'",
        ),
        ('host = "nas"', 'host = "-oProxyCommand=x"', "host"),
        ('host = "nas"', 'host = "a b"', "host"),
        ('"server"\n', '"Server"\n', "name"),
        ("[[client]]", "[[cleint]]", "did you mean 'client'"),
        ("[server]", "[server", "not TOML"),
    ],
)
def test_a_wrong_inventory_is_refused_with_its_reason(old: str, new: str, reason: str) -> None:
    with pytest.raises(RequestError) as refused:
        parse_inventory(GOOD.replace(old, new, 1), "hosts.toml")
    assert reason in str(refused.value)
    assert "hosts.toml" in str(refused.value)


def test_an_inventory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot be read"):
        load_inventory(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/dev/sdb", "is a kernel name"),
        ("/dev/vda", "is a kernel name"),
        ("/dev/nvme0n1", "is a kernel name"),
        ("/dev/md0", "made of disks"),
        ("/dev/mapper/vg-lv", "made of disks"),
        ("/dev/disk/by-path/pci-0000:00:1f.2-ata-1", "names a slot"),
        ("/dev/disk/by-uuid/1234", "content of a disk"),
        ("/dev/disk/by-label/data", "content of a disk"),
        (f"{BY_ID}raidproof-disk0", "raidproof creates"),
        (f"{BY_ID}md-uuid-1", "made of disks"),
        (f"{BY_ID}lvm-pv-uuid-1", "content of a disk"),
        (f"{BY_ID}../../sdb", "udev"),
        (f"{BY_ID}..", "udev"),
        (BY_ID, "udev"),
        ("ata-DRIVE", "not a path in"),
        ("/dev/disk/by-id/../../sdb", "udev"),
        ("", "not a path in"),
    ],
)
def test_a_name_that_is_not_one_disk_for_ever_is_refused(path: str, reason: str) -> None:
    assert reason in (why_unstable(path) or "")


@pytest.mark.parametrize(
    "name", ["ata-WDC_WD40EFRX-68N32N0_WD-WCC7K0", "wwn-0x50014ee2b5", "nvme-eui.0025388b", "scsi-36"]
)
def test_names_that_udev_makes_are_accepted(name: str) -> None:
    assert why_unstable(BY_ID + name) is None


@given(st.text())
def test_nothing_outside_of_by_id_is_accepted(path: str) -> None:
    if not path.startswith(BY_ID):
        assert why_unstable(path) is not None
    else:
        assert "/" not in path.removeprefix(BY_ID) or why_unstable(path) is not None
