"""In every sampled crash state, the write-intent bitmap marks each region whose data and parity differ."""

from bisect import bisect_left
from collections import Counter, defaultdict
from functools import partial

import pytest

from raidproof.core.units import KIB
from raidproof.crash.redundancy import Redundancy, accuracy_of, bitmaps_of
from raidproof.crash.sampler import Choices
from raidproof.crash.states import CrashState, DiskStates, Recording, Survivor
from raidproof.disk.writelog import Kind
from raidproof.pytest_plugin.fixtures import MEMBERS, CrashTestRunner, stack_of
from raidproof.run.exploration import Source, source_of
from raidproof.run.run import Run
from raidproof.storage.array.striping import ROW, Assembled, Difference, ReadMember
from raidproof.storage.array.superblock import OFFSET, SIZE, parse_superblock
from scenarios.crash.settled import BitmapSettled

REGION = 16 * KIB
"""The smallest bitmap chunk that mdadm supports on these disks, in bytes: 18,368 regions instead of 5."""
STATES = 1000
SECONDS = 3.0
"""Duration of the workload: long enough for md to set and clear marks."""
EARLY = "6.12."
"""Kernels that write to a RAID5 before the mark is durable on its members (docs/findings.md)."""
Writes = dict[int, list[tuple[int, bool]]]
"""For each row: the numbers of its writes, and whether its region lacked a durable mark at the write."""


def assembled(read: ReadMember) -> Assembled:
    found = Assembled.of({one: parse_superblock(read(one, OFFSET, SIZE)) for one in range(len(MEMBERS))})
    assert found is not None
    return found


def writes(recording: Recording, first: int) -> Writes:
    window = DiskStates(recording)
    found: Writes = defaultdict(list)
    window.move(first)
    array = assembled(partial(window.read, CrashState(first)))
    for number, record in enumerate(recording.records[first:], start=first):
        rows = array.rows_of([(record.member, record.offset, record.length)]) if record.kind is Kind.WRITE else []
        if rows:
            window.move(number)
            # A mark counts only if it exists for every outcome of the caches; a mark that is being cleared does not.
            kept = (CrashState(number), CrashState(number, tuple(map(Survivor, window.open))))
            reads = [partial(window.read, state) for state in kept]
            marks = {member: one for member, one in bitmaps_of(array, reads[0]).items() if one is not None}
        for row in rows:
            had = all(one.marked(read, member, row * ROW) for read in reads for member, one in marks.items())
            found[row].append((number, not had))
    return found


def was_early(written: Writes, row: int, state: CrashState) -> bool:
    """Return whether the last write of a row that a state can contain preceded the mark of its region."""
    numbers = written.get(row, [])
    # Requests that were in flight at the cut and survived have later numbers.
    end = max([state.cut, *(survivor.request + 1 for survivor in state.survivors)])
    place = bisect_left(numbers, (end, False))
    return place > 0 and numbers[place - 1][1]


def without_mark(array: Assembled, read: ReadMember, one: Difference) -> ReadMember:
    """Return a reader of the members that clears the mark of one region in the bitmaps."""
    byte, bit = divmod(array.synced_at(one) // REGION, 8)
    places = {member: bitmap.offset + byte for member, bitmap in bitmaps_of(array, read).items() if bitmap is not None}

    def forged(member: int, offset: int, length: int) -> bytes:
        data = bytearray(read(member, offset, length))
        if 0 <= (place := places[member] - offset) < length:
            data[place] &= ~(1 << bit)
        return bytes(data)

    return forged


def judged(source: Source, *, early_known: bool) -> Counter[str]:
    """Judge states by the contents of the members only, and count the results."""
    window, choices = DiskStates(source.recording), Choices(source.recording, 1, first=source.first)
    written = writes(source.recording, source.first) if early_known else {}
    redundancy, seen = Redundancy(window), Counter[str]()
    for choice in sorted(choices.order[:STATES]):
        redundancy.moved(window.move(choice.cut))
        state = choices.state(choice, window.open)
        found = redundancy.accuracy(state)
        assert found.unchecked is None
        new = [one for one in found.unmarked if not (early_known and was_early(written, one.row, state))]
        assert not new, f"{state.name}: {found}; not written early: {new[0]}"
        marked = [one for one in found.differ if one not in found.unmarked]
        seen += Counter(states=1, differ=bool(found.differ), early=bool(found.unmarked), whole=found.all_marked)
        if marked:
            read = partial(window.read, state)
            array = assembled(read)
            blamed = accuracy_of(array, without_mark(array, read, marked[0]), marked).unmarked
            region = array.synced_at(marked[0]) // REGION
            assert set(blamed) == {one for one in marked if array.synced_at(one) // REGION == region}
            seen["distinguished"] += len(blamed) < len(marked)
    return seen


@pytest.mark.exhaustive
def test_every_differing_row_is_marked_and_a_missing_mark_is_found(cycle: CrashTestRunner, current_run: Run) -> None:
    early_known = current_run.lab.server.succeed(["uname", "--kernel-release"]).startswith(EARLY)
    stack = stack_of(bitmap_chunk=REGION)
    ended = cycle(stack, during=[BitmapSettled()], ledger_seconds=SECONDS).must_keep_every_promise()
    members = ended.record.observed.members
    assert members is not None
    assert {one.region_size for one in (members.bitmaps or {}).values()} == {REGION}
    seen = judged(source_of(current_run.store, ended.record.name), early_known=early_known)
    assert seen["states"] == STATES
    assert seen["differ"]
    assert seen["distinguished"]
    assert not seen["whole"]
