"""A machine's kernel messages, from its console or its ring buffer, and the processes that hang in its kernel."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from raidproof.core.errors import RigError
from raidproof.core.waiting import pause
from raidproof.machine.machine import Machine

RING = ["dmesg", "--raw"]
"""Command that prints the ring buffer of the kernel messages."""
TASKS = ["ps", "-eo", "pid,stat,wchan:32,time,args"]
"""Command that prints the state, wait channel and CPU time of each process."""
TASKS_S = 5.0
"""Deadline of the command `TASKS` in seconds after a failure, when the machine may hang."""
_PREFIX = re.compile(r"^(<\d+>)?(\[[ .\d]+\])? *")
_STAMP = re.compile(r"(?:<\d+>)?\[ *(\d+)\.(\d{6})")
WAITING_TASKS_S = 10.0
"""Deadline of the command `TASKS` in seconds, when `stuck_tasks` runs it."""
STILL_S = 5.0
"""Seconds without progress of a process and of the disks after which the process counts as hung.

The slowest request of a simulated drive takes less time.
"""


def console_logs(folder: Path, machine: str, boots: int) -> tuple[Path, ...]:
    """Return the path of a machine's console log for each boot, the latest boot last."""
    return tuple(folder / f"{machine}.console.{boot}.log" for boot in range(1, boots + 1))


def text_of(line: str) -> str:
    """Return the text of a kernel message, without its level and its time stamp."""
    return _PREFIX.sub("", line).strip()


def cause_of_death(console: str) -> str:
    """Return the console line with the likely cause of the kernel's end: the first fatal error, else the last line."""
    lines = [text_of(line) for line in console.splitlines()]
    fatal = (line for line in lines if re.match(r"Bus error|Kernel panic|BUG:|Oops|VFS: (?:Cannot|Unable)", line))
    return next(fatal, next((line for line in reversed(lines) if line), "no output"))


@dataclass(frozen=True)
class Moment:
    """A position in the kernel messages of a machine."""

    boot: int | str | None
    """Number of the boot, from 1; for a machine without a console, the boot_id, or None while the machine is off."""
    place: int
    """Byte offset in the boot's console log; without a console, the time stamp of the last message in microseconds."""


def moment(machine: Machine) -> Moment:
    """Return the current position in a machine's kernel messages.

    A kernel that has printed nothing on its console, as that of a user's Vagrant box may be configured, has none.
    """
    if any(one.stat().st_size for one in machine.consoles):
        return Moment(len(machine.consoles), machine.console.stat().st_size)
    return Moment(machine.boot_id, max(map(stamp_us, _ring(machine)), default=0))


def said_since(machine: Machine, since: Moment) -> str:
    """Return a machine's kernel messages since a position.

    ``since`` says whether the machine has a console. Without one, only messages of the running boot are returned, and
    none while the machine is off.
    """
    if isinstance(since.boot, int):
        first, *later = machine.consoles[since.boot - 1 :]
        output = [first.read_bytes()[since.place :], *(path.read_bytes() for path in later)]
        return b"".join(output).decode(errors="replace")
    if machine.boot_id is None:
        return ""
    lines = _ring(machine)
    same = machine.boot_id == since.boot
    return "".join(line for line in lines if not same or stamp_us(line) > since.place)


def said_until_off(machine: Machine, since: Moment) -> str | None:
    """Return a machine's console output from a position to the end of the same boot; None without a console."""
    if not isinstance(since.boot, int):
        return None
    return machine.consoles[since.boot - 1].read_bytes()[since.place :].decode(errors="replace")


def keep_tasks(machine: Machine) -> None:
    """Save the process list (`TASKS`) beside the machine's console log; do nothing if the machine does not answer."""
    # Not sysrq-t, which crashes User-mode Linux by an invalid read (print_worker_info in kernel/workqueue.c).
    with suppress(RigError):
        tasks = machine.succeed(TASKS, deadline_s=TASKS_S)
        machine.console.with_suffix(".tasks").write_text(tasks)


def stamp_us(line: str) -> int:
    """Return the time stamp of a kernel message in microseconds since the boot; 0 if the line has no stamp."""
    found = _STAMP.match(line)
    return int(found[1]) * 1_000_000 + int(found[2]) if found else 0


def _ring(machine: Machine) -> list[str]:
    return machine.succeed(RING).splitlines(keepends=True)


def waiting(listed: str) -> frozenset[str]:
    """Return the lines of `TASKS` output ``listed`` about user processes in uninterruptible sleep (state D)."""
    lines = (line.split(None, 4) for line in listed.splitlines()[1:])
    return frozenset(
        " ".join(words) for words in lines if len(words) == 5 and words[1][0] == "D" and words[4][0] != "["
    )


def stuck_tasks(machine: Machine, disks: Callable[[], object]) -> str | None:
    """Return the processes that hang in a machine's kernel while its disks are idle; None if no process hangs.

    ``disks`` returns the progress of the disks: while the progress changes, the kernel may only be slow. The result is
    also None for a machine that does not answer.
    """
    try:
        first, done = waiting(machine.succeed(TASKS, deadline_s=WAITING_TASKS_S)), disks()
        pause(STILL_S)
        same = first & waiting(machine.succeed(TASKS, deadline_s=WAITING_TASKS_S))
    except RigError:
        return None
    return "; ".join(sorted(same)) if same and done and disks() == done else None
