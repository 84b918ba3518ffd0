"""The lab's network: one bridge that carries the harness's address, one tap and one hardware address a machine."""

from harness.enclosure import Enclosure
from harness.topology import GATEWAY, MachineSpec, Topology

BRIDGE = "lab"


def tap_name(machine: str) -> str:
    """Return the name of a machine's interface on the bridge."""
    return f"tap-{machine}"


def hardware_address(spec: MachineSpec) -> str:
    """Return a MAC address that survives reboots: with a new one each time, the others' ARP caches are wrong."""
    return "02:00:" + ":".join(f"{byte:02x}" for byte in spec.address.ip.packed)


def create_network(enclosure: Enclosure, topology: Topology) -> None:
    """Make the network of a lab in its enclosure; it vanishes with the enclosure."""
    enclosure.bridge(BRIDGE, str(GATEWAY.ip), GATEWAY.network.prefixlen)
    for machine in topology.machines:
        enclosure.tap(tap_name(machine.name), BRIDGE)
