"""Boxes of the user: how they are found, and requests that they do not support."""

from pathlib import Path

import pytest

from raidproof.core.errors import RequestError
from raidproof.core.topology import SoftwareSpec
from raidproof.provider.vagrant import box
from raidproof.provider.vagrant.box import asked, find, names, refuse

METADATA = '{"provider":"libvirt","format":"qcow2","virtual_size":3}\n'
SEVERAL = '{"disks": [{"path": "root.img"}, {"path": "data.img"}]}\n'


def add(home: Path, place: str, metadata: str = METADATA) -> Path:
    content = home / "boxes" / place
    content.mkdir(parents=True)
    (content / "metadata.json").write_text(metadata)
    (content / "box.img").touch()
    return content


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VAGRANT_HOME", str(tmp_path))
    return tmp_path


def software(**more: str) -> SoftwareSpec:
    return SoftwareSpec(image="box:example/stock", **more)


def test_a_box_is_found_by_the_name_that_vagrant_lists(home: Path) -> None:
    content = add(home, "example-VAGRANTSLASH-stock/0/libvirt")
    found = find("example/stock")
    assert (found.version, found.content, str(found)) == ("0", content, "example/stock")
    assert found.folder.parent == home / "boxes"
    assert found.images[0][1].startswith("example-VAGRANTSLASH-stock_vagrant_box_image_0_")


def test_the_newest_version_is_taken_by_its_numbers(home: Path) -> None:
    for version in ("4.3.12", "4.3.2", "4.10.0.beta1", "4.9.0"):
        add(home, f"example-VAGRANTSLASH-stock/{version}/libvirt")
    assert find("example/stock").version == "4.10.0.beta1"
    add(home, "example-VAGRANTSLASH-stock/4.10.0/libvirt")
    found = find("example/stock")
    assert str(found) == "example/stock 4.10.0"
    assert found.images[0][1] == "example-VAGRANTSLASH-stock_vagrant_box_image_4.10.0_box.img"


def test_a_box_of_one_architecture_is_found_too(home: Path) -> None:
    content = add(home, "stock/12.1/amd64/libvirt")
    assert (find("stock").version, find("stock").content) == ("12.1", content)


def test_a_box_with_several_disks_is_left_to_vagrant(home: Path) -> None:
    add(home, "stock/0/libvirt", SEVERAL)
    assert find("stock").images == ()


def test_an_unknown_name_is_refused_with_the_nearest(home: Path) -> None:
    add(home, "example-VAGRANTSLASH-stock/0/libvirt")
    with pytest.raises(RequestError, match="did you mean 'example/stock'"):
        find("exmaple/stock")


def test_a_box_for_another_hypervisor_is_none(home: Path) -> None:
    add(home, "stock/0/virtualbox")
    assert names() == []
    with pytest.raises(RequestError, match="vagrant box add --provider libvirt"):
        find("stock")


def test_without_a_home_the_usual_one_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("VAGRANT_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert box.boxes() == tmp_path / ".vagrant.d/boxes"
    assert names() == []


def test_other_images_are_no_boxes(home: Path) -> None:
    assert asked(SoftwareSpec(image="debian/trixie")) is None
    assert asked(SoftwareSpec()) is None
    assert asked(software()) == "example/stock"
    refuse(SoftwareSpec(image="debian/trixie", kernel="debian/sid"), "uml")
    assert names() == []


@pytest.mark.parametrize("provider", ["uml", "qemu", "hosts"])
def test_only_vagrant_has_boxes(home: Path, provider: str) -> None:
    add(home, "example-VAGRANTSLASH-stock/0/libvirt")
    refuse(software(), "vagrant")
    with pytest.raises(RequestError, match=f"provider {provider} does not support boxes"):
        refuse(software(), provider)


@pytest.mark.parametrize("also", [{"kernel": "debian/sid"}, {"modules": "lib"}, {"packages": ("a.deb",)}])
def test_a_box_takes_no_other_kernel_or_packages(home: Path, also: dict[str, str]) -> None:
    add(home, "example-VAGRANTSLASH-stock/0/libvirt")
    with pytest.raises(RequestError, match=f"cannot be combined with the requested {next(iter(also))}"):
        refuse(software(**also), "vagrant")
