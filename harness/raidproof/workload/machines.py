"""What every tool needs of the machines that it runs on: an end for sure, all at once, caches empty."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from typing import TypeVar

from raidproof.core.command import Completed
from raidproof.core.errors import DeadlineExceeded, RigError
from raidproof.core.layer import Machine

KILL_AFTER_S = 5
"""From asking a tool to end to killing it."""
GRACE_S = 20.0
"""What the harness waits beyond that, for a tool that the kernel does not let go."""
TIMED_OUT, KILLED = 124, 137
CACHES_DEADLINE_S = 300.0
"""Dirty pages of a client with much memory may take this long to reach a slow server."""

T = TypeVar("T")
M = TypeVar("M", bound=Machine)


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
