"""Faults of the lab's network: a machine is disconnected in one direction or in both."""

from dataclasses import dataclass
from random import Random
from typing import ClassVar, Self

from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.waiting import Deadline, now_ns, pause, wait_until
from raidproof.fault.fault import Fault, FaultContext, FaultEffects, FaultEvent, unreachable
from raidproof.machine.machine import Machine
from raidproof.namespace.network import Port, Way
from raidproof.provider.namespace_lab import NamespaceLab
from raidproof.storage.stack import StackSpec

HELD_S = 2.0
"""Default seconds that a machine stays disconnected."""
GRACE_DEADLINE_S = 120.0
"""Time limit in seconds for the end of a grace period, which takes 90 s by default."""
TAKE_DEADLINE_S = 150.0
"""Time limit in seconds for nfsd to release the locks of a disconnected client.

nfsd searches for expired leases at least once per lease time, which is 90 s by default.
"""
HOLD = ("sleep", "600")
"""Command that runs as long as a client holds a lock."""


@dataclass(frozen=True)
class NetworkCut(Fault):
    """The server is disconnected from all other machines for ``held_s`` seconds. All machines keep running."""

    way: Way = Way.BOTH
    """The direction in which frames are dropped, seen from the disconnected machine."""
    held_s: float = HELD_S
    name: ClassVar[str] = "network-cut"

    @classmethod
    def drawn(cls, rng: Random, stack: StackSpec) -> Self | None:  # noqa: ARG003
        """Return the fault in a random direction, for at most two seconds."""
        return cls(rng.choice([*Way]), rng.choice([0.5, 1.0, 2.0]))

    def effects(self, stack: StackSpec) -> FaultEffects:
        """Return the effects of this fault: clients may log hung tasks, and soft mounts may return errors."""
        return unreachable(stack)

    def machine(self, context: FaultContext) -> Machine:
        """Return the machine that is disconnected."""
        return context.lab.server

    def inject(self, context: FaultContext) -> FaultEvent:
        """Disconnect the machine, and wait ``held_s`` seconds.

        Raises:
            RequirementMissing: the harness does not run the lab's bridge, or this host's kernel cannot filter frames.
            RigError: frames still pass in a direction that is cut.
        """
        machine = self.machine(context)
        at_ns, proof = self._cut(context)
        pause(self.held_s)
        return FaultEvent(self.name, machine.name, at_ns, f"{self._dropped(machine)} for {self.held_s:g} s: {proof}")

    def heal(self, context: FaultContext) -> None:
        """Reconnect the machine, and wait until it answers on the network."""
        port_of(context, self.machine(context)).mend()

    def _cut(self, context: FaultContext) -> tuple[int, str]:
        port = port_of(context, self.machine(context))
        at_ns = now_ns()
        return at_ns, port.cut(self.way)

    def _dropped(self, machine: Machine) -> str:
        return f"frames {'to and from' if self.way is Way.BOTH else self.way.value} {machine.name} dropped"


@dataclass(frozen=True)
class ClientNetworkCut(NetworkCut):
    """The last client is disconnected for ``held_s`` seconds; the server and the other clients stay connected."""

    name: ClassVar[str] = "client-network-cut"

    def effects(self, stack: StackSpec) -> FaultEffects:
        """Return the effects of this fault: clients may log hung tasks, and soft mounts may return errors."""
        return unreachable(stack)

    def machine(self, context: FaultContext) -> Machine:
        """Return the last client, which is disconnected."""
        return context.lab.clients[-1]


@dataclass(frozen=True)
class _LeaseLost(ClientNetworkCut):
    """A disconnection of the last client that lasts until the server has released the client's locks."""

    @classmethod
    def drawn(cls, rng: Random, stack: StackSpec) -> Self | None:
        """Return None: the fault waits for the lease or the grace period, for up to minutes."""

    def effects(self, stack: StackSpec) -> FaultEffects:
        """Return the effects of this fault: a lost lease, hung tasks on clients, and errors of soft mounts."""
        return unreachable(stack, lease_lost=True)


@dataclass(frozen=True)
class LeaseExpiry(_LeaseLost):
    """The last client holds a lock, and stays disconnected until its lease ends and the first client gets the lock."""

    name: ClassVar[str] = "lease-expiry"

    def inject(self, context: FaultContext) -> FaultEvent:
        """Lock a file on the last client, disconnect that client, and wait until the first client gets the lock.

        Raises:
            RigError: the first client got the lock at once, before the lease of the last client could end.
        """
        holder, taker = self.machine(context), context.lab.clients[0]
        path = f"{context.stack.mounts[holder.name].directory}/lease-expiry"
        take = ["flock", "--exclusive", "--nonblock", path, "true"]
        taker.succeed(["touch", path])
        taker.succeed(["chmod", "0666", path])
        # --close: heal kills flock and not its child, which must not keep the file open: the client must unmount.
        holder.start_command(["flock", "--close", "--exclusive", path, *HOLD])
        # flock starts the command when it has the lock. A trial by the other client would delay it by up to 30 s.
        running = ["pgrep", "--exact", "--full", " ".join(HOLD)]
        wait_until(
            lambda: holder.run(running).ok, Deadline.after(GRACE_DEADLINE_S), f"{holder.name} to lock {path}", 0.1
        )
        at_ns, proof = self._cut(context)
        if taker.run(take).ok:
            raise RigError(
                f"{taker.name} locked {path}, although {holder.name} holds the lock and its lease has not ended"
            )
        wait_until(
            lambda: taker.run(take).ok,
            Deadline.after(TAKE_DEADLINE_S),
            f"{taker.name} to get the lock of {path} from {holder.name}",
            0.5,
        )
        waited = (now_ns() - at_ns) / 1e9
        proof = f"{self._dropped(holder)}: {proof}; {taker.name} got the lock after {waited:.1f} s"
        return FaultEvent(self.name, holder.name, at_ns, proof)

    def heal(self, context: FaultContext) -> None:
        """Reconnect the client, and kill its flock process, whose lock the server has released."""
        super().heal(context)
        self.machine(context).succeed(["pkill", "-KILL", "--exact", "flock"])


@dataclass(frozen=True)
class MissedGrace(_LeaseLost):
    """The last client is disconnected while nfsd restarts, until the grace period ends: it can reclaim no locks."""

    name: ClassVar[str] = "missed-grace"

    def inject(self, context: FaultContext) -> FaultEvent:
        """Disconnect the client, restart nfsd, and wait until nfsd's grace period ends."""
        machine, export = self.machine(context), context.stack.export
        at_ns, proof = self._cut(context)
        export.restart()
        begun = now_ns()
        wait_until(export.grace_ended, Deadline.after(GRACE_DEADLINE_S), "the end of nfsd's grace period", 0.2)
        waited = (now_ns() - begun) / 1e9
        proof = f"{self._dropped(machine)}: {proof}; nfsd restarted, its grace period ended after {waited:.1f} s"
        return FaultEvent(self.name, machine.name, at_ns, proof)


def port_of(context: FaultContext, machine: Machine) -> Port:
    """Return a machine's port on the lab's bridge.

    Raises:
        RequirementMissing: the harness does not run the lab's bridge.
    """
    if not isinstance(context.lab, NamespaceLab):
        raise RequirementMissing(
            f"{machine.name} cannot be disconnected: the harness does not control this lab's network",
            remedy="use provider uml or qemu",
        )
    return Port(context.lab.namespace, machine.name, machine.address)
