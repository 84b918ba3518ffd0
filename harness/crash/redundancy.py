"""The redundancy of an array in one crash state after the other: which rows differ, and whether md would know.

Not only what may or may not be there makes a row differ: a member may have made its data durable before the parity
had even been asked for. So the rows whose durable content differs are carried along as the window goes forward.
"""

from collections.abc import Iterable, Iterator

from harness.crash.bitmap import Accuracy, judge_marks
from harness.crash.parity import ROW, Assembled, ReadMember, Region, differences
from harness.crash.patch import BLOCK, Patch
from harness.crash.state import CrashState
from harness.crash.superblock import OFFSET, SIZE, parse_superblock
from harness.crash.window import Window


class Redundancy:
    """Judges the states of a window; ``moved`` is to be called with each of its moves, the first included."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self._written: set[tuple[int, int]] = set()
        self._uuid: str | None = None
        self._differ: set[int] = set()

    def moved(self, patch: Patch) -> None:
        """Take note of what has become durable.

        Raises:
            RequestError: where the array's bytes lie is not known here.
        """
        self._written.update(patch.blocks)
        durable = CrashState(self.window.cut)
        array = self.array(durable)
        if array is None:
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

    def array(self, state: CrashState) -> Assembled | None:
        """Return the array as md would see it in a state, or None if there is none.

        Raises:
            RequestError: where its bytes lie is not known here.
        """
        read = self._reader(state)
        numbers = range(len(self.window.recording.members))
        return Assembled.of({number: parse_superblock(read(number, OFFSET, SIZE)) for number in numbers})

    def judge(self, state: CrashState) -> Accuracy:
        """Return which rows differ in a state, and which of them md would leave so.

        Raises:
            RequestError: where the array's bytes lie is not known here.
        """
        array, read = self.array(state), self._reader(state)
        if array is None:
            return Accuracy("none", unchecked="no member has a whole superblock")
        touched = array.rows_of(self._requests((*self.window.open, *self.window.caches.kept)))
        rows = sorted({*self._differ, *touched}) if array.superblock.uuid == self._uuid else touched
        return judge_marks(array, read, differences(array, read, rows))

    def _reader(self, state: CrashState) -> ReadMember:
        return lambda member, offset, length: self.window.read(state, member, offset, length)

    def _requests(self, numbers: Iterable[int]) -> Iterator[Region]:
        for number in numbers:
            record = self.window.recording.request(number)
            yield record.member, record.offset, record.length


def _regions(blocks: Iterable[tuple[int, int]]) -> Iterator[Region]:
    return ((member, block * BLOCK, ROW) for member, block in blocks)
