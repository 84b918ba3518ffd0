"""The libvirt of a lab: its configuration and the places of its files."""

import os
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from raidproof.core.errors import RequirementMissing
from raidproof.core.topology import server_and_clients
from raidproof.lab.lab_directory import LONGEST_PATH
from raidproof.provider.vagrant import libvirt
from raidproof.provider.vagrant.libvirt import folders, network_xml, pool_volume, require


def test_only_the_labs_machines_get_an_address_and_each_its_own() -> None:
    topology = server_and_clients(clients=1)
    addresses = {"server": "02:00:0a:4d:00:0a", "client1": "02:00:0a:4d:00:15"}
    network = ET.fromstring(network_xml(topology, addresses))  # noqa: S314  our own words
    hosts = {host.get("name"): (host.get("mac"), host.get("ip")) for host in network.iter("host")}
    assert hosts == {
        "server": ("02:00:0a:4d:00:0a", "10.77.0.10"),
        "client1": ("02:00:0a:4d:00:15", "10.77.0.21"),
    }
    assert network.find("forward") is None
    assert list(network.iter("range")) == []


def test_without_root_the_reason_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(RequirementMissing, match="needs root"):
        require()


def test_what_is_not_installed_is_named_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(libvirt, "PLACES", ("/run", "/absent"))
    monkeypatch.setattr(libvirt, "PROGRAMS", ("sh", "no-such-program"))
    with pytest.raises(RequirementMissing, match="program no-such-program, folder /absent"):
        require()


def test_its_configuration_lies_in_the_labs_own_folders(tmp_path: Path) -> None:
    made = folders(tmp_path)
    assert all(folder.is_relative_to(tmp_path) and folder.is_dir() for folder in made.values())
    assert 'security_driver = "none"' in (made[Path("/etc/libvirt")] / "qemu.conf").read_text()


def test_its_socket_fits_where_a_lab_fits() -> None:
    assert LONGEST_PATH + len("/lv/run/libvirt/libvirt-sock") <= 107


def test_a_volume_has_the_name_under_which_the_box_would_be_uploaded(tmp_path: Path) -> None:
    image = tmp_path / "box.img"
    image.touch()
    os.utime(image, (1795249753, 1795249753))
    assert pool_volume("raidproof/debian-trixie-b289ea6d", image, "box") == (
        "raidproof-VAGRANTSLASH-debian-trixie-b289ea6d_vagrant_box_image_0_1795249753_box.img"
    )
    assert pool_volume("one", image, "box", "4.3.12") == "one_vagrant_box_image_4.3.12_box.img"
