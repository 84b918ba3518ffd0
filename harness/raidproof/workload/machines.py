"""What every tool needs of the machines that it runs on: a deadline, empty caches, sizes, space for its files."""

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from typing import Annotated, TypeVar

from pydantic import BeforeValidator

from raidproof.core.command import Completed
from raidproof.core.errors import DeadlineExceeded, RequestError, RigError
from raidproof.core.layer import Machine
from raidproof.core.units import GIB, KIB, MIB, parse_size

_LETTERS = {"k": KIB, "m": MIB, "g": GIB, "t": 1024 * GIB}

KILL_AFTER_S = 5
"""From asking a tool to end to killing it."""
GRACE_S = 20.0
"""What the harness waits beyond that, for a tool that the kernel does not let go."""
TIMED_OUT, KILLED = 124, 137
CACHES_DEADLINE_S = 300.0
"""Dirty pages of a client with much memory may take this long to reach a slow server."""
T = TypeVar("T")
M = TypeVar("M", bound=Machine)


def parse_tool_size(text: str | int) -> int:
    """Read ``4k``, ``1M`` or ``4g`` as the tools do, and all else as everywhere (``64KiB``, ``64kB``).

    Raises:
        RequestError: the text is no size.
    """
    if isinstance(text, str) and (match := re.fullmatch(r"(\d+)([kmgt])", text.strip(), re.IGNORECASE)):
        return int(match.group(1)) * _LETTERS[match.group(2).lower()]
    # pydantic reads as far as it understands: fio's 50% would be 50 bytes.
    if isinstance(text, str) and not re.fullmatch(r"[\w.\s]+", text):
        raise RequestError(f"not a size: {text!r}", remedy="write for example 4k or 64KiB")
    return parse_size(text)


ToolSize = Annotated[int, BeforeValidator(parse_tool_size)]
"""A pydantic field in bytes that reads ``4k`` as 4096."""


def run_limited(machine: Machine, argv: Sequence[str], deadline_s: float, *, stdin: str | None = None) -> Completed:
    """Run a tool that is ended in its machine if it runs too long: it must not disturb what is measured next.

    Its messages are in English whatever the machine's language.

    Raises:
        DeadlineExceeded: it ran too long.
    """
    seconds = ceil(deadline_s)
    limit = ["timeout", f"--kill-after={KILL_AFTER_S}", str(seconds)]
    waited_s = seconds + KILL_AFTER_S + GRACE_S
    ended = machine.run(["env", "LC_ALL=C", *limit, *argv], stdin=stdin, deadline_s=waited_s)
    if ended.status in {TIMED_OUT, KILLED}:
        said = (ended.stderr.strip() or ended.stdout.strip())[-300:]
        raise DeadlineExceeded(f"{machine.name}: {argv[0]} was still running after {seconds} s: {said or 'silent'}")
    return ended


def on_all(machines: Sequence[M], action: Callable[[M], T]) -> dict[str, T]:
    """Do something on all machines at the same time; return what each gave, by name, in their order.

    Raises:
        ExceptionGroup: it failed on several; a single failure is raised as it is.
    """
    with ThreadPoolExecutor(max(1, len(machines))) as pool:
        running = {machine.name: pool.submit(action, machine) for machine in machines}
    failed = [error for future in running.values() if isinstance(error := future.exception(), Exception)]
    if len(failed) > 1:
        raise ExceptionGroup("failed on several machines", failed)
    return {name: future.result() for name, future in running.items()}


def empty_caches(machine: Machine) -> None:
    """Write back what is dirty and forget what is clean, so that the next read comes from below this machine."""
    machine.succeed(["sync"], deadline_s=CACHES_DEADLINE_S)
    machine.succeed(["sysctl", "-q", "-w", "vm.drop_caches=3"], deadline_s=CACHES_DEADLINE_S)


def require_ended_well(ended: Completed, tool: str) -> str:
    """Return the standard output of a tool that ended with status 0.

    Raises:
        RigError: it did not; 128 and above is a signal.
    """
    if ended.ok:
        return ended.stdout
    said = (ended.stderr.strip() or ended.stdout.strip()).rpartition("\n")[2][-300:]
    raise RigError(f"{ended.where}: {tool} ended with status {ended.status}: {said or 'it said nothing'}")


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
