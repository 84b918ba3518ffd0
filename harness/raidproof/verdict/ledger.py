"""Comparison of the ledger's history with a scan: which acknowledged operations are durable, lost or damaged.

A scan is the result of `raidproof.guest.ledger_reader`, which reads every file and directory of the ledger.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from errno import EEXIST, ENOENT
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

from raidproof.core.errors import RigError
from raidproof.guest.ledger_format import (
    ABSENT,
    APPLICATION,
    BLOCK,
    GARBAGE,
    HOLDERS,
    METADATA,
    MISPLACED,
    OLD,
    TORN,
    TREES,
    UNREADABLE,
    parts_of_torn,
)
from raidproof.record.run import BROKEN, BlockClass, CrashTestRecord
from raidproof.verdict.balance import EXAMPLES, Balance, KeptParts
from raidproof.verdict.tree import LOOSE, directories, hold, shown
from raidproof.workload.history import LONGEST_DELAY_NS, Ended, History, Operation, WorkerSpec

Found = Mapping[str, Mapping[str, Any]]
"""A scan: the result for each worker, by `WorkerSpec.key`."""
ANY_GENERATION = 1 << 62
"""Newest begun generation of a disconnected client's block: it may have written more generations than it reported."""
Torn = bool | Collection[tuple[int, int]]
"""Which blocks the cut may have torn while a client overwrote them: all, none, or those with this (file, byte offset).

File and byte offset are those in the header of the block.
"""


class Bounds(TypedDict, total=False):
    """The keyword arguments of `balance_of`, which describes them."""

    before_ns: int | None
    seen_ns: int | None
    resumed_ns: int | None
    restarts_ns: Collection[int]
    torn: Torn
    disconnected_clients: Collection[str]
    indeterminate_errnos: Collection[int]
    shows_old_data: bool


def balance_of(
    workers: Sequence[WorkerSpec],
    history: History,
    found: Found,
    *,
    kept: KeptParts | None = None,
    **bounds: Unpack[Bounds],
) -> Balance:
    """Compare a history with a scan of the same workers' files and directories.

    ``kept``: the parts of earlier comparisons of the same workers and history, which may save work.

    Instants are in nanoseconds of the host's CLOCK_MONOTONIC:
    ``before_ns``: operations that were acknowledged earlier must be durable; None: all acknowledged operations.
    ``seen_ns``: the instant of the cut or of the scan; None: after all operations. Operations that began later are
    ignored. The effect of an operation that was in progress at this instant may be present or missing.
    ``resumed_ns``: the instant at which service resumed. Losses of operations that began later are also counted in
    `ScanResult.lost_after_recovery`.
    ``restarts_ns``: the instants at which a restarted server first replied. A `close` in progress at one of them is
    not judged if it needed a COMMIT: the Linux client does not retransmit the data that the server lost
    (docs/findings.md).

    ``torn``: the blocks that the cut may have torn while they were being overwritten.
    ``disconnected_clients``: clients whose reports are missing: they lost power, for example. They may have executed
    more operations than they reported, so no content of these clients counts as invented.
    ``shows_old_data``: whether the file system may show old data of the disk in a block that was never acknowledged.
    ``indeterminate_errnos``: errors (errno) that leave unknown whether the operation was executed, such as a timeout.

    Raises:
        RigError: the scan has no entry for a worker.
    """
    balance = Balance()
    for worker in workers:
        if worker.key not in found:
            raise RigError(f"the scan has no entry for {worker.key}")
        entry = found[worker.key]
        key = None if kept is None else key_of(worker, history, bounds)
        part = None if kept is None else kept.get(worker.number, key, entry)
        if part is None:
            part = part_of(worker, history, entry, bounds)
            if kept is not None:
                kept.keep(worker.number, key, entry, part)
        balance.add(worker.number, part)
    appending = [one for one in workers if COMPARISONS.get(one.kind) is compare_records]
    compare_holes([case_of(one, history, found[one.key], bounds) for one in appending], balance)
    return balance


def key_of(worker: WorkerSpec, history: History, bounds: Bounds) -> Hashable:
    """Return a value that is equal for bounds at which the worker's scan has the same `part_of`."""
    counts = history.counts_of(
        worker.number, begun_before_ns=_seen_ns(worker, bounds), acknowledged_before_ns=bounds.get("before_ns")
    )
    torn = bounds.get("torn", False)
    if not isinstance(torn, bool):
        # As in `Case.may_be_torn`: only blocks of the worker's own file matter to it.
        torn = bool(worker.shift % BLOCK or worker.pieces) or frozenset(one for one in torn if one[0] == worker.file)
    others = (
        bounds.get("shows_old_data"),
        bounds.get("resumed_ns"),
        tuple(bounds.get("restarts_ns", ())),
        frozenset(bounds.get("indeterminate_errnos", ())),
    )
    return (*counts, torn, worker.client in bounds.get("disconnected_clients", ()), *others)


def case_of(worker: WorkerSpec, history: History, entry: Mapping[str, Any], bounds: Bounds) -> "Case":
    """Return what concerns one worker; ``entry``: the scan of its files."""
    operations = history.begun(worker.number, _seen_ns(worker, bounds))
    before_ns = bounds.get("before_ns")
    return Case(
        worker,
        operations,
        [one for one in operations if one.binds(before_ns)],
        entry,
        worker.client in bounds.get("disconnected_clients", ()),
        bounds.get("torn", False),
        bounds.get("indeterminate_errnos", ()),
        bounds.get("shows_old_data", False),
    )


def _seen_ns(worker: WorkerSpec, bounds: Bounds) -> int | None:
    # The report of an application that an operation begins may arrive after the data.
    seen_ns, late_ns = bounds.get("seen_ns"), LONGEST_DELAY_NS if worker.kind == APPLICATION else 0
    return None if seen_ns is None else seen_ns + late_ns


def part_of(worker: WorkerSpec, history: History, entry: Mapping[str, Any], bounds: Bounds) -> Balance:
    """Compare the operations of one worker with the scan of its files."""
    case = case_of(worker, history, entry, bounds)
    part, restarts_ns = Balance(bounds.get("resumed_ns")), bounds.get("restarts_ns", ())
    if restarts_ns:
        across = [
            one
            for one in case.operations
            if any(closes_across(one, worker, restarted_ns) for restarted_ns in restarts_ns)
        ]
        part.across_restart = len(across)
        case = case._replace(bound=[one for one in case.bound if one not in across])
    # The evidence has a count of 0 for each kind that the worker had not executed yet.
    part.acknowledged.update(dict.fromkeys(kinds_of(worker), 0))
    part.judged.update(dict.fromkeys(kinds_of(worker), 0))
    part.acknowledged.update(one.kind for one in case.bound)
    COMPARISONS.get(worker.kind, compare_blocks)(case, part)
    return part


def closes_across(operation: Operation, worker: WorkerSpec, restarted_ns: int) -> bool:
    """Return whether an operation is a `close` that was in progress when a restarted server first replied.

    Only a close of several pages counts, for which a client may send UNSTABLE WRITEs.
    """
    ended = operation.ended_ns
    if operation.kind != "close" or worker.bytes_of(operation) <= BLOCK or ended is None:
        return False
    return operation.issued_ns < restarted_ns <= ended


def kinds_of(worker: WorkerSpec) -> tuple[str, ...]:
    """Return the kinds of operation of a worker.

    Records of older runs have no ``rounds`` for a metadata worker: it carried out the first nine kinds of `METADATA`.
    """
    return METADATA[:9] if worker.kind == "metadata" and not worker.rounds else worker.kinds


class Case(NamedTuple):
    """The operations of one worker and the scan of its files, with the arguments of `balance_of` that concern both."""

    worker: WorkerSpec
    operations: Sequence[Operation]
    """All operations that may have begun before the scan."""
    bound: Sequence[Operation]
    """The operations that were acknowledged and must be durable."""
    found: Mapping[str, Any]
    """The scan of the worker's files or directories."""
    disconnected: bool
    """Whether the client may have executed more operations than it reported."""
    torn: Torn
    indeterminate_errnos: Collection[int] = ()
    """Errors (errno) that leave unknown whether the operation was executed."""
    shows_old_data: bool = False
    """Whether the file system may show old content of the disk in a block that was never acknowledged."""

    def may_be_torn(self, block: int) -> bool:
        """Return whether the cut may have torn the block with this index while it was being overwritten."""
        # A block that straddles two pages takes two requests, and the second one has no header that identifies it; a
        # piece may begin anywhere.
        if isinstance(self.torn, bool) or self.worker.shift % BLOCK or self.worker.pieces:
            return self.torn is not False
        return (self.worker.file, block * BLOCK) in self.torn

    def may_be_done(self, operation: Operation) -> bool:
        """Return whether the server may have executed a step of an operation, even if the client got an error."""
        if operation.ended is not Ended.FAILED or operation.kind in LOOSE:
            # A failed operation of several steps may have executed the first ones: a failed copy has created its file.
            return True
        # EEXIST or ENOENT may be the reply to a retransmission of a request that was already executed.
        return operation.error in {EEXIST, ENOENT, *self.indeterminate_errnos}

    def newest(self, operations: Sequence[Operation]) -> dict[int, int]:
        """Return the newest generation that the given operations wrote, by block (`WorkerSpec.states_of`)."""
        generations: dict[int, int] = {}
        for operation in operations:
            for block in self.worker.states_of(operation):
                if operation.generation > generations.get(block, 0):
                    generations[block] = operation.generation
        return generations


def compare_blocks(case: Case, balance: Balance) -> None:
    """Compare the history and the scan of a worker that overwrites its blocks, each time in a newer generation.

    Raises:
        RigError: the scan lacks a block that the worker has written.
    """
    worker = case.worker
    required, issued = case.newest(case.bound), case.newest(case.operations)
    states: dict[int, int] = dict(enumerate(case.found["blocks"], start=worker.first * worker.span))
    if lacking := required.keys() - states.keys():
        raise RigError(f"the scan of {worker.path} lacks blocks of operation {worker.place_of(min(lacking))}")
    kinds = count_blocks(case, states, required, issued, balance)
    balance.judged.update(one.kind for one in case.bound if one.generation == required[worker.states_of(one).start])
    older = {block for block in kinds if states[block] < required.get(block, 0)}
    for operation in case.bound if older else ():
        for block in worker.states_of(operation):
            if block not in older:
                continue
            state = states[block]
            torn = state <= TORN and kinds[block] is BlockClass.UNSYNCED_LOST
            if state < operation.generation and not torn:
                balance.lose(operation, worker, description_of(state))
                break
    compare_files(case, {one.place for one in case.bound}, {one.place for one in case.operations}, balance)
    # Scans of older versions have nothing beside the blocks.
    balance.invented += case.found.get("strange", ())
    if not case.shows_old_data:
        balance.invented += case.found.get("old", ())


def count_blocks(
    case: Case,
    states: Mapping[int, int],
    required: Mapping[int, int],
    issued: Mapping[int, int],
    balance: Balance,
) -> dict[int, BlockClass | None]:
    """Count the blocks of a worker by class; return the class of each block that is not `BlockClass.DURABLE`.

    ``states``: what the scan found, by block. ``required`` and ``issued``: the newest generation that was
    acknowledged, and that may have been written, by block.
    """
    kinds: dict[int, BlockClass | None] = {}
    worker = case.worker
    for block, state in states.items():
        needed, most = required.get(block, 0), ANY_GENERATION if case.disconnected else issued.get(block, 0)
        if 0 < state == needed <= most:
            # Nearly all blocks are so.
            continue
        torn = case.may_be_torn(block)
        kinds[block] = kind = classify(state, needed, most, torn=torn, shows_old_data=case.shows_old_data)
        if kind is not None:
            balance.blocks[kind] += 1
            if kind in BROKEN:
                balance.add_corrupted(worker, block, kind)
        if state != ABSENT and (kind is None or state > most):
            what = f"file f{worker.place_of(block)}" if worker.pieces else f"block {block}"
            balance.invented.append(f"{worker.path}: {what} has a generation that was never written")
    if durable := len(states) - len(kinds):
        balance.blocks[BlockClass.DURABLE] += durable
    return kinds


def compare_files(case: Case, required: Collection[int], issued: Collection[int], balance: Balance) -> None:
    """Count the missing files of a worker, and list the files that the worker did not create.

    ``required`` and ``issued``: the file numbers of the operations that must be durable, and of all operations that
    began.
    """
    worker, files = case.worker, case.worker.files or case.worker.kind == "close"
    promised = {f"f{place}" for place in required} if files else {worker.path} if case.bound else set()
    begun = {f"f{place}" for place in issued} if files else {worker.path}
    if case.disconnected and files:
        begun |= {f"f{place}" for place in range(worker.blocks)}
    names = set(case.found["names"] or ())
    balance.lost_files += len(promised - names)
    balance.invented.extend(f"{worker.path}/{name}: a file that no client wrote" for name in sorted(names - begun))


SPECIAL = {
    GARBAGE: BlockClass.GARBAGE,
    MISPLACED: BlockClass.MISPLACED,
    UNREADABLE: BlockClass.UNREADABLE,
    OLD: BlockClass.OLD,
}
"""The class of a block for each code that a scan returns for a block without a generation of this run."""


def classify(
    state: int, required: int, issued: int, *, torn: bool = False, shows_old_data: bool = False
) -> BlockClass | None:
    """Return the class of a block; None if no operation wrote the block.

    ``state``: the generation that the scan found, or a code. ``required``: the newest acknowledged generation;
    ``issued``: the newest generation whose write began; 0: none.
    """
    if not issued:
        return None
    if state > issued:
        return BlockClass.GARBAGE
    if state == OLD and shows_old_data and not required:
        return BlockClass.UNSYNCED_LOST
    if state in SPECIAL:
        return SPECIAL[state]
    if state <= TORN:
        # Allowed only if the cut tears requests and interrupted an overwrite, which takes no acknowledged generation.
        oldest, newest = parts_of_torn(state)
        # Scans of older versions do not state the generations.
        kept = state == TORN or required <= oldest <= newest <= issued
        allowed = torn and issued > required and kept
        return BlockClass.UNSYNCED_LOST if allowed else BlockClass.TORN
    if not required:
        return BlockClass.UNSYNCED_KEPT if state else BlockClass.UNSYNCED_LOST
    if state >= required:
        return BlockClass.DURABLE if state == required else BlockClass.UNSYNCED_KEPT
    return BlockClass.STALE if state else BlockClass.SYNCED_LOST


def description_of(state: int) -> str:
    """Return a clause about the content of a block, from the generation or the code that the scan found."""
    words = {
        ABSENT: "the block is missing",
        GARBAGE: "the block is garbage",
        MISPLACED: "the block was written to another place",
        UNREADABLE: "the block is unreadable",
        OLD: "the block holds old data of the disk",
        TORN: "the block is torn or garbage",
    }
    if state < TORN:
        return "the block is torn; its parts have the generations {} to {}".format(*parts_of_torn(state))
    return words.get(state, f"the block has generation {state}")


def scan_of(cycle: CrashTestRecord, path: Path) -> Found:
    """Return a scan of the ledger from its file."""
    found: Found = json.loads(path.read_text())
    return of_older_version(found) if cycle.fault_ended_ns is None else found


def of_older_version(found: Found) -> Found:
    """Return a scan of an older version, which calls torn blocks garbage, with codes for torn blocks instead."""
    return {
        key: {**entry, "blocks": [TORN if code == GARBAGE else code for code in entry["blocks"]]}
        if "names" in entry and "blocks" in entry
        else entry
        for key, entry in found.items()
    }


def compare_records(case: Case, balance: Balance) -> None:
    """Compare the history and the scan of a worker that appends records to a file shared with other workers."""
    worker, records = case.worker, list(case.found["records"])
    bound = {one.place for one in case.bound}
    issued = {one.place for one in case.operations}
    # The cut may have interrupted the append of the last record.
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
            balance.lose(operation, worker, "the record is missing")
    if mine != sorted(set(mine)):
        balance.invented.append(f"{worker.path}: records are duplicated or out of order")
    if not case.disconnected and (more := sorted(set(mine) - issued)):
        balance.invented.append(f"{worker.path}: record {more[0]} that no client wrote")
    balance.lost_files += bool(bound and not case.found["names"])


def compare_holes(appending: Sequence[Case], balance: Balance) -> None:
    """List a file as invented that has more blocks of zeros between its records than missing records.

    Each missing record leaves one block of zeros: a client appends at its cached end of file, even after the server
    lost the last records. The cases of one file have the same scan, in which only their own records have numbers.
    """
    by_file: dict[str, list[Case]] = defaultdict(list)
    for case in appending:
        by_file[case.worker.path].append(case)
    for path, cases in by_file.items():
        records = list(cases[0].found["records"])
        holes = records[:-1].count(ABSENT)
        missing = sum(len({one.place + 1 for one in case.operations} - {*case.found["records"]}) for case in cases)
        if holes > missing and not any(case.disconnected for case in cases):
            balance.invented.append(f"{path}: {holes} blocks of zeros between records, but {missing} missing records")


def compare_names(case: Case, balance: Balance) -> None:
    """Compare the history and the scan of a worker that changes names, attributes and files in small directories."""
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
        # An older record lacks rounds. Its last operations hide most of the others, so all of them count as judged.
        visible = shown(kinds, place, len(mine)) if case.worker.rounds else (True,) * len(mine)
        for operation, seen_of in zip(mine, visible, strict=True):
            balance.judged[operation.kind] += seen_of
    balance.invented += [f"{case.worker.path}/{name}: a name that no client created" for name in found]


def compare_application(case: Case, balance: Balance) -> None:
    """Compare the history of an application with the result of its check command (`guest.application.check`).

    An application reports that an operation begins before it changes anything (docs/applications.md).
    """
    worker, found = case.worker, case.found
    for error in found["unreadable"]:
        balance.blocks[BlockClass.UNREADABLE] += 1
        balance.add_corrupted(worker, 0, BlockClass.UNREADABLE, error)
    if found["failed"]:
        balance.unchecked.append(f"{worker.path}: it {found['failed']}")
        return
    if broken := found.get("broken"):
        balance.damaged.append(f"{worker.path}: it {broken}")
        return
    wrong: dict[int, str] = dict(found["wrong"])
    damage = [f"operation {number}: {reason}" for number, reason in wrong.items()]
    # The scan of an older record has no repeated operations.
    damage += [f"operation {number}: there {times} times" for number, times in found.get("repeated", ())]
    damage += found["damaged"]
    balance.damaged += [f"{worker.path}: {one}" for one in damage[:EXAMPLES]]
    present, bound = {*found["ids"]}, {one.place for one in case.bound}
    balance.blocks[BlockClass.DURABLE] += len(present & bound)
    balance.blocks[BlockClass.UNSYNCED_KEPT] += len(present - bound)
    balance.blocks[BlockClass.SYNCED_LOST] += len(bound - present - {*wrong})
    for operation in case.bound:
        balance.judged[operation.kind] += 1
        if operation.place not in present:
            balance.lose(operation, worker, "the operation is " + ("wrong" if operation.place in wrong else "missing"))
    never = sorted((present | {*wrong}) - {one.place for one in case.operations})
    if never and not case.disconnected:
        others = f" and {len(never) - 1:,} others" if len(never) > 1 else ""
        balance.invented.append(f"{worker.path}: operation {never[0]}{others}, which never began")


def unreported_operations(case: Case, place: int, reported: int) -> list[Operation]:
    """Return the changes of a directory that a client may have made after its last reported change.

    ``place``: number of the directory; ``reported``: number of reported changes.
    """
    rounds = case.worker.rounds or (METADATA[:9],)
    steps = rounds[place % len(rounds)][reported:]
    return [
        Operation(case.worker.number, -1, kind, place, reported + step, 0, None, Ended.UNKNOWN, 0)
        for step, kind in enumerate(steps, start=1)
    ]


COMPARISONS: Mapping[str, Callable[[Case, Balance], None]] = {
    **dict.fromkeys(TREES, compare_names),
    "o_append": compare_records,
    APPLICATION: compare_application,
    **dict.fromkeys(HOLDERS, lambda _case, _balance: None),
}
"""The comparison for each kind of worker that does not overwrite blocks."""
