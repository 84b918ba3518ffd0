"""Faults of a machine's clock."""

from dataclasses import dataclass
from typing import ClassVar

from raidproof.core.errors import RigError
from raidproof.core.layer import Machine, whole_number
from raidproof.core.waiting import now_ns, pause
from raidproof.fault.effects import FaultEffects
from raidproof.fault.fault import Fault, FaultContext, FaultEvent
from raidproof.storage.stack import StackSpec

HELD_S = 2.0
TOLERANCE_S = 5.0
"""How far a clock that is read and set from outside may be off, on a machine that is busy."""


@dataclass(frozen=True)
class ClockStep(Fault):
    """The server's clock jumps by ``step_s`` seconds, and back after ``held_s``."""

    step_s: float = 3600.0
    held_s: float = HELD_S
    name: ClassVar[str] = "clock-step"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Return nothing that a verdict has to know: clients notice none of it."""
        return FaultEffects()

    def inject(self, context: FaultContext) -> FaultEvent:
        """Set the clock, and hold it against the harness's own before and after.

        Raises:
            RigError: it did not jump that far.
        """
        server = context.lab.server
        moved, at_ns = step(server, self.step_s)
        pause(self.held_s)
        return FaultEvent(self.name, server.name, at_ns, f"moved by {moved:+.2f} s, for {self.held_s:g} s")

    def heal(self, context: FaultContext) -> None:
        """Set it back."""
        step(context.lab.server, -self.step_s)


def step(machine: Machine, seconds: float) -> tuple[float, int]:
    """Move a machine's clock; return by how much it moved, and when (CLOCK_MONOTONIC of the harness, ns).

    Raises:
        RigError: it did not move that far.
    """
    before = ahead_of(machine)
    target = (before + now_ns()) / 1e9 + seconds
    machine.succeed(["date", "--utc", f"--set=@{target:.6f}"])
    at_ns = now_ns()
    moved = (ahead_of(machine) - before) / 1e9
    if abs(moved - seconds) > TOLERANCE_S:
        raise RigError(f"{machine.name}: its clock was to move by {seconds:+g} s, and did by {moved:+.2f} s")
    return moved, at_ns


def ahead_of(machine: Machine) -> int:
    """Return by how many nanoseconds a machine's clock is ahead of the harness's monotonic one."""
    begun = now_ns()
    told = whole_number(machine.succeed(["date", "+%s%N"]).strip(), "nanoseconds")
    return told - (begun + now_ns()) // 2
