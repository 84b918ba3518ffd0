from ipaddress import IPv4Interface

import pytest
from pydantic import ValidationError

from raidproof.core.topology import (
    GATEWAY,
    LONGEST_NAME,
    DiskSpec,
    MachineSpec,
    Role,
    Topology,
    server_and_clients,
    with_standby,
)
from raidproof.core.units import MIB
from raidproof.namespace.network import tap_name


def machine(name: str, address: str = "10.77.0.10/24", role: Role = Role.SERVER) -> MachineSpec:
    return MachineSpec(name=name, role=role, address=IPv4Interface(address))


def test_a_server_and_its_clients() -> None:
    topology = server_and_clients(clients=3, disks=5, disk_size=64 * MIB)
    assert topology.server.name == "server"
    assert [one.name for one in topology.clients] == ["client1", "client2", "client3"]
    assert [disk.serial for disk in topology.disks] == ["disk0", "disk1", "disk2", "disk3", "disk4"]
    addresses = {one.address.ip for one in topology.machines} | {GATEWAY.ip}
    assert len(addresses) == 5
    assert all(one.address.network == GATEWAY.network for one in topology.machines)


def test_a_size_may_be_written() -> None:
    assert DiskSpec.model_validate({"serial": "d0", "size": "64MiB"}).size == 64 * MIB


@pytest.mark.parametrize("name", ["", "Server", "1st", "a b", "a/b", "x" * (LONGEST_NAME + 1)])
def test_a_name_that_no_host_can_have(name: str) -> None:
    with pytest.raises(ValidationError):
        machine(name)


def test_the_longest_name_fits_an_interface() -> None:
    assert len(tap_name(machine("x" * LONGEST_NAME).name)) == 15


@pytest.mark.parametrize("serial", ["", "a b", "a,b", "x" * 21])
def test_a_serial_that_no_disk_can_have(serial: str) -> None:
    with pytest.raises(ValidationError):
        DiskSpec(serial=serial, size=MIB)


@pytest.mark.parametrize(
    ("machines", "disks", "reason"),
    [
        ([machine("a"), machine("a", "10.77.0.11/24", Role.CLIENT)], [], "machine name used twice: a"),
        ([machine("a"), machine("b", role=Role.CLIENT)], [], "address used twice: 10.77.0.10"),
        ([machine("a")], ["d0", "d0"], "disk serial used twice: d0"),
        ([machine("a"), machine("b", "10.77.0.11/24")], [], "exactly one machine .* found 2"),
        ([machine("a", role=Role.CLIENT)], [], "exactly one machine .* found 0"),
    ],
)
def test_a_lab_that_cannot_be(machines: list[MachineSpec], disks: list[str], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Topology(machines=tuple(machines), disks=tuple(DiskSpec(serial=serial, size=MIB) for serial in disks))


def test_a_second_server_equals_the_first() -> None:
    topology = with_standby(server_and_clients(clients=1, memory=512 * MIB))
    assert [one.name for one in topology.machines] == ["server", "server2", "client1"]
    standby = topology.standby
    assert standby is not None
    assert standby.memory == 512 * MIB
    assert str(standby.address) == "10.77.0.11/24"
    assert topology.server.name == "server"
    assert server_and_clients().standby is None


def test_a_third_server_is_refused() -> None:
    machines = [machine("a"), *(machine(f"b{one}", f"10.77.0.1{one}/24", Role.STANDBY) for one in (1, 2))]
    with pytest.raises(ValidationError, match="one machine with role 'standby', found 2"):
        Topology(machines=tuple(machines), disks=())
