"""What this process and the processes that it started take, from one crash test to the next."""

from typing import TypedDict

import psutil

from raidproof.core.memory import release
from raidproof.core.units import MIB

WARM = 10
"""Number of crash tests after which a process has all that it needs."""
SLACK = 8
"""Number of processes, threads or open files by which later samples may differ from the first ones."""
SLACK_BYTES = 128 * MIB
"""Bytes of memory by which later samples may exceed the first ones."""
RECORD_BYTES = MIB // 2
"""Bytes by which the memory may grow with each crash test: its record (0.35 MiB, measured) stays in the run's."""


class Sample(TypedDict):
    """What one process takes."""

    processes: int
    threads: int
    files: int
    rss: int
    """Resident memory in bytes."""


class Watch:
    """The samples of this process."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def sample(self) -> Sample:
        """Take a sample, and return it."""
        # Else memory counts that is free, but not yet returned to the operating system.
        release()
        me = psutil.Process()
        found = Sample(
            processes=len(me.children(recursive=True)),
            threads=me.num_threads(),
            files=me.num_fds(),
            rss=me.memory_info().rss,
        )
        self.samples.append(found)
        return found

    def must_not_grow(self) -> None:
        """Assert that the last sample exceeds none of the first `WARM` by more than the slack."""
        if len(self.samples) > WARM:
            first, last = self.samples[:WARM], self.samples[-1]
            for what in ("processes", "threads", "files"):
                most = max(one[what] for one in first)
                assert last[what] <= most + SLACK, f"{what}: at most {most} at first, now {last[what]}"
            most = max(one["rss"] for one in first)
            allowed = most + SLACK_BYTES + RECORD_BYTES * len(self.samples)
            assert last["rss"] <= allowed, f"memory: at most {most} bytes at first, now {last['rss']}"
