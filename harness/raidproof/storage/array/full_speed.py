"""Md's own speed while it checks an array that nobody else uses."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from raidproof.core.layer import Machine

FULL_SPEED = {"stripe_cache_size": 4096, "sync_speed_max": 2_000_000}
"""The least in each of md's files: stripes in memory, a page of each member, and KiB a second of each member. With the
256 stripes that md has by itself it sleeps most of the time (raid5_sync_request in drivers/md/raid5.c does whenever
all of them are in use); 200,000 KiB/s are its limit."""
_SYSTEM = "system"


@contextmanager
def at_full_speed(machine: Machine, names: Sequence[str]) -> Iterator[None]:
    """Let md devices of these names work as fast as they can, and put back what they had."""
    paths = {f"/sys/block/{name}/md/{file}": least for name in names for file, least in FULL_SPEED.items()}
    # What a level does not have is left out.
    had = machine.read_files(paths)
    slow = {path: value for path, value in had.items() if int(value.split()[0]) < paths[path]}
    # A kernel that refuses, for it has no memory, checks slowly.
    refused = machine.put_all({path: f"{paths[path]}\n" for path in slow})
    try:
        yield
    finally:
        for path, value in slow.items():
            if path not in refused:
                machine.put(f"{_SYSTEM if f'({_SYSTEM})' in value else value.split()[0]}\n", path)
