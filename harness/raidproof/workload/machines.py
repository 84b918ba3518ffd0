"""What every tool needs on its machines: a deadline, empty caches, sizes, free space."""

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
"""Seconds between SIGTERM and SIGKILL of a tool."""
GRACE_S = 20.0
"""Seconds that the harness waits beyond that, for a tool that hangs in the kernel."""
TIMED_OUT, KILLED = 124, 137
CACHES_DEADLINE_S = 300.0
"""Seconds; the dirty pages of a client with much memory may take this long to reach a slow server."""
T = TypeVar("T")
M = TypeVar("M", bound=Machine)


def parse_tool_size(text: str | int) -> int:
    """Parse ``4k``, ``1M`` or ``4g`` as the tools do, and anything else as a size of raidproof (``64KiB``, ``64kB``).

    Raises:
        RequestError: the text is not a size.
    """
    if isinstance(text, str) and (match := re.fullmatch(r"(\d+)([kmgt])", text.strip(), re.IGNORECASE)):
        return int(match.group(1)) * _LETTERS[match.group(2).lower()]
    # pydantic ignores a trailing rest: fio's 50% would be 50 bytes.
    if isinstance(text, str) and not re.fullmatch(r"[\w.\s]+", text):
        raise RequestError(f"not a size: {text!r}", remedy="write for example 4k or 64KiB")
    return parse_size(text)


ToolSize = Annotated[int, BeforeValidator(parse_tool_size)]
"""A pydantic field in bytes that reads ``4k`` as 4096."""


def run_limited(machine: Machine, argv: Sequence[str], deadline_s: float, *, stdin: str | None = None) -> Completed:
    """Run a tool with a deadline that its machine enforces: a leftover tool would disturb the next measurement.

    Its messages are in English whatever the machine's language.

    Raises:
        DeadlineExceeded: the tool ran too long.
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
    """Run an action on all machines at the same time; return the results by name, in the order of the machines.

    Raises:
        ExceptionGroup: the action failed on several; a single failure is raised as it is.
    """
    with ThreadPoolExecutor(max(1, len(machines))) as pool:
        running = {machine.name: pool.submit(action, machine) for machine in machines}
    failed = [error for future in running.values() if isinstance(error := future.exception(), Exception)]
    if len(failed) > 1:
        raise ExceptionGroup("failed on several machines", failed)
    return {name: future.result() for name, future in running.items()}


def empty_caches(machine: Machine) -> None:
    """Write back dirty pages and drop clean ones, so that the next read does not come from this machine's caches."""
    machine.succeed(["sync"], deadline_s=CACHES_DEADLINE_S)
    machine.succeed(["sysctl", "-q", "-w", "vm.drop_caches=3"], deadline_s=CACHES_DEADLINE_S)


def require_ended_well(ended: Completed, tool: str) -> str:
    """Return the standard output of a tool that ended with status 0.

    Raises:
        RigError: the status is not 0; 128 and above is a signal.
    """
    if ended.ok:
        return ended.stdout
    said = (ended.stderr.strip() or ended.stdout.strip()).rpartition("\n")[2][-300:]
    raise RigError(f"{ended.where}: {tool} ended with status {ended.status}: {said or 'no output'}")


def own_directory(machine: Machine, root: str, tool: str) -> str:
    """Return the directory of one machine: clients that share an export must not share names."""
    return f"{root}/{tool}-{machine.name}"


def free_bytes(machine: Machine, directory: str) -> int:
    """Return the free bytes of the file system.

    Raises:
        RigError: stat printed something else.
    """
    return parse_free(machine.succeed(["stat", "--file-system", "--format=%a %S", directory]))


def parse_free(text: str) -> int:
    """Parse ``stat --file-system --format='%a %S'``: free blocks and the block size."""
    words = text.split()
    if len(words) != 2 or not all(word.isdecimal() for word in words) or not text.endswith("\n"):
        raise RigError(f"stat --file-system should print two numbers: {text!r}")
    return int(words[0]) * int(words[1])


def require_room(machine: Machine, directory: str, needed: int, tool: str) -> None:
    """Check that the workload fits into the file system.

    Raises:
        RigError: there is not enough room.
    """
    if (free := free_bytes(machine, directory)) < needed:
        raise RigError(
            f"{tool} on {machine.name} needs {needed} bytes below {directory}, where {free} are free",
            remedy="fewer or smaller files, or larger disks",
        )
