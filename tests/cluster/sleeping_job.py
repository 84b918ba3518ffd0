"""A program with two local workers, whose requests sleep: Ctrl-C must end all of its processes."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from raidproof.cluster.connection import connected
from raidproof.cluster.round_pool import RoundPool
from raidproof.cluster.spec import ClusterSpec
from raidproof.core.errors import Status
from raidproof.core.waiting import unwind_on_signals

SLEEP = ["sleep", "600.25"]


@dataclass(frozen=True)
class Request:
    """A request that sleeps."""

    label: str


@dataclass(frozen=True)
class Job:
    """What workers do with a request."""

    def carried_out(self, _request: Request, _folder: Path) -> None:
        """Sleep; an interruption ends the child."""
        with subprocess.Popen(SLEEP) as process:
            try:
                process.wait()
            finally:
                process.kill()


def main() -> None:
    """Send two requests to two workers, and wait for their ends."""
    unwind_on_signals()
    try:
        with (
            connected(ClusterSpec.read("local:2")) as client,
            RoundPool[Request, None](client, Job()) as pool,
        ):
            for _ in pool.results([Request("one"), Request("two")]):
                pass
    except KeyboardInterrupt:
        sys.exit(Status.INTERRUPTED)
