"""When the data of a made-up write log became durable, and the verdict on data that were volatile at the reply."""

from pathlib import Path

import pytest

from raidproof.core.blame import Culprit
from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import Flag, Kind, LogWriter, MemberInfo, WriteLog
from raidproof.guest.ledger_format import BLOCK, block
from raidproof.record.outcome import Outcome
from raidproof.verdict.checks.volatile import judge_volatile
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.durability import Copy, Flush, Needed, Requests, needed_of, requests_of
from raidproof.workload.history import Ended, History, Operation, WorkerSpec

WORKER = WorkerSpec(number=0, client="client1", kind="fsync", path="w", file=7, blocks=16)


def test_a_write_log_is_read_up_to_its_cut(tmp_path: Path) -> None:
    infos = [MemberInfo(f"disk{number}", 1 << 20, CacheMode.VOLATILE, CacheMode.VOLATILE) for number in range(2)]
    log = LogWriter(tmp_path / "write.log", infos, 0, blank=True)
    data = {generation: block(WORKER.file, 3 * BLOCK, generation, 1) for generation in (1, 2)}
    log.write(0, 0, 0, (10, 20), data[1])
    log.write(0, 0, 0, (21, 22), data[1])  # the same once more
    log.write(Flag.FUA, 1, 4096, (23, 25), data[1])
    log.write(Flag.IN_FLIGHT, 0, 0, (24, 0), data[2])
    log.note(Kind.FLUSH, 0, 0, (0, 0), (30, 40))
    log.note(Kind.FLUSH, Flag.LIED, 1, (0, 0), (30, 41))
    log.note(Kind.FREEZE, 0, 0xFFFF, (0, 0), (90, 90))
    log.write(0, 0, 0, (91, 92), data[2])
    log.close(100)
    requests = requests_of(WriteLog(tmp_path / "write.log"))
    assert requests.copies == {((7, 3 * BLOCK), 1): [Copy(0, 20, fua=False), Copy(1, 25, fua=True)]}
    assert (requests.flushes, requests.end_ns) == ({0: [Flush(30, 40)]}, 90)
    done = [
        Operation(0, number, "fsync", place, 1, 5, at, Ended.OK, 0)
        for number, (place, at) in enumerate([(3, 50), (4, 51), (3, 95)])
    ]
    assert needed_of(requests, History(done), [WORKER]) == {done[0]: [Needed(50, requests.copies[(7, 3 * BLOCK), 1])]}
    # Changes of names, and blocks that begin elsewhere, cannot be found.
    assert needed_of(requests, History([done[0]._replace(kind="unaligned")]), [WORKER]) == {}
    assert needed_of(requests, History([done[0]._replace(worker=1)]), [WORKER]) == {}


MS = 1_000_000
SYNC = Conditions(export_sync=True)


def operation(kind: str = "fsync", sequence: int = 0, replied_ms: float = 10.0) -> Operation:
    return Operation(0, sequence, kind, 0, 1, 0, None, Ended.OK, 0, replied_ns=int(replied_ms * MS))


def needed_at(*copies: Copy, replied_ms: float = 10.0) -> list[Needed]:
    return [Needed(int(replied_ms * MS), [*copies])]


def at(member: int, done_ms: float, *, fua: bool = False) -> Copy:
    return Copy(member, int(done_ms * MS), fua=fua)


def flush(begin_ms: float, end_ms: float) -> Flush:
    return Flush(int(begin_ms * MS), int(end_ms * MS))


@pytest.mark.parametrize(
    ("copies", "flushes", "outcome"),
    [
        ([at(0, 5)], {0: [flush(6, 9)]}, Outcome.PASS),
        ([at(0, 5)], {0: [flush(6, 10.9)]}, Outcome.PASS),  # the clocks of reply and disks may differ so much
        ([at(0, 5)], {0: [flush(6, 11.1)]}, Outcome.FAIL),
        ([at(0, 5)], {0: [flush(4, 9)]}, Outcome.FAIL),  # the flush began before the write had ended
        ([at(0, 5)], {1: [flush(6, 9)]}, Outcome.FAIL),  # of another member
        ([at(0, 5)], {}, Outcome.FAIL),
        ([at(0, 5, fua=True)], {}, Outcome.PASS),
        ([at(0, 5), at(1, 5)], {1: [flush(6, 9)]}, Outcome.PASS),  # one copy is durable
        ([at(0, 5), at(1, 5)], {0: [flush(15, 16)], 1: [flush(12, 13)]}, Outcome.FAIL),
        ([at(0, 15)], {}, Outcome.PASS),  # it was durable in another form, or the scan finds it missing
    ],
)
def test_data_must_be_durable_at_the_reply(
    copies: list[Copy], flushes: dict[int, list[Flush]], outcome: Outcome
) -> None:
    verdict = judge_volatile({operation(): needed_at(*copies)}, Requests({}, flushes, 100 * MS), [WORKER], SYNC)
    assert verdict.outcome is outcome
    assert (verdict.blame is None) == (outcome is Outcome.PASS)


def test_the_reason_counts_and_names_operations_with_volatile_data() -> None:
    needed = {operation(sequence=number): needed_at(at(0, 5)) for number in range(4)}
    needed[operation("o_sync", 4)] = needed_at(at(1, 5))
    verdict = judge_volatile(needed, Requests({}, {0: [flush(12, 14.5)], 1: [flush(6, 7)]}, 0), [WORKER], SYNC)
    assert verdict.reason == (
        "the data of 4 of 5 acknowledged operations were only in volatile caches of disks at the reply: "
        "fsync 0 of w until 4.5 ms later; fsync 1 of w until 4.5 ms later; fsync 2 of w until 4.5 ms later and others"
    )
    assert verdict.blame
    assert verdict.blame.culprit is Culprit.STACK


def test_each_block_of_an_operation_counts() -> None:
    both = [*needed_at(at(0, 5)), *needed_at(at(1, 5))]
    verdict = judge_volatile({operation(): both}, Requests({}, {0: [flush(6, 7)]}, 0), [WORKER], SYNC)
    assert verdict.outcome is Outcome.FAIL
    assert "fsync 0 of w until the end of the write log" in verdict.reason
