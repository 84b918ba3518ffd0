"""Measures each kernel of the catalogue: time to boot, to run a command, and a client's write rate over NFS.

Run it as `python -m benchmarks.kernels [KERNEL...]`. Each round measures all kernels once, so that a slow minute of
this host affects all kernels.
"""

import argparse
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

from raidproof.core.topology import Platform, SoftwareSpec, server_and_clients
from raidproof.core.units import KIB, MIB
from raidproof.core.waiting import now_ns
from raidproof.image import kernel
from raidproof.provider.registry import lab_of, prepare
from raidproof.storage.array import MdSpec
from raidproof.storage.stack import Stack, StackSpec
from raidproof.workload.fio import FioSpec, fio_command, parse_fio

SYNCED_WRITES = 2000


def measure(name: str, logs: Path) -> dict[str, float]:
    """Boot a server and a client on this kernel, build the stack, and return the measured values by title."""
    software = SoftwareSpec(kernel=name)
    topology = server_and_clients(clients=1, disk_size=512 * MIB, platform=Platform(server=software, clients=software))
    prepare(topology)
    begun = now_ns()
    with lab_of(topology, logs=logs) as lab:
        booted = now_ns()
        stack = Stack(StackSpec(array=MdSpec(members=lab.serials, assume_clean=True)), lab.server, lab.clients)
        stack.create()
        stack.activate()
        mounted = now_ns()
        client = lab.clients[0]
        commands = now_ns()
        for _ in range(20):
            client.succeed(["true"])
        commands = now_ns() - commands
        path = f"{stack.mounts[client.name].directory}/benchmark"
        sequential = parse_fio(client.succeed(fio_command(FioSpec(size=256 * MIB), path)))
        synced = client.succeed(synced_writes(path))
        cut = now_ns()
        lab.server.shutdown()
        off = now_ns()
    return {
        "boot s": (booted - begun) / 1e9,
        "stack s": (mounted - booted) / 1e9,
        "command ms": commands / 20 / 1e6,
        "write MB/s": sequential.mb_per_s,
        "fsync/s": json.loads(synced)["jobs"][0]["write"]["iops"],
        "stop s": (off - cut) / 1e9,
    }


def synced_writes(path: str) -> list[str]:
    """Return the command that overwrites 4 KiB blocks at random, each followed by an fsync."""
    job = {
        "name": "synced",
        "filename": path,
        "rw": "randwrite",
        "bs": 4 * KIB,
        "size": 16 * MIB,
        "number_ios": SYNCED_WRITES,
        "fsync": 1,
        "output-format": "json",
    }
    return ["fio", *(f"--{option}={value}" for option, value in job.items())]


def main() -> int:
    """Print a table: median and range of each value, by kernel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernels", nargs="*", default=list(kernel.CATALOGUE.kernels))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    figures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with TemporaryDirectory() as logs:
        for turn in range(options.rounds):
            for name in options.kernels:
                for what, value in measure(name, Path(logs) / f"{turn}-{name.replace('/', '-')}").items():
                    figures[name][what].append(value)
    for name, measured in figures.items():
        print(name)
        for what, values in measured.items():
            print(f"  {what:11} {statistics.median(values):8.1f}   {min(values):.1f} to {max(values):.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
