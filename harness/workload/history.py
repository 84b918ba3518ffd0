"""What the clients began, and what they were told had been done: every operation with the harness's own stamps."""

import struct
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from harness.errors import RigError
from harness.workload.agent import ACKNOWLEDGE, BLOCK, END, FRAME, ISSUE, KINDS, METADATA

STAMP = struct.Struct("<QI")
"""Before each chunk in the file: its arrival (CLOCK_MONOTONIC, ns) and its length in bytes."""


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
    """Index of its first block, for workers that share a file."""
    operations: int | None = None

    @property
    def key(self) -> str:
        """Under which name the agent's scan reports this worker's files."""
        return self.path if self.kind in ("metadata", "close") else f"{self.path}@{self.first}"


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
    replied_ns: int | None = None
    """When the server's last reply to it crossed the network, where that was captured; ``ended_ns`` is later."""

    @property
    def promised_ns(self) -> int | None:
        """The earliest instant known at which it was acknowledged: by the server's reply, or else by the client."""
        return self.ended_ns if self.replied_ns is None else self.replied_ns

    @property
    def bytes(self) -> int:
        """How much data it was to make durable."""
        return 0 if self.kind in METADATA else BLOCK

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
        """Return it with the instants of the server's replies, by worker and sequence; see `harness.cycle.replies`."""
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
        position = 0
        chunks: list[tuple[int, bytes]] = []
        while position + STAMP.size <= len(data):
            stamp, length = STAMP.unpack_from(data, position)
            position += STAMP.size
            chunks.append((stamp, data[position : position + length]))
            position += length
        try:
            return cls(parse(chunks))
        except (IndexError, KeyError) as error:
            raise RigError(f"not a ledger's history: {path}: {error!r}") from error


def parse(chunks: Iterable[tuple[int, bytes]]) -> list[Operation]:
    """Pair the issues and acknowledgements of a stream; what was never acknowledged is UNKNOWN."""
    operations: dict[tuple[int, int], Operation] = {}
    for stamp, data in chunks:
        whole = len(data) - len(data) % FRAME.size
        for what, code, worker, sequence, index, generation, error in FRAME.iter_unpack(data[:whole]):
            key = (worker, sequence)
            if what == ISSUE:
                operations[key] = Operation(
                    worker, sequence, KINDS[code], index, generation, stamp, None, Ended.UNKNOWN, 0
                )
            elif what == ACKNOWLEDGE:
                ended = Ended.FAILED if error else Ended.OK
                operations[key] = operations[key]._replace(ended_ns=stamp, ended=ended, error=error)
            elif what != END:
                raise IndexError(f"frame of type {what}")
    return list(operations.values())


class Recorder:
    """Writes the stream of a running ledger to disk as it arrives, whole frames only."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=1 << 16)
        self._rest: dict[int, bytes] = {}

    def add(self, connection: int, stamp_ns: int, data: bytes) -> None:
        """Append what one connection has brought."""
        data = self._rest.pop(connection, b"") + data
        whole = len(data) - len(data) % FRAME.size
        if whole < len(data):
            self._rest[connection] = data[whole:]
        if whole:
            self._file.write(STAMP.pack(stamp_ns, whole))
            self._file.write(data[:whole])

    def forget(self, connection: int) -> None:
        """Drop the half frame of a connection that has ended."""
        self._rest.pop(connection, None)

    def close(self) -> None:
        """Finish the file."""
        self._file.close()
