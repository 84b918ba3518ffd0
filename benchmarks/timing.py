"""Measures the simulation of a disk: microseconds of CPU time per request, for each profile and load.

Only the computation of latencies runs, for one disk without a controller: no machine, no NBD, no clock. Run it as
`python -m benchmarks.timing`.
"""

import argparse
import random
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.figures import load, row
from raidproof.core.units import GIB, KIB
from raidproof.core.waiting import cpu_time_ns
from raidproof.disk.profile import Profile, load_profile, profile_names
from raidproof.disk.timing.hardware import Hardware, drive
from raidproof.disk.timing.request import Op, Request
from raidproof.disk.timing.rotational import Placement

BAR_US = 100.0
"""Greatest accepted CPU time per request in microseconds."""
SHORT, LONG = 4 * KIB, 128 * KIB


def scattered(op: Op, profile: Profile, count: int) -> list[Request]:
    """Return requests of 4 KiB at random places of a drive."""
    chance = random.Random(1)  # noqa: S311  no secret
    return [Request(op, chance.randrange(profile.capacity // SHORT) * SHORT, SHORT) for _ in range(count)]


@dataclass(frozen=True)
class Load:
    """A load with a fixed number of concurrent requests."""

    name: str
    depth: int
    make: Callable[[Profile, int], list[Request]]


LOADS = (
    Load("4 KiB random reads, depth 1", 1, lambda profile, count: scattered(Op.READ, profile, count)),
    Load("4 KiB random reads, depth 16", 16, lambda profile, count: scattered(Op.READ, profile, count)),
    Load(
        "128 KiB sequential reads, depth 2",
        2,
        lambda _, count: [Request(Op.READ, number * LONG, LONG) for number in range(count)],
    ),
    Load(
        "4 KiB random cached writes, depth 16",
        16,
        # Fill a cache of 8 MB first: the measurement is about the choice among the cached writes.
        lambda profile, count: scattered(Op.WRITE, profile, count + 2048),
    ),
)


def each_us(profile: Profile, load: Load, count: int) -> float:
    """Return the mean CPU time of the simulation per request, in microseconds."""
    requests = load.make(profile, count)
    hardware = Hardware([(profile, profile.capacity or GIB, Placement.SPREAD, None)])
    begun = cpu_time_ns()
    drive(hardware, requests, load.depth)
    return (cpu_time_ns() - begun) / len(requests) / 1e3


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--count", type=int, default=4000, help="requests per run")
    arguments.add_argument("--runs", type=int, default=3)
    chosen = arguments.parse_args()
    print(load())
    profiles = [profile for profile in map(load_profile, profile_names()) if profile.timed]
    for one in LOADS:
        print(f"\n{one.name}")
        for profile in profiles:
            values = [each_us(profile, one, chosen.count) for _ in range(chosen.runs)]
            print(row(f"  {profile.name}", values, "us", f"bar: at most {BAR_US:g}"), flush=True)


if __name__ == "__main__":
    main()
