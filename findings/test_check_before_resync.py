"""After a power cut during writes, md resyncs an array also if a check runs first.

One page of a member changes after the power cut, as if the cut had lost this write only. The resync is held back, and
a check runs. Then md must resync the array, and so correct the page.
"""

import pytest

from findings.answer import Record, conclude
from findings.device import write_device
from findings.stacks import stack_without_bitmap
from findings.test_resync_after_cut import CHANGED, WRITES
from raidproof.core.errors import Inconclusive
from raidproof.core.units import MIB
from raidproof.core.waiting import Deadline, pause, wait_until
from raidproof.disk.cache import CutPolicy
from raidproof.pytest_plugin.fixtures import MEMBERS
from raidproof.run.run import Run
from raidproof.storage.array import MdArray
from raidproof.storage.array.striping import ROW
from raidproof.storage.member import disk_path

PLACE = 64 * MIB
"""Offset on a member of the page that changes."""
DEADLINE_S = 60.0
PENDING_S = 1.0
"""Seconds in which md begins a resync that it has not forgotten."""


# A resync instead of the check is the control.
@pytest.mark.parametrize("first", ["check", "resync"])
def test_an_array_is_resynced_also_after(current_run: Run, record: Record, first: str) -> None:
    lab, server = current_run.lab, current_run.lab.server
    lab.disks.reset()
    array = MdArray(stack_without_bitmap("5").array, server)
    array.create()
    array.wait_clean()
    (md,) = array.spec.devices
    folder = f"/sys/block/{md.name}/md"
    server.start_command(["dd", "if=/dev/zero", f"of={array.device}", "bs=64k", "count=4000", "oflag=direct"])

    def written() -> bool | None:
        return all(lab.disks.counters()[serial].writes > WRITES for serial in MEMBERS) or None

    def idle() -> bool | None:
        return server.get(f"{folder}/sync_action").strip() == "idle" or None

    wait_until(written, Deadline.after(20), "the writes to the members", 0.05)
    server.crash(CutPolicy.KEEP)
    server.start()
    write_device(server, disk_path(MEMBERS[0]), PLACE, CHANGED * ROW)
    array.activate()
    action = f"{folder}/sync_action"
    server.put("frozen", action)
    if server.get(f"{folder}/resync_start").strip() == "none":
        raise Inconclusive("the power cut left no dirty array")
    # This also ends the state read-auto, in which md does not resync.
    server.put(first, action)
    wait_until(idle, Deadline.after(DEADLINE_S), f"md to end its {first}", 0.25)
    pause(PENDING_S)
    wait_until(idle, Deadline.after(DEADLINE_S), "md to end its resync", 0.25)
    pending = server.get(f"{folder}/resync_start").strip() != "none"
    differing = array.scrub().mismatches
    array.deactivate()
    measured = (
        f"after the {first} the resync {'is pending' if pending else 'counts as done'}, and {differing} sectors differ"
    )
    conclude(record, server, measured, wrong=int(differing > 0), seen=1, least=1)
