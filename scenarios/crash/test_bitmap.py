"""In every sampled crash state, the write-intent bitmap marks each region whose data and parity differ."""

from bisect import bisect_left
from collections import Counter
from functools import partial

import pytest

from raidproof.core.units import KIB
from raidproof.crash.disk_states import DiskStates
from raidproof.crash.redundancy import Redundancy, accuracy_of, bitmaps_of
from raidproof.crash.sampler import Choices
from raidproof.crash.states import CrashState
from raidproof.pytest_plugin.fixtures import MEMBERS, CrashTestRunner, stack_of
from raidproof.run.run import Run
from raidproof.run.source import Source, source_of
from raidproof.storage.array.striping import Assembled, Difference, ReadMember
from scenarios.crash.marks import Writes, assembled, writes
from scenarios.crash.settled import BitmapSettled

REGION = 16 * KIB
"""Smallest bitmap chunk in bytes that mdadm supports on these disks. The bitmap has 18,368 regions, by default 5."""
STATES = 1000
SECONDS = 3.0
"""Duration of the workload: long enough for md to set and clear marks."""
EARLY = "6.12."
"""Prefix of the releases of kernels that write to a RAID5 before the bitmap's mark is durable (docs/findings.md)."""


def was_early(written: Writes, row: int, state: CrashState) -> bool:
    """Return whether md issued the last write to a row before a cut while the row's region had no durable mark."""
    numbers = written.get(row, [])
    # Requests that were in flight at the cut and survived have later numbers.
    end = max([state.cut, *(survivor.request + 1 for survivor in state.survivors)])
    place = bisect_left(numbers, (end, False))
    return place > 0 and numbers[place - 1][1]


def without_mark(array: Assembled, read: ReadMember, one: Difference) -> ReadMember:
    """Return a function that reads the members, but with the bitmaps' mark of a differing row's region cleared."""
    byte, bit = divmod(array.synced_at(one) // REGION, 8)
    places = {member: bitmap.offset + byte for member, bitmap in bitmaps_of(array, read).items() if bitmap is not None}

    def forged(member: int, offset: int, length: int) -> bytes:
        data = bytearray(read(member, offset, length))
        if 0 <= (place := places[member] - offset) < length:
            data[place] &= ~(1 << bit)
        return bytes(data)

    return forged


def judged(source: Source, *, early_known: bool) -> Counter[str]:
    """Compare the redundancy of sampled crash states with their bitmaps, and count the results.

    The contents of the members come from the recording; no machine checks the states. ``early_known``: rows that md is
    known to write before their mark are no failure.
    """
    window, choices = DiskStates(source.recording), Choices(source.recording, 1, first=source.first)
    written = writes(source.recording, source.first) if early_known else {}
    redundancy, seen = Redundancy(window), Counter[str]()
    for choice in sorted(choices.order[:STATES]):
        redundancy.moved(window.move(choice.cut))
        state = choices.state(choice, window.open)
        found = redundancy.accuracy(state)
        assert found.unchecked is None
        new = [one for one in found.unmarked if not (early_known and was_early(written, one.row, state))]
        assert not new, (
            f"{state.name}: no bitmap marks {new[0]}, although its last write came after its mark; all rows: {found}"
        )
        marked = [one for one in found.differ if one not in found.unmarked]
        seen += Counter(states=1, differ=bool(found.differ), early=bool(found.unmarked), whole=found.all_marked)
        if marked:
            read = partial(window.read, state)
            array = assembled(read, len(MEMBERS))
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
