"""The fewest acknowledgements that still show a loss: what exactly a client had been told, and is not there."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from harness.crash.shrink import minimise
from harness.verdict.evidence import Evidence, Found, weigh
from harness.workload.history import Ended, History, Operation, WorkerSpec


class Told(NamedTuple):
    """One acknowledgement that does not hold."""

    operation: Operation
    worker: WorkerSpec

    def at_s(self, begun_ns: int) -> float:
        """When its client was told, in seconds after an instant."""
        return ((self.operation.ended_ns or begun_ns) - begun_ns) / 1e9

    def __str__(self) -> str:
        one, worker = self.operation, self.worker
        return f"{worker.client}: {one.kind} of {one.place} in {worker.path}, generation {one.generation}"


def smallest_history(
    workers: Sequence[WorkerSpec],
    history: History,
    found: Found,
    before_ns: int,
    *,
    seen_ns: int | None = None,
    resumed_ns: int | None = None,
    torn: bool = False,
    unheard: Collection[str] = (),
) -> tuple[Told, ...]:
    """Return the 1-minimal set of acknowledgements that still shows the loss, of several such an early one.

    The other operations stay, but as if nobody had heard how they ended: what was begun explains what is there. With
    them taken away, what they had written would count as garbage. None left means that nothing acknowledged is lost.
    The arguments are those of `weigh`.

    Raises:
        RigError: the scan says nothing of a worker.
    """

    def weighed(told: Sequence[Operation]) -> Evidence:
        kept = {(one.worker, one.sequence) for one in told}
        heard = History(
            one
            if (one.worker, one.sequence) in kept
            else one._replace(ended=Ended.UNKNOWN, ended_ns=None)
            if one.ended is Ended.OK
            else one
            for one in history.operations
        )
        return weigh(
            workers,
            heard,
            found,
            before_ns=before_ns,
            seen_ns=seen_ns,
            resumed_ns=resumed_ns,
            torn=torn,
            unheard=unheard,
        )

    told = sorted(history.acknowledged(before_ns), key=lambda one: one.ended_ns or 0)
    if not weighed(told).lost_total:
        return ()
    by_number = {worker.number: worker for worker in workers}
    fewest = minimise(told, lambda some: weighed(some).lost_total > 0)
    return tuple(Told(one, by_number[one.worker]) for one in fewest)
