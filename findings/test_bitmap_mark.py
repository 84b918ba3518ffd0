"""md marks a region in the write-intent bitmap of all members before it writes to the region.

A process on the server writes blocks at random places of the array, one after the other. The write log has the order
of the requests. The regions are small, so that a mark for one block seldom covers another.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from findings.answer import Record, conclude
from raidproof.core.topology import Platform, server_and_clients
from raidproof.core.units import KIB
from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.crash.states import Recording
from raidproof.disk.writelog import WriteLog
from raidproof.lab.lab import Lab
from raidproof.provider.registry import lab_of
from raidproof.pytest_plugin.fixtures import DISK_SIZE
from raidproof.run.platform import platform_of
from raidproof.run.run import Run
from raidproof.storage.array import MdArray, MdSpec
from scenarios.crash.marks import writes
from scenarios.crash.settled import DEADLINE_S, TIME_BASE_S

REGION = 32 * KIB
"""Bytes that one bit of the bitmap covers: the smallest number with which the bitmap of a RAID10 has space."""
COUNT = 200
LEAST = COUNT
"""Least number of writes to members, to conclude that the marks come first: each block is written to two or more."""
JOBS = 8
EARLY = "writes to members came before the durable mark of their region"
SHORT = ("5", 4)
OTHERS = [("5", 3), ("5", 5), ("5", 6), ("5", 7), ("6", 5), ("6", 6), ("1", 4), ("4", 4), ("6", 4), ("10", 4)]
"""Levels and numbers of members: with three, five or six data disks, a stripe has no power of two of sectors."""
CASES = [
    pytest.param(*SHORT, id="5-of-4"),
    *(
        pytest.param(level, members, id=f"{level}-of-{members}", marks=pytest.mark.exhaustive)
        for level, members in OTHERS
    ),
]


@contextmanager
def lab_with(current_run: Run, platform: Platform, members: int) -> Iterator[Lab]:
    """Yield the shared lab with blank disks, or a lab of its own if more members are needed."""
    if members <= len(current_run.topology.disks):
        current_run.lab.disks.reset()
        yield current_run.lab
        return
    with lab_of(server_and_clients(clients=1, disks=members, disk_size=DISK_SIZE, platform=platform)) as lab:
        yield lab


@pytest.mark.parametrize(("level", "members"), CASES)
def test_a_region_is_marked_before_it_is_written(
    current_run: Run, pytestconfig: pytest.Config, record: Record, tmp_path: Path, level: str, members: int
) -> None:
    with lab_with(current_run, platform_of(vars(pytestconfig.option)), members) as lab:
        found = early_writes(lab, level, members, tmp_path / "write.log")
        measured = f"{sum(found)} of {len(found)} {EARLY}"
        conclude(record, lab.server, measured, wrong=sum(found), seen=len(found), least=LEAST)


@pytest.mark.parametrize(
    "level", ["10", *(pytest.param(one, marks=pytest.mark.exhaustive) for one in ("1", "5", "6"))]
)
def test_a_region_is_marked_before_one_of_many_processes_writes_it(
    current_run: Run, record: Record, tmp_path: Path, level: str
) -> None:
    with lab_with(current_run, Platform(), 4) as lab:
        found = early_writes(lab, level, 4, tmp_path / "write.log", jobs=JOBS)
        measured = f"{sum(found)} of {len(found)} {EARLY}, with {JOBS} processes at once"
        conclude(record, lab.server, measured, wrong=sum(found), seen=len(found), least=LEAST)


def early_writes(lab: Lab, level: str, members: int, log: Path, jobs: int = 1) -> list[bool]:
    """Return for each page written to a member whether the write came before the durable mark of its region.

    ``jobs`` processes write `COUNT` blocks each, at random places.
    """
    lab.disks.log_start(log)
    serials = tuple(f"disk{number}" for number in range(members))
    chunk = {} if level == "1" else {"chunk_size": 64 * KIB}
    asked = {"level": level, "members": serials, "bitmap_chunk": REGION, "assume_clean": True, **chunk}
    array = MdArray(MdSpec.model_validate(asked), lab.server)
    array.create()
    time_base = f"/sys/block/{array.spec.devices[-1].name}/md/bitmap/time_base"
    lab.server.succeed(["tee", time_base], stdin=f"{TIME_BASE_S}\n")
    wait_until(
        lambda: not any(one.dirty for one in array.bitmaps().values()) or None,
        Deadline.after(DEADLINE_S),
        "md to clear the marks of the new bitmap",
        0.25,
    )
    begun_ns = now_ns()
    fio = ["fio", "--name=blocks", f"--filename={array.device}", "--rw=randwrite", "--bs=4k", "--direct=1"]
    fio += ["--ioengine=psync", f"--number_ios={COUNT}", "--randseed=1", f"--numjobs={jobs}"]
    lab.server.succeed(fio)
    lab.disks.log_stop()
    array.deactivate()
    recording = Recording(WriteLog(log))
    return [early for row in writes(recording, recording.place(begun_ns)).values() for _, early in row]
