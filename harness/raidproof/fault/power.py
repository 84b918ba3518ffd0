"""Faults that take a whole machine down."""

from dataclasses import dataclass
from typing import ClassVar

from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.waiting import Deadline, now_ns
from raidproof.disk.cache import CutPolicy
from raidproof.fault.effects import FaultEffects
from raidproof.fault.fault import Fault, FaultContext, FaultEvent
from raidproof.machine.machine import Machine
from raidproof.storage.stack import StackSpec

PANIC_DEADLINE_S = 30.0
CRASH_KEY = b"c"
"""The byte that makes /proc/sysrq-trigger crash the kernel."""
PANIC = r"Kernel panic - not syncing: sysrq triggered crash$"
"""Pattern of the kernel message of a panic by sysrq; any other panic is a failure."""


@dataclass(frozen=True)
class PowerCut(Fault):
    """The server loses power. ``policy`` defines what its disks' caches keep: drop, keep, random or torn."""

    policy: CutPolicy = CutPolicy.DROP
    seed: int = 0
    name: ClassVar[str] = "power-cut"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects."""
        return FaultEffects(server_memory_lost=True, caches=self.policy, nfsd_restarted=True, server_away=True)

    def target(self, context: FaultContext) -> Machine:
        """Return the server."""
        return context.lab.server

    def inject(self, context: FaultContext) -> FaultEvent:
        """Cut the power; no program in the machine runs for it."""
        machine = self.target(context)
        cut = machine.crash(self.policy, self.seed)
        proof = f"machine killed, caches resolved by {cut.policy.value}"
        return FaultEvent(self.name, machine.name, cut.at_ns, proof, cut.fates)

    def heal(self, context: FaultContext) -> None:
        """Switch the machine on. `start` requires a changed boot_id, which proves that the machine was off."""
        self.target(context).start()


@dataclass(frozen=True)
class ClientPowerCut(PowerCut):
    """The last client loses power; the server and the other clients keep running."""

    name: ClassVar[str] = "client-power-cut"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects."""
        return FaultEffects(client_memory_lost=True)

    def target(self, context: FaultContext) -> Machine:
        """Return the last client."""
        return context.lab.clients[-1]


@dataclass(frozen=True)
class CleanReboot(Fault):
    """The control case: the machine is shut down cleanly and started again."""

    name: ClassVar[str] = "clean-reboot"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects."""
        return FaultEffects(nfsd_restarted=True, server_away=True)

    def target(self, context: FaultContext) -> Machine:
        """Return the server."""
        return context.lab.server

    def inject(self, context: FaultContext) -> FaultEvent:
        """Shut the machine down. All operations acknowledged until it was off count."""
        machine = self.target(context)
        machine.shutdown()
        return FaultEvent(self.name, machine.name, now_ns(), "powered off by itself")

    def heal(self, context: FaultContext) -> None:
        """Switch the machine on."""
        self.target(context).start()


@dataclass(frozen=True)
class KernelPanic(Fault):
    """The kernel dies; the disks stay powered, so that their caches are written out."""

    name: ClassVar[str] = "kernel-panic"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects."""
        return FaultEffects(server_memory_lost=True, nfsd_restarted=True, server_away=True, kernel_messages=(PANIC,))

    def target(self, context: FaultContext) -> Machine:
        """Return the server."""
        return context.lab.server

    def inject(self, context: FaultContext) -> FaultEvent:
        """Make the kernel panic, and verify that on the console.

        Raises:
            RequirementMissing: the machine has no console.
            RigError: the console shows no panic.
        """
        machine = self.target(context)
        if not machine.consoles:
            raise RequirementMissing(f"{machine.name} has no console on which a panic could be seen")
        # Start the writer before its input: the kernel dies in the write, after which no program in it can answer.
        writer = machine.start_command(["dd", "of=/proc/sysrq-trigger", "bs=1", "count=1", "status=none"])
        at_ns = now_ns()
        writer.feed(CRASH_KEY)
        machine.wait_off(Deadline.after(PANIC_DEADLINE_S))
        if "Kernel panic" not in machine.console.read_text(errors="replace"):
            raise RigError(f"{machine.name} went off without a panic; see {machine.console}")
        return FaultEvent(self.name, machine.name, at_ns, "console shows: Kernel panic")

    def heal(self, context: FaultContext) -> None:
        """Switch the machine on."""
        self.target(context).start()
