"""A computer of the lab: run something in it, start it, stop it, take its power away."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from raidproof.core.command import DEFAULT_DEADLINE_S, Completed
from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.topology import MachineSpec
from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.disk.cache import CutPolicy
from raidproof.machine.power import Cut, Power
from raidproof.machine.remote import Remote
from raidproof.machine.remote_command import RemoteCommand
from raidproof.machine.transport import Transport

BOOT_DEADLINE_S = 150.0
"""An emulated machine beside others takes half a minute."""
BOOT_ID, READY = "/proc/sys/kernel/random/boot_id", "/run/raidproof/ready"
"""The second is written by our own init at its end; on other systems to answer is to be ready."""


class Machine(Remote):
    """One computer, in the role that its specification names."""

    def __init__(
        self,
        spec: MachineSpec,
        power: Power,
        transport: Transport,
        *,
        own_init: bool = True,
        on_boot: Callable[[], object] = lambda: None,
    ) -> None:
        self.spec = spec
        self.name = spec.name
        """The machine's host name."""
        self.power = power
        self.transport = transport
        self._on_boot = on_boot
        """What has to be done after each boot before the machine is of use."""
        self._boot_files = [BOOT_ID, READY] if own_init else [BOOT_ID]
        self.boot_id: str | None = None
        """Of the running boot, from /proc/sys/kernel/random/boot_id; None while it is off."""
        self.boot_s: float | None = None
        """How long the last start took, from power to an answer."""
        self._last_boot_id: str | None = None

    @property
    def address(self) -> str:
        """Its address on the lab's network."""
        return str(self.spec.address.ip)

    @property
    def consoles(self) -> tuple[Path, ...]:
        """The console log of each boot, that of the present or last one last."""
        return self.power.consoles

    @property
    def console(self) -> Path:
        """The console log of the present boot, or of the last one."""
        return self.consoles[-1]

    def start(self, deadline_s: float = BOOT_DEADLINE_S) -> None:
        """Switch it on and wait until it answers and its own start-up has finished.

        Raises:
            RigError: it died on the way, or is the same boot as before.
            DeadlineExceeded: it did not answer.
        """
        deadline, begun = Deadline.after(deadline_s), now_ns()
        self.power.on()
        self._log_in(deadline)
        self._on_boot()
        self.boot_s = (now_ns() - begun) / 1e9

    def attach(self, deadline_s: float = BOOT_DEADLINE_S) -> None:
        """Log in to a machine that is on. Raises as `start`."""
        self._log_in(Deadline.after(deadline_s))

    def _log_in(self, deadline: Deadline) -> None:
        self.transport.connect(deadline, self.power.require_on)
        ready, self.boot_id = wait_until(self._read_boot, deadline, f"{self.name} to finish its start-up")
        if ready != "ready":
            raise RigError(f"{self.name}: start-up failed: {ready}; see {', '.join(map(str, self.consoles[-1:]))}")
        if self.boot_id == self._last_boot_id:
            raise RigError(f"{self.name}: the boot_id did not change, so it never lost its power")
        self._last_boot_id = self.boot_id

    def _read_boot(self) -> tuple[str, str] | None:
        self.power.require_on()
        # By a command: a machine without an agent is refused later, by who knows what else it lacks.
        said = self.run(["cat", *self._boot_files])
        if not said.ok:
            return None
        boot_id, *ready = said.stdout.splitlines()
        return (*ready, "ready")[0], boot_id

    def start_command(self, argv: Sequence[str], deadline_s: float = DEFAULT_DEADLINE_S) -> RemoteCommand:
        """Start a command and return at once; the deadline is that of the start."""
        return self.transport.start(argv, Deadline.after(deadline_s))

    def fail(self, argv: Sequence[str], *, deadline_s: float = DEFAULT_DEADLINE_S) -> Completed:
        """Run a command that must not end with status 0.

        Raises:
            RigError: it succeeded.
        """
        completed = self.run(argv, deadline_s=deadline_s)
        if completed.ok:
            raise RigError(f"{self.name}: succeeded, and must not: {shlex.join(argv)}")
        return completed

    def require(self, program: str) -> None:
        """Make sure that the machine has a program.

        Raises:
            RequirementMissing: its image lacks it.
        """
        if not self.run(["which", program]).ok:
            raise RequirementMissing(f"{self.name} has no {program}", remedy="its image's recipe is in vms/images")

    def shutdown(self, deadline_s: float = BOOT_DEADLINE_S) -> None:
        """Stop it in good order: file systems unmounted, arrays stopped, caches flushed."""
        deadline = Deadline.after(deadline_s)
        self.start_command(self.power.poweroff)
        self.wait_off(deadline)

    def wait_off(self, deadline: Deadline) -> None:
        """Return when it has gone down by itself, its disks still under power.

        Raises:
            DeadlineExceeded: it is still up.
        """
        self.power.wait_off(deadline)
        self._gone()

    def crash(self, policy: CutPolicy = CutPolicy.DROP, seed: int = 0) -> Cut:
        """Take its power away, with what its disks had not yet made durable resolved by ``policy``."""
        cut = self.power.cut(policy, seed)
        self._gone()
        return cut

    def _gone(self) -> None:
        self.boot_id = None
        self.transport.close()
