"""The lab's network: one bridge with the harness's address; one tap and one hardware address per machine."""

from dataclasses import dataclass
from enum import StrEnum

from raidproof.core.errors import RigError
from raidproof.core.topology import GATEWAY, MachineSpec, Topology
from raidproof.core.waiting import Deadline, pause, wait_until
from raidproof.namespace import Namespace, Traffic

BRIDGE = "lab"
PROBE_S = 1.0
"""Seconds that a probe (a TCP connection attempt) waits for an answer; on a working network, an answer takes 1 ms."""
DISCARD = 9
"""TCP port of the discard service, which no machine runs: the kernel of the machine answers a probe by a reset."""
MEND_DEADLINE_S = 30.0
"""Seconds to wait for an answer of a reconnected machine; the renewal of a stale ARP entry takes some seconds."""
STILL_S = 0.05
"""Seconds in which a machine usually reads all frames that were sent before its network was cut."""
STILL_DEADLINE_S = 10.0
"""Seconds to wait until a machine has read all frames that were sent before its network was cut."""


def tap_name(machine: str) -> str:
    """Return the name of a machine's interface on the bridge."""
    return f"tap-{machine}"


def hardware_address(spec: MachineSpec) -> str:
    """Return a machine's MAC address, which is constant across reboots: ARP caches of other machines stay valid."""
    return "02:00:" + ":".join(f"{byte:02x}" for byte in spec.address.ip.packed)


def create_network(namespace: Namespace, topology: Topology) -> None:
    """Create the bridge of a lab and a tap for each machine; they disappear with the namespace."""
    namespace.bridge(BRIDGE, str(GATEWAY.ip), GATEWAY.network.prefixlen)
    for machine in topology.machines:
        namespace.tap(tap_name(machine.name), BRIDGE)


class Way(StrEnum):
    """The direction of the frames that are dropped when a machine is cut off the network."""

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
    """The machine's name."""
    address: str
    """The machine's IP address."""

    def cut(self, way: Way) -> str:
        """Cut the machine off the network, verify this by a probe, and return the evidence as text.

        Frames that were sent before the cut may arrive during a probe, as a tap counts a frame when the machine reads
        it. Another probe follows then.

        Raises:
            RequirementMissing: the kernel of this host cannot drop the frames.
            RigError: frames still pass; the machine is connected again.
        """
        self._gate(way)
        pause(STILL_S)
        deadline = Deadline.after(STILL_DEADLINE_S)
        while True:
            last = deadline.passed
            before = self.traffic()
            answered = self.answers()
            after = self.traffic()
            to, come, dropped = after.to - before.to, after.come - before.come, after.dropped - before.dropped
            counted = f"{self.machine} received {to} frames and sent {come}; {dropped} frames to it were dropped"
            evidence = f"probe {'answered' if answered else 'not answered'}; {counted}"
            # If only frames from the machine are dropped, the machine receives the probe, and the bridge drops the
            # answer.
            as_requested = (to > 0 and come > 0) if way is Way.FROM else (to == 0 and dropped > 0)
            if as_requested and not answered:
                return evidence
            if answered or last:
                self._gate(None)
                raise RigError(f"{self.machine} is not cut off the network (direction {way.value}): {evidence}")

    def mend(self) -> None:
        """Reconnect the machine to the network, and wait until it answers a probe.

        Raises:
            DeadlineExceeded: the machine does not answer.
        """
        self._gate(None)
        wait_until(self.answers, Deadline.after(MEND_DEADLINE_S), f"{self.machine} to answer again")

    def answers(self) -> bool:
        """Return whether the machine answers a probe from the harness's address."""
        with self.namespace.socket() as probe:
            probe.settimeout(PROBE_S)
            try:
                probe.connect((self.address, DISCARD))
            except ConnectionRefusedError:
                return True
            except OSError:
                return False
        return True

    def traffic(self) -> Traffic:
        """Return the numbers of frames to and from the machine."""
        return self.namespace.traffic(tap_name(self.machine))

    def _gate(self, way: Way | None) -> None:
        """Drop the machine's frames of a direction at the bridge; for None, pass all frames."""
        self.namespace.gate(tap_name(self.machine), deaf=way in {Way.BOTH, Way.TO}, mute=way in {Way.BOTH, Way.FROM})
