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
"""Header of each chunk in the file: its arrival (CLOCK_MONOTONIC, ns) and its length in bytes."""
FORMAT = b"RAIDPROOF HISTORY 2\n"
"""First bytes of a file whose frames have the client's own stamps; older files begin with their first chunk."""
FRAME_1 = struct.Struct("<BBHIIIi")
"""Frame of older files."""
LEAST_DELAY_NS = 10_000_000
"""Uncertainty in ns of the computed beginning of an operation, which may lie so much earlier: see `parse`."""
LONGEST_DELAY_NS = 1_000_000_000
"""The same where the client's stamps are missing: the report may have been retransmitted twice.

One lost packet costs at least 200 ms (TCP_RTO_MIN in Linux' include/net/tcp.h), the next 400 ms.
"""

_ENTRY = struct.Struct("<IIQ")  # worker, sequence, CLOCK_MONOTONIC in ns


class Ended(StrEnum):
    """How an operation ended, from what its client received."""

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
    """Identity of the worker's file (or directory of files) inside each block."""
    blocks: int = 256
    first: int = 0
    """Index of the place of its first operation, for workers that share a file."""
    span: int = 1
    """Blocks that one operation writes."""
    step: int = 1
    """One block in this number of blocks of the file is written."""
    shift: int = 0
    """Offset of the first block in the file, in bytes."""
    files: bool = False
    """Whether each operation of a round has its own file, below ``path``; ``blocks`` is the number of files."""
    rounds: tuple[tuple[str, ...], ...] = ()
    """For a worker that changes directories: the kinds of operation that each directory goes through, in turn."""
    operations: int | None = None

    @property
    def key(self) -> str:
        """The key under which the agent's scan reports this worker's files."""
        if self.kind in (*TREES, "close") or self.files:
            return self.path
        return f"{self.path}@{self.number if self.kind == 'o_append' else self.first}"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of operation that the worker carries out."""
        return tuple(dict.fromkeys(kind for steps in self.rounds for kind in steps)) or (self.kind,)

    def bytes_of(self, kind: str) -> int:
        """Return how many bytes one operation of a kind makes durable."""
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
    """When the operation began, on the client's clock; None: not reported. The report arrives later: ``issued_ns``."""
    replied_ns: int | None = None
    """When the server's last reply to the operation crossed the network, if captured; ``ended_ns`` is later."""

    @property
    def promised_ns(self) -> int | None:
        """The earliest known instant of acknowledgement: the server's reply, or else the client's report."""
        return self.ended_ns if self.replied_ns is None else self.replied_ns

    def begun_before(self, instant_ns: int | None) -> bool:
        """Whether the operation may have begun before an instant; None is the end of time."""
        if instant_ns is None:
            return True
        if self.begun_ns is None:
            return self.issued_ns < instant_ns + LONGEST_DELAY_NS
        return self.begun_ns < instant_ns + LEAST_DELAY_NS

    def binds(self, before_ns: int | None = None) -> bool:
        """Whether the operation was acknowledged as successful, before the instant if one is given."""
        promised_ns = self.promised_ns
        if self.ended is not Ended.OK or promised_ns is None:
            return False
        return before_ns is None or promised_ns < before_ns


class History:
    """All operations of one run of the ledger, in order of issue."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self.operations = tuple(operations)

    def acknowledged(self, before_ns: int | None = None) -> Iterator[Operation]:
        """Yield the operations that returned successfully and whose report arrived before an instant."""
        for operation in self.operations:
            if operation.binds(before_ns):
                yield operation

    def of_worker(self, number: int) -> list[Operation]:
        """Return one worker's operations in their order."""
        return [operation for operation in self.operations if operation.worker == number]

    def with_replies(self, replied: Mapping[tuple[int, int], int]) -> "History":
        """Return this history with the instants of the server's replies, by worker and sequence."""
        known = (replied.get((one.worker, one.sequence)) for one in self.operations)
        return History(
            one if at is None else one._replace(replied_ns=at) for one, at in zip(self.operations, known, strict=True)
        )

    @classmethod
    def read(cls, path: Path) -> "History":
        """Read a recorded stream; a stream that ends early (a killed run) is read up to its end.

        Raises:
            RigError: the file is not such a stream.
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
    """Pair the issues and acknowledgements of a stream; operations without an acknowledgement are UNKNOWN.

    The clocks of client and harness have the same rate and an unknown offset. The fastest report of a worker bounds
    the offset, except for its own transit time: an operation began at most that transit time before ``begun_ns``.
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
    """Yield each frame of a stream with its arrival; skip an incomplete frame at the end of a chunk."""
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
        """Append the data that a connection received; return the frames that are now complete."""
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
    """Write the instants of the server's replies, by worker and sequence."""
    path.write_bytes(b"".join(_ENTRY.pack(*key, at_ns) for key, at_ns in sorted(replied.items())))


def read_replies(path: Path) -> dict[tuple[int, int], int]:
    """Read the file that `write_replies` wrote.

    Raises:
        RigError: the file is something else.
    """
    try:
        return {(worker, sequence): at_ns for worker, sequence, at_ns in _ENTRY.iter_unpack(path.read_bytes())}
    except struct.error as error:
        raise RigError(f"not the instants of replies: {path}: {error}") from error
