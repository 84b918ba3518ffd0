"""The redundancy of an array in one crash state after the other: which rows differ, and whether md would know.

Not only what may or may not be there makes a row differ: a member may have made its data durable before the parity
had even been asked for. So the rows whose durable content differs are carried along as the window goes forward.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from raidproof.core.errors import RequestError
from raidproof.crash.checker.observation import Rows
from raidproof.crash.redundancy.bitmap import Accuracy, judge_marks
from raidproof.crash.redundancy.copies import changed_under_write_back
from raidproof.crash.states.disk_states import DiskStates
from raidproof.crash.states.patch import BLOCK, Patch
from raidproof.crash.states.state import CrashState
from raidproof.storage.array.parity import ROW, Assembled, ReadMember, Region, differences
from raidproof.storage.array.superblock import OFFSET, SIZE, parse_superblock

SEVERAL = "its members are of several arrays"


class Redundancy:
    """Judges the states of a window; ``moved`` is to be called with each of its moves, the first included."""

    def __init__(self, window: DiskStates) -> None:
        self.window = window
        self._written: set[tuple[int, int]] = set()
        self._uuid: str | None = None
        self._differ: set[int] = set()

    def moved(self, patch: Patch) -> None:
        """Take note of what has become durable."""
        self._written.update(patch.blocks)
        durable = CrashState(self.window.cut)
        array = self._array(durable)
        if not isinstance(array, Assembled):
            self._uuid, self._differ = None, set()
            return
        # Of an array that has just come, all that was ever written counts.
        blocks = patch.blocks if array.superblock.uuid == self._uuid else self._written
        changed = (*_regions(blocks), *self._requests(self.window.caches.kept))
        if array.superblock.uuid != self._uuid:
            self._uuid, self._differ = array.superblock.uuid, set()
        rows = sorted({*self._differ, *array.rows_of(changed)})
        found = differences(array, self._reader(durable), rows)
        # With a member missing nothing can be compared; when it is back, all of these are to be looked at.
        self._differ = set(rows) if array.incomplete else {one.row for one in found}

    def _array(self, state: CrashState) -> Assembled | str:
        """Return the array as md would see it in a state, or why there is none that is known here."""
        read = self._reader(state)
        found = {
            number: parse_superblock(read(number, OFFSET, SIZE))
            for number in range(len(self.window.recording.members))
        }
        if len({one.uuid for one in found.values() if one is not None and one.whole}) > 1:
            return SEVERAL
        try:
            return Assembled.of(found) or "no member has a whole superblock"
        except RequestError as error:
            return str(error)

    def rows(self, state: CrashState) -> Rows:
        """Return the numbers of what `judge` finds."""
        found = self.judge(state)
        left = (*found.unmarked, *found.uneven)
        return Rows(
            differ=len(found.differ),
            unmarked=len(found.unmarked),
            uneven=len(found.uneven),
            changed=len(found.changed),
            all_marked=found.all_marked,
            first=str(left[0]) if left else "",
            unchecked=found.unchecked,
        )

    def judge(self, state: CrashState) -> Accuracy:
        """Return which rows differ in a state, and which of them md would leave so."""
        array, read = self._array(state), self._reader(state)
        if isinstance(array, str):
            return Accuracy("none", unchecked=array)
        touched = array.rows_of(self._requests((*self.window.open, *self.window.caches.kept)))
        rows = sorted({*self._differ, *touched}) if array.superblock.uuid == self._uuid else touched
        found = judge_marks(array, read, differences(array, read, rows))
        if not found.unmarked or array.striping.copies == 1:
            return found
        changed = changed_under_write_back(array, self.window.recording, self._there(state), state.cut, found.unmarked)
        left = tuple(one for one in found.unmarked if one not in changed)
        return replace(found, unmarked=left, changed=changed)

    def _there(self, state: CrashState) -> Callable[[int], bool]:
        """Return what tells whether a request is there in a state, whole."""
        survivors = {one.request for one in state.survivors if one.spans is None}
        open_ = set(self.window.open)
        return lambda number: number in survivors or (number < state.cut and number not in open_)

    def _reader(self, state: CrashState) -> ReadMember:
        return lambda member, offset, length: self.window.read(state, member, offset, length)

    def _requests(self, numbers: Iterable[int]) -> Iterator[Region]:
        for number in numbers:
            record = self.window.recording.request(number)
            yield record.member, record.offset, record.length


def _regions(blocks: Iterable[tuple[int, int]]) -> Iterator[Region]:
    return ((member, block * BLOCK, ROW) for member, block in blocks)
