"""The result of the comparison of the ledger's history with a scan: counters, and every single loss."""

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from raidproof.guest.ledger_format import APPLICATION, TREES
from raidproof.record.run import BlockClass, ScanResult
from raidproof.workload.history import Operation, WorkerSpec

EXAMPLES = 40
"""Greatest number of described losses in a `ScanResult`."""
EXAMPLES_EACH = 5
"""Greatest number of described losses of one worker."""
_DAMAGE: Mapping[BlockClass, str] = {
    BlockClass.SYNCED_LOST: "was acknowledged and is missing",
    BlockClass.STALE: "has an older generation than the acknowledged one",
    BlockClass.GARBAGE: "is garbage",
    BlockClass.TORN: "is torn: its parts have different generations",
    BlockClass.OLD: "holds old data of the disk",
    BlockClass.MISPLACED: "holds a block that was written to another place",
    BlockClass.UNREADABLE: "is unreadable",
}


class Loss(NamedTuple):
    """An acknowledged operation that is missing after the fault."""

    operation: Operation
    worker: WorkerSpec
    what: str
    """What the scan found instead, as a clause."""

    @property
    def bytes(self) -> int:
        """Size in bytes of the data that the operation had to make durable."""
        return self.worker.bytes_of(self.operation)

    def __str__(self) -> str:
        done = self.operation
        if done.kind == APPLICATION:
            return f"{self.worker.path}: {self.target}: {self.what}"
        return f"{self.worker.path}: {done.kind} of {self.target} (generation {done.generation}): {self.what}"

    @property
    def target(self) -> str:
        """The directory, file, record or blocks that the operation changed, as text."""
        worker, place = self.worker, self.operation.place
        if worker.kind == APPLICATION:
            return f"operation {place}"
        if worker.kind in TREES:
            return f"directory d{place}"
        if worker.pieces:
            return f"{worker.pieces[place].size:,} bytes in file f{place}"
        if worker.files or worker.kind == "close":
            return f"file f{place}"
        if worker.kind == "o_append":
            return f"record {place}"
        if worker.span == 1:
            return f"block {place}"
        return f"blocks {place * worker.span} to {(place + 1) * worker.span - 1}"


class CorruptedBlock(NamedTuple):
    """A block in a state that no promise allows."""

    worker: WorkerSpec
    place: int
    kind: BlockClass
    what: str = ""
    """The error of a read of an application's file; empty for blocks."""

    def __str__(self) -> str:
        if self.worker.kind == APPLICATION:
            return f"{self.worker.path}: {self.what}"
        what = f"the data of file f{self.worker.place_of(self.place)}" if self.worker.pieces else f"block {self.place}"
        return f"{self.worker.path}: {what} {_DAMAGE[self.kind]}"


class Balance:
    """The result of the comparison of a history with a scan: the counters of a `ScanResult`, and every single loss."""

    def __init__(self, resumed_ns: int | None = None) -> None:
        self.resumed_ns = resumed_ns
        self.lost_after_recovery = 0
        self.across_restart = 0
        self.acknowledged: Counter[str] = Counter()
        self.judged: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.losses: list[Loss] = []
        self.corrupted: list[CorruptedBlock] = []
        self.blocks: Counter[BlockClass] = Counter()
        self.lost_bytes = 0
        self.lost_files = 0
        self.first_lost_ns: int | None = None
        self.invented: list[str] = []
        self.damaged: list[str] = []
        self.unchecked: list[str] = []
        self.parts: dict[int, Balance] = {}
        """The part of each worker, by its number."""
        self._examples: list[tuple[str, str]] = []
        """Described losses, each with the path of its worker."""
        self._examples_of: Counter[str] = Counter()
        """Number of described losses by the path of the worker."""

    @property
    def examples(self) -> list[str]:
        """Descriptions of the first losses and damaged blocks."""
        return [text for _, text in self._examples]

    @property
    def is_clean(self) -> bool:
        """Whether nothing is lost, wrong, or not known."""
        return not (self.losses or self.corrupted or self.invented or self.damaged or self.unchecked)

    def add(self, worker: int, part: "Balance") -> None:
        """Add the part of a worker, given by its number: its counters and its losses."""
        self.parts[worker] = part
        for counter, counted in zip(self._counters, part._counters, strict=True):
            for name, count in counted.items():
                counter[name] += count
        for listed, found in zip(self._lists, part._lists, strict=True):
            listed.extend(found)
        self.lost_after_recovery += part.lost_after_recovery
        self.across_restart += part.across_restart
        self.lost_bytes += part.lost_bytes
        self.lost_files += part.lost_files
        instants = (one for one in (self.first_lost_ns, part.first_lost_ns) if one is not None)
        self.first_lost_ns = min(instants, default=None)
        for path, text in part._examples:
            self._describe(path, text)

    @property
    def _counters(self) -> tuple[Counter[Any], ...]:
        return self.acknowledged, self.judged, self.lost, self.blocks

    @property
    def _lists(self) -> tuple[list[Any], ...]:
        return self.losses, self.corrupted, self.invented, self.damaged, self.unchecked

    def after_recovery(self, operation: Operation) -> bool:
        """Return whether an operation began after service had resumed."""
        return self.resumed_ns is not None and operation.issued_ns >= self.resumed_ns

    def lose(self, operation: Operation, worker: WorkerSpec, what: str, *, builds_on: Operation | None = None) -> None:
        """Count an acknowledged operation as lost; ``what``: what the scan found instead.

        ``builds_on``: the first lost operation of the same directory. Its time decides whether the loss followed the
        recovery: the clone of a file that the fault emptied is empty, too.
        """
        self.lost[operation.kind] += 1
        self.lost_bytes += worker.bytes_of(operation)
        self.lost_after_recovery += self.after_recovery(builds_on or operation)
        ended = operation.promised_ns or 0
        self.first_lost_ns = ended if self.first_lost_ns is None else min(self.first_lost_ns, ended)
        self.losses.append(Loss(operation, worker, what))
        self._describe(worker.path, str(self.losses[-1]))

    def add_corrupted(self, worker: WorkerSpec, place: int, kind: BlockClass, what: str = "") -> None:
        """Record a block in a state that no promise allows; ``what``: the error of a read of an application's file."""
        self.corrupted.append(CorruptedBlock(worker, place, kind, what))
        self._describe(worker.path, str(self.corrupted[-1]))

    def _describe(self, path: str, example: str) -> None:
        """Keep the description of a loss, at most `EXAMPLES_EACH` for each worker's path and `EXAMPLES` in total."""
        if len(self._examples) < EXAMPLES and self._examples_of[path] < EXAMPLES_EACH:
            self._examples.append((path, example))
            self._examples_of[path] += 1

    def result(self) -> ScanResult:
        """Return the counters and the described losses as a `ScanResult`."""
        return ScanResult(
            acknowledged=dict(self.acknowledged),
            judged=dict(self.judged),
            lost=dict(self.lost),
            lost_bytes=self.lost_bytes,
            lost_files=self.lost_files,
            lost_after_recovery=self.lost_after_recovery,
            across_restart=self.across_restart,
            first_lost_ns=self.first_lost_ns,
            blocks=dict(self.blocks),
            invented=self.invented,
            examples=self.examples,
            damaged=self.damaged,
            unchecked=self.unchecked,
        )


class KeptParts:
    """The part of each worker in the last comparison, for the next one: most workers' files and operations are equal.

    Only parts without a loss or damage are kept.
    """

    def __init__(self) -> None:
        self._last: dict[int, tuple[Hashable, Mapping[str, Any], Balance]] = {}

    def get(self, worker: int, key: Hashable, found: Mapping[str, Any]) -> Balance | None:
        """Return the part of a worker if the last one had the same ``key`` and the same scan of the worker's files."""
        last = self._last.get(worker)
        return last[2] if last is not None and last[0] == key and last[1] == found else None

    def keep(self, worker: int, key: Hashable, found: Mapping[str, Any], part: Balance) -> None:
        """Keep a part of a worker; it must not be changed any more."""
        if part.is_clean:
            self._last[worker] = key, found, part
