"""User-mode Linux writes its page of zeros to vhost-user disks, also without the library that raidproof preloads."""

from pathlib import Path

import pytest

from findings.answer import Record, conclude
from raidproof.core.errors import Inconclusive, RequirementMissing
from raidproof.core.waiting import Deadline, wait_until
from raidproof.image.software import libraries
from raidproof.provider import uml
from raidproof.provider.registry import lab_of
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.run.run import Run
from raidproof.storage.array import MdArray

LIBRARY = "memory"
"""The library of `vms/memory.c`, which shares the page of zeros with the disks."""
REFUSED = "virtio: invalid address for buffers"
"""Message of qemu-storage-daemon about a buffer outside the memory that a kernel shares with it."""
LOG = "storage-daemon.log"
"""The file in the folder of a lab's logs with the messages of qemu-storage-daemon."""
DEADLINE_S = 30.0


# With the library is the control.
@pytest.mark.parametrize("with_library", [False, True], ids=["without-library", "with-library"])
def test_a_mirror_is_written_with_zeros(
    current_run: Run, record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_library: bool
) -> None:
    if current_run.topology.provider != uml.NAME:
        raise RequirementMissing("the machines are not of User-mode Linux")
    if not with_library:
        monkeypatch.setattr(uml, "libraries", lambda: [one for one in libraries() if one.stem != LIBRARY])
    topology = current_run.topology
    current_run.discard_lab()
    with lab_of(topology.model_copy(update={"machines": topology.machines[:2]}), logs=tmp_path) as lab:
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
