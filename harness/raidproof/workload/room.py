"""Room for a tool's files: a directory for each machine, and whether they fit."""

from raidproof.core.errors import RigError
from raidproof.core.layer import Machine


def own_directory(machine: Machine, root: str, tool: str) -> str:
    """Return the directory of one machine: clients that share an export must not share names."""
    return f"{root}/{tool}-{machine.name}"


def free_bytes(machine: Machine, directory: str) -> int:
    """Return how much room the file system has.

    Raises:
        RigError: stat says something else.
    """
    return parse_free(machine.succeed(["stat", "--file-system", "--format=%a %S", directory]))


def parse_free(text: str) -> int:
    """Read ``stat --file-system --format='%a %S'``: free blocks and the size of one."""
    words = text.split()
    if len(words) != 2 or not all(word.isdecimal() for word in words) or not text.endswith("\n"):
        raise RigError(f"stat --file-system should print two numbers: {text!r}")
    return int(words[0]) * int(words[1])


def require_room(machine: Machine, directory: str, needed: int, tool: str) -> None:
    """Make sure that the workload fits.

    Raises:
        RigError: it does not.
    """
    if (free := free_bytes(machine, directory)) < needed:
        raise RigError(
            f"{tool} on {machine.name} needs {needed} bytes below {directory}, where {free} are free",
            remedy="fewer or smaller files, or larger disks",
        )
