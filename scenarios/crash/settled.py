"""A bitmap that marks what is being written and nothing else, before clients begin."""

from dataclasses import dataclass
from typing import ClassVar

from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.fault import Fault, FaultContext, FaultEffects, FaultEvent
from raidproof.storage.stack import StackSpec

DEADLINE_S = 30.0
TIME_BASE_S = 1
"""A bit goes two to three times that after all is in sync (Documentation/admin-guide/md.rst); md's default is 5."""


@dataclass(frozen=True)
class BitmapSettled(Fault):
    """All marks are gone. A new array has every region marked, the first 14 s if nothing is done."""

    name: ClassVar[str] = "bitmap-settled"

    def effects(self, stack: StackSpec) -> FaultEffects:  # noqa: ARG002
        """Excuse nothing."""
        return FaultEffects()

    def inject(self, context: FaultContext) -> FaultEvent:
        """Let md clear marks sooner, from now on, and wait until it has."""
        array = context.stack.array
        name = array.spec.devices[-1].name
        context.lab.server.succeed(["tee", f"/sys/block/{name}/md/bitmap/time_base"], stdin=f"{TIME_BASE_S}\n")

        def settled() -> bool:
            return not any(one.dirty for one in array.bitmaps().values())

        wait_until(settled, Deadline.after(DEADLINE_S), "the marks of the bitmap to go", 0.25)
        regions = {one.regions for one in array.bitmaps().values()}
        return FaultEvent(self.name, name, now_ns(), f"none of {max(regions):,} regions is marked")

    def heal(self, context: FaultContext) -> None:
        """Do nothing."""
