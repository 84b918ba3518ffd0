"""Faults of a machine: power cut, clean reboot, kernel panic, and a step of its clock."""

from dataclasses import dataclass
from random import Random
from typing import ClassVar, Self

from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.layer import whole_number
from raidproof.core.waiting import Deadline, now_ns, pause
from raidproof.disk.cache import CutPolicy
from raidproof.fault.fault import Fault, FaultContext, FaultEffects, FaultEvent, unreachable
from raidproof.machine.machine import Machine
from raidproof.storage.stack import StackSpec

HELD_S = 2.0
"""Default seconds that a stepped clock stays wrong."""
TOLERANCE_S = 5.0
"""Accepted difference in seconds between the requested and the measured clock step, because commands take time."""
PANIC_DEADLINE_S = 30.0
CRASH_KEY = b"c"
"""The byte that makes the kernel panic when it is written to /proc/sysrq-trigger."""
PANIC = r"Kernel panic - not syncing: sysrq triggered crash$"
"""Regular expression for the kernel's message about a panic by sysrq. A panic with another message is a failure."""


class MachineDown(Fault):
    """A fault that takes one machine down; `heal` switches the machine on."""

    def target(self, context: FaultContext) -> Machine:
        """Return the server, which the fault takes down."""
        return context.lab.server

    def heal(self, context: FaultContext) -> None:
        """Switch the machine on. `start` requires a changed boot_id, which proves that the machine was off."""
        self.target(context).start()


@dataclass(frozen=True)
class PowerCut(MachineDown):
    """The server loses power. ``policy`` says what the volatile caches of its disks keep: drop, keep, random, torn."""

    policy: CutPolicy = CutPolicy.DROP
    seed: int = 0
    name: ClassVar[str] = "power-cut"

    @classmethod
    def drawn(cls, rng: Random, stack: StackSpec) -> Self:  # noqa: ARG003
        """Return the fault with a random policy of the caches."""
        return cls(rng.choice([*CutPolicy]), rng.randrange(1 << 16))

    def effects(self, stack: StackSpec) -> FaultEffects:
        """Return the effects of this fault: the server's memory is lost; ``policy`` says what disk caches keep."""
        return unreachable(stack, server_memory_lost=True, caches=self.policy, nfsd_restarted=True)

    def inject(self, context: FaultContext) -> FaultEvent:
        """Cut the power from outside the machine, without running a command in the machine."""
        machine = self.target(context)
        cut = machine.crash(self.policy, self.seed)
        proof = f"machine killed; disk caches after the cut: {cut.policy.value}"
        return FaultEvent(self.name, machine.name, cut.at_ns, proof, cut.cut_results)


@dataclass(frozen=True)
class ClientPowerCut(PowerCut):
    """The last client loses power; the server and the other clients keep running."""

    name: ClassVar[str] = "client-power-cut"

    @classmethod
    def drawn(cls, rng: Random, stack: StackSpec) -> Self:  # noqa: ARG003
        """Return the fault."""
        return cls()

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects of this fault: the client loses its memory."""
        return FaultEffects(client_memory_lost=True)

    def target(self, context: FaultContext) -> Machine:
        """Return the last client of the lab, which loses power."""
        return context.lab.clients[-1]


@dataclass(frozen=True)
class CleanReboot(MachineDown):
    """The server shuts down cleanly and starts again. As a control, this fault must lose nothing."""

    name: ClassVar[str] = "clean-reboot"

    @classmethod
    def drawn(cls, rng: Random, stack: StackSpec) -> Self | None:  # noqa: ARG003
        """Return the fault; None of a subclass, whose arguments are its own."""
        return cls() if cls is CleanReboot else None

    def effects(self, stack: StackSpec) -> FaultEffects:
        """Return the effects of this fault: nfsd restarts, and clients may log hung tasks."""
        return unreachable(stack, nfsd_restarted=True)

    def inject(self, context: FaultContext) -> FaultEvent:
        """Shut the server down; the instant of the fault is when the server is off."""
        machine = self.target(context)
        machine.shutdown()
        return FaultEvent(self.name, machine.name, now_ns(), "powered off by itself")


@dataclass(frozen=True)
class KernelPanic(MachineDown):
    """The server's kernel panics. The disks stay powered, and write out their volatile caches."""

    name: ClassVar[str] = "kernel-panic"

    @classmethod
    def drawn(cls, rng: Random, stack: StackSpec) -> Self:  # noqa: ARG003
        """Return the fault."""
        return cls()

    def effects(self, stack: StackSpec) -> FaultEffects:
        """Return the effects of this fault: the server loses its memory, and its console shows the panic."""
        return unreachable(stack, server_memory_lost=True, nfsd_restarted=True, kernel_messages=(PANIC,))

    def inject(self, context: FaultContext) -> FaultEvent:
        """Make the server's kernel panic, and verify that the console shows the panic.

        Raises:
            RequirementMissing: the server has no console.
            RigError: the server went off, and its console shows no panic.
        """
        machine = self.target(context)
        if not machine.consoles:
            raise RequirementMissing(f"{machine.name} has no console, which must show the kernel panic")
        # Start dd before its input arrives: the kernel panics during the write, and could not report a later start.
        writer = machine.start_command(["dd", "of=/proc/sysrq-trigger", "bs=1", "count=1", "status=none"])
        at_ns = now_ns()
        writer.feed(CRASH_KEY)
        machine.wait_off(Deadline.after(PANIC_DEADLINE_S))
        if "Kernel panic" not in machine.console.read_text(errors="replace"):
            raise RigError(f"{machine.name} went off without a kernel panic; see {machine.console}")
        return FaultEvent(self.name, machine.name, at_ns, "console shows: Kernel panic")


@dataclass(frozen=True)
class ClockStep(Fault):
    """The server's real-time clock jumps by ``step_s`` seconds, and back after ``held_s`` seconds."""

    step_s: float = 3600.0
    held_s: float = HELD_S
    name: ClassVar[str] = "clock-step"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return the effects of this fault: none, because a clock step excuses no failure."""
        return FaultEffects()

    def inject(self, context: FaultContext) -> FaultEvent:
        """Step the server's clock, and wait ``held_s`` seconds.

        Raises:
            RigError: the measured step differs from ``step_s`` by more than `TOLERANCE_S`.
        """
        server = context.lab.server
        moved, at_ns = step(server, self.step_s)
        pause(self.held_s)
        return FaultEvent(self.name, server.name, at_ns, f"clock moved by {moved:+.2f} s, for {self.held_s:g} s")

    def heal(self, context: FaultContext) -> None:
        """Step the server's clock back."""
        step(context.lab.server, -self.step_s)


def step(machine: Machine, seconds: float) -> tuple[float, int]:
    """Step a machine's real-time clock by a number of seconds, and measure the step by the harness's clock.

    Return the measured step in seconds, and the instant in ns (CLOCK_MONOTONIC of the harness).

    Raises:
        RigError: the measured step differs from the requested one by more than `TOLERANCE_S`.
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
    printed = whole_number(machine.succeed(["date", "+%s%N"]).strip(), f"{machine.name}: nanoseconds of its clock")
    return printed - (begun + now_ns()) // 2
