"""Faults of the lab's network: machines that are disconnected, in one direction or both."""

from dataclasses import dataclass
from typing import ClassVar

from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.waiting import Deadline, now_ns, pause, wait_until
from raidproof.fault.fault import Fault, FaultContext, FaultEffects, FaultEvent, errors_of_soft_mounts
from raidproof.machine.machine import Machine
from raidproof.namespace.network import Port, Way
from raidproof.provider.namespace_lab import NamespaceLab
from raidproof.storage.stack import StackSpec

HELD_S = 2.0
GRACE_DEADLINE_S = 120.0
"""Longer than the longest usual grace period, 90 s."""
TAKE_DEADLINE_S = 150.0
"""nfsd looks for clients whose lease has expired at intervals of one lease at most."""


@dataclass(frozen=True)
class NetworkCut(Fault):
    """The server is disconnected from all other machines for ``held_s`` seconds; each machine keeps running."""

    way: Way = Way.BOTH
    held_s: float = HELD_S
    name: ClassVar[str] = "network-cut"

    def effects(self, stack: StackSpec) -> FaultEffects:
        """Return the effects."""
        return FaultEffects(server_away=True, errors=errors_of_soft_mounts(stack))

    def machine(self, context: FaultContext) -> Machine:
        """Return the machine that is disconnected."""
        return context.lab.server

    def inject(self, context: FaultContext) -> FaultEvent:
        """Disconnect the machine, and wait ``held_s`` seconds.

        Raises:
            RequirementMissing: the lab has no bridge of the harness, or this host's kernel does not support it.
            RigError: frames still pass.
        """
        machine = self.machine(context)
        at_ns, proof = self._cut(context)
        pause(self.held_s)
        return FaultEvent(self.name, machine.name, at_ns, f"{self.way.value}, for {self.held_s:g} s: {proof}")

    def heal(self, context: FaultContext) -> None:
        """Connect the machine, and wait until it answers."""
        port_of(context, self.machine(context)).mend()

    def _cut(self, context: FaultContext) -> tuple[int, str]:
        port = port_of(context, self.machine(context))
        at_ns = now_ns()
        return at_ns, port.cut(self.way)


@dataclass(frozen=True)
class ClientNetworkCut(NetworkCut):
    """The last client is disconnected; the server and the other clients keep running."""

    name: ClassVar[str] = "client-network-cut"

    def effects(self, stack: StackSpec) -> FaultEffects:
        """Return the effects."""
        return FaultEffects(server_away=True, errors=errors_of_soft_mounts(stack))

    def machine(self, context: FaultContext) -> Machine:
        """Return the last client."""
        return context.lab.clients[-1]


@dataclass(frozen=True)
class _LeaseLost(ClientNetworkCut):
    """The last client is disconnected until it has lost its locks."""

    def effects(self, stack: StackSpec) -> FaultEffects:
        """Return the effects."""
        return FaultEffects(server_away=True, lease_lost=True, errors=errors_of_soft_mounts(stack))


@dataclass(frozen=True)
class LeaseExpiry(_LeaseLost):
    """The last client is disconnected while it holds a lock, until its lease ends and another client gets the lock."""

    name: ClassVar[str] = "lease-expiry"

    def inject(self, context: FaultContext) -> FaultEvent:
        """Let the client take a lock, disconnect it, and wait until another client gets the lock.

        Raises:
            RigError: the other client got the lock at once, so that it was not held.
        """
        holder, taker = self.machine(context), context.lab.clients[0]
        path = f"{context.stack.mounts[holder.name].directory}/lease-expiry"
        take = ["flock", "--exclusive", "--nonblock", path, "true"]
        taker.succeed(["touch", path])
        taker.succeed(["chmod", "0666", path])
        # --close: the child must not keep the file open, because heal kills flock alone, and the client must unmount.
        holder.start_command(["flock", "--close", "--exclusive", path, "sleep", "600"])
        wait_until(
            lambda: not taker.run(take).ok, Deadline.after(GRACE_DEADLINE_S), f"{holder.name} to hold a lock", 0.1
        )
        at_ns, proof = self._cut(context)
        if taker.run(take).ok:
            raise RigError(f"{taker.name} got the lock that {holder.name} holds, before its lease ended")
        wait_until(lambda: taker.run(take).ok, Deadline.after(TAKE_DEADLINE_S), f"{taker.name} to get the lock", 0.5)
        waited = (now_ns() - at_ns) / 1e9
        proof = f"{self.way.value}: {proof}; {taker.name} got its lock after {waited:.1f} s"
        return FaultEvent(self.name, holder.name, at_ns, proof)

    def heal(self, context: FaultContext) -> None:
        """Connect the client, and let it drop the lock that it no longer holds."""
        super().heal(context)
        self.machine(context).succeed(["pkill", "-KILL", "--exact", "flock"])


@dataclass(frozen=True)
class MissedGrace(_LeaseLost):
    """The last client is disconnected while nfsd restarts, until the grace period ends: it reconnects too late."""

    name: ClassVar[str] = "missed-grace"

    def inject(self, context: FaultContext) -> FaultEvent:
        """Disconnect the client, restart nfsd, and wait until the grace period ends."""
        machine, export = self.machine(context), context.stack.export
        at_ns, proof = self._cut(context)
        export.restart()
        begun = now_ns()
        wait_until(export.grace_ended, Deadline.after(GRACE_DEADLINE_S), "the grace period's end", 0.2)
        waited = (now_ns() - begun) / 1e9
        proof = f"{self.way.value}: {proof}; nfsd restarted, its grace period over after {waited:.1f} s"
        return FaultEvent(self.name, machine.name, at_ns, proof)


def port_of(context: FaultContext, machine: Machine) -> Port:
    """Return a machine's port on the lab's bridge.

    Raises:
        RequirementMissing: the lab has no bridge of the harness.
    """
    if not isinstance(context.lab, NamespaceLab):
        raise RequirementMissing("the harness does not control this lab's network", remedy="use provider uml or qemu")
    return Port(context.lab.namespace, machine.name, machine.address)
