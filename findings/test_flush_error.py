"""If a member fails a flush, either fsync on the array reports an error, or md does without the member."""

import pytest

from findings.answer import Record, conclude
from findings.stacks import stack_without_bitmap
from raidproof.core.errors import RigError
from raidproof.disk.disk_fault import DiskFaultKind, flush_errors
from raidproof.pytest_plugin.fixtures import MEMBERS
from raidproof.run.run import Run
from raidproof.storage.array import LEVELS, MdArray

COUNT = 5
FAILING = MEMBERS[-1]
ALWAYS_DIRTY_S = 3600
"""Seconds without writes after which md marks the array as clean: longer than the test, because the write of the
superblock would fail, too, and md would then do without the member."""
LEVEL_CASES = [pytest.param(one, marks=() if one == "0" else pytest.mark.exhaustive) for one in LEVELS]


@pytest.mark.parametrize("level", LEVEL_CASES)
def test_an_error_of_a_flush_is_not_ignored(current_run: Run, record: Record, level: str) -> None:
    # Not by the fixture lab, which refuses messages about failed disks in the kernel's log.
    lab = current_run.lab
    lab.disks.reset()
    array = MdArray(stack_without_bitmap(level).array, lab.server)
    array.create()
    folders = [f"/sys/block/{one.name}/md" for one in array.spec.devices]
    for folder in folders:
        if lab.server.exists(f"{folder}/safe_mode_delay"):
            lab.server.succeed(["tee", f"{folder}/safe_mode_delay"], stdin=f"{ALWAYS_DIRTY_S}\n")

    def written(number: int) -> bool:
        """Write and fsync a part of the array; return whether both succeeded."""
        place = ["bs=64k", f"seek={4 * number}", "count=4", "conv=fsync,notrunc"]
        return lab.server.run(["dd", "if=/dev/zero", f"of={array.device}", *place]).ok

    def complete() -> bool:
        found = lab.server.read_files([f"{folder}/degraded" for folder in folders])
        return all(int(one) == 0 for one in found.values())

    if not written(0):
        raise RigError(f"a write to {array.device} failed before any disk fault was set")
    lab.disks.set_disk_fault(FAILING, flush_errors())
    ignored = sum(written(number) and complete() for number in range(1, COUNT + 1))
    if not lab.disks.counters()[FAILING].struck_by(DiskFaultKind.FLUSH_ERRORS):
        raise RigError(f"{FAILING} received no flush, so that no flush could fail")
    lab.disks.clear_disk_faults()
    array.deactivate()
    measured = f"{ignored} of {COUNT} calls of fsync succeeded although a member failed its flush"
    conclude(record, lab.server, measured, wrong=ignored, seen=COUNT, least=COUNT)
