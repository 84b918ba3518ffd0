"""The errors that a machine's kernel reports by their level, and the flags by which it says that it is tainted."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from raidproof.core.errors import RigError
from raidproof.machine.kernel_log import RING, text_of
from raidproof.machine.machine import Machine

ERRORS = [*RING, "--kernel", "--level", "emerg,alert,crit,err"]
"""Command that prints the kernel's messages of the ring buffer whose level is err or worse."""
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
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")


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


def kinds_of(lines: Iterable[str]) -> frozenset[str]:
    """Return the texts of messages, without time stamps and with all numbers alike."""
    return frozenset(_NUMBER.sub("#", text_of(line)) for line in lines)


def note_usual(machines: Iterable[Machine]) -> None:
    """Note what the kernels of machines have reported by now, which is usual for them; to be called after their boot.

    Later the ring buffer may have lost the messages of the boot.
    """
    for machine in machines:
        with suppress(RigError):
            if machine.usual_errors is None:
                machine.usual_errors = kinds_of(reported_by(machine).errors)


@dataclass
class ErrorWatch:
    """Collects what the kernels of machines report from now on, over several boots.

    Messages that a machine had printed before its first crash test are usual for it: it prints them at each boot.
    """

    machines: Mapping[str, Machine]
    found: dict[str, Reported] = field(default_factory=dict, init=False)
    """What is new, by name of the machine; a machine that never answered is missing."""
    _last: dict[str, tuple[str | None, Reported]] = field(default_factory=dict, init=False)
    """The boot_id of each machine at the last look, and what its kernel had reported."""

    def __post_init__(self) -> None:
        note_usual(self.machines.values())
        for name, machine in self.machines.items():
            with suppress(RigError):
                self._last[name] = machine.boot_id, reported_by(machine)

    def look(self) -> None:
        """Add what the kernels of all machines that answer have reported since the last look.

        A kernel loses its messages when it ends: look before each end.
        """
        for name, machine in self.machines.items():
            with suppress(RigError):
                now, found = reported_by(machine), self.found.get(name, NOTHING)
                boot, last = self._last.get(name, (None, NOTHING))
                before = last if machine.boot_id == boot else NOTHING
                usual = machine.usual_errors or frozenset()
                new = (line for line in now.errors if line not in before.errors and not kinds_of([line]) <= usual)
                self.found[name] = Reported((*found.errors, *new), found.tainted | (now.tainted - before.tainted))
                self._last[name] = machine.boot_id, now
