"""Faults of the NFS service."""

from dataclasses import dataclass
from typing import ClassVar

from harness.fault.fault import Injected, Scene
from harness.waiting import now_ns


@dataclass(frozen=True)
class NfsdRestart:
    """The NFS server's threads are stopped and started again; machine, array and file system stay up."""

    name: ClassVar[str] = "nfsd-restart"

    def victim(self, scene: Scene) -> None:
        """No machine goes down."""

    def inject(self, scene: Scene) -> Injected:
        """Stop the threads."""
        machine = scene.lab.server
        machine.succeed(["rpc.nfsd", "0"])
        threads = machine.get("/proc/fs/nfsd/threads").strip()
        return Injected(self.name, machine.name, now_ns(), f"{threads} nfsd threads")

    def heal(self, scene: Scene) -> None:
        """Start them again; clients reclaim what they had open."""
        scene.stack.export.restart()
