"""The power of a machine that is a process of the lab: the parts common to all programs that run guests."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from raidproof.core.errors import RigError
from raidproof.core.topology import MachineSpec
from raidproof.core.waiting import Deadline
from raidproof.disk.cache import CutPolicy
from raidproof.image.image import Image
from raidproof.image.kernel import Kernel
from raidproof.machine.kernel_log import cause_of_death, console_logs
from raidproof.machine.machine import OWN_POWEROFF, Cut, MemberDisks, cut_power
from raidproof.namespace import Enclosure, Process


@dataclass
class GuestPower:
    """The power switch of a machine; a subclass implements `on`, which sets ``_guest``."""

    program_name: ClassVar[str] = "its kernel"
    """The process that ends with the machine, for messages."""
    raid6 = True
    spec: MachineSpec
    kernel: Kernel
    image: Image
    directory: Path
    logs: Path
    enclosure: Enclosure
    tap: str
    disks: MemberDisks | None = field(default=None, kw_only=True)
    boots: int = field(default=0, kw_only=True)
    poweroff: tuple[str, ...] = field(default=OWN_POWEROFF, kw_only=True)
    _guest: Process | None = field(default=None, init=False)

    @property
    def consoles(self) -> tuple[Path, ...]:
        """The console log of each boot, the current one last."""
        return console_logs(self.logs, self.spec.name, self.boots)

    def cut(self, policy: CutPolicy, seed: int) -> Cut:
        """Freeze the disks, kill the guest, then apply the cut policy to the disks' caches."""
        self._running()
        return cut_power(self.disks, self._kill, policy, seed)

    def wait_off(self, deadline: Deadline) -> None:
        """Wait until the guest ends by itself, and remove its remains."""
        self._running().wait(deadline)
        self._kill()

    def require_on(self) -> None:
        """Raise RigError with the last console output if the guest has ended."""
        if (status := self._running().status) is not None:
            said = self.consoles[-1].read_text(errors="replace")
            raise RigError(
                f"{self.spec.name}: {self.program_name} ended with status {status}: {cause_of_death(said)}; "
                f"see {self.consoles[-1]}"
            )

    def _kill(self) -> None:
        # SIGKILL: an orderly exit of the program may send a flush to its disks.
        self._running().kill()
        self._guest = None

    def _running(self) -> Process:
        if self._guest is None:
            raise RigError(f"{self.spec.name} is not switched on")
        return self._guest
