"""A read of an unreadable sector of an array without redundancy ends."""

import pytest

from findings.answer import Record, conclude
from raidproof.core.errors import RigError
from raidproof.core.units import MIB
from raidproof.disk.disk_fault import DiskFaultKind, bad_sectors
from raidproof.pytest_plugin.fixtures import MEMBERS, stack_of
from raidproof.run.run import Run
from raidproof.storage.array import MdArray
from raidproof.storage.member.member import disk_path

FIRST = 32 * MIB
"""Offset in bytes on the member of the unreadable sectors: behind md's metadata."""
LENGTH = 4096
MOST = 100
"""Greatest number of times that md may read the sectors for one read of the array."""
FAILING = 10 * MOST
"""Number of reads that fail; later ones succeed, so that each read of the array ends."""
LEVELS = [
    pytest.param("5", 1),
    pytest.param("4", 1, marks=pytest.mark.exhaustive),
    pytest.param("6", 2, marks=pytest.mark.exhaustive),
]


@pytest.mark.parametrize(("level", "missing"), LEVELS)
def test_a_degraded_array_reads_an_unreadable_sector_a_few_times(
    current_run: Run, record: Record, level: str, missing: int
) -> None:
    # Not by the fixture lab, which refuses messages about failed disks in the kernel's log.
    lab = current_run.lab
    lab.disks.reset()
    array = MdArray(stack_of(level).array, lab.server)
    array.create()
    lost = [disk_path(serial) for serial in MEMBERS[:missing]]
    lab.server.succeed(["mdadm", array.device, "--fail", *lost])
    lab.disks.set_disk_fault(MEMBERS[-1], bad_sectors(FIRST, LENGTH, count=FAILING))
    # Up to the first error: with three data disks, the rows of the first 48 MiB of each member.
    done = lab.server.run(["dd", f"if={array.device}", "of=/dev/null", "bs=64k", "count=2304", "iflag=direct"])
    times = lab.disks.counters()[MEMBERS[-1]].struck_by(DiskFaultKind.BAD_SECTORS)
    lab.disks.clear_disk_faults()
    array.deactivate()
    if not times:
        raise RigError(f"md did not read the {LENGTH} bytes at byte {FIRST} of {MEMBERS[-1]}")
    ending = "success" if done.ok else "an error"
    measured = f"md read the unreadable sectors {times:,} times for one read of the array, which ended with {ending}"
    conclude(record, lab.server, measured, wrong=times // MOST, seen=times, least=1)
