"""The same step on every machine at the same time."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from harness.command import Completed
from harness.errors import RigError
from harness.layer import Machine

Result = TypeVar("Result")


def everywhere(machines: Sequence[Machine], step: Callable[[Machine], Result]) -> dict[str, Result]:
    """Take a step on all machines side by side, and return what each returned, by its name.

    All of them are waited for, so that none still runs when the first failure is raised.
    """
    if not machines:
        raise RigError("a workload was given no machine to run on")
    with ThreadPoolExecutor(max_workers=len(machines)) as executor:
        running = {machine.name: executor.submit(step, machine) for machine in machines}
    return {name: future.result() for name, future in running.items()}


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


def require_ended_well(ended: Completed, tool: str) -> str:
    """Return the standard output of a tool that ended with status 0.

    Raises:
        RigError: it did not; 128 and above is a signal.
    """
    if ended.ok:
        return ended.stdout
    said = (ended.stderr.strip() or ended.stdout.strip()).rpartition("\n")[2][-300:]
    raise RigError(f"{ended.where}: {tool} ended with status {ended.status}: {said or 'it said nothing'}")
