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
"""Tolerance in seconds of a clock that is read and set from outside, on a busy machine."""


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
