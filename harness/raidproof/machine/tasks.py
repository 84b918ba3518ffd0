"""Tasks of a machine that wait in its kernel: whether one of them will ever go on."""

from collections.abc import Callable

from raidproof.core.errors import RigError
from raidproof.core.waiting import pause
from raidproof.machine.kernel_log import TASKS
from raidproof.machine.machine import Machine

TASKS_S = 10.0
STILL_S = 5.0
"""So long neither a task nor a disk must move. A disk model's slowest request takes less."""


def waiting(listed: str) -> frozenset[str]:
    """Return the lines of `TASKS` that are about tasks in uninterruptible sleep, kernel threads left out."""
    lines = (line.split(None, 4) for line in listed.splitlines()[1:])
    return frozenset(
        " ".join(words) for words in lines if len(words) == 5 and words[1][0] == "D" and words[4][0] != "["
    )


def stuck_tasks(machine: Machine, disks: Callable[[], object]) -> str | None:
    """Return the programs that hang in a machine's kernel while its disks have nothing to do; None if none does.

    ``disks`` returns what the disks have done so far: as long as that changes, the kernel may only be slow. A machine
    that answers nothing says nothing about its kernel.
    """
    try:
        first, done = waiting(machine.succeed(TASKS, deadline_s=TASKS_S)), disks()
        pause(STILL_S)
        same = first & waiting(machine.succeed(TASKS, deadline_s=TASKS_S))
    except RigError:
        return None
    return "; ".join(sorted(same)) if same and done and disks() == done else None
