"""A CPU of this host for one checker alone.

User-mode Linux stops and continues its processes by ptrace, several times for each system call in the machine. On one
CPU such a change is a switch between processes; between two CPUs it also is an interrupt of the other CPU.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

import psutil

from raidproof.image import cache


@contextmanager
def own_cpu() -> Iterator[int | None]:
    """Reserve a CPU that this process may use, and that no other checker of this user has reserved.

    Yield None if there is none. The end of the process ends the reservation, too.
    """
    with ExitStack() as undo:
        yield next(filter(partial(_reserved, undo), sorted(os.sched_getaffinity(0))), None)


def _reserved(undo: ExitStack, cpu: int) -> bool:
    try:
        undo.enter_context(cache.locked("cpu", str(cpu), wait=False))
    except BlockingIOError:
        return False
    return True


def keep_on(pid: int, cpu: int) -> None:
    """Restrict a process, and those that it has started and will start, to one CPU (sched_setaffinity(2))."""
    first = psutil.Process(pid)
    for process in (first, *first.children(recursive=True)):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(process.pid, {cpu})
