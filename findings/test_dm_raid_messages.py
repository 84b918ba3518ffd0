"""The message ``frozen`` to a device of the target ``raid`` forbids its background work, and succeeds.

Source: Documentation/admin-guide/device-mapper/dm-raid.rst, "Message Interface".
"""

from findings.answer import Record, conclude
from raidproof.core.units import KIB
from raidproof.pytest_plugin.fixtures import MEMBERS
from raidproof.run.run import Run
from raidproof.storage.array import ARRAYS
from raidproof.storage.array.lvm import NAME

ACTION = 7
"""Index of the action in the line of ``dmsetup status``: it follows the health and the progress."""


def test_the_message_frozen_is_obeyed(current_run: Run, record: Record) -> None:
    lab, server = current_run.lab, current_run.lab.server
    lab.disks.reset()
    request = {"level": "5", "members": MEMBERS, "chunk_size": 64 * KIB, "assume_clean": True}
    array = ARRAYS["lvm"].model_validate(request).array(server)
    array.create()
    array.wait_clean()
    sent = server.run(["dmsetup", "message", NAME, "0", "frozen"])
    action = server.succeed(["dmsetup", "status", NAME]).split()[ACTION]
    server.run(["dmsetup", "message", NAME, "0", "idle"])
    array.deactivate()
    ended = f"dmsetup message frozen ended with status {sent.status}" + (
        "" if sent.ok else f" ({' '.join(sent.stderr.split())})"
    )
    measured = f"{ended}; the action is then {action!r}"
    conclude(record, server, measured, wrong=int(not sent.ok or action != "frozen"), seen=1, least=1)
