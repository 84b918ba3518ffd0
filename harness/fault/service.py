"""Faults of the NFS service."""

from dataclasses import dataclass
from typing import ClassVar

from harness.errors import RequirementMissing, RigError
from harness.fault.fault import Injected, Scene
from harness.fault.power import CleanReboot
from harness.layer import whole_number
from harness.machine.machine import Machine
from harness.waiting import Deadline, now_ns, pause, wait_until

THREADS = "/proc/fs/nfsd/threads"
DEATH_DEADLINE_S = 15.0
NO_SIGNALS = (6, 6)
"""From this version on nfsd's threads take no signals ("NFSD: remove nfsd_shutdown_threads from signal handling")."""


@dataclass(frozen=True)
class NfsdRestart:
    """The NFS server's threads are stopped and, after ``down_s`` seconds, started again; all else stays up."""

    down_s: float = 0.0
    name: ClassVar[str] = "nfsd-restart"

    def victim(self, scene: Scene) -> None:
        """No machine goes down."""

    def inject(self, scene: Scene) -> Injected:
        """Stop the threads, and let the clients wait."""
        machine = scene.lab.server
        machine.succeed(["rpc.nfsd", "0"])
        at_ns = now_ns()
        pause(self.down_s)
        return Injected(self.name, machine.name, at_ns, f"{threads_of(machine)} nfsd threads, for {self.down_s:g} s")

    def heal(self, scene: Scene) -> None:
        """Start them again; clients reclaim what they had open."""
        scene.stack.export.restart()


@dataclass(frozen=True)
class NfsdKilled(NfsdRestart):
    """The NFS server's threads die by SIGKILL, in whatever they were doing; then as `NfsdRestart`."""

    name: ClassVar[str] = "nfsd-killed"

    def inject(self, scene: Scene) -> Injected:
        """Kill the threads, and let the clients wait.

        Raises:
            RequirementMissing: this kernel's threads take no signals.
            RigError: there were none to kill.
        """
        machine = scene.lab.server
        before = threads_of(machine)
        if not before:
            raise RigError(f"{machine.name}: no nfsd threads that could be killed")
        if version_of(release := machine.succeed(["uname", "-r"]).strip()) >= NO_SIGNALS:
            raise RequirementMissing(
                f"{machine.name}: nfsd's threads take no signals on Linux {release}",
                remedy="choose a server kernel before 6.6, as debian/bookworm",
            )
        machine.succeed(["pkill", "-KILL", "--exact", "nfsd"])
        at_ns = now_ns()
        wait_until(
            lambda: threads_of(machine) == 0, Deadline.after(DEATH_DEADLINE_S), "the end of nfsd's threads", 0.05
        )
        pause(self.down_s)
        return Injected(self.name, machine.name, at_ns, f"{before} nfsd threads killed, for {self.down_s:g} s")


@dataclass(frozen=True)
class ServerRestart(CleanReboot):
    """The server is stopped in good order, and switched on again after ``down_s`` seconds."""

    down_s: float = 0.0
    name: ClassVar[str] = "server-restart"

    def inject(self, scene: Scene) -> Injected:
        """Shut it down, and let the clients wait."""
        injected = super().inject(scene)
        pause(self.down_s)
        return Injected(self.name, injected.target, injected.at_ns, f"{injected.proof}, for {self.down_s:g} s")


def threads_of(machine: Machine) -> int:
    """Return how many nfsd threads run."""
    return whole_number(machine.get(THREADS).strip(), "nfsd threads")


def version_of(release: str) -> tuple[int, ...]:
    """Return a kernel's version: ``6.12.101-um`` is (6, 12)."""
    return tuple(int(part) for part in release.split(".")[:2])
