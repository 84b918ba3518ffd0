from typing import Any

from raidproof.core.topology import Platform, SoftwareSpec
from raidproof.core.units import MIB
from raidproof.plan.hardware import Hardware


def hardware(**asked: Any) -> Hardware:
    return Hardware.model_validate(asked)


def test_disks_are_assigned_to_controllers_round_robin_or_grouped() -> None:
    def order(how: str) -> list[str | None]:
        made = hardware(disks={"count": 4}, controller={"count": 2, "order": how, "bandwidth": "160MB/s"})
        return [disk.controller for disk in made.topology().disks]

    assert order("in turn") == ["controller0", "controller1", "controller0", "controller1"]
    assert order("grouped") == ["controller0", "controller0", "controller1", "controller1"]


def test_what_is_asked_is_what_the_topology_has() -> None:
    made = hardware(
        disks=[{"count": 2, "size": "512MiB", "placement": "outer"}, {"profiles": ["none"], "duty": "log"}],
        controller={"bandwidth": "300MB/s", "command_rate": 5000, "cache": "32MiB", "battery": "failed"},
        clients=2,
        memory={"server": "512MiB"},
    )
    topology = made.topology(Platform(server=SoftwareSpec(kernel="debian/trixie")))
    assert [disk.size for disk in topology.disks] == [512 * MIB, 512 * MIB, 1024 * MIB]
    assert [disk.placement for disk in topology.disks] == ["outer", "outer", "spread"]
    (controller,) = topology.controllers
    assert (controller.bandwidth_mb_s, controller.commands_per_s) == (300, 5000)
    assert (controller.cache, controller.battery) == (32 * MIB, "failed")
    assert topology.server.memory == 512 * MIB
    assert [client.name for client in topology.clients] == ["client1", "client2"]
    assert topology.server.software.kernel == "debian/trixie"


def test_in_words() -> None:
    made = hardware(
        disks=[{"count": 4}, {"count": 1, "duty": "log"}],
        controller={"bandwidth": "300MB/s", "count": 2, "cache": "32MiB", "battery": "unnoticed"},
        network={"rate": "1Gbit", "delay": "100us", "loss": 0.1},
        clients=2,
    )
    assert str(made) == (
        "4 x disk without latency, 1GiB each, placement spread and "
        "1 x disk without latency, 1GiB each, placement spread, duty log; "
        "2 controllers, order in turn, with 300 MB/s, cache 32MiB, battery unnoticed; "
        "network 1Gbit, delay 100us, loss 0.1 %; 2 clients"
    )


def test_equal_groups_of_disks_are_one_in_words() -> None:
    drive = {"count": 1, "profile": "hdd-7200-sata"}
    made = hardware(disks=[{"count": 2, "profile": "hdd-7200-sata"}, drive, {"count": 1}, drive])
    assert str(made).startswith("4 x hdd-7200-sata, 1 x disk without latency, 1GiB each, placement spread; ")
