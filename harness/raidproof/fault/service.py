"""Faults of the NFS service."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

from raidproof.core.waiting import pause
from raidproof.fault.fault import Fault, FaultContext, FaultEffects, FaultEvent, errors_of_soft_mounts
from raidproof.fault.machine import CleanReboot
from raidproof.storage.server import Outage
from raidproof.storage.stack import StackSpec


@dataclass(frozen=True)
class _Interrupted(Fault):
    """The service is away for ``down_s`` seconds."""

    down_s: float = 0.0

    def effects(self, stack: StackSpec) -> FaultEffects:
        """Return the effects."""
        return FaultEffects(nfsd_restarted=True, server_away=True, errors=errors_of_soft_mounts(stack))

    @abstractmethod
    def stop(self, context: FaultContext) -> FaultEvent:
        """Stop the service."""

    def inject(self, context: FaultContext) -> FaultEvent:
        """Stop the service, and wait ``down_s`` seconds."""
        stopped = self.stop(context)
        pause(self.down_s)
        return replace(stopped, proof=f"{stopped.proof}, for {self.down_s:g} s")

    def _event(self, context: FaultContext, outage: Outage) -> FaultEvent:
        return FaultEvent(self.name, context.lab.server.name, outage.at_ns, outage.proof)


@dataclass(frozen=True)
class NfsdRestart(_Interrupted):
    """The NFS server is stopped and, after ``down_s`` seconds, started again; all else stays up."""

    name: ClassVar[str] = "nfsd-restart"

    def stop(self, context: FaultContext) -> FaultEvent:
        """Stop the server."""
        return self._event(context, context.stack.export.halt())

    def heal(self, context: FaultContext) -> None:
        """Start the server; clients reclaim their open files and locks."""
        context.stack.export.restart()


@dataclass(frozen=True)
class NfsdKilled(_Interrupted):
    """The whole NFS service dies, with its daemons."""

    name: ClassVar[str] = "nfsd-killed"

    def stop(self, context: FaultContext) -> FaultEvent:
        """Kill the service.

        Raises:
            RigError: it did not run.
        """
        return self._event(context, context.stack.export.kill())

    def heal(self, context: FaultContext) -> None:
        """Start the service; clients reclaim their open files and locks."""
        context.stack.export.revive()


@dataclass(frozen=True)
class ServerRestart(_Interrupted, CleanReboot):
    """The server is shut down cleanly, and switched on again after ``down_s`` seconds."""

    name: ClassVar[str] = "server-restart"

    def stop(self, context: FaultContext) -> FaultEvent:
        """Shut the server down."""
        return CleanReboot.inject(self, context)

    def heal(self, context: FaultContext) -> None:
        """Switch the machine on."""
        CleanReboot.heal(self, context)
