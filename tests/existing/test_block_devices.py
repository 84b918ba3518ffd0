import json
from typing import Any

import pytest

from raidproof.core.errors import RequestError
from raidproof.existing.block_devices import BlockDevices, Device, parse_lsblk
from raidproof.existing.given import Given
from tests.existing.servers import SERVERS


def devices(*entries: Any) -> BlockDevices:
    return parse_lsblk(Given("lsblk", json.dumps({"blockdevices": list(entries)})))


def test_the_disks_below_a_mount() -> None:
    found = parse_lsblk(Given("lsblk", (SERVERS / "ubuntu-22.04-raid1-lvm-ext4" / "lsblk.json").read_text()))
    device = found.called("/dev/vg-data/lv-home")
    assert device is not None
    assert device == found.mounted_on("/home")
    assert [one.name for one in found.chain(device)] == ["vg--data-lv--home", "md1", "sda2", "sdb2", "sda", "sdb"]
    disk = found.disk_of("sda2")
    assert disk is not None
    assert (disk.name, disk.rotational, disk.model) == ("sda", False, "Samsung SSD 870 EVO 1TB")


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("4K", 4096),
        ("3.6T", int(3.6 * 1024**4)),
        ("3,6T", int(3.6 * 1024**4)),
        (None, None),
    ],
)
def test_sizes_of_every_version(written: Any, size: int | None) -> None:
    assert devices({"name": "sda", "size": written}).devices["sda"].size == size


@pytest.mark.parametrize(
    ("written", "rotates"), [(True, True), ("1", True), ("0", False), (False, False), (None, None)]
)
def test_rotational_of_every_version(written: Any, rotates: bool | None) -> None:
    assert devices({"name": "sda", "rota": written}).devices["sda"].rotational is rotates


@pytest.mark.parametrize(
    "source",
    [
        "UUID=AB-1",
        'UUID="ab-1"',
        "LABEL=data",
        "PARTUUID=p-1",
        "/dev/disk/by-uuid/ab-1",
        "/dev/disk/by-label/data",
        "/dev/sda1",
        "/dev/dm-3",
    ],
)
def test_every_way_in_which_fstab_names_a_device(source: str) -> None:
    found = devices({"name": "sda1", "kname": "dm-3", "uuid": "ab-1", "label": "data", "partuuid": "p-1"})
    assert found.called(source) is not None
    assert found.called("UUID=other") is None


def test_a_flat_list_with_parents() -> None:
    found = devices(
        {"name": "md0", "pkname": "sda"}, {"name": "md0", "pkname": "sdb"}, {"name": "sda"}, {"name": "sdb"}
    )
    assert found.devices["md0"].below == ("sda", "sdb")


def test_devices_that_are_on_each_other_in_a_circle_are_listed_once() -> None:
    found = devices({"name": "a", "pkname": "b"}, {"name": "b", "pkname": "a"})
    assert [one.name for one in found.chain(found.devices["a"])] == ["a", "b"]
    assert found.disk_of("a") is not None


def test_texts_from_a_device_cannot_contain_a_newline() -> None:
    assert devices({"name": "sda", "model": "x\n[run]\x1b"}).devices["sda"] == Device(
        name="sda", kernel_name="sda", model="x?[run]?"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "lsblk:1: is not JSON"),
        ("[]", "lsblk:1: has no list 'blockdevices'"),
        ('{"blockdevices": [1]}', "a block device is not an object: 1"),
        ('{"blockdevices": [{}]}', "a block device has no NAME"),
        ('{"blockdevices": [{"name": "a", "size": "much"}]}', "not a size"),
        ('{"blockdevices": [{"name": "a", "children": 1}]}', "'children' is not a list"),
        ("[" * 100_000, "is not JSON"),
        ('{"blockdevices": ' + '[{"name": "a", "children": ' * 40 + "[]" + "}]" * 40 + "}", "more than 32 devices"),
        ("1" * 5000, "is not JSON that can be read"),
    ],
)
def test_malformed_output_is_refused(text: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        parse_lsblk(Given("lsblk", text))
