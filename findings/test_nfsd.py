"""nfsd commits the change of an extended attribute before it replies, and its threads can be killed."""

import signal

from findings.answer import Record, conclude
from raidproof.core.errors import Inconclusive
from raidproof.lab.lab import Lab
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.storage.stack import Stack

COUNT = 20
SET = "import os, sys; os.setxattr(sys.argv[1], 'user.kept', sys.argv[2].encode())"


def test_setxattr_is_durable_when_it_is_acknowledged(lab: Lab, record: Record) -> None:
    stack = Stack(stack_of(), lab.server, lab.clients)
    stack.create()
    stack.activate()
    client = lab.clients[0]
    file = f"{stack.mounts[client.name].directory}/file"
    client.succeed(["touch", file])
    client.succeed(["sync"])
    lab.server.succeed(["sync"])
    unflushed = 0
    for number in range(COUNT):
        before = flushes(lab)
        client.succeed(["python3", "-c", SET, file, f"value {number}"])
        # The members have volatile caches: without a flush, no change since the last one is durable.
        unflushed += flushes(lab) == before
    stack.deactivate()
    measured = f"{unflushed} of {COUNT} SETXATTR were acknowledged before any member received a flush"
    conclude(record, lab.server, measured, wrong=unflushed, seen=COUNT, least=COUNT)


def flushes(lab: Lab) -> int:
    """Return the number of flushes that the members have received."""
    return sum(one.flushes for one in lab.disks.counters().values())


def test_threads_of_nfsd_can_be_killed(lab: Lab, record: Record) -> None:
    stack = Stack(stack_of(), lab.server, lab.clients)
    stack.create()
    stack.activate()
    names = lab.server.succeed(["pgrep", "-x", "nfsd"]).split()
    status = lab.server.read_files([f"/proc/{name}/status" for name in names])
    stack.deactivate()
    masks = [int(line.split()[1], 16) for one in status.values() for line in one.splitlines() if "SigIgn:" in line]
    if not masks:
        raise Inconclusive("the server has no thread of nfsd with a mask of ignored signals")
    ignored = sum(mask >> (signal.SIGKILL - 1) & 1 for mask in masks)
    measured = f"{ignored} of {len(masks)} threads of nfsd ignore SIGKILL"
    conclude(record, lab.server, measured, wrong=ignored, seen=len(masks), least=1)
