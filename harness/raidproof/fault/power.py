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
"""What /proc/sysrq-trigger takes for "crash"."""
PANIC = r"Kernel panic - not syncing: sysrq triggered crash$"
"""What the kernel says of a panic by sysrq; any other panic is a failure."""


@dataclass(frozen=True)
class PowerCut(Fault):
    """The server's plug is pulled. ``policy`` says what its disks' caches keep: drop, keep, random or torn."""

    policy: CutPolicy = CutPolicy.DROP
    seed: int = 0
    name: ClassVar[str] = "power-cut"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return what it does."""
        return FaultEffects(server_memory_lost=True, caches=self.policy, nfsd_restarted=True, server_away=True)

    def target(self, context: FaultContext) -> Machine:
        """Return the server."""
        return context.lab.server

    def inject(self, context: FaultContext) -> FaultEvent:
        """Take the power away; nothing runs in the machine for it."""
        machine = self.target(context)
        cut = machine.crash(self.policy, self.seed)
        proof = f"machine killed, caches resolved by {cut.policy.value}"
        return FaultEvent(self.name, machine.name, cut.at_ns, proof, cut.fates)

    def heal(self, context: FaultContext) -> None:
        """Switch it on again. A changed boot_id, which `start` insists on, proves that it was off."""
        self.target(context).start()


@dataclass(frozen=True)
class ClientPowerCut(PowerCut):
    """The last client's plug is pulled; the server and the others go on."""

    name: ClassVar[str] = "client-power-cut"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return what it does."""
        return FaultEffects(client_memory_lost=True)

    def target(self, context: FaultContext) -> Machine:
        """Return the last client."""
        return context.lab.clients[-1]


@dataclass(frozen=True)
class CleanReboot(Fault):
    """The control: the machine is stopped in good order and started again."""

    name: ClassVar[str] = "clean-reboot"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return what it does."""
        return FaultEffects(nfsd_restarted=True, server_away=True)

    def target(self, context: FaultContext) -> Machine:
        """Return the server."""
        return context.lab.server

    def inject(self, context: FaultContext) -> FaultEvent:
        """Shut it down. All that was acknowledged until it was off counts."""
        machine = self.target(context)
        machine.shutdown()
        return FaultEvent(self.name, machine.name, now_ns(), "powered off by itself")

    def heal(self, context: FaultContext) -> None:
        """Switch it on again."""
        self.target(context).start()


@dataclass(frozen=True)
class KernelPanic(Fault):
    """The kernel dies; the disks keep their power, so their caches are written out."""

    name: ClassVar[str] = "kernel-panic"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return what it does."""
        return FaultEffects(server_memory_lost=True, nfsd_restarted=True, server_away=True, kernel_messages=(PANIC,))

    def target(self, context: FaultContext) -> Machine:
        """Return the server."""
        return context.lab.server

    def inject(self, context: FaultContext) -> FaultEvent:
        """Make the kernel panic, and see on the console that it did.

        Raises:
            RequirementMissing: it has no console.
            RigError: the console does not say so.
        """
        machine = self.target(context)
        if not machine.consoles:
            raise RequirementMissing(f"{machine.name} has no console on which a panic could be seen")
        # It runs before it is told: the kernel dies in its write, and nothing in the machine can answer any more.
        writer = machine.start_command(["dd", "of=/proc/sysrq-trigger", "bs=1", "count=1", "status=none"])
        at_ns = now_ns()
        writer.feed(CRASH_KEY)
        machine.wait_off(Deadline.after(PANIC_DEADLINE_S))
        if "Kernel panic" not in machine.console.read_text(errors="replace"):
            raise RigError(f"{machine.name} went off without a panic; see {machine.console}")
        return FaultEvent(self.name, machine.name, at_ns, "console says: Kernel panic")

    def heal(self, context: FaultContext) -> None:
        """Switch it on again."""
        self.target(context).start()
