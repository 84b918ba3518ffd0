"""What is left of each acknowledged operation: the ledger held against what a scan found."""

import stat
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from errno import EEXIST, ENOENT
from typing import Any, NamedTuple, TypedDict, Unpack

from pydantic import BaseModel, Field

from harness.errors import RigError
from harness.workload.agent import (
    ABSENT,
    APPENDED,
    GARBAGE,
    METADATA,
    MISPLACED,
    MODE,
    OTHER_CONTENT,
    TRUNCATED,
    UNCUT,
    UNREADABLE,
)
from harness.workload.history import Ended, History, Operation, WorkerSpec

Found = Mapping[str, Mapping[str, Any]]


class BlockClass(StrEnum):
    """What became of one block of the ledger."""

    DURABLE = "durable"
    UNSYNCED_KEPT = "unsynced-kept"
    UNSYNCED_LOST = "unsynced-lost"
    SYNCED_LOST = "synced-lost"
    STALE = "stale"
    GARBAGE = "garbage"
    MISPLACED = "misplaced"
    UNREADABLE = "unreadable"


BROKEN = frozenset(
    {BlockClass.SYNCED_LOST, BlockClass.STALE, BlockClass.GARBAGE, BlockClass.MISPLACED, BlockClass.UNREADABLE}
)


class Evidence(BaseModel):
    """The ledger's balance after a fault, at one place of observation."""

    acknowledged: dict[str, int] = Field(default_factory=dict)
    """Operations that the clients had been told are done, by kind."""
    lost: dict[str, int] = Field(default_factory=dict)
    """How many of them are not there, by kind."""
    lost_bytes: int = 0
    lost_files: int = 0
    """Files of which nothing is left, not even the name."""
    lost_after_recovery: int = 0
    """How many of them were begun when clients were served again: no fault came after these."""
    first_lost_ns: int | None = None
    """When the earliest lost operation had been acknowledged; all that was acknowledged before it survived."""
    blocks: dict[BlockClass, int] = Field(default_factory=dict)
    invented: list[str] = Field(default_factory=list)
    """What is there and was never written."""
    examples: list[str] = Field(default_factory=list)
    """The first broken things, in words."""

    @property
    def acknowledged_total(self) -> int:
        """Operations of all kinds that were acknowledged."""
        return sum(self.acknowledged.values())

    @property
    def lost_total(self) -> int:
        """Operations of all kinds that were acknowledged and are not there."""
        return sum(self.lost.values())

    @property
    def broken_blocks(self) -> int:
        """Blocks in a state that no promise allows."""
        return sum(count for kind, count in self.blocks.items() if kind in BROKEN)


EXAMPLES = 40
EXAMPLES_EACH = 5
ANY_GENERATION = 1 << 62
MAKERS = {"": "mkdir", "a": "create", "b": "link", "c": "rename", "s": "symlink"}
"""Which operation makes a name in a directory of the metadata worker; the directory itself has none."""


class Loss(NamedTuple):
    """An acknowledged operation that is not there."""

    operation: Operation
    worker: WorkerSpec
    what: str
    """What is there instead."""

    def __str__(self) -> str:
        done = self.operation
        return f"{self.worker.path}: {done.kind} of {done.place} (generation {done.generation}): {self.what}"


class Spoilt(NamedTuple):
    """A block in a state that no promise allows."""

    worker: WorkerSpec
    place: int
    kind: BlockClass

    def __str__(self) -> str:
        return f"{self.worker.path}: block {self.place} is {self.kind.value}"


class Balance:
    """Collects an Evidence worker by worker, and keeps all that it counts as lost or spoilt."""

    def __init__(self, resumed_ns: int | None = None) -> None:
        self.resumed_ns = resumed_ns
        self.lost_after_recovery = 0
        self.acknowledged: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.losses: list[Loss] = []
        self.spoilt: list[Spoilt] = []
        self.blocks: Counter[BlockClass] = Counter()
        self.lost_bytes = 0
        self.lost_files = 0
        self.first_lost_ns: int | None = None
        self.invented: list[str] = []
        self.examples: list[str] = []

    def lose(self, operation: Operation, worker: WorkerSpec, what: str) -> None:
        """Count an acknowledged operation as lost."""
        self.lost[operation.kind] += 1
        self.lost_bytes += operation.bytes
        self.lost_after_recovery += self.resumed_ns is not None and operation.issued_ns >= self.resumed_ns
        ended = operation.promised_ns or 0
        self.first_lost_ns = ended if self.first_lost_ns is None else min(self.first_lost_ns, ended)
        self.losses.append(Loss(operation, worker, what))
        self.say(str(self.losses[-1]))

    def spoil(self, worker: WorkerSpec, place: int, kind: BlockClass) -> None:
        """Keep a block that is in a state that no promise allows."""
        self.spoilt.append(Spoilt(worker, place, kind))
        self.say(str(self.spoilt[-1]))

    def say(self, example: str) -> None:
        """Keep an example for the report: of many workers a few rather than of one worker many."""
        mine = example.partition(":")[0] + ":"
        if len(self.examples) < EXAMPLES and sum(one.startswith(mine) for one in self.examples) < EXAMPLES_EACH:
            self.examples.append(example)

    def evidence(self) -> Evidence:
        """Return the sum."""
        return Evidence(
            acknowledged=dict(self.acknowledged),
            lost=dict(self.lost),
            lost_bytes=self.lost_bytes,
            lost_files=self.lost_files,
            lost_after_recovery=self.lost_after_recovery,
            first_lost_ns=self.first_lost_ns,
            blocks=dict(self.blocks),
            invented=self.invented,
            examples=self.examples,
        )


class Bounds(TypedDict, total=False):
    """What of a history counts; see `balance_of`."""

    before_ns: int | None
    seen_ns: int | None
    resumed_ns: int | None
    torn: bool
    unheard: Collection[str]
    unsure: Collection[int]


def weigh(workers: Sequence[WorkerSpec], history: History, found: Found, **bounds: Unpack[Bounds]) -> Evidence:
    """Hold a history against a scan: the sum of `balance_of`.

    Raises:
        RigError: the scan says nothing of a worker.
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
    torn: bool = False,
    unheard: Collection[str] = (),
    unsure: Collection[int] = (),
) -> Balance:
    """Hold a history against a scan.

    Only words that arrived before ``before_ns`` bind; later ones allow. What was begun after ``seen_ns``, when the
    scan was made, says nothing about it. Losses of what was begun after ``resumed_ns``, when clients were served
    again, are counted apart too. ``torn``: the fault may have torn a block that was being overwritten.

    Clients in ``unheard`` lost their power with words still on the way: anything that they may have done since is
    allowed, so nothing of theirs counts as invented. What ended with an error of ``unsure`` (errno) may be done all
    the same: who gave up waiting does not know.

    Raises:
        RigError: the scan says nothing of a worker.
    """
    balance = Balance(resumed_ns)
    by_worker: dict[int, list[Operation]] = defaultdict(list)
    for operation in history.operations:
        if seen_ns is None or operation.issued_ns < seen_ns:
            by_worker[operation.worker].append(operation)
    for worker in workers:
        if worker.key not in found:
            raise RigError(f"the scan says nothing of {worker.key}")
        operations = by_worker[worker.number]
        bound = [one for one in operations if one.binds(before_ns)]
        for operation in bound:
            balance.acknowledged[operation.kind] += 1
        case = Case(worker, operations, bound, found[worker.key], worker.client in unheard, torn, unsure)
        if worker.kind == "metadata":
            weigh_names(case, balance)
        else:
            weigh_blocks(case, balance)
    return balance


class Case(NamedTuple):
    """One worker's part of the whole."""

    worker: WorkerSpec
    operations: Sequence[Operation]
    bound: Sequence[Operation]
    """Those that a client had been told are done."""
    found: Mapping[str, Any]
    unheard: bool
    """Whether more may have been done than was told."""
    torn: bool
    """Whether a block that was being overwritten may be torn."""
    unsure: Collection[int] = ()
    """Errors of operations that may be done all the same."""


def weigh_blocks(case: Case, balance: Balance) -> None:
    """Judge a worker that writes blocks in generations."""
    worker = case.worker
    required, issued = newest(case.bound), newest(case.operations)
    states: dict[int, int] = dict(enumerate(case.found["blocks"], start=worker.first))
    if case.unheard:
        issued = dict.fromkeys(states, ANY_GENERATION)
    for place, state in states.items():
        kind = classify(state, required.get(place, 0), issued.get(place, 0), torn=case.torn)
        if kind is not None:
            balance.blocks[kind] += 1
            if kind in BROKEN:
                balance.spoil(worker, place, kind)
        if state != ABSENT and (kind is None or state > issued[place]):
            balance.invented.append(f"{worker.path}: block {place} in a generation that nobody wrote")
    for operation in case.bound:
        state = states[operation.place]
        torn_later = case.torn and state == GARBAGE and issued[operation.place] > required[operation.place]
        if state < operation.generation and not torn_later:
            balance.lose(operation, worker, said_of(state))
    weigh_files(case, required, issued, balance)


def weigh_files(case: Case, required: Collection[int], issued: Collection[int], balance: Balance) -> None:
    """Count the files of a worker that are gone, or that nobody made."""
    worker, files = case.worker, case.worker.kind == "close"
    promised = {f"f{place}" for place in required} if files else {worker.path} if case.bound else set()
    begun = {f"f{place}" for place in issued} if files else {worker.path}
    names = set(case.found["names"] or ())
    balance.lost_files += len(promised - names)
    balance.invented.extend(f"{worker.path}/{name}, which nobody wrote" for name in sorted(names - begun))


def newest(operations: Sequence[Operation]) -> dict[int, int]:
    """Return the newest generation of each block."""
    generations: dict[int, int] = {}
    for operation in operations:
        generations[operation.place] = max(operation.generation, generations.get(operation.place, 0))
    return generations


def classify(state: int, required: int, issued: int, *, torn: bool = False) -> BlockClass | None:
    """Return the class of a block, or None for one that was never written, whatever stands there.

    ``required`` is the newest acknowledged generation, ``issued`` the newest that was begun; 0 is none.
    """
    if not issued:
        return None
    if state > issued:
        return BlockClass.GARBAGE
    special = {MISPLACED: BlockClass.MISPLACED, UNREADABLE: BlockClass.UNREADABLE}
    if state in special:
        return special[state]
    if state == GARBAGE:
        # Disks that tear may tear a block that was being overwritten when the power went; others write it whole.
        return BlockClass.UNSYNCED_LOST if torn and issued > required else BlockClass.GARBAGE
    if not required:
        return BlockClass.UNSYNCED_KEPT if state else BlockClass.UNSYNCED_LOST
    if state >= required:
        return BlockClass.DURABLE if state == required else BlockClass.UNSYNCED_KEPT
    return BlockClass.STALE if state else BlockClass.SYNCED_LOST


def said_of(state: int) -> str:
    """Return what stands where an operation's block should be."""
    words = {ABSENT: "nothing is there", GARBAGE: "garbage", MISPLACED: "another block", UNREADABLE: "unreadable"}
    return words.get(state, f"generation {state} is there")


def weigh_names(case: Case, balance: Balance) -> None:
    """Judge a worker that takes small directories through every change of metadata."""
    begun: dict[int, set[str]] = defaultdict(lambda: set(METADATA) if case.unheard else set())
    for operation in case.operations:
        # "It exists" or "it does not" may be the answer to a request that was sent again, after a first that was done.
        if operation.ended is not Ended.FAILED or operation.error in {EEXIST, ENOENT, *case.unsure}:
            begun[operation.place].add(operation.kind)
    for operation in case.bound:
        if (wrong := missing(operation, begun[operation.place], case.found)) is not None:
            balance.lose(operation, case.worker, wrong)
            balance.lost_files += operation.kind == "create"
    for name in case.found:
        directory, _, rest = name.partition("/")
        number = int(directory[1:]) if directory[1:].isdigit() else -1
        if MAKERS.get(rest) not in begun[number]:
            balance.invented.append(f"{case.worker.path}/{name}, which nobody made")


def missing(operation: Operation, begun: set[str], found: Mapping[str, Any]) -> str | None:
    """Return what contradicts an acknowledged change, or None if it is there or a later one has covered it."""
    name = f"d{operation.place}"
    directory, a, b, c, s = (readable(found.get(path)) for path in (name, *(f"{name}/{one}" for one in "abcs")))
    file = c or a or b
    size, held = (file[1], file[3]) if file else (None, OTHER_CONTENT)
    whole = held not in {OTHER_CONTENT, UNCUT}
    match operation.kind:
        case "mkdir":
            return None if directory else "the directory is not there"
        case "create":
            return None if file else "the file is not there under any of its names"
        case "append":
            # A truncate that has begun may have cut them off, or zeroed what it is to cut off (docs/findings.md).
            cut = "truncate" in begun and (held == UNCUT or (whole and size == TRUNCATED))
            return None if cut or (whole and size == APPENDED) else "the appended bytes are not there"
        case "setattr":
            return None if file and stat.S_IMODE(file[0]) == MODE else "the mode is not the one set"
        case "link":
            removed = "remove" in begun and file
            return None if b or removed else "the second name is not there"
        case "symlink":
            return None if s and s[3] == "a" else "the symbolic link is not there"
        case "rename":
            return None if c and not a else "the new name is not there, or the old one still is"
        case "truncate":
            return None if whole and size == TRUNCATED else "the size or the content is not what was left"
        case "remove":
            there = f"{name}/b" in found or not directory
            return "the removed name is there, or its directory is not" if there else None
    raise RigError(f"no rule for an operation of kind {operation.kind!r}")


def readable(entry: Sequence[Any] | None) -> Sequence[Any] | None:
    """Return what a scan says of a name, or None if the name is not there or cannot be looked at."""
    return entry if entry and entry[0] else None
