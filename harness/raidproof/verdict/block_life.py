"""The lives of a few lost blocks of a crash test, from the history of the ledger and the write log."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from raidproof.disk.writelog import Flag, Kind, Record, WriteLog
from raidproof.guest.ledger_format import BLOCK
from raidproof.record.block_life import BlockLife, DiskRequest
from raidproof.verdict.balance import Loss
from raidproof.verdict.blame import OF_BLOCKS, Block
from raidproof.workload.ledger_blocks import blocks_in

MOST_LIVES = 3
"""Greatest number of lost blocks of a crash test whose lives are stored."""
MOST_REQUESTS = 20
"""Greatest number of disk requests in one life: a block that is overwritten often has many."""
SECTOR = 512
_ENDS = frozenset({Kind.POWER_ON, Kind.RESET})


class Flush(NamedTuple):
    """A completed flush of a member disk, in ns of CLOCK_MONOTONIC."""

    issued_ns: int
    completed_ns: int
    lied: bool


class Carried(NamedTuple):
    """What a write log contains about some blocks: the requests that carried each block, and all flushes by member."""

    requests: Mapping[Block, Sequence[tuple[Record, int]]]
    """By block, each write request that contained it, with the generation of the block."""
    flushes: Mapping[int, Sequence[Flush]]
    """By index of the member, its flushes in the order of their replies."""
    members: Sequence[str]
    """Serials of the members."""


def chosen(losses: Sequence[Loss], most: int = MOST_LIVES) -> list[Loss]:
    """Return at most ``most`` losses of single blocks: the earliest and the latest acknowledged, and some between."""
    blocks = sorted((one for one in losses if of_one_block(one)), key=lambda one: one.operation.promised_ns or 0)
    if len(blocks) <= most:
        return blocks
    return [blocks[round(place * (len(blocks) - 1) / (most - 1))] for place in range(most)]


def of_one_block(loss: Loss) -> bool:
    """Return whether the lost operation wrote one page-aligned block, which can be found in a write log."""
    worker = loss.worker
    return (
        loss.operation.kind in OF_BLOCKS
        and worker.kind in OF_BLOCKS - {"close", "pages", "o_append"}
        and worker.span == 1
        and worker.shift == 0
        and not worker.pieces
    )


def lives_of(losses: Sequence[Loss], log: WriteLog | None, fault_ns: int) -> list[BlockLife]:
    """Return the lives of some lost blocks; ``log``: the stored write log, if there is one; ``fault_ns``: the cut.

    Raises:
        LogError: the write log is damaged.
    """
    picked = chosen(losses)
    if not picked:
        return []
    wanted = {block_of(one) for one in picked}
    carried = None if log is None else carried_by(log, wanted)
    return [life_of(one, carried, fault_ns) for one in picked]


def block_of(loss: Loss) -> Block:
    """Return the identity of a lost block: file and byte offset, as in the block's header."""
    return loss.worker.file, loss.operation.place * BLOCK


def carried_by(log: WriteLog, wanted: set[Block]) -> Carried | None:
    """Return what a write log contains about blocks, up to the first cut; None if the log lacks the written data.

    Raises:
        LogError: the log is damaged.
    """
    requests: dict[Block, list[tuple[Record, int]]] = defaultdict(list)
    flushes: dict[int, list[Flush]] = defaultdict(list)
    for record in log:
        if record.kind in _ENDS:
            break
        if record.kind is Kind.FLUSH and not record.flags & Flag.IN_FLIGHT:
            lied = bool(record.flags & Flag.LIED)
            flushes[record.member].append(Flush(record.issued_ns, record.completed_ns, lied))
        elif record.kind is Kind.WRITE:
            if record.flags & Flag.NO_DATA:
                return None
            if record.flags & Flag.ZEROES:
                continue
            for file, offset, generation in blocks_in(record.data):
                if (file, offset) in wanted:
                    requests[file, offset].append((record, generation))
    return Carried(requests, flushes, [member.serial for member in log.members])


def life_of(loss: Loss, carried: Carried | None, fault_ns: int) -> BlockLife:
    """Return the life of one lost block."""

    def since(instant_ns: int) -> float:
        return (instant_ns - fault_ns) / 1e9

    operation, worker = loss.operation, loss.worker
    requests = None
    if carried is not None:
        found = carried.requests.get(block_of(loss), ())
        requests = [
            request_of(record, carried, fault_ns)
            for record, generation in found
            if generation >= operation.generation and record.issued_ns <= fault_ns
        ][:MOST_REQUESTS]
    begun_ns = operation.issued_ns if operation.begun_ns is None else operation.begun_ns
    return BlockLife(
        client=worker.client,
        path=worker.path,
        kind=operation.kind,
        block=operation.place,
        generation=operation.generation,
        found=loss.what,
        written_s=since(begun_ns),
        replied_s=None if operation.replied_ns is None else since(operation.replied_ns),
        reported_s=None if operation.ended_ns is None else since(operation.ended_ns),
        requests=requests,
    )


def request_of(record: Record, carried: Carried, fault_ns: int) -> DiskRequest:
    """Return a disk request with the first flush of its member after it."""

    def since(instant_ns: int) -> float:
        return (instant_ns - fault_ns) / 1e9

    in_flight = bool(record.flags & Flag.IN_FLIGHT)
    fua, lied = bool(record.flags & Flag.FUA), bool(record.flags & Flag.LIED)
    flush = None
    if not in_flight:
        later = (one for one in carried.flushes.get(record.member, ()) if one.issued_ns >= record.completed_ns)
        flush = min((one for one in later if one.completed_ns <= fault_ns), default=None)
    return DiskRequest(
        member=carried.members[record.member],
        request=record.sequence,
        sector=record.offset // SECTOR,
        begun_s=since(record.issued_ns),
        ended_s=None if in_flight else since(record.completed_ns),
        forced=fua and not lied,
        flush_begun_s=None if flush is None else since(flush.issued_ns),
        flush_ended_s=None if flush is None else since(flush.completed_ns),
        flush_lied=lied if flush is None else flush.lied,
    )
