"""The history of clients' operations with the host's time stamps, and the server's replies on the wire."""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from raidproof.core.errors import RigError
from raidproof.guest.ledger_writer import ACKNOWLEDGE, BLOCK, END, FRAME, ISSUE, KINDS, METADATA, TREES, WRITTEN

STAMP = struct.Struct("<QI")
"""Before each chunk in the file: its arrival (CLOCK_MONOTONIC, ns) and its length in bytes."""
FORMAT = b"RAIDPROOF HISTORY 2\n"
"""How a file begins whose frames have the client's own stamps; older ones begin with their first chunk."""
FRAME_1 = struct.Struct("<BBHIIIi")
"""A frame of those."""
LEAST_DELAY_NS = 10_000_000
"""By how much the beginning of an operation may lie before the instant that is worked out for it: see `parse`."""
LONGEST_DELAY_NS = 1_000_000_000
"""The same where the client's stamps are missing: the report of it may have been sent twice more.

One lost packet costs 200 ms at least (TCP_RTO_MIN in Linux' include/net/tcp.h), the next 400 ms.
"""

_ENTRY = struct.Struct("<IIQ")  # worker, sequence, CLOCK_MONOTONIC in ns


class Ended(StrEnum):
    """How an operation ended, as far as its client was told."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class WorkerSpec(BaseModel):
    """One worker of the ledger: what it does, and where."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    client: str
    kind: str
    path: str
    file: int
    """Identity of its file (or directory of files) inside each block."""
    blocks: int = 256
    first: int = 0
    """Index of its first operation's place, for workers that share a file."""
    span: int = 1
    """Blocks that one operation writes."""
    step: int = 1
    """Of so many blocks of the file, one is written."""
    shift: int = 0
    """Where the first block lies in its file, in bytes."""
    files: bool = False
    """Whether each operation of a round has a file of its own, below ``path``; ``blocks`` is how many there are."""
    rounds: tuple[tuple[str, ...], ...] = ()
    """Of a worker that changes directories: the kinds of operation that each goes through; they take turns."""
    operations: int | None = None

    @property
    def key(self) -> str:
        """Under which name the agent's scan reports this worker's files."""
        if self.kind in (*TREES, "close") or self.files:
            return self.path
        return f"{self.path}@{self.number if self.kind == 'o_append' else self.first}"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of operation that it does."""
        return tuple(dict.fromkeys(kind for steps in self.rounds for kind in steps)) or (self.kind,)

    def bytes_of(self, kind: str) -> int:
        """Return how much data one operation of a kind is to make durable."""
        if kind in METADATA:
            return 0
        return BLOCK * (WRITTEN if self.kind in TREES else self.span)


class Operation(NamedTuple):
    """One operation of one worker."""

    worker: int
    sequence: int
    kind: str
    place: int
    generation: int
    issued_ns: int
    ended_ns: int | None
    ended: Ended
    error: int
    begun_ns: int | None = None
    """When it was begun, by the client's own clock; None: no report says. Reports arrive later: ``issued_ns``."""
    replied_ns: int | None = None
    """When the server's last reply to it crossed the network, where that was captured; ``ended_ns`` is later."""

    @property
    def promised_ns(self) -> int | None:
        """The earliest instant known at which it was acknowledged: by the server's reply, or else by the client."""
        return self.ended_ns if self.replied_ns is None else self.replied_ns

    def begun_before(self, instant_ns: int | None) -> bool:
        """Whether it may have been under way at an instant, or done; None is the end of time."""
        if instant_ns is None:
            return True
        if self.begun_ns is None:
            return self.issued_ns < instant_ns + LONGEST_DELAY_NS
        return self.begun_ns < instant_ns + LEAST_DELAY_NS

    def binds(self, before_ns: int | None = None) -> bool:
        """Whether it had been acknowledged, before that instant, as done."""
        promised_ns = self.promised_ns
        if self.ended is not Ended.OK or promised_ns is None:
            return False
        return before_ns is None or promised_ns < before_ns


class History:
    """All operations of one run of the ledger, in order of issue."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self.operations = tuple(operations)

    def acknowledged(self, before_ns: int | None = None) -> Iterator[Operation]:
        """Yield what had returned successfully, and whose word had arrived, before an instant."""
        for operation in self.operations:
            if operation.binds(before_ns):
                yield operation

    def of_worker(self, number: int) -> list[Operation]:
        """Return one worker's operations in its own order."""
        return [operation for operation in self.operations if operation.worker == number]

    def with_replies(self, replied: Mapping[tuple[int, int], int]) -> "History":
        """Return it with the instants of the server's replies, by worker and sequence."""
        known = (replied.get((one.worker, one.sequence)) for one in self.operations)
        return History(
            one if at is None else one._replace(replied_ns=at) for one, at in zip(self.operations, known, strict=True)
        )

    @classmethod
    def read(cls, path: Path) -> "History":
        """Read a recorded stream.

        Raises:
            RigError: the file is not such a stream. One that ends early (a killed run) is read as far as it goes.
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
            return cls(parse(chunks, stamped=stamped))
        except (IndexError, KeyError) as error:
            raise RigError(f"not a ledger's history: {path}: {error!r}") from error


def parse(chunks: Sequence[tuple[int, bytes]], *, stamped: bool = True) -> list[Operation]:
    """Pair the issues and acknowledgements of a stream; what was never acknowledged is UNKNOWN.

    The clocks of client and harness run alike and begin differently. Of all reports of a worker the fastest tells by
    how much, but for the time that it was on its way: an operation began at most so much before ``begun_ns``.
    """
    operations: dict[tuple[int, int], Operation] = {}
    offsets: dict[int, int] = {}
    for arrival, frame in frames(chunks, FRAME if stamped else FRAME_1):
        what, code, worker, sequence, index, generation, error, *own = frame
        if stamped:
            offsets[worker] = min(arrival - own[0], offsets.get(worker, arrival - own[0]))
        key = (worker, sequence)
        if what == ISSUE:
            begun = own[0] if stamped else None
            operations[key] = Operation(
                worker, sequence, KINDS[code], index, generation, arrival, None, Ended.UNKNOWN, 0, begun
            )
        elif what == ACKNOWLEDGE:
            ended = Ended.FAILED if error else Ended.OK
            operations[key] = operations[key]._replace(ended_ns=arrival, ended=ended, error=error)
        elif what != END:
            raise IndexError(f"frame of type {what}")
    return [
        one if one.begun_ns is None else one._replace(begun_ns=one.begun_ns + offsets[one.worker])
        for one in operations.values()
    ]


def frames(chunks: Iterable[tuple[int, bytes]], layout: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield each frame of a stream with its arrival; half a frame at the end of a chunk is passed over."""
    for arrival, data in chunks:
        whole = len(data) - len(data) % layout.size
        for frame in layout.iter_unpack(data[:whole]):
            yield arrival, frame


class Recorder:
    """Writes the stream of a running ledger to disk as it arrives, whole frames only."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=1 << 16)
        self._file.write(FORMAT)
        self._rest: dict[int, bytes] = {}

    def add(self, connection: int, stamp_ns: int, data: bytes) -> bytes:
        """Append what one connection has brought; return the frames that are whole with it."""
        data = self._rest.pop(connection, b"") + data
        whole = len(data) - len(data) % FRAME.size
        if whole < len(data):
            self._rest[connection] = data[whole:]
        if whole:
            self._file.write(STAMP.pack(stamp_ns, whole))
            self._file.write(data[:whole])
        return data[:whole]

    def forget(self, connection: int) -> None:
        """Drop the half frame of a connection that has ended."""
        self._rest.pop(connection, None)

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


def write_replies(path: Path, replied: Mapping[tuple[int, int], int]) -> None:
    """Write the instants, by worker and sequence."""
    path.write_bytes(b"".join(_ENTRY.pack(*key, at_ns) for key, at_ns in sorted(replied.items())))


def read_replies(path: Path) -> dict[tuple[int, int], int]:
    """Read what `write_replies` wrote.

    Raises:
        RigError: it is something else.
    """
    try:
        return {(worker, sequence): at_ns for worker, sequence, at_ns in _ENTRY.iter_unpack(path.read_bytes())}
    except struct.error as error:
        raise RigError(f"not the instants of replies: {path}: {error}") from error
