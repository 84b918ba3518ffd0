"""Solo operations of the ledger: one operation of one worker at a time, while all other workers pause.

If many workers write at the same time, each flush of the disks makes the data of many operations durable. A stack that
leaves out one flush then loses nothing, because the next flush follows within milliseconds. After a solo operation no
other operation causes a flush.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from raidproof.core.waiting import Deadline, pause
from raidproof.guest.ledger_format import APPLICATION, CONTINUE, HOLDERS, ONE, PAUSE, TREES
from raidproof.workload.history import WorkerSpec
from raidproof.workload.ledger_receiver import Receiver
from raidproof.workload.ledger_sizes import class_of

PAUSE_DEADLINE_S = 10.0
"""Seconds in which all workers must have ended their operations before the first solo operation."""
OPERATION_DEADLINE_S = 10.0
"""Seconds in which a solo operation must end; after one that does not, there are no more."""
LEAST = 3
"""Number of solo operations of each kind, and of each class of sizes, that each client should carry out."""
QUIET_S = 0.002
"""Seconds without a request to a disk after which an operation has no more consequences on the disks."""
QUIET_DEADLINE_S = 0.05
"""Seconds for which the disks may stay busy after a solo operation."""


class Share(NamedTuple):
    """The solo operations of a client of one kind, or of one class of sizes."""

    client: str
    what: str

    def __str__(self) -> str:
        return f"{self.what} on {self.client}"


def shares_of(worker: WorkerSpec) -> list[Share]:
    """Return the kinds of operation and the classes of sizes that a worker carries out."""
    sizes = [_class_of(piece.size) for piece in worker.pieces]
    return [Share(worker.client, one) for one in dict.fromkeys([*worker.kinds, *sizes])]


def shares_at(worker: WorkerSpec, kind: str, place: int) -> list[Share]:
    """Return what an operation of a worker belongs to: its kind, and its class of sizes if the worker has several."""
    sizes = [_class_of(worker.pieces[place].size)] if worker.pieces else []
    return [Share(worker.client, one) for one in (kind, *sizes)]


def _class_of(size: int) -> str:
    return f"sizes from {class_of(size):,} bytes"


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
        self._workers = {one.number: one for one in workers if one.number in self._kinds}
        self._ended: Counter[Share] = Counter()
        self._trees = {one.number for one in workers if one.kind in TREES}

    def run(self, seconds: float, extra_s: float = 0.0) -> None:
        """Let all workers pause, and let one after another carry out one operation, for a time.

        ``extra_s``: greatest number of further seconds, as long as a kind of operation or a class of sizes has fewer
        than `LEAST` solo operations on a client; these come first then. The workers keep pausing until `end`. If an
        operation does not return in time, nothing more is done.
        """
        if not self._receiver.wait_until(self._all_pause, PAUSE_DEADLINE_S):
            return
        deadline, last = Deadline.after(seconds), Deadline.after(seconds + extra_s)
        done, worker = dict.fromkeys(self._kinds, 0), -1
        for turn in count():
            working = [one for one in done if one in self._receiver.pausing]
            if extra_s and not last.passed and (lacking := self._lacking(working)):
                worker = self._next_of(lacking, working, done, worker)
            elif not deadline.passed and working:
                # Every second operation changes names; a worker with more kinds of operation is due more often.
                kind = [one for one in working if (one in self._trees) == bool(turn % 2)] or working
                worker = min(kind, key=lambda one: done[one] / self._kinds[one])
            else:
                return
            done[worker] += 1
            self._settle()
            if not self._one(worker):
                return
            if worker in self._receiver.last_ended:
                self._ended.update(shares_at(self._workers[worker], *self._receiver.last_ended[worker]))

    @property
    def lacking(self) -> list[str]:
        """What had fewer than `LEAST` solo operations on a client, as text such as ``fsync on client1``."""
        return [str(one) for one in self._lacking(self._workers)]

    def _lacking(self, workers: Iterable[int]) -> list[Share]:
        """Return what has fewer than `LEAST` solo operations, and what these workers carry out; the rarest first."""
        shares = {share: None for number in workers for share in shares_of(self._workers[number])}
        return sorted((one for one in shares if self._ended[one] < LEAST), key=lambda one: self._ended[one])

    def _next_of(self, lacking: Sequence[Share], working: Sequence[int], done: Mapping[int, int], last: int) -> int:
        """Return the worker whose operation comes next, so that less is lacking; ``last``: the one before.

        Two operations in a row are of two workers if possible. Otherwise a state that lacks the first one could look
        as if the second one, of the same directory, had begun.
        """
        for share in lacking:
            if able := [one for one in working if one != last and share in shares_of(self._workers[one])]:
                # The worker that has done most: several workers at the beginning of their rounds repeat each other.
                return max(able, key=lambda one: (done[one], -one))
        return last

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
