"""Comparison of the ledger with a scan: which acknowledged operations are durable, lost or damaged."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from errno import EEXIST, ENOENT
from typing import Any, NamedTuple, TypedDict, Unpack

from raidproof.core.errors import RigError
from raidproof.guest.ledger_writer import ABSENT, BLOCK, GARBAGE, METADATA, MISPLACED, OLD, TREES, UNREADABLE
from raidproof.record.run import BROKEN, BlockClass, Evidence
from raidproof.verdict.tree import LOOSE, directories, hold, shown
from raidproof.workload.history import Ended, History, Operation, WorkerSpec

Found = Mapping[str, Mapping[str, Any]]


EXAMPLES = 40
EXAMPLES_EACH = 5
ANY_GENERATION = 1 << 62


class Loss(NamedTuple):
    """An acknowledged operation that is missing after the fault."""

    operation: Operation
    worker: WorkerSpec
    what: str
    """What the scan found instead."""

    @property
    def bytes(self) -> int:
        """Size in bytes of the data that the operation had to make durable."""
        return self.worker.bytes_of(self.operation.kind)

    def __str__(self) -> str:
        done = self.operation
        return f"{self.worker.path}: {done.kind} of {done.place} (generation {done.generation}): {self.what}"


class CorruptedBlock(NamedTuple):
    """A block in a state that no promise allows."""

    worker: WorkerSpec
    place: int
    kind: BlockClass

    def __str__(self) -> str:
        return f"{self.worker.path}: block {self.place} is {self.kind.value}"


class Balance:
    """Counters for an `Evidence`, with every lost operation and every corrupted block."""

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
        self.examples: list[str] = []

    def after_recovery(self, operation: Operation) -> bool:
        """Return whether an operation began after service had resumed."""
        return self.resumed_ns is not None and operation.issued_ns >= self.resumed_ns

    def lose(self, operation: Operation, worker: WorkerSpec, what: str, *, builds_on: Operation | None = None) -> None:
        """Count an acknowledged operation as lost.

        ``builds_on``: the first lost operation of the same directory, whose time counts. For example, the clone of a
        file that the fault emptied is empty, too.
        """
        self.lost[operation.kind] += 1
        self.lost_bytes += worker.bytes_of(operation.kind)
        self.lost_after_recovery += self.after_recovery(builds_on or operation)
        ended = operation.promised_ns or 0
        self.first_lost_ns = ended if self.first_lost_ns is None else min(self.first_lost_ns, ended)
        self.losses.append(Loss(operation, worker, what))
        self.say(str(self.losses[-1]))

    def add_corrupted(self, worker: WorkerSpec, place: int, kind: BlockClass) -> None:
        """Record a block in a state that no promise allows."""
        self.corrupted.append(CorruptedBlock(worker, place, kind))
        self.say(str(self.corrupted[-1]))

    def say(self, example: str) -> None:
        """Keep the description of a loss, at most `EXAMPLES_EACH` for each worker and `EXAMPLES` in total."""
        mine = example.partition(":")[0] + ":"
        if len(self.examples) < EXAMPLES and sum(one.startswith(mine) for one in self.examples) < EXAMPLES_EACH:
            self.examples.append(example)

    def evidence(self) -> Evidence:
        """Return the counters as an `Evidence`."""
        return Evidence(
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
        )


Torn = bool | Collection[tuple[int, int]]
"""Whether any block under overwrite may be torn, or the (file, byte offset) of those blocks, as in block headers."""


class Bounds(TypedDict, total=False):
    """Options that select the operations that count; see `balance_of`."""

    before_ns: int | None
    seen_ns: int | None
    resumed_ns: int | None
    restarted_ns: int | None
    torn: Torn
    disconnected_clients: Collection[str]
    indeterminate_errnos: Collection[int]


def build_evidence(
    workers: Sequence[WorkerSpec], history: History, found: Found, **bounds: Unpack[Bounds]
) -> Evidence:
    """Return the comparison of a history with a scan as an `Evidence`; see `balance_of`.

    Raises:
        RigError: the scan has no entry for a worker.
    """
    return balance_of(workers, history, found, **bounds).evidence()


def balance_of(
    workers: Sequence[WorkerSpec],
    history: History,
    found: Found,
    *,
    before_ns: int | None = None,
    seen_ns: int | None = None,
    resumed_ns: int | None = None,
    restarted_ns: int | None = None,
    torn: Torn = False,
    disconnected_clients: Collection[str] = (),
    indeterminate_errnos: Collection[int] = (),
) -> Balance:
    """Compare a history with a scan.

    Times are in nanoseconds:
    ``before_ns``: only operations that were acknowledged earlier must be durable.
    ``seen_ns``: the instant of the cut or of the scan. Operations that began later are ignored; operations that were
    in progress then may be present or not.
    ``resumed_ns``: when service resumed. Losses of operations that began later are counted separately, too.
    ``restarted_ns``: when a restarted server answered again. A `close` in progress then is not judged if it needed a
    COMMIT: the Linux client does not retransmit the data that the server lost (docs/findings.md).

    ``torn``: whether, or where, the fault may have torn a block that was being overwritten.
    ``disconnected_clients``: clients that lost power before all their reports arrived. They may have done more
    operations than reported, so nothing of theirs counts as invented.
    ``indeterminate_errnos``: errors after which an operation may have been executed all the same, such as a timeout.

    Raises:
        RigError: the scan has no entry for a worker.
    """
    balance, appending = Balance(resumed_ns), list[Case]()
    by_worker: dict[int, list[Operation]] = defaultdict(list)
    for operation in history.operations:
        if operation.begun_before(seen_ns):
            by_worker[operation.worker].append(operation)
    for worker in workers:
        if worker.key not in found:
            raise RigError(f"the scan has no entry for {worker.key}")
        operations = by_worker[worker.number]
        across = [
            one
            for one in operations
            if worker.span > 1 and restarted_ns is not None and closes_across(one, restarted_ns)
        ]
        balance.across_restart += len(across)
        bound = [one for one in operations if one.binds(before_ns) and one not in across]
        # Kinds that were never executed get a count of 0.
        balance.acknowledged.update(dict.fromkeys(kinds_of(worker), 0))
        balance.judged.update(dict.fromkeys(kinds_of(worker), 0))
        balance.acknowledged.update(one.kind for one in bound)
        case = Case(
            worker,
            operations,
            bound,
            found[worker.key],
            worker.client in disconnected_clients,
            torn,
            indeterminate_errnos,
        )
        compare = {**dict.fromkeys(TREES, compare_names), "o_append": compare_records}.get(worker.kind, compare_blocks)
        compare(case, balance)
        if compare is compare_records:
            appending.append(case)
    compare_holes(appending, balance)
    return balance


def closes_across(operation: Operation, restarted_ns: int) -> bool:
    """Return whether an operation is a `close` in progress at the time when a restarted server answered again."""
    ended = operation.ended_ns
    return operation.kind == "close" and ended is not None and operation.issued_ns < restarted_ns <= ended


def kinds_of(worker: WorkerSpec) -> tuple[str, ...]:
    """Return the operation kinds of a worker; records that lack rounds have the first nine metadata kinds."""
    return METADATA[:9] if worker.kind == "metadata" and not worker.rounds else worker.kinds


class Case(NamedTuple):
    """The operations of one worker and the scan of its files."""

    worker: WorkerSpec
    operations: Sequence[Operation]
    bound: Sequence[Operation]
    """The operations that were acknowledged and must be durable."""
    found: Mapping[str, Any]
    disconnected: bool
    """Whether the client may have done more operations than it reported."""
    torn: Torn
    indeterminate_errnos: Collection[int] = ()
    """Errors (errno) after which an operation may have been executed all the same."""

    def may_be_torn(self, block: int) -> bool:
        """Return whether a block may be torn while it is being overwritten."""
        # For a block that straddles two pages, the second request has no block header that identifies it.
        if isinstance(self.torn, bool) or self.worker.shift % BLOCK:
            return self.torn is not False
        return (self.worker.file, block * BLOCK) in self.torn

    def may_be_done(self, operation: Operation) -> bool:
        """Return whether an operation, or a step of it, may have been executed, whatever result was reported."""
        if operation.ended is not Ended.FAILED or operation.kind in LOOSE:
            # A copy that fails has created its file.
            return True
        # EEXIST or ENOENT may be the reply to a retransmission of a request that was already executed.
        return operation.error in {EEXIST, ENOENT, *self.indeterminate_errnos}

    def blocks_of(self, operation: Operation) -> range:
        """Return the blocks that an operation wrote."""
        return range(operation.place * self.worker.span, (operation.place + 1) * self.worker.span)

    def newest(self, operations: Sequence[Operation]) -> dict[int, int]:
        """Return the newest generation of each block."""
        generations: dict[int, int] = {}
        for operation in operations:
            for block in self.blocks_of(operation):
                generations[block] = max(operation.generation, generations.get(block, 0))
        return generations


def compare_blocks(case: Case, balance: Balance) -> None:
    """Compare the blocks of a worker that writes them in generations."""
    worker = case.worker
    required, issued = case.newest(case.bound), case.newest(case.operations)
    states: dict[int, int] = dict(enumerate(case.found["blocks"], start=worker.first * worker.span))
    if case.disconnected:
        issued = dict.fromkeys(states, ANY_GENERATION)
    kinds = {
        place: classify(state, required.get(place, 0), issued.get(place, 0), torn=case.may_be_torn(place))
        for place, state in states.items()
    }
    for place, state in states.items():
        if (kind := kinds[place]) is not None:
            balance.blocks[kind] += 1
            if kind in BROKEN:
                balance.add_corrupted(worker, place, kind)
        if state != ABSENT and (kind is None or state > issued[place]):
            balance.invented.append(f"{worker.path}: block {place} has a generation that was never written")
    for operation in case.bound:
        balance.judged[operation.kind] += operation.generation == required[operation.place * worker.span]
        for place in case.blocks_of(operation):
            state = states[place]
            torn = state == GARBAGE and kinds[place] is BlockClass.UNSYNCED_LOST
            if state < operation.generation and not torn:
                balance.lose(operation, worker, said_of(state))
                break
    compare_files(case, {one.place for one in case.bound}, {one.place for one in case.operations}, balance)


def compare_files(case: Case, required: Collection[int], issued: Collection[int], balance: Balance) -> None:
    """Count the files of a worker that are missing, and list those that were never created."""
    worker, files = case.worker, case.worker.files or case.worker.kind == "close"
    promised = {f"f{place}" for place in required} if files else {worker.path} if case.bound else set()
    begun = {f"f{place}" for place in issued} if files else {worker.path}
    if case.disconnected and files:
        begun |= {f"f{place}" for place in range(worker.blocks)}
    names = set(case.found["names"] or ())
    balance.lost_files += len(promised - names)
    balance.invented.extend(f"{worker.path}/{name}, which no client wrote" for name in sorted(names - begun))


SPECIAL = {
    GARBAGE: BlockClass.GARBAGE,
    MISPLACED: BlockClass.MISPLACED,
    UNREADABLE: BlockClass.UNREADABLE,
    OLD: BlockClass.OLD,
}
"""Block classes of record codes that are no whole block of this run."""


def classify(state: int, required: int, issued: int, *, torn: bool = False) -> BlockClass | None:
    """Return the class of a block, or None for a block that was never written, whatever its content.

    ``required``: the newest acknowledged generation; ``issued``: the newest one that was begun; 0 means none.
    """
    if not issued:
        return None
    if state > issued:
        return BlockClass.GARBAGE
    if state in SPECIAL and state != GARBAGE:
        return SPECIAL[state]
    if state == GARBAGE:
        # Only disks that tear writes may tear a block that was being overwritten at the cut.
        return BlockClass.UNSYNCED_LOST if torn and issued > required else BlockClass.GARBAGE
    if not required:
        return BlockClass.UNSYNCED_KEPT if state else BlockClass.UNSYNCED_LOST
    if state >= required:
        return BlockClass.DURABLE if state == required else BlockClass.UNSYNCED_KEPT
    return BlockClass.STALE if state else BlockClass.SYNCED_LOST


def said_of(state: int) -> str:
    """Return a description of what is in the place of an operation's block."""
    words = {
        ABSENT: "nothing is there",
        GARBAGE: "garbage",
        MISPLACED: "another block",
        UNREADABLE: "unreadable",
        OLD: "old data of the disk",
    }
    return words.get(state, f"generation {state} is there")


def compare_records(case: Case, balance: Balance) -> None:
    """Compare the records that a worker appends to a shared file."""
    worker, records = case.worker, list(case.found["records"])
    bound = {one.place for one in case.bound}
    issued = {one.place for one in case.operations}
    # A record that was being appended at the cut may be present in part, at the end of the file.
    if records and records[-1] in {GARBAGE, ABSENT}:
        records.pop()
    for place, code in enumerate(records):
        if (kind := SPECIAL.get(code)) and kind is not BlockClass.MISPLACED:
            balance.blocks[kind] += 1
            balance.add_corrupted(worker, place, kind)
    mine = [one - 1 for one in records if one > 0]
    for place in sorted(bound | issued):
        there = place in mine
        kinds = (BlockClass.DURABLE, BlockClass.SYNCED_LOST), (BlockClass.UNSYNCED_KEPT, BlockClass.UNSYNCED_LOST)
        balance.blocks[kinds[place not in bound][not there]] += 1
    for operation in case.bound:
        balance.judged[operation.kind] += 1
        if operation.place not in mine:
            balance.lose(operation, worker, "the record is not there")
    if mine != sorted(set(mine)):
        balance.invented.append(f"{worker.path}: records are duplicated or out of order")
    if not case.disconnected and (more := sorted(set(mine) - issued)):
        balance.invented.append(f"{worker.path}: record {more[0]}, which no client wrote")
    balance.lost_files += bool(bound and not case.found["names"])


def compare_holes(appending: Sequence[Case], balance: Balance) -> None:
    """Compare the blocks of zeros between the records of a file: each must be the place of a missing record.

    A client appends at the end of file that it knows, even after the server has lost that end. All cases of one file
    share one scan of it; only the owner of each record differs.
    """
    by_file: dict[str, list[Case]] = defaultdict(list)
    for case in appending:
        by_file[case.worker.path].append(case)
    for path, cases in by_file.items():
        records = list(cases[0].found["records"])
        holes = records[:-1].count(ABSENT)
        missing = sum(len({one.place + 1 for one in case.operations} - {*case.found["records"]}) for case in cases)
        if holes > missing and not any(case.disconnected for case in cases):
            balance.invented.append(f"{path}: {holes} blocks of zeros between records, and {missing} records missing")


def compare_names(case: Case, balance: Balance) -> None:
    """Compare the names and attributes that a worker changes in small directories."""
    begun: dict[int, list[Operation]] = defaultdict(list)
    for operation in case.operations:
        if case.may_be_done(operation):
            begun[operation.place].append(operation)
    bound = {one.sequence for one in case.bound}
    found = directories(case.found)
    if case.disconnected:
        for place in {*begun, *(int(name[1:]) for name in found if name[1:].isdigit())}:
            begun[place] += unreported_operations(case, place, len(begun[place]))
    for place, operations in begun.items():
        mine = [one for one in operations if one.sequence in bound]
        seen = hold(mine, operations, found.pop(f"d{place}", {}))
        for operation, instead in seen.lost:
            balance.lose(operation, case.worker, instead, builds_on=seen.lost[0][0])
            balance.lost_files += operation.kind == "create"
        balance.invented += [f"{case.worker.path}/d{place}/{one}" for one in seen.odd]
        kinds = tuple(one.kind for one in operations)
        # A record without rounds has the old round, whose end hides most of its operations: count all as judged.
        visible = shown(kinds, place, len(mine)) if case.worker.rounds else (True,) * len(mine)
        for operation, seen_of in zip(mine, visible, strict=True):
            balance.judged[operation.kind] += seen_of
    balance.invented += [f"{case.worker.path}/{name}, which no client made" for name in found]


def unreported_operations(case: Case, place: int, reported: int) -> list[Operation]:
    """Return the changes of a directory that a client may have made after the reported ones."""
    rounds = case.worker.rounds or (METADATA[:9],)
    steps = rounds[place % len(rounds)][reported:]
    return [
        Operation(case.worker.number, -1, kind, place, reported + step, 0, None, Ended.UNKNOWN, 0)
        for step, kind in enumerate(steps, start=1)
    ]
