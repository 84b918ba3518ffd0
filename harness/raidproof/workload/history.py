"""The history of a ledger: the operations of the clients with time stamps, and the times of the server's replies."""

import struct
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from raidproof.core.errors import RigError
from raidproof.guest.ledger_format import (
    ACKNOWLEDGE,
    APPLICATION,
    BLOCK,
    END,
    FRAME,
    HEADER,
    HOLDERS,
    ISSUE,
    KINDS,
    METADATA,
    STEP,
    STEPPED,
    STEPS,
    TREES,
    WRITTEN,
)

STAMP = struct.Struct("<QI")
"""Header of a chunk, the data of a history file that arrived at once: arrival (CLOCK_MONOTONIC, ns), bytes of data."""
FORMAT = b"RAIDPROOF HISTORY 2\n"
"""First bytes of a history file whose frames have the client's time stamps. Older formats begin with a chunk."""
FRAME_1 = struct.Struct("<BBHIIIi")
"""Layout of a frame in older files: `ledger_format.FRAME` without the client's time stamp."""
LEAST_DELAY_NS = 10_000_000
"""Uncertainty in ns of ``Operation.begun_ns``: the operation may have begun this much earlier (see `parse`)."""
LONGEST_DELAY_NS = 1_000_000_000
"""Uncertainty in ns of ``Operation.issued_ns``, the arrival of a report that TCP may have retransmitted twice.

The first lost packet costs at least 200 ms (TCP_RTO_MIN in include/net/tcp.h of Linux), the second 400 ms.
"""

_ENTRY = struct.Struct("<IIQ")  # worker, sequence, time of the reply (CLOCK_MONOTONIC, ns)


class Ended(StrEnum):
    """The result of an operation, as the client reported it; UNKNOWN if the client did not report the end."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class PieceSpec(BaseModel):
    """A piece of the ledger: data of some size that a worker of kind ``sizes`` writes again and again to one file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    """Kind of operation: the way in which the data are written and made durable."""
    size: int
    """Bytes that one operation writes."""
    position: int = 0
    """Position of the first slot in the file, in bytes."""
    slots: int = 1
    """Number of slots, each of ``size`` bytes, into which successive operations write."""


class WorkerSpec(BaseModel):
    """The settings of one worker of the ledger: its operations, and its files."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    client: str
    """Name of the machine on which the worker runs."""
    kind: str
    """Kind of worker, which decides its operations; from `ledger.WORKER_KINDS`."""
    path: str
    """Path of the worker's file or directory below the ledger's folder."""
    file: int
    """Number that each block contains; it identifies the worker's file, or its directory of files."""
    blocks: int = 256
    """Number of operations in one round; with ``files``, also the number of files."""
    first: int = 0
    """`Operation.place` of the worker's first operation; not 0 if the worker writes a region of a shared file.

    For a worker of kind ``locks``, the number of its range of the file, of ``blocks`` ranges.
    """
    span: int = 1
    """Blocks that one operation writes."""
    step: int = 1
    """Distance between two successive blocks that are written, in blocks; 1 if the blocks are adjacent."""
    shift: int = 0
    """Offset of the first block in the file, in bytes."""
    files: bool = False
    """Whether each operation of a round writes its own file, in the directory ``path``."""
    rounds: tuple[tuple[str, ...], ...] = ()
    """For a worker that changes directories: lists of kinds of operation; each new directory takes the next list."""
    pieces: tuple[PieceSpec, ...] = ()
    """For a worker of kind ``sizes``: what it writes, in this order; the file of each has its `Operation.place`."""
    local: bool = False
    """Whether the worker runs on the server and uses its file system directly, without NFS."""
    operations: int | None = None
    """Number of operations after which the worker ends; None: the worker continues until it is stopped."""
    uid: int = 0
    """The user of the client as whom the worker works, by number; 0: root."""
    owner: int = 0
    """The user who owns the worker's files on the server: ``uid``, or the user to whom the server maps it."""
    variant: str = ""
    """The kind in `LedgerSpec.kinds` that requested the worker if it differs from ``kind``: ``shared``, say."""

    @property
    def group(self) -> tuple[str, str]:
        """The worker's client, and the requested kind of worker."""
        return self.client, self.variant or self.kind

    @property
    def key(self) -> str:
        """The key of this worker's files in the result of a scan (`ledger_reader.read_back`)."""
        if self.kind in (*TREES, "close", APPLICATION) or self.files:
            return self.path
        return f"{self.path}@{self.number if self.kind == 'o_append' else self.first}"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of operation that the worker carries out, each once; some kinds of worker have only steps."""
        kinds = (*(kind for steps in self.rounds for kind in steps), *(piece.kind for piece in self.pieces))
        return tuple(dict.fromkeys(kinds)) or (() if self.kind in HOLDERS else (self.kind,))

    def bytes_of(self, operation: "Operation") -> int:
        """Return the number of bytes that an operation makes durable; 0 for metadata and if not known."""
        if operation.kind in METADATA or operation.kind == APPLICATION:
            return 0
        if self.pieces:
            return self.pieces[operation.place].size
        return BLOCK * (WRITTEN if self.kind in TREES else self.span)

    def states_of(self, operation: "Operation") -> range:
        """Return the numbers of the blocks, or of the slot of a piece, that an operation writes, as in a scan."""
        if self.pieces:
            slot = (operation.generation - 1) % self.pieces[operation.place].slots
            at = self._first_slots[operation.place] + slot
            return range(at, at + 1)
        return range(operation.place * self.span, (operation.place + 1) * self.span)

    def place_of(self, state: int) -> int:
        """Return `Operation.place` of the operations that write a block, or a slot of a piece, as in a scan."""
        return bisect_right(self._first_slots, state) - 1 if self.pieces else state // self.span

    @cached_property
    def _first_slots(self) -> list[int]:
        """The number of the first slot of each piece, where a scan lists the slots of all pieces."""
        return [0, *accumulate(piece.slots for piece in self.pieces)][:-1]

    def blocks_of(self, operation: "Operation") -> range:
        """Return the numbers of the blocks that an operation writes, as their headers state them."""
        if self.pieces:
            # Block n of a piece, see `ledger_pieces.content`; a piece that is smaller than a header has none.
            size, place, places = self.pieces[operation.place].size, operation.place, len(self.pieces)
            return range(place, place + -(-size // BLOCK) * places if size >= HEADER.size else place, places)
        return range(operation.place * self.span, (operation.place + 1) * self.span)


class Operation(NamedTuple):
    """One operation of one worker, with its times on the host's clock (CLOCK_MONOTONIC, ns)."""

    worker: int
    sequence: int
    """Number of the operation among those of its worker, from 0 on."""
    kind: str
    place: int
    """Number of the file, the directory, or the group of ``span`` blocks that the operation changes."""
    generation: int
    """Number of the worker's round; for an operation on a directory, number (from 1) in its list of `rounds`."""
    issued_ns: int
    """Time at which the report that the operation begins arrived at the host."""
    ended_ns: int | None
    """Time at which the report that the operation has ended arrived at the host; None if this report is missing."""
    ended: Ended
    error: int
    """The operation's errno; 0 for success."""
    begun_ns: int | None = None
    """Beginning of the operation, computed from the client's time stamp; None if the report has no time stamp."""
    replied_ns: int | None = None
    """Time of the server's last reply to the operation on the network; None if the reply was not captured."""

    @property
    def promised_ns(self) -> int | None:
        """The earliest known time of the acknowledgement: the server's reply, or else the client's report."""
        return self.ended_ns if self.replied_ns is None else self.replied_ns

    @property
    def earliest_ns(self) -> int:
        """The earliest time at which the operation may have begun."""
        return self.issued_ns - LONGEST_DELAY_NS if self.begun_ns is None else self.begun_ns - LEAST_DELAY_NS

    def binds(self, before_ns: int | None = None) -> bool:
        """Return whether the operation was acknowledged as successful; with ``before_ns``, before that instant."""
        promised_ns = self.promised_ns
        if self.ended is not Ended.OK or promised_ns is None:
            return False
        return before_ns is None or promised_ns < before_ns


class WorkerEnd(NamedTuple):
    """The end of a worker, as reported."""

    at_ns: int
    """Arrival of the report (CLOCK_MONOTONIC, ns)."""
    status: int
    """Exit status of the run command of an application, 0 if the harness ended the command.

    For other workers 0, or minus the number of the signal that killed the worker's process.
    """


class _Begun:
    """The operations of one worker in the order of their reports, and which of them may have begun at an instant."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = tuple(operations)
        self._earliest_ns = [one.earliest_ns for one in operations]
        # A worker begins its operations one after another, but reports without a time stamp may mix with others.
        self._ordered = all(one <= other for one, other in pairwise(self._earliest_ns))
        self._sorted_ns = sorted(self._earliest_ns)
        self._acknowledged_ns = sorted(one.promised_ns or 0 for one in operations if one.binds())

    def counts(self, begun_before_ns: int | None, acknowledged_before_ns: int | None) -> tuple[int, int]:
        """See `History.counts_of`."""
        limits = (self._sorted_ns, begun_before_ns), (self._acknowledged_ns, acknowledged_before_ns)
        begun, acknowledged = (len(of) if at is None else bisect_left(of, at) for of, at in limits)
        return begun, acknowledged

    def before(self, instant_ns: int | None) -> Sequence[Operation]:
        """Return the operations that may have begun before ``instant_ns``; None: all operations."""
        if instant_ns is None:
            return self._operations
        if self._ordered:
            return self._operations[: bisect_left(self._earliest_ns, instant_ns)]
        pairs = zip(self._operations, self._earliest_ns, strict=True)
        return [one for one, earliest_ns in pairs if earliest_ns < instant_ns]


class History:
    """All operations of one run of the ledger, in the order in which they were reported to begin.

    ``ends``: the reported ends of the workers, by their numbers. ``steps``: the calls of the workers that belong to no
    operation; the kind of a step is one of `ledger_format.STEPS`.
    """

    def __init__(
        self,
        operations: Iterable[Operation],
        ends: Mapping[int, WorkerEnd] = MappingProxyType({}),
        steps: Iterable[Operation] = (),
    ) -> None:
        self.operations = tuple(operations)
        self.ends = dict(ends)
        self.steps = tuple(steps)

    @cached_property
    def _by_worker(self) -> Mapping[int, "_Begun"]:
        by_worker: dict[int, list[Operation]] = defaultdict(list)
        for operation in self.operations:
            by_worker[operation.worker].append(operation)
        return {worker: _Begun(operations) for worker, operations in by_worker.items()}

    def begun(self, worker: int, before_ns: int | None = None) -> Sequence[Operation]:
        """Return the operations of a worker that may have begun before ``before_ns``; None: all its operations."""
        mine = self._by_worker.get(worker)
        return () if mine is None else mine.before(before_ns)

    def counts_of(
        self, worker: int, *, begun_before_ns: int | None, acknowledged_before_ns: int | None
    ) -> tuple[int, int]:
        """Return how many operations of a worker may have begun, and were acknowledged, before an instant.

        None: at any instant. Equal counts are of equal operations.
        """
        mine = self._by_worker.get(worker)
        return (0, 0) if mine is None else mine.counts(begun_before_ns, acknowledged_before_ns)

    @cached_property
    def _instants_ns(self) -> tuple[list[int], list[int]]:
        acknowledged = (one.promised_ns or 0 for one in self.acknowledged())
        return sorted(one.earliest_ns for one in self.operations), sorted(acknowledged)

    def counts(self, before_ns: int) -> tuple[int, int]:
        """Return how many operations may have begun before an instant, and how many were acknowledged before it."""
        begun, acknowledged = self._instants_ns
        return bisect_left(begun, before_ns), bisect_left(acknowledged, before_ns)

    def acknowledged(self, before_ns: int | None = None) -> Iterator[Operation]:
        """Yield the operations that were acknowledged as successful; with ``before_ns``, before that instant."""
        for operation in self.operations:
            if operation.binds(before_ns):
                yield operation

    def with_replies(self, replied: Mapping[tuple[int, int], int]) -> "History":
        """Return this history with the time of the server's reply to each operation, given by worker and sequence."""
        known = (replied.get((one.worker, one.sequence)) for one in self.operations)
        dated = (
            one if at is None else one._replace(replied_ns=at) for one, at in zip(self.operations, known, strict=True)
        )
        return History(dated, self.ends, self.steps)

    @classmethod
    def read(cls, path: Path) -> "History":
        """Return the history in a file of a `Recorder`. The file of a killed run may end within a chunk.

        Raises:
            RigError: the file is not a history.
        """
        data = path.read_bytes()
        stamped = data.startswith(FORMAT)
        position = len(FORMAT) if stamped else 0
        chunks: list[tuple[int, bytes]] = []
        while position + STAMP.size <= len(data):
            stamp, length = STAMP.unpack_from(data, position)
            position += STAMP.size
            chunks.append((stamp, data[position : position + length]))
            position += length
        try:
            both = parse(chunks, stamped=stamped)
            steps = [one for one in both if one.kind in STEPS]
            return cls((one for one in both if one.kind not in STEPS), parse_ends(chunks, stamped=stamped), steps)
        except (IndexError, KeyError) as error:
            raise RigError(f"{path} is not the history of a ledger: {error!r}") from error


def parse(chunks: Sequence[tuple[int, bytes]], *, stamped: bool = True) -> list[Operation]:
    """Return the operations and steps in the frames of a history; one without a reported end is UNKNOWN.

    The clocks of client and host have the same rate and an unknown offset, which is estimated from the report with the
    shortest transit time. An operation began at most this transit time before ``begun_ns``.
    """
    operations: dict[tuple[bool, int, int], Operation] = {}
    offsets: dict[int, int] = {}
    for arrival, frame in frames(chunks, FRAME if stamped else FRAME_1):
        what, code, worker, sequence, index, generation, error, *own = frame
        if stamped:
            offsets[worker] = min(arrival - own[0], offsets.get(worker, arrival - own[0]))
        is_step = what in (STEP, STEPPED)
        key = (is_step, worker, sequence)
        if what in (ISSUE, STEP):
            begun = own[0] if stamped else None
            kind = (STEPS if is_step else KINDS)[code]
            operations[key] = Operation(
                worker, sequence, kind, index, generation, arrival, None, Ended.UNKNOWN, 0, begun
            )
        elif what in (ACKNOWLEDGE, STEPPED):
            ended = Ended.FAILED if error else Ended.OK
            operations[key] = operations[key]._replace(ended_ns=arrival, ended=ended, error=error)
        elif what != END:
            raise IndexError(f"unknown frame type {what}")
    return [
        one if one.begun_ns is None else one._replace(begun_ns=one.begun_ns + offsets[one.worker])
        for one in operations.values()
    ]


def parse_ends(chunks: Sequence[tuple[int, bytes]], *, stamped: bool = True) -> dict[int, WorkerEnd]:
    """Return the reported ends of the workers in the frames of a history, by the number of the worker."""
    return {
        worker: WorkerEnd(arrival, status)
        for arrival, (what, _, worker, _, _, _, status, *_) in frames(chunks, FRAME if stamped else FRAME_1)
        if what == END
    }


def frames(chunks: Iterable[tuple[int, bytes]], layout: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield arrival (ns) and fields of each frame (one report); skip an incomplete frame at the end of a chunk."""
    for arrival, data in chunks:
        whole = len(data) - len(data) % layout.size
        for frame in layout.iter_unpack(data[:whole]):
            yield arrival, frame


class Recorder:
    """Writes the reports of a running ledger to a history file as they arrive, complete frames only."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=1 << 16)
        self._file.write(FORMAT)
        self._rest: dict[int, bytes] = {}

    def add(self, connection: int, stamp_ns: int, data: bytes) -> bytes:
        """Append data that a connection received at ``stamp_ns``; return the frames that are now complete."""
        data = self._rest.pop(connection, b"") + data
        whole = len(data) - len(data) % FRAME.size
        if whole < len(data):
            self._rest[connection] = data[whole:]
        if whole:
            self._file.write(STAMP.pack(stamp_ns, whole))
            self._file.write(data[:whole])
        return data[:whole]

    def forget(self, connection: int) -> None:
        """Drop the incomplete frame of a connection that has ended."""
        self._rest.pop(connection, None)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def write_replies(path: Path, replied: Mapping[tuple[int, int], int]) -> None:
    """Write the times of the server's replies, by worker and sequence, to a file."""
    path.write_bytes(b"".join(_ENTRY.pack(*key, at_ns) for key, at_ns in sorted(replied.items())))


def read_replies(path: Path) -> dict[tuple[int, int], int]:
    """Return the times of the server's replies in a file of `write_replies`.

    Raises:
        RigError: the file has another format.
    """
    try:
        return {(worker, sequence): at_ns for worker, sequence, at_ns in _ENTRY.iter_unpack(path.read_bytes())}
    except struct.error as error:
        raise RigError(f"{path} is not a file of reply times: {error}") from error
