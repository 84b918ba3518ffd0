"""User-mode Linux works without the libraries that raidproof preloads: mirrored arrays, disks under network load."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from findings.answer import Record, conclude
from raidproof.core.errors import Inconclusive, RequirementMissing
from raidproof.core.waiting import Deadline, pause, wait_until
from raidproof.image.software import libraries
from raidproof.lab.lab import Lab
from raidproof.provider import uml
from raidproof.provider.registry import lab_of
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.run.run import Run
from raidproof.storage.array import MdArray
from raidproof.storage.member import disk_path

Boot = Callable[[str | None], AbstractContextManager[Lab]]
"""Boots machines without the library with this name (in ``vms``); None: with all libraries."""
REFUSED = "virtio: invalid address for buffers"
"""Message of qemu-storage-daemon about a buffer outside the memory that a kernel shares with it."""
LOG = "storage-daemon.log"
"""The file in the folder of a lab's logs with the messages of qemu-storage-daemon."""
DEADLINE_S = 30.0


FLOOD_S = 8.0
STILL_S = 5.0
"""Seconds without a write after the end of the load in which a disk counts as hung."""
FLOOD = """
import socket, sys, time
flood = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    for _ in range(50):
        flood.sendto(bytes(1400), (sys.argv[1], 9))
"""
"""Sends packets to an address for a number of seconds."""
# With the library is the control.
KINDS = pytest.mark.parametrize("with_library", [False, True], ids=["without-library", "with-library"])


@pytest.fixture
def boot(current_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Boot:
    """Return a function that boots a server and a client, without one of the libraries that raidproof preloads."""
    topology = current_run.topology
    if topology.provider != uml.NAME:
        raise RequirementMissing("the machines are not of User-mode Linux")

    def booted(without: str | None) -> AbstractContextManager[Lab]:
        monkeypatch.setattr(uml, "libraries", lambda: [one for one in libraries() if one.stem != without])
        current_run.discard_lab()
        return lab_of(topology.model_copy(update={"machines": topology.machines[:2]}), logs=tmp_path)

    return booted


@KINDS
def test_a_mirror_is_written_with_zeros(boot: Boot, record: Record, tmp_path: Path, with_library: bool) -> None:
    with boot(None if with_library else "memory") as lab:
        array = MdArray(stack_of("1", members=2).array, lab.server)
        array.create()
        made = lab.server.start_command(["mkfs.ext4", "-q", array.device])

        def refused() -> bool:
            return REFUSED in (tmp_path / LOG).read_text(errors="replace")

        wait_until(lambda: made.ended or refused() or None, Deadline.after(DEADLINE_S), "mkfs to end", 0.25)
        wrong = refused()
        if not wrong and not made.wait(Deadline.after(1)).ok:
            raise Inconclusive("mkfs failed for another reason than zeros that the disk refused")
        measured = f"mkfs on a RAID1 {'lost a disk, which refused the page of zeros' if wrong else 'ended'}"
        conclude(record, lab.server, measured, wrong=int(wrong), seen=1, least=1)


@KINDS
def test_disks_work_under_network_load(boot: Boot, record: Record, with_library: bool) -> None:
    with boot(None if with_library else "epoll") as lab:
        for serial in lab.serials:
            # Longer than the test.
            lab.server.start_command(["dd", "if=/dev/zero", f"of={disk_path(serial)}", "bs=512", "oflag=direct"])
        lab.clients[0].start_command(["python3", "-c", FLOOD, lab.server.address, str(FLOOD_S)])
        pause(FLOOD_S)
        before = lab.disks.counters()
        pause(STILL_S)
        after = lab.disks.counters()
        hung = sum(before[serial].writes == after[serial].writes for serial in lab.serials)
        measured = f"{hung} of {len(lab.serials)} disks hang after {FLOOD_S:g} s of load of disks and network"
        conclude(record, lab.server, measured, wrong=hung, seen=len(lab.serials), least=len(lab.serials))
