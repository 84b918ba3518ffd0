"""The life of a lost block: the requests of the write log that carried it, and their flushes."""

from pathlib import Path
from typing import Any

import pytest

from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import Flag, Kind, LogWriter, MemberInfo, WriteLog
from raidproof.guest.ledger_format import BLOCK, block
from raidproof.verdict.balance import Loss
from raidproof.verdict.block_life import MOST_LIVES, chosen, lives_of
from raidproof.workload.history import Ended, Operation, WorkerSpec

FAULT = 10_000
WORKER = WorkerSpec(number=0, client="client1", kind="fsync", path="client1-0-fsync", file=5)


def loss(place: int = 3, generation: int = 2, ended: int = 4000) -> Loss:
    operation = Operation(
        0, 1, "fsync", place, generation, 1000, ended, Ended.OK, 0, begun_ns=900, replied_ns=ended - 100
    )
    return Loss(operation, WORKER, "is missing")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "write.log"
    members = [MemberInfo(serial, 1 << 20, CacheMode.VOLATILE, CacheMode.VOLATILE) for serial in ("disk0", "disk1")]
    writer = LogWriter(path, members, 0)
    older, wanted = (block(5, 3 * BLOCK, generation, 7) for generation in (1, 2))
    writer.write(0, 0, 8192, (100, 200), older)
    writer.write(0, 1, 4096, (2000, 2100), bytes(BLOCK) + wanted)
    writer.note(Kind.FLUSH, 0, 0, (0, 0), (2200, 2300))
    writer.note(Kind.FLUSH, Flag.LIED, 1, (0, 0), (2400, 2500))
    writer.note(Kind.FLUSH, 0, 1, (0, 0), (2600, 2700))
    writer.write(Flag.IN_FLIGHT, 0, 8192, (9900, 0), wanted)
    writer.note(Kind.FREEZE, 0, 0xFFFF, (0, 0), (FAULT, FAULT))
    writer.note(Kind.POWER_ON, 0, 0xFFFF, (0, 0), (20_000, 20_000))
    writer.write(0, 0, 8192, (30_000, 30_100), wanted)
    writer.close(40_000)
    return path


def test_the_requests_that_carried_the_block_are_found_with_their_first_flush(log: Path) -> None:
    [life] = lives_of([loss()], WriteLog(log), FAULT)
    assert (life.written_s, life.replied_s, life.reported_s) == (-9.1e-6, -6.1e-6, -6e-6)
    assert life.requests is not None
    # Neither the older generation nor the write after the cut carried the lost one.
    first, second = life.requests
    assert (first.member, first.request, first.sector, first.begun_s) == ("disk1", 1, 8, -8e-6)
    assert (first.flush_begun_s, first.flush_ended_s, first.flush_lied) == (-7.6e-6, -7.5e-6, True)
    assert (second.member, second.ended_s, second.flush_begun_s) == ("disk0", None, None)


def test_a_block_that_reached_no_disk_has_no_request(log: Path) -> None:
    [life] = lives_of([loss(generation=3)], WriteLog(log), FAULT)
    assert life.requests == []


def test_without_a_log_the_requests_are_unknown() -> None:
    [life] = lives_of([loss()], None, FAULT)
    assert life.requests is None


def test_a_few_losses_are_chosen_the_earliest_and_the_latest_among_them() -> None:
    losses = [loss(place, ended=1000 + place) for place in range(40)]
    picked = [one.operation.place for one in chosen(losses)]
    assert len(picked) == MOST_LIVES
    assert (picked[0], picked[-1]) == (0, 39)


def test_an_operation_on_a_name_has_no_block() -> None:
    made = loss()
    assert chosen([made._replace(operation=made.operation._replace(kind="mkdir"))]) == []


@pytest.mark.parametrize(
    "changes", [{"span": 2}, {"shift": 1}, {"kind": "close"}, {"kind": "pages"}, {"pieces": (1, 2)}, {"kind": "mkdir"}]
)
def test_only_losses_of_whole_single_blocks_are_traced(changes: dict[str, Any]) -> None:
    one = loss()
    assert chosen([one]) == [one]
    assert chosen([one._replace(worker=one.worker.model_copy(update=changes))]) == []
