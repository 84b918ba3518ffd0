"""The condition that the write-intent bitmap of the array marks no region before the clients begin."""

from dataclasses import dataclass
from typing import ClassVar

from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.fault import Fault, FaultContext, FaultEffects, FaultEvent
from raidproof.storage.stack import StackSpec

DEADLINE_S = 30.0
TIME_BASE_S = 1
"""Seconds (bitmap/time_base): md clears a bit two to three times this long after its region is in sync
(Documentation/admin-guide/md.rst); md's default is 5 s."""


@dataclass(frozen=True)
class BitmapSettled(Fault):
    """Waits until the bitmap marks no region. In a new array all regions are marked, by default for about 14 s."""

    name: ClassVar[str] = "bitmap-settled"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Declare no effects: this condition excuses no loss."""
        return FaultEffects()

    def inject(self, context: FaultContext) -> FaultEvent:
        """Shorten the delay after which md clears marks of the bitmap, and wait until no region is marked."""
        array = context.stack.array
        name = array.device.removeprefix("/dev/")
        context.lab.server.succeed(["tee", f"/sys/block/{name}/md/bitmap/time_base"], stdin=f"{TIME_BASE_S}\n")

        def settled() -> bool:
            return not any(one.dirty for one in array.bitmaps().values())

        wait_until(settled, Deadline.after(DEADLINE_S), "md to clear the marks of the bitmap", 0.25)
        regions = {one.regions for one in array.bitmaps().values()}
        return FaultEvent(self.name, name, now_ns(), f"none of {max(regions):,} regions is marked")

    def heal(self, context: FaultContext) -> None:
        """Do nothing: the array keeps the shorter delay."""
