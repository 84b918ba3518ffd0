"""Raises md's speed limits during the check of an otherwise idle array."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from raidproof.core.layer import Machine

FULL_SPEED = {"stripe_cache_size": 4096, "sync_speed_max": 2_000_000}
"""Minimum values of md's files: stripes in memory (one page per member), and KiB/s of each member.

With md's default of 256 stripes it sleeps most of the time (raid5_sync_request in drivers/md/raid5.c sleeps whenever
all of them are in use); the default speed limit is 200,000 KiB/s.
"""
_SYSTEM = "system"


@contextmanager
def at_full_speed(machine: Machine, names: Sequence[str]) -> Iterator[None]:
    """Let md devices of these names work at full speed while the body runs; restore the settings after it."""
    paths = {f"/sys/block/{name}/md/{file}": least for name in names for file, least in FULL_SPEED.items()}
    # Files that a level does not have are left out.
    had = machine.read_files(paths)
    slow = {path: value for path, value in had.items() if int(value.split()[0]) < paths[path]}
    # If the kernel refuses a value for lack of memory, the check is slow.
    refused = machine.put_all({path: f"{paths[path]}\n" for path in slow})
    try:
        yield
    finally:
        for path, value in slow.items():
            if path not in refused:
                machine.put(f"{_SYSTEM if f'({_SYSTEM})' in value else value.split()[0]}\n", path)
