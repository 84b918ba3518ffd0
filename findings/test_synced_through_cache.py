"""A file is durable when `fsync` has returned: on the array, and through each kind of cache.

The power is cut right after `fsync`. A file system ends an `fsync` with a commit block or a log record, which it
writes with FUA. Before each round the write cache writes all its blocks to the array, as the cache of a server that
works for a long time has done with the blocks that mkfs wrote.
"""

from typing import Any

import pytest

from findings.answer import Record, conclude
from raidproof.core.units import KIB, MIB
from raidproof.disk.cache import CutPolicy
from raidproof.machine.machine import Machine
from raidproof.pytest_plugin.fixtures import MEMBERS
from raidproof.run.run import Run
from raidproof.storage.stack import Stack, StackSpec
from raidproof.storage.volume import NAME

ROUNDS = 4
*ARRAY, CACHE = MEMBERS
VOLUMES: dict[str, dict[str, Any]] = {
    "direct": {},
    "writecache": {"cache_disk": CACHE},
    "cache": {"cache_disk": CACHE, "cache_size": 64 * MIB},
}
SHORT = (("direct", "xfs"), ("writecache", "xfs"))
CASES = [
    pytest.param(volume, kind, id=f"{volume}-{kind}", marks=() if (volume, kind) in SHORT else pytest.mark.exhaustive)
    for volume in VOLUMES
    for kind in ("xfs", "ext4")
]


def emptied(server: Machine, volume: str) -> None:
    """Make a write cache write all its blocks to the array."""
    if volume == "writecache":
        server.succeed(["dmsetup", "message", NAME, "0", "flush"])


@pytest.mark.parametrize(("volume", "kind"), CASES)
def test_a_synced_file_survives_a_power_cut(current_run: Run, record: Record, volume: str, kind: str) -> None:
    lab, server = current_run.lab, current_run.lab.server
    lab.disks.reset()
    spec = StackSpec.model_validate(
        {
            "array": {"level": "5", "members": ARRAY, "chunk_size": 64 * KIB, "assume_clean": True},
            "volume": {"type": volume, **VOLUMES[volume]},
            "filesystem": {"type": kind, "aligned": False},
        }
    )
    stack = Stack(spec, server, ())
    stack.create()
    lost = []
    for number in range(1, ROUNDS + 1):
        brought_up(stack)
        emptied(server, volume)
        file = f"{stack.filesystem.directory}/file{number}"
        server.succeed(["dd", "if=/dev/zero", f"of={file}", "bs=4096", "count=1", "conv=fsync", "status=none"])
        server.crash(CutPolicy.DROP)
        server.start()
        brought_up(stack)
        if not server.exists(file):
            lost.append(number)
        stack.filesystem.deactivate()
        stack.volume.deactivate()
        stack.array.deactivate()
    measured = f"{kind} on volume {volume}: {len(lost)} of {ROUNDS} files were lost whose fsync had returned"
    conclude(record, server, measured, wrong=len(lost), seen=ROUNDS, least=ROUNDS)


def brought_up(stack: Stack) -> None:
    """Assemble the array, open the volume and mount the file system.

    Raises:
        CommandFailed: a command failed.
    """
    stack.array.activate()
    stack.volume.activate()
    stack.filesystem.activate()
