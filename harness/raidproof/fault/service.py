"""Faults of the NFS service."""

from dataclasses import dataclass
from typing import ClassVar

from raidproof.core.errors import RigError
from raidproof.core.layer import found_in, whole_number
from raidproof.core.waiting import Deadline, now_ns, pause, wait_until
from raidproof.fault.effects import FaultEffects, errors_of_soft_mounts
from raidproof.fault.fault import Fault, FaultContext, FaultEvent
from raidproof.fault.power import CleanReboot
from raidproof.machine.machine import Machine
from raidproof.storage.stack import StackSpec

THREADS = "/proc/fs/nfsd/threads"
DEATH_DEADLINE_S = 15.0
DAEMONS = ("nfsdcld", "rpc.mountd")
"""Daemons that nfsd queries: for the records of its clients, and for exports."""
_KILL = 1 << 9 - 1


@dataclass(frozen=True)
class NfsdRestart(Fault):
    """The NFS server's threads are stopped and, after ``down_s`` seconds, started again; all else stays up."""

    down_s: float = 0.0
    name: ClassVar[str] = "nfsd-restart"

    def effects(self, stack: StackSpec) -> FaultEffects:
        """Return the effects."""
        return FaultEffects(nfsd_restarted=True, server_away=True, errors=errors_of_soft_mounts(stack))

    def inject(self, context: FaultContext) -> FaultEvent:
        """Stop the threads, and wait ``down_s`` seconds."""
        machine = context.lab.server
        machine.succeed(["rpc.nfsd", "0"])
        at_ns = now_ns()
        pause(self.down_s)
        return FaultEvent(self.name, machine.name, at_ns, f"{threads_of(machine)} nfsd threads, for {self.down_s:g} s")

    def heal(self, context: FaultContext) -> None:
        """Start the threads; clients reclaim their open files and locks."""
        context.stack.export.restart()


@dataclass(frozen=True)
class NfsdKilled(NfsdRestart):
    """The whole NFS service dies: its daemons by SIGKILL, and nfsd's threads too where the kernel allows that."""

    name: ClassVar[str] = "nfsd-killed"

    def effects(self, stack: StackSpec) -> FaultEffects:
        """Return the effects."""
        return FaultEffects(nfsd_restarted=True, server_away=True, errors=errors_of_soft_mounts(stack))

    def inject(self, context: FaultContext) -> FaultEvent:
        """Kill daemons and threads, and wait ``down_s`` seconds.

        Raises:
            RigError: there were no threads.
        """
        machine = context.lab.server
        if not (before := threads_of(machine)):
            raise RigError(f"{machine.name}: no nfsd threads that could be killed")
        deaf = ignores_kill(machine.get(f"/proc/{machine.succeed(['pgrep', '--exact', 'nfsd']).split()[0]}/status"))
        for daemon in DAEMONS:
            machine.succeed(["pkill", "-KILL", "--exact", daemon])
        machine.succeed(["rpc.nfsd", "0"] if deaf else ["pkill", "-KILL", "--exact", "nfsd"])
        at_ns = now_ns()
        wait_until(
            lambda: threads_of(machine) == 0, Deadline.after(DEATH_DEADLINE_S), "the end of nfsd's threads", 0.05
        )
        pause(self.down_s)
        how = "stopped, because this kernel's nfsd threads ignore signals" if deaf else "killed"
        proof = f"{' and '.join(DAEMONS)} killed, {before} nfsd threads {how}, for {self.down_s:g} s"
        return FaultEvent(self.name, machine.name, at_ns, proof)

    def heal(self, context: FaultContext) -> None:
        """Start daemons and threads, in the order of an export."""
        for daemon in DAEMONS:
            context.lab.server.succeed([daemon])
        super().heal(context)


@dataclass(frozen=True)
class ServerRestart(CleanReboot):
    """The server is shut down cleanly, and switched on again after ``down_s`` seconds."""

    down_s: float = 0.0
    name: ClassVar[str] = "server-restart"

    def effects(self, stack: StackSpec) -> FaultEffects:
        """Return the effects."""
        return FaultEffects(nfsd_restarted=True, server_away=True, errors=errors_of_soft_mounts(stack))

    def inject(self, context: FaultContext) -> FaultEvent:
        """Shut the server down, and wait ``down_s`` seconds."""
        injected = super().inject(context)
        pause(self.down_s)
        return FaultEvent(self.name, injected.target, injected.at_ns, f"{injected.proof}, for {self.down_s:g} s")


def threads_of(machine: Machine) -> int:
    """Return the number of nfsd threads."""
    return whole_number(machine.get(THREADS).strip(), "nfsd threads")


def ignores_kill(status: str) -> bool:
    """Return whether a kernel thread ignores SIGKILL, by its /proc/PID/status: nfsd's do since Linux 6.6."""
    return bool(int(found_in(r"^SigIgn:\s+([0-9a-f]+)$", status, "ignored signals"), 16) & _KILL)
