"""The errors that a machine's kernel reports by their level, and the flags by which it says that it is tainted."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from raidproof.core.errors import RigError
from raidproof.machine.machine import Machine

ERRORS = ["dmesg", "--raw", "--level", "emerg,alert,crit,err"]
"""Command that prints the messages of the ring buffer whose level is err or worse."""
TAINTED = "/proc/sys/kernel/tainted"
FLAGS: Mapping[int, str] = {
    4: "machine check exception",
    5: "bad page",
    7: "oops or BUG",
    9: "warning",
    14: "soft lockup",
}
"""The flags of `TAINTED` that show a failure of the kernel or the hardware, by the number of the bit.

Source: Documentation/admin-guide/tainted-kernels.rst of Linux. The other flags say which modules were loaded.
"""
DEADLINE_S = 5.0
"""Time limit in seconds of the command `ERRORS`: a machine may hang."""


class Reported(NamedTuple):
    """What a kernel reports at one time."""

    errors: tuple[str, ...]
    """The messages of level err or worse, each with its level in angle brackets and its time stamp."""
    tainted: frozenset[str]
    """The flags of `FLAGS` that are set."""


NOTHING = Reported((), frozenset())


def reported_by(machine: Machine) -> Reported:
    """Return what a machine's kernel reports.

    Raises:
        RigError: the machine does not answer.
    """
    errors = machine.succeed(ERRORS, deadline_s=DEADLINE_S).splitlines()
    bits = int(machine.read_files([TAINTED]).get(TAINTED, "0"))
    return Reported(tuple(errors), frozenset(name for bit, name in FLAGS.items() if bits >> bit & 1))


@dataclass
class ErrorWatch:
    """Collects what the kernels of machines report from now on, over several boots."""

    machines: Mapping[str, Machine]
    found: dict[str, Reported] = field(default_factory=dict, init=False)
    """What is new, by name of the machine; a machine that never answered is missing."""
    _before: dict[str, Reported] = field(default_factory=dict, init=False)
    _boots: dict[str, str | None] = field(default_factory=dict, init=False)
    """The boot_id of each machine at the last look."""

    def __post_init__(self) -> None:
        for name, machine in self.machines.items():
            with suppress(RigError):
                self._before[name], self._boots[name] = reported_by(machine), machine.boot_id

    def look(self, *names: str) -> None:
        """Add what the kernels of the named machines have reported since the last look; without names, of all.

        A kernel loses its messages when it ends: look before each end.
        """
        for name in names or self.machines:
            with suppress(RigError):
                machine = self.machines[name]
                now, found = reported_by(machine), self.found.get(name, NOTHING)
                before = self._before.get(name, NOTHING) if machine.boot_id == self._boots.get(name) else NOTHING
                new = tuple(line for line in now.errors if line not in before.errors)
                self.found[name] = Reported(found.errors + new, found.tainted | (now.tainted - before.tainted))
                self._before[name], self._boots[name] = now, machine.boot_id
