"""What a machine's kernel reports: console, ring buffer, and tasks that wait."""

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
"""So long neither a task nor a disk must move. A disk model's slowest request takes less."""


def console_logs(folder: Path, machine: str, boots: int) -> tuple[Path, ...]:
    """Return the console log of each boot, the present one last."""
    return tuple(folder / f"{machine}.console.{boot}.log" for boot in range(1, boots + 1))


def cause_of_death(console: str) -> str:
    """Return the line of a console that says most about the kernel's end: the first complaint, or the last line."""
    lines = [re.sub(r"^(<\d+>)?(\[[ .\d]+\])? *", "", line).strip() for line in console.splitlines()]
    fatal = (line for line in lines if re.match(r"Bus error|Kernel panic|BUG:|Oops|VFS: (?:Cannot|Unable)", line))
    return next(fatal, next((line for line in reversed(lines) if line), "it said nothing"))


@dataclass(frozen=True)
class Moment:
    """A place in what a kernel has said."""

    boot: int | str | None
    """The number of the boot, or its id where there is no console."""
    place: int
    """Bytes that it had said on its console in that boot, or the last line's stamp in microseconds."""


def moment(machine: Machine) -> Moment:
    """Return the present place."""
    if machine.consoles:
        return Moment(len(machine.consoles), machine.console.stat().st_size)
    return Moment(machine.boot_id, max(map(stamp_us, _ring(machine)), default=0))


def said_since(machine: Machine, since: Moment) -> str:
    """Return all that the kernel has said since; without a console, no more than since its last boot."""
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
    """Return what the kernel of that boot said from then to its end; None for a machine without a console."""
    if not isinstance(since.boot, int):
        return None
    return machine.consoles[since.boot - 1].read_bytes()[since.place :].decode(errors="replace")


def keep_tasks(machine: Machine) -> None:
    """Keep in a file beside its console what each task of a machine waits for; none if it answers nothing."""
    # Not sysrq-t, which kills User-mode Linux: it reads where nothing is (print_worker_info in kernel/workqueue.c).
    with suppress(RigError):
        tasks = machine.succeed(TASKS, deadline_s=TASKS_S)
        machine.console.with_suffix(".tasks").write_text(tasks)


def stamp_us(line: str) -> int:
    """Return when a line was said, in microseconds since the boot; 0 if it does not tell."""
    found = _STAMP.match(line)
    return int(found[1]) * 1_000_000 + int(found[2]) if found else 0


def _ring(machine: Machine) -> list[str]:
    return machine.succeed(RING).splitlines(keepends=True)


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
        first, done = waiting(machine.succeed(TASKS, deadline_s=WAITING_TASKS_S)), disks()
        pause(STILL_S)
        same = first & waiting(machine.succeed(TASKS, deadline_s=WAITING_TASKS_S))
    except RigError:
        return None
    return "; ".join(sorted(same)) if same and done and disks() == done else None
