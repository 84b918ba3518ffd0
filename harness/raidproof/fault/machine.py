"""Faults of a machine: its power, its kernel, its clock."""

from dataclasses import dataclass
from typing import ClassVar

from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.layer import whole_number
from raidproof.core.waiting import Deadline, now_ns, pause
from raidproof.disk.cache import CutPolicy
from raidproof.fault.fault import Fault, FaultContext, FaultEffects, FaultEvent
from raidproof.machine.machine import Machine
from raidproof.storage.stack import StackSpec

HELD_S = 2.0
TOLERANCE_S = 5.0
"""Tolerance in seconds of a clock that is read and set from outside, on a busy machine."""
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
        return FaultEvent(self.name, machine.name, cut.at_ns, proof, cut.cut_results)

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


@dataclass(frozen=True)
class ClockStep(Fault):
    """The server's clock jumps by ``step_s`` seconds, and back after ``held_s``."""

    step_s: float = 3600.0
    held_s: float = HELD_S
    name: ClassVar[str] = "clock-step"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return no effects: clients notice none."""
        return FaultEffects()

    def inject(self, context: FaultContext) -> FaultEvent:
        """Set the clock, and compare it with the harness's clock before and after.

        Raises:
            RigError: the clock did not jump that far.
        """
        server = context.lab.server
        moved, at_ns = step(server, self.step_s)
        pause(self.held_s)
        return FaultEvent(self.name, server.name, at_ns, f"moved by {moved:+.2f} s, for {self.held_s:g} s")

    def heal(self, context: FaultContext) -> None:
        """Set the clock back."""
        step(context.lab.server, -self.step_s)


def step(machine: Machine, seconds: float) -> tuple[float, int]:
    """Move a machine's clock; return the distance in s, and the instant (CLOCK_MONOTONIC of the harness, ns).

    Raises:
        RigError: the clock did not move that far.
    """
    before = ahead_of(machine)
    target = (before + now_ns()) / 1e9 + seconds
    machine.succeed(["date", "--utc", f"--set=@{target:.6f}"])
    at_ns = now_ns()
    moved = (ahead_of(machine) - before) / 1e9
    if abs(moved - seconds) > TOLERANCE_S:
        raise RigError(f"{machine.name}: requested clock step {seconds:+g} s, effective {moved:+.2f} s")
    return moved, at_ns


def ahead_of(machine: Machine) -> int:
    """Return the nanoseconds by which a machine's real-time clock is ahead of the harness's CLOCK_MONOTONIC."""
    begun = now_ns()
    told = whole_number(machine.succeed(["date", "+%s%N"]).strip(), "nanoseconds")
    return told - (begun + now_ns()) // 2
