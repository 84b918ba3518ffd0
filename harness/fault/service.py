"""Faults of the NFS service."""

from dataclasses import dataclass
from typing import ClassVar

from harness.export import Export
from harness.fault.fault import Injected
from harness.machine.machine import Machine
from harness.waiting import now_ns


@dataclass(frozen=True)
class NfsdRestart:
    """The NFS server's threads are stopped and started again; machine, array and file system stay up."""

    export: Export
    name: ClassVar[str] = "nfsd-restart"
    reboots: ClassVar[bool] = False

    def inject(self, machine: Machine) -> Injected:
        """Stop the threads."""
        machine.succeed(["rpc.nfsd", "0"])
        threads = machine.get("/proc/fs/nfsd/threads").strip()
        return Injected(self.name, machine.name, now_ns(), f"{threads} nfsd threads")

    def heal(self, machine: Machine) -> None:  # noqa: ARG002  the export knows its machine
        """Start them again; clients reclaim what they had open."""
        self.export.restart()
