"""Faults of a pair of servers on the same disks: the active server ends, and the standby takes over."""

import re
from dataclasses import dataclass
from typing import ClassVar

from raidproof.core.errors import RequestError, RigError
from raidproof.core.waiting import now_ns
from raidproof.fault.fault import Fault, FaultContext, FaultEffects, FaultEvent, unreachable
from raidproof.machine.machine import Machine
from raidproof.storage.stack import StackSpec

MDSTAT = "/proc/mdstat"
_ACTIVE = re.compile(r"^(md\S+) : ", re.MULTILINE)


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

    def have_standby(self, context: FaultContext) -> None:
        """Boot the other server if an earlier fault switched it off, so that it can take over."""
        standby = context.lab.standby
        if standby is not None and standby.boot_id is None:
            standby.start()

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
        self.have_standby(context)
        server = self.target(context)
        at_ns = server.fence()
        proof = "machine killed; its disks keep their power, and refuse its requests from then on"
        return FaultEvent(self.name, server.name, at_ns, proof)


@dataclass(frozen=True)
class Switchover(HandOver):
    """The active server stops cleanly, as an administrator requests it, and the standby takes over.

    The floating address, the export, nfsd, the mount and the array end in this order; the machine stays on.
    """

    name: ClassVar[str] = "switchover"

    def effects(self, stack: StackSpec) -> FaultEffects:
        """Return the effects of this fault: another nfsd answers. No memory is lost, so that no loss is excused."""
        return unreachable(stack, nfsd_restarted=True)

    def inject(self, context: FaultContext) -> FaultEvent:
        """Stop the service of the active server; the instant of the fault is when it uses no disk any more.

        Raises:
            RigError: the server still has an active array.
        """
        self.have_standby(context)
        server = self.target(context)
        context.stack.release()
        at_ns = now_ns()
        if arrays := _ACTIVE.findall(server.get(MDSTAT)):
            raise RigError(f"{server.name}: still active after the service was stopped: {', '.join(arrays)}")
        proof = f"address removed, nfsd stopped, file system unmounted; {MDSTAT} lists no array"
        return FaultEvent(self.name, server.name, at_ns, proof)
