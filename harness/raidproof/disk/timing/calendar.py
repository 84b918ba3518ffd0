"""What will happen when."""

from collections.abc import Callable
from heapq import heappop, heappush

Action = Callable[[int], None]


class Calendar:
    """Actions in the order of their times; those of one time in the order in which they were entered."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Action]] = []
        self._entered = 0
        self.reached_ns = 0
        """The time of the last action that was done: nothing can happen before it any more."""

    @property
    def next_ns(self) -> int | None:
        """When the next action is due; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def at(self, time_ns: int, action: Action) -> None:
        """Have ``action(time_ns)`` called at a time."""
        self._entered += 1
        heappush(self._heap, (time_ns, self._entered, action))

    def advance(self, now_ns: int) -> None:
        """Do all that is due until now, and what that brings about until now."""
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            time_ns, _, action = heappop(heap)
            self.reached_ns = time_ns
            action(time_ns)

    def clear(self) -> None:
        """Forget all actions."""
        self._heap.clear()
