"""Faults of a pair of servers on the same disks: the active server ends, and the standby takes over."""

from dataclasses import dataclass
from typing import ClassVar

from raidproof.core.errors import RequestError
from raidproof.fault.fault import Fault, FaultContext, FaultEffects, FaultEvent, unreachable
from raidproof.machine.machine import Machine
from raidproof.storage.stack import StackSpec


class HandOver(Fault):
    """A fault that ends the service of the active server of a pair; `heal` lets the standby have the stack."""

    def refuse(self, stack: StackSpec) -> None:
        """Check that the stack has two servers.

        Raises:
            RequestError: it has one.
        """
        if stack.pair is None:
            raise RequestError(
                "the stack has no second server that could take over", remedy="request pair=PairSpec() in the stack"
            )

    def target(self, context: FaultContext) -> Machine:
        """Return the active server, whose service ends."""
        return context.lab.server

    def heal(self, context: FaultContext) -> None:
        """Make the standby the active server; no command runs. The stages of the recovery follow on it."""
        context.lab.hand_over()
        context.stack.hand_over(context.lab.server)


@dataclass(frozen=True)
class Takeover(HandOver):
    """The active server loses power, and the standby takes over. The disks keep their power and their caches.

    The disks refuse what the active server may still send (fencing) before the standby uses them.
    """

    name: ClassVar[str] = "takeover"

    def effects(self, stack: StackSpec) -> FaultEffects:
        """Return the effects of this fault: the active server's memory is lost, and another nfsd answers."""
        return unreachable(stack, server_memory_lost=True, nfsd_restarted=True)

    def inject(self, context: FaultContext) -> FaultEvent:
        """Cut the power of the active server alone, without running a command in it."""
        server = self.target(context)
        at_ns = server.fence()
        proof = "machine killed; its disks keep their power, and refuse its requests from then on"
        return FaultEvent(self.name, server.name, at_ns, proof)
