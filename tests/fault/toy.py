"""A complete fault in one file, as an example."""

from dataclasses import dataclass
from typing import ClassVar

from raidproof.core.waiting import now_ns
from raidproof.fault import Fault, FaultContext, FaultEffects, FaultEvent
from raidproof.storage.stack import StackSpec

WORDS = "WARNING: CPU: 0 PID: 1 at toy.c:1 toy+0x1/0x2"


@dataclass(frozen=True)
class KernelWarns(Fault):
    """Makes the server's kernel print a warning."""

    seed: int = 0
    name: ClassVar[str] = "kernel-warns"

    def effects(self, stack: StackSpec) -> FaultEffects:
        """Declare the warning."""
        return FaultEffects(kernel_messages=(r"WARNING: .* at toy\.c",))

    def inject(self, context: FaultContext) -> FaultEvent:
        """Print the warning."""
        at_ns = now_ns()
        context.lab.server.put(f"{WORDS}\n", "/dev/kmsg")
        return FaultEvent(self.name, context.lab.server.name, at_ns, f"{WORDS}, {self.seed}")

    def heal(self, context: FaultContext) -> None:
        """Do nothing."""
