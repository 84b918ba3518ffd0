"""Solo operations of the ledger: one operation of one worker at a time, while all other workers pause.

If many workers write at the same time, each flush of the disks makes the data of many operations durable. A stack that
leaves out one flush then loses nothing, because the next flush follows within milliseconds. After a solo operation no
other operation causes a flush.
"""

from collections.abc import Callable, Sequence
from itertools import count

from raidproof.core.waiting import Deadline, pause
from raidproof.guest.ledger_format import APPLICATION, CONTINUE, HOLDERS, ONE, PAUSE, TREES
from raidproof.workload.history import WorkerSpec
from raidproof.workload.ledger_receiver import Receiver

PAUSE_DEADLINE_S = 10.0
"""Seconds in which all workers must have ended their operations before the first solo operation."""
OPERATION_DEADLINE_S = 2.0
"""Seconds in which a solo operation must end; after one that does not, there are no more."""
QUIET_S = 0.002
"""Seconds without a request to a disk after which an operation has no more consequences on the disks."""
QUIET_DEADLINE_S = 0.05
"""Seconds for which the disks may stay busy after a solo operation."""


class SoloOperations:
    """Lets the workers of a ledger carry out solo operations.

    ``requests``: returns the number of requests that all disks have received so far.
    """

    def __init__(self, receiver: Receiver, workers: Sequence[WorkerSpec], requests: Callable[[], int]) -> None:
        self._receiver = receiver
        self._requests = requests
        self._pausing = [one.number for one in workers if one.kind != APPLICATION]
        self._kinds = {one.number: len(one.kinds) for one in workers if one.kind not in (*HOLDERS, APPLICATION)}
        """Number of kinds of operation of each worker that carries out solo operations."""
        self._asked: set[int] = set()
        """Numbers of the workers that got a request to pause."""
        self._trees = {one.number for one in workers if one.kind in TREES}

    def run(self, seconds: float) -> None:
        """Let all workers pause, and let one after another carry out one operation, for a time.

        The workers keep pausing until `end`. If an operation does not return in time, nothing more is done.
        """
        if not self._receiver.wait_until(self._all_pause, PAUSE_DEADLINE_S):
            return
        deadline = Deadline.after(seconds)
        done = dict.fromkeys(self._kinds, 0)
        for turn in count():
            working = [one for one in done if one in self._receiver.pausing]
            if deadline.passed or not working:
                return
            # Every second operation changes names; a worker with more kinds of operation is due more often.
            kind = [one for one in working if (one in self._trees) == bool(turn % 2)] or working
            worker = min(kind, key=lambda one: done[one] / self._kinds[one])
            done[worker] += 1
            self._settle()
            if not self._one(worker):
                return

    def end(self) -> None:
        """Let all workers continue."""
        for number in self._pausing:
            self._receiver.request(number, CONTINUE)

    def _all_pause(self) -> bool:
        """Request each worker to pause as soon as it has reported for the first time; return whether all pause."""
        later = [number for number in self._pausing if number not in self._asked]
        self._asked.update(number for number in later if self._receiver.request(number, PAUSE))
        return self._receiver.pausing | self._receiver.done >= {*self._pausing}

    def _one(self, worker: int) -> bool:
        """Let a worker carry out one operation; return whether it pauses again, or has ended, in time."""
        # The worker reports the end of its pause with the begin of the operation.
        before = self._receiver.pauses[worker]
        return self._receiver.request(worker, ONE) and self._receiver.wait_until(
            lambda: self._receiver.pauses[worker] > before or worker in self._receiver.done, OPERATION_DEADLINE_S
        )

    def _settle(self) -> None:
        """Wait until the disks have received no request for `QUIET_S`."""
        deadline = Deadline.after(QUIET_DEADLINE_S)
        before = -1
        while (now := self._requests()) != before and not deadline.passed:
            before = now
            pause(QUIET_S)
