"""The power of a machine that is a process of the lab: what is the same whichever program runs it."""

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
    """A machine's switch; a subclass says what `on` starts, and puts it into ``_guest``."""

    program_name: ClassVar[str] = "its kernel"
    """Who ends when the machine does, for a message."""
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
        """The console log of each boot, the present one last."""
        return console_logs(self.logs, self.spec.name, self.boots)

    def cut(self, policy: CutPolicy, seed: int) -> Cut:
        """Freeze the disks, kill the guest, then decide what the disks' caches kept."""
        self._running()
        return cut_power(self.disks, self._kill, policy, seed)

    def wait_off(self, deadline: Deadline) -> None:
        """Wait for the guest's own end, and clear away what is left of it."""
        self._running().wait(deadline)
        self._kill()

    def require_on(self) -> None:
        """Raise RigError with the console's last words if the guest has ended."""
        if (status := self._running().status) is not None:
            said = self.consoles[-1].read_text(errors="replace")
            raise RigError(
                f"{self.spec.name}: {self.program_name} ended with status {status}: {cause_of_death(said)}; "
                f"see {self.consoles[-1]}"
            )

    def _kill(self) -> None:
        # SIGKILL: a program's own ways to end may send a flush to its disks.
        self._running().kill()
        self._guest = None

    def _running(self) -> Process:
        if self._guest is None:
            raise RigError(f"{self.spec.name} is not switched on")
        return self._guest
