"""The writes to an array's members, and whether the write-intent bitmap marked their regions before."""

from collections import defaultdict
from functools import partial

from raidproof.crash.disk_states import DiskStates
from raidproof.crash.redundancy import bitmaps_of
from raidproof.crash.states import CrashState, Recording, Survivor
from raidproof.disk.writelog import Kind
from raidproof.storage.array.striping import ROW, Assembled, ReadMember
from raidproof.storage.array.superblock import OFFSET, SIZE, parse_superblock

Writes = dict[int, list[tuple[int, bool]]]
"""For each row: the numbers of its writes in the recording, and whether the row had no durable mark at the write."""


def assembled(read: ReadMember, members: int) -> Assembled:
    """Return the array as the superblocks of its first ``members`` disks describe it."""
    found = Assembled.of({one: parse_superblock(read(one, OFFSET, SIZE)) for one in range(members)})
    assert found is not None
    return found


def writes(recording: Recording, first: int) -> Writes:
    """Return the writes to each row of the array from request number ``first`` on."""
    window = DiskStates(recording)
    found: Writes = defaultdict(list)
    window.move(first)
    array = assembled(partial(window.read, CrashState(first)), len(recording.members))
    for number, record in enumerate(recording.records[first:], start=first):
        rows = array.rows_of([(record.member, record.offset, record.length)]) if record.kind is Kind.WRITE else []
        if rows:
            window.move(number)
            # A mark counts only if it is on the members for both extreme outcomes of their caches (all unflushed
            # writes lost, all kept). So a mark that md is clearing does not count.
            kept = (CrashState(number), CrashState(number, tuple(map(Survivor, window.open))))
            reads = [partial(window.read, state) for state in kept]
            marks = {member: one for member, one in bitmaps_of(array, reads[0]).items() if one is not None}
        for row in rows:
            at = covered_at(array, record.member, row)
            had = all(one.marked(read, member, at) for read in reads for member, one in marks.items())
            found[row].append((number, not had))
    return found


def covered_at(array: Assembled, member: int, row: int) -> int:
    """Return the offset of a row of a member as the bitmap counts: in the member, or for RAID10 in the array."""
    if not array.striping.raid.synced_as_array:
        return row * ROW
    role = next(role for role, number in array.members.items() if number == member)
    return array.striping.chunk(role, row * ROW).offset or 0
