"""The lab's network: one bridge with the harness's address; one tap and one hardware address per machine."""

from dataclasses import dataclass
from enum import StrEnum

from raidproof.core.errors import RigError
from raidproof.core.topology import GATEWAY, MachineSpec, Topology
from raidproof.core.waiting import Deadline, pause, wait_until
from raidproof.namespace import Namespace, Traffic

BRIDGE = "lab"
PROBE_S = 1.0
"""Seconds for an answer; on a working network it takes 1 ms."""
NOBODY = 9
"""A port (discard) on which no machine listens: the refusal is an answer, and needs no program."""
MEND_DEADLINE_S = 30.0
"""Seconds; a stale entry in a neighbour table takes some seconds to be renewed."""
STILL_S = 0.05
STILL_DEADLINE_S = 10.0


def tap_name(machine: str) -> str:
    """Return the name of a machine's interface on the bridge."""
    return f"tap-{machine}"


def hardware_address(spec: MachineSpec) -> str:
    """Return a MAC address that survives reboots: a new one would invalidate the ARP caches of other machines."""
    return "02:00:" + ":".join(f"{byte:02x}" for byte in spec.address.ip.packed)


def create_network(namespace: Namespace, topology: Topology) -> None:
    """Create the network of a lab in its namespace; it disappears with the namespace."""
    namespace.bridge(BRIDGE, str(GATEWAY.ip), GATEWAY.network.prefixlen)
    for machine in topology.machines:
        namespace.tap(tap_name(machine.name), BRIDGE)


class Way(StrEnum):
    """The direction in which a machine is cut off."""

    BOTH = "both"
    TO = "to"
    """Frames to the machine are dropped; frames from it pass."""
    FROM = "from"
    """Frames to the machine pass; frames from it are dropped."""


@dataclass(frozen=True)
class Port:
    """A machine's port on the lab's bridge."""

    namespace: Namespace
    machine: str
    address: str

    def cut(self, way: Way) -> str:
        """Cut the machine off, and return the evidence.

        Raises:
            RequirementMissing: this host's kernel does not support it.
            RigError: frames still pass.
        """
        self._gate(way)
        if way is not Way.FROM:
            wait_until(
                self._still, Deadline.after(STILL_DEADLINE_S), f"{self.machine} to have read what was on its way"
            )
        before = self.traffic()
        answered = self.answers()
        after = self.traffic()
        to, come, dropped = after.to - before.to, after.come - before.come, after.dropped - before.dropped
        said = (
            f"asked, {'answered' if answered else 'no answer'}; frames to it {to}, dropped {dropped}, from it {come}"
        )
        # If only frames from the machine are cut, it receives the probe, and its answer is dropped.
        as_asked = (to > 0 and come > 0) if way is Way.FROM else (to == 0 and dropped > 0)
        if answered or not as_asked:
            self._gate(None)
            raise RigError(f"{self.machine} is not cut off ({way.value}): {said}")
        return said

    def mend(self) -> None:
        """Reconnect the machine, and wait until it answers.

        Raises:
            DeadlineExceeded: it does not answer.
        """
        self._gate(None)
        wait_until(self.answers, Deadline.after(MEND_DEADLINE_S), f"{self.machine} to answer again")

    def answers(self) -> bool:
        """Return whether the machine answers the harness's own address."""
        with self.namespace.socket() as one:
            one.settimeout(PROBE_S)
            try:
                one.connect((self.address, NOBODY))
            except ConnectionRefusedError:
                return True
            except OSError:
                return False
        return True

    def traffic(self) -> Traffic:
        """Return the frame counters of the machine."""
        return self.namespace.traffic(tap_name(self.machine))

    def _still(self) -> bool:
        """Return whether the machine reads nothing: a frame counts when read, perhaps after the gate has shut."""
        before = self.traffic()
        pause(STILL_S)
        return self.traffic().to == before.to

    def _gate(self, way: Way | None) -> None:
        self.namespace.gate(tap_name(self.machine), deaf=way in {Way.BOTH, Way.TO}, mute=way in {Way.BOTH, Way.FROM})
