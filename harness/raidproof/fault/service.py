"""Faults in which the NFS server is stopped, killed, or restarted together with its machine."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Self

from raidproof.core.waiting import pause
from raidproof.fault.fault import Fault, FaultContext, FaultEffects, FaultEvent, unreachable
from raidproof.fault.machine import CleanReboot
from raidproof.storage.server import Outage
from raidproof.storage.stack import StackSpec

DOWN_S = (0.0, 1.0, 2.0)
"""Times in seconds from which a random schedule draws that of an interrupted service."""


@dataclass(frozen=True)
class _Interrupted(Fault):
    """An interruption of the NFS service: the service stays stopped for ``down_s`` seconds."""

    down_s: float = 0.0

    def effects(self, stack: StackSpec) -> FaultEffects:
        """Return the effects of this fault: nfsd restarts, clients may log hung tasks, soft mounts may fail."""
        return unreachable(stack, nfsd_restarted=True)

    @abstractmethod
    def stop(self, context: FaultContext) -> FaultEvent:
        """Stop the NFS service, and return the event with the proof that the service stopped."""

    def inject(self, context: FaultContext) -> FaultEvent:
        """Stop the NFS service, and wait ``down_s`` seconds."""
        stopped = self.stop(context)
        pause(self.down_s)
        return replace(stopped, proof=f"{stopped.proof}, for {self.down_s:g} s")

    def _event(self, context: FaultContext, outage: Outage) -> FaultEvent:
        return FaultEvent(self.name, context.lab.server.name, outage.at_ns, outage.proof)


@dataclass(frozen=True)
class NfsdRestart(_Interrupted):
    """nfsd stops, and starts again after ``down_s`` seconds. Machine, file system and array stay online."""

    name: ClassVar[str] = "nfsd-restart"

    @classmethod
    def drawn(cls, rng: Random, stack: StackSpec) -> Self:  # noqa: ARG003
        """Return the fault for a random time."""
        return cls(rng.choice(DOWN_S))

    def stop(self, context: FaultContext) -> FaultEvent:
        """Stop nfsd."""
        return self._event(context, context.stack.export.halt())

    def heal(self, context: FaultContext) -> None:
        """Start nfsd; clients reclaim their open files and locks."""
        context.stack.export.restart()


@dataclass(frozen=True)
class NfsdKilled(_Interrupted):
    """nfsd and its daemons are killed, and start again after ``down_s`` seconds."""

    name: ClassVar[str] = "nfsd-killed"

    @classmethod
    def drawn(cls, rng: Random, stack: StackSpec) -> Self:  # noqa: ARG003
        """Return the fault for a random time."""
        return cls(rng.choice(DOWN_S))

    def stop(self, context: FaultContext) -> FaultEvent:
        """Kill nfsd and its daemons.

        Raises:
            RigError: nfsd was not running.
        """
        return self._event(context, context.stack.export.kill())

    def heal(self, context: FaultContext) -> None:
        """Start nfsd and its daemons; clients reclaim their open files and locks."""
        context.stack.export.revive()


@dataclass(frozen=True)
class ServerRestart(_Interrupted, CleanReboot):
    """The server machine shuts down cleanly, and is switched on again after ``down_s`` seconds."""

    name: ClassVar[str] = "server-restart"

    def stop(self, context: FaultContext) -> FaultEvent:
        """Shut the server machine down."""
        return CleanReboot.inject(self, context)

    def heal(self, context: FaultContext) -> None:
        """Switch the server machine on."""
        CleanReboot.heal(self, context)
