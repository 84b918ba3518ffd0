"""The settings for vms/Vagrantfile that follow from the topology."""

import json
from pathlib import Path
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.topology import MachineSpec, Platform, Role, client_spec, server_and_clients, server_spec
from raidproof.core.units import MIB
from raidproof.disk.client import EngineClient
from raidproof.machine.machine import MemberDisks
from raidproof.provider.vagrant.machine import FILE, Guest, lab_json, qemu_arguments

NO_ENGINE = cast("EngineClient", None)


def guest(spec: MachineSpec, *serials: str) -> Guest:
    disks = MemberDisks(NO_ENGINE, Path("/lab/nbd.sock"), serials) if serials else None
    home = Path("/lab")
    return Guest(
        spec,
        "raidproof/test",
        home / "console",
        config=home / "config",
        modules=home / "modules",
        key=home / "key",
        disks=disks,
    )


def told(one: Guest, *, accelerated: bool = False) -> Any:
    return json.loads(lab_json([one], accelerated=accelerated))["machines"][0]


def test_the_settings_cover_every_machine_of_a_topology() -> None:
    specs = server_and_clients(clients=2, memory=512 * MIB).machines
    machines = json.loads(lab_json([guest(spec) for spec in specs], accelerated=False))["machines"]
    assert [one["name"] for one in machines] == ["server", "client1", "client2"]
    assert {one["libvirt"]["memory"] for one in machines} == {512}
    assert len({one["libvirt"]["management_network_mac"] for one in machines}) == 3


def test_the_vagrantfile_uses_exactly_the_given_settings() -> None:
    text = FILE.read_text()
    machine = told(guest(server_spec(Platform(), memory=MIB)))
    assert all(f"fetch(:{key})" in text for key in machine)
    assert text.count("asked.fetch") == len(machine)


def test_the_accelerator_decides_the_driver_and_the_processor() -> None:
    spec = server_spec(Platform(), memory=512 * MIB)
    assert told(guest(spec), accelerated=True)["libvirt"]["driver"] == "kvm"
    emulated = told(guest(spec))["libvirt"]
    assert emulated["driver"] == "qemu"
    assert {"name": "cx16", "policy": "disable"} in emulated["cpu_features"]


def test_numa_nodes_share_processors_and_memory() -> None:
    spec = server_spec(Platform(), memory=1024 * MIB, cpus=4, numa_nodes=2)
    assert told(guest(spec))["libvirt"]["numa_nodes"] == [
        {"cpus": "0-1", "memory": 512},
        {"cpus": "2-3", "memory": 512},
    ]


def test_a_users_box_gets_no_configuration_and_keeps_its_host_name() -> None:
    machine = told(Guest(client_spec(1, Platform(), memory=512 * MIB), "theirs/box", Path("/lab/console"), "4.3.12"))
    assert machine["vm"]["box_version"] == "4.3.12"
    assert "hostname" not in machine["vm"]
    assert "cmd_line" not in machine["libvirt"]
    assert "private_key_path" not in machine["ssh"]
    assert machine["qemu_arguments"] == ["-no-reboot"]


@given(st.integers(min_value=1, max_value=64))
def test_each_member_has_its_own_place_and_serial_number(count: int) -> None:
    serials = [f"disk{number}" for number in range(count)]
    words = qemu_arguments(guest(server_spec(Platform(), memory=MIB), *serials))
    devices = [dict(pair.split("=") for pair in word.split(",")) for word in words if word.startswith("driver=virtio")]
    assert len({device["addr"] for device in devices}) == count + 2
    assert [device["serial"] for device in devices if "write-cache" in device] == serials
    slots = {int(device["addr"].split(".")[0], 16) for device in devices}
    assert max(slots) < 0x1F


def test_a_comma_in_a_path_stays_in_it() -> None:
    one = Guest(server_spec(Platform(), memory=MIB), "b", Path("/c"), config=Path("/lab,1/config"))
    assert any("filename=/lab,,1/config" in word for word in qemu_arguments(one))
    assert one.spec.role is Role.SERVER
