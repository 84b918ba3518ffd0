"""The messages of a machine's kernel: console, ring buffer, and tasks that hang."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from raidproof.core.errors import RigError
from raidproof.core.waiting import pause
from raidproof.machine.machine import Machine

RING = ["dmesg", "--raw"]
TASKS = ["ps", "-eo", "pid,stat,wchan:32,time,args"]
TASKS_S = 5.0
_STAMP = re.compile(r"(?:<\d+>)?\[ *(\d+)\.(\d{6})")
WAITING_TASKS_S = 10.0
STILL_S = 5.0
"""Seconds in which neither a task nor a disk may progress; longer than the slowest request of a disk model."""


def console_logs(folder: Path, machine: str, boots: int) -> tuple[Path, ...]:
    """Return the console log of each boot, the current one last."""
    return tuple(folder / f"{machine}.console.{boot}.log" for boot in range(1, boots + 1))


def cause_of_death(console: str) -> str:
    """Return the console line with the likely cause of the kernel's end: the first error, or the last line."""
    lines = [re.sub(r"^(<\d+>)?(\[[ .\d]+\])? *", "", line).strip() for line in console.splitlines()]
    fatal = (line for line in lines if re.match(r"Bus error|Kernel panic|BUG:|Oops|VFS: (?:Cannot|Unable)", line))
    return next(fatal, next((line for line in reversed(lines) if line), "no output"))


@dataclass(frozen=True)
class Moment:
    """A position in a kernel's messages."""

    boot: int | str | None
    """The number of the boot, or its boot_id without a console."""
    place: int
    """Bytes on the console in that boot, or the stamp of the last line in microseconds."""


def moment(machine: Machine) -> Moment:
    """Return the current position."""
    if machine.consoles:
        return Moment(len(machine.consoles), machine.console.stat().st_size)
    return Moment(machine.boot_id, max(map(stamp_us, _ring(machine)), default=0))


def said_since(machine: Machine, since: Moment) -> str:
    """Return all kernel messages since a position; without a console, at most those since the last boot."""
    if isinstance(since.boot, int):
        first, *later = machine.consoles[since.boot - 1 :]
        said = [first.read_bytes()[since.place :], *(path.read_bytes() for path in later)]
        return b"".join(said).decode(errors="replace")
    if machine.boot_id is None:
        return ""
    lines = _ring(machine)
    same = machine.boot_id == since.boot
    return "".join(line for line in lines if not same or stamp_us(line) > since.place)


def said_until_off(machine: Machine, since: Moment) -> str | None:
    """Return the messages of that boot's kernel from the position to its end; None for a machine without a console."""
    if not isinstance(since.boot, int):
        return None
    return machine.consoles[since.boot - 1].read_bytes()[since.place :].decode(errors="replace")


def keep_tasks(machine: Machine) -> None:
    """Save the wait channel of each task in a file beside the console; do nothing if the machine does not answer."""
    # Not sysrq-t, which kills User-mode Linux by an invalid read (print_worker_info in kernel/workqueue.c).
    with suppress(RigError):
        tasks = machine.succeed(TASKS, deadline_s=TASKS_S)
        machine.console.with_suffix(".tasks").write_text(tasks)


def stamp_us(line: str) -> int:
    """Return the stamp of a line in microseconds since the boot; 0 if it has none."""
    found = _STAMP.match(line)
    return int(found[1]) * 1_000_000 + int(found[2]) if found else 0


def _ring(machine: Machine) -> list[str]:
    return machine.succeed(RING).splitlines(keepends=True)


def waiting(listed: str) -> frozenset[str]:
    """Return the lines of `TASKS` with tasks in uninterruptible sleep, without kernel threads."""
    lines = (line.split(None, 4) for line in listed.splitlines()[1:])
    return frozenset(
        " ".join(words) for words in lines if len(words) == 5 and words[1][0] == "D" and words[4][0] != "["
    )


def stuck_tasks(machine: Machine, disks: Callable[[], object]) -> str | None:
    """Return the programs that hang in a machine's kernel while its disks are idle; None if there are none.

    ``disks`` returns the disks' progress: as long as it changes, the kernel may only be slow. The result is also None
    for a machine that does not answer.
    """
    try:
        first, done = waiting(machine.succeed(TASKS, deadline_s=WAITING_TASKS_S)), disks()
        pause(STILL_S)
        same = first & waiting(machine.succeed(TASKS, deadline_s=WAITING_TASKS_S))
    except RigError:
        return None
    return "; ".join(sorted(same)) if same and done and disks() == done else None
