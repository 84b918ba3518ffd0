"""The member disks of one machine, and what a power cut is to them: frozen, then resolved, then served again."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from raidproof.core.waiting import now_ns
from raidproof.disk.cache import CutPolicy, Fate
from raidproof.disk.client import EngineClient
from raidproof.machine.power import Cut


@dataclass
class MemberDisks:
    """The disks of one machine and the engine that serves them."""

    engine: EngineClient
    engine_socket: Path
    serials: tuple[str, ...]
    _lost_power: bool = field(default=False, repr=False)

    def power_on(self) -> None:
        """Serve what a cut has left, if there was one."""
        if self._lost_power:
            self.engine.power_on()
            self._lost_power = False

    def resolve(self, policy: CutPolicy, seed: int) -> tuple[Fate, ...]:
        """Decide what the caches kept, once nobody writes any more."""
        fates = self.engine.resolve(policy, seed)
        self._lost_power = True
        return fates


def cut_power(disks: MemberDisks | None, kill: Callable[[], object], policy: CutPolicy, seed: int) -> Cut:
    """Freeze a machine's disks, if it has any, kill it, then decide what the disks' caches kept.

    In this order no member takes one more write than the others.
    """
    at_ns = now_ns() if disks is None else disks.engine.freeze()
    kill()
    return Cut(at_ns, policy, seed, () if disks is None else disks.resolve(policy, seed))
