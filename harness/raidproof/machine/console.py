"""The consoles of a machine that is a process: one log a boot, and what the last one says of its end."""

import re
from pathlib import Path


def console_logs(folder: Path, machine: str, boots: int) -> tuple[Path, ...]:
    """Return the console log of each boot, the present one last."""
    return tuple(folder / f"{machine}.console.{boot}.log" for boot in range(1, boots + 1))


def cause_of_death(console: str) -> str:
    """Return the line of a console that says most about the kernel's end: the first complaint, or the last line."""
    lines = [re.sub(r"^(<\d+>)?(\[[ .\d]+\])? *", "", line).strip() for line in console.splitlines()]
    fatal = (line for line in lines if re.match(r"Bus error|Kernel panic|BUG:|Oops|VFS: (?:Cannot|Unable)", line))
    return next(fatal, next((line for line in reversed(lines) if line), "it said nothing"))
