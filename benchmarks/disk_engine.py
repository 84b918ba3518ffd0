"""Measures the disk engine alone, over NBD on a Unix socket: no simulated disk can be faster.

Each row has requests and bytes per second, wall time and CPU time of the engine per request, and the share of one CPU
that the engine used. Run it as `python -m benchmarks.disk_engine`.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from raidproof.core.command import succeed
from raidproof.core.units import GIB, KIB, MIB
from raidproof.disk.client import EngineClient
from raidproof.disk.daemon import nbdkit_command
from raidproof.disk.messages import Disks, MemberSpec, save_disks

SIZE = GIB
STRIDE = 4 * KIB * 119
"""Bytes between two requests of `qemu-img bench`: no request is adjacent to the previous one, and the requests cover
the whole disk."""


@dataclass(frozen=True)
class Workload:
    """One run of `qemu-img bench`."""

    name: str
    request: int
    """Bytes of a request."""
    step: int
    """Bytes from the begin of one request to the begin of the next."""
    depth: int
    """Number of concurrent requests."""
    count: int
    """Number of requests of the run."""
    write: bool
    flush_every: int = 0
    """Number of writes between two flushes; 0: no flush."""

    def command(self, socket: Path) -> list[str]:
        """Return the command line that runs this workload on the engine's first member."""
        return [
            *("qemu-img", "bench", "-f", "raw", "-t", "writeback", "-c", str(self.count), "-d", str(self.depth)),
            *(
                "-s",
                str(self.request),
                "-S",
                str(self.step),
            ),
            *(["-w", "--pattern=165"] if self.write else []),
            *([f"--flush-interval={self.flush_every}"] if self.flush_every else []),
            f"nbd+unix:///d0?socket={socket}",
        ]


WORKLOADS = (
    Workload("4 KiB random write, depth 16", 4 * KIB, STRIDE, 16, 60_000, write=True),
    Workload("4 KiB random rewrite, depth 16, flush each 64", 4 * KIB, STRIDE, 16, 60_000, True, 64),
    Workload("4 KiB random write, depth 1", 4 * KIB, STRIDE, 1, 20_000, write=True),
    Workload("4 KiB random read, depth 16", 4 * KIB, STRIDE, 16, 60_000, write=False),
    Workload("1 MiB sequential write, depth 4", MIB, MIB, 4, 1000, write=True),
    Workload("1 MiB sequential rewrite, depth 4, flush each 16", MIB, MIB, 4, 1000, True, 16),
    Workload("1 MiB sequential read, depth 4", MIB, MIB, 4, 1000, write=False),
)


@contextmanager
def engine(folder: Path, threads: int) -> Iterator[tuple[EngineClient, psutil.Process]]:
    """Run a disk engine with one member; yield its client and its process."""
    save_disks(folder / "disks", Disks((MemberSpec("d0", SIZE),)))
    command = nbdkit_command(
        socket=folder / "nbd", config=folder / "disks", control=folder / "control", threads=threads
    )
    process = subprocess.Popen(command)
    try:
        with EngineClient(folder / "control") as client:
            yield client, psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU time that a process has used, in seconds."""
    times = process.cpu_times()
    return float(times.user + times.system)


def measure(workload: Workload, socket: Path, process: psutil.Process) -> str:
    """Run one workload and return its row of the table."""
    before = cpu_s(process)
    output = succeed(workload.command(socket), deadline_s=600)
    used = cpu_s(process) - before
    found = re.search(r"completed in ([\d.]+) seconds", output)
    if found is None:
        sys.exit(f"the output of qemu-img bench has no duration: {output}")
    seconds, count = float(found[1]), workload.count
    return (
        f"{workload.name:50}{count / seconds:>10.0f}{count * workload.request / seconds / 1e6:>9.0f}"
        f"{seconds / count * 1e6:>11.1f}{used / count * 1e6:>12.1f}{used / seconds:>10.0%}"
    )


def main() -> None:
    """Print two tables, without and with a write log."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--threads", type=int, default=1, help="nbdkit threads per connection")
    arguments.add_argument(
        "--folder", type=Path, help="folder of the write log (default: the folder for temporary files)"
    )
    chosen = arguments.parse_args()
    for log in (False, True):
        title = f"write log {'on' if log else 'off'}"
        print(f"\n{title:50}{'IOPS':>10}{'MB/s':>9}{'us/request':>11}{'CPU us':>12}{'CPU':>10}")
        with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
            folder = Path(name)
            with engine(folder, chosen.threads) as (client, process):
                if log:
                    client.log_start(folder / "log")
                for workload in WORKLOADS:
                    if workload.step == MIB and workload.write and not workload.flush_every:
                        client.reset()
                    print(measure(workload, folder / "nbd", process), flush=True)


if __name__ == "__main__":
    main()
