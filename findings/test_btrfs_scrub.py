"""A read-only scrub of a btrfs with RAID5 leaves data readable that was readable before."""

from findings.answer import Record, conclude
from raidproof.core.errors import RequirementMissing
from raidproof.disk.client import EngineClient
from raidproof.fault.disk import BLOCK, blocks_with
from raidproof.lab.lab import Lab
from raidproof.pytest_plugin.fixtures import MEMBERS, stack_of
from raidproof.storage.array import ARRAYS
from raidproof.storage.filesystem import BtrfsSpec
from raidproof.storage.stack import Stack, StackSpec

BLOCKS = 1024
CHANGED = "disk1"
GOOD = "/run/good"
MARK = b"raidproof scrub "
COMPARE = """
import os, sys
good, file = (os.open(path, os.O_RDONLY) for path in sys.argv[1:3])
found = {"wrong": 0, "unreadable": 0}
for number in range(int(sys.argv[3])):
    try:
        found["wrong"] += os.pread(file, 4096, 4096 * number) != os.pread(good, 4096, 4096 * number)
    except OSError:
        found["unreadable"] += 1
print(found["wrong"], found["unreadable"])
"""
"""Prints the numbers of blocks of a file that are wrong, and that cannot be read."""


def test_data_is_readable_after_a_read_only_scrub(lab: Lab, record: Record) -> None:
    if not isinstance(lab.disks, EngineClient):
        raise RequirementMissing("these disks are not the disk engine's, which changes blocks of a disk")
    array = ARRAYS["btrfs"].model_validate({"level": 5, "members": MEMBERS})
    asked = {**dict(stack_of()), "array": array, "filesystem": BtrfsSpec()}
    stack = Stack(StackSpec.model_validate(asked), lab.server, lab.clients)
    server, file = lab.server, f"{stack.filesystem.directory}/file"
    stack.create()
    stack.array.activate()
    stack.filesystem.activate()
    server.put(b"".join((MARK + b"%08d" % number).ljust(BLOCK, b".") for number in range(BLOCKS)), GOOD)
    server.succeed(["cp", GOOD, file])
    stack.filesystem.deactivate()
    # Parity of blocks that begin alike begins alike if the number of data disks is odd.
    places = list(blocks_with(lab.disks, CHANGED, MARK))
    for number, offset in enumerate(places):
        lab.disks.corrupt(CHANGED, offset + BLOCK // 2, BLOCK // 2, number)
    options = ["--types", stack.spec.filesystem.type, "--options", "ro", stack.array.device]
    server.succeed(["mount", *options, stack.filesystem.directory])
    # No read before the scrub: it would correct the blocks. Status 3: btrfs found errors that it could not correct.
    server.run(["btrfs", "scrub", "start", "-B", "-r", stack.filesystem.directory])
    stack.filesystem.deactivate()
    server.succeed(["mount", *options, stack.filesystem.directory])
    found = server.succeed(["python3", "-c", COMPARE, GOOD, file, str(BLOCKS)])
    wrong, unreadable = map(int, found.split())
    stack.filesystem.deactivate()
    stack.array.deactivate()
    measured = (
        f"{len(places)} blocks of one of {len(MEMBERS)} disks were changed; after a read-only scrub, {wrong} of "
        f"{BLOCKS} blocks of the file are wrong without an error, and {unreadable} cannot be read"
    )
    conclude(record, server, measured, wrong=wrong + unreadable, seen=len(places), least=BLOCKS // 8)
