"""The verdict on data that were only in the volatile cache of a disk when the server replied."""

import shutil
from pathlib import Path

import pytest

from raidproof.core.blame import Blame, Culprit
from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import Kind, LogWriter, MemberInfo
from raidproof.guest.ledger_format import BLOCK, block
from raidproof.record import RunStore
from raidproof.record.observation import MembersSeen
from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord
from raidproof.verdict.checks.volatile import Volatile, judge_volatile
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.durability import Copy, Flush, Needed, Requests
from raidproof.verdict.evidence import CrashTestEvidence
from raidproof.workload.history import Ended, Operation, WorkerSpec

WORKER = WorkerSpec(number=0, client="client1", kind="fsync", path="w", file=7, blocks=16)
RECORDED = Path(__file__).resolve().parents[2] / "data" / "run"
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
        ([at(0, 5), at(1, 15)], {}, Outcome.FAIL),  # the second copy was written after the reply
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


def test_three_operations_are_named_without_others() -> None:
    needed = {operation(sequence=number): needed_at(at(0, 5)) for number in range(3)}
    reason = judge_volatile(needed, Requests({}, {}, 0), [WORKER], SYNC).reason
    assert reason.endswith("; fsync 2 of w until the end of the write log")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RECORDED, tmp_path / "run"))


@pytest.fixture
def record(run: Path) -> CrashTestRecord:
    """Return a stored crash test with a write log in which no flush follows the data of two operations."""
    record = RunStore(run).load().cycles[0]
    record.cache_mode, record.files.write_log = CacheMode.VOLATILE.value, "made-up.log"
    record.observed.members = MembersSeen(absent=[], renewed=[])
    evidence = CrashTestEvidence(record, run)
    by_number = {worker.number: worker for worker in evidence.workers}
    log = LogWriter(run / "made-up.log", [MemberInfo("disk0", 1 << 30, CacheMode.VOLATILE, CacheMode.VOLATILE)], 0)
    last_ns = 0
    for kind in ("fsync", "close"):
        one = next(one for one in evidence.history.acknowledged(record.fault_at_ns) if one.kind == kind)
        worker = by_number[one.worker]
        data = block(worker.file, worker.blocks_of(one)[0] * BLOCK, one.generation, 7)
        at_ns = one.issued_ns
        log.write(0, 0, 0, (at_ns, at_ns + 1), data)
        last_ns = max(last_ns, (one.promised_ns or 0) + 100 * MS)
    log.note(Kind.FREEZE, 0, 0xFFFF, (0, 0), (last_ns, last_ns))
    log.close(last_ns + 1)
    return record


def said(record: CrashTestRecord, run: Path, conditions: Conditions = SYNC) -> list[str]:
    return [one.reason for one in Volatile().judge(CrashTestEvidence(record, run), conditions)]


def test_the_write_log_of_a_crash_test_is_judged(record: CrashTestRecord, run: Path) -> None:
    (reason,) = said(record, run)
    assert reason.startswith("the data of 2 of 2 acknowledged operations were only in volatile caches of disks")
    record.observed.members = None
    assert said(record, run) == [reason]


@pytest.mark.parametrize(
    "conditions",
    [
        Conditions(export_sync=False),
        Conditions(export_sync=True, lying_disks=("disk0",)),
        Conditions(export_sync=True, corrupted_by=Blame(culprit=Culprit.DISKS)),
    ],
)
def test_what_explains_volatile_data_is_no_failure(record: CrashTestRecord, run: Path, conditions: Conditions) -> None:
    assert said(record, run, conditions) == []


def test_close_promises_nothing_under_a_delegation(record: CrashTestRecord, run: Path) -> None:
    (reason,) = said(record, run, Conditions(export_sync=True, delegations=True))
    assert reason.startswith("the data of 1 of 1 acknowledged operations")


@pytest.mark.parametrize("members", [MembersSeen(absent=["disk1"]), MembersSeen(renewed=["disk1"])])
def test_data_of_a_missing_member_are_durable_as_parity(
    record: CrashTestRecord, run: Path, members: MembersSeen
) -> None:
    record.observed.members = members
    assert said(record, run) == []


@pytest.mark.parametrize("mode", ["none", "lying disk0"])
def test_disks_without_a_volatile_cache_and_those_that_lie_are_not_judged(
    record: CrashTestRecord, run: Path, mode: str
) -> None:
    record.cache_mode = mode
    assert said(record, run) == []


def test_a_disk_that_acknowledged_a_flush_without_executing_it_is_not_judged(
    record: CrashTestRecord, run: Path
) -> None:
    evidence = CrashTestEvidence(record, run)
    assert evidence.data is not None
    assert not evidence.data.requests.lied
    evidence.__dict__["data"] = evidence.data._replace(requests=evidence.data.requests._replace(lied=True))
    assert Volatile().judge(evidence, SYNC) == []


def test_without_data_in_a_readable_write_log_nothing_is_said(record: CrashTestRecord, run: Path) -> None:
    other = [worker | {"file": 77} for worker in record.workers]
    assert said(record.model_copy(update={"workers": other}), run) == []
    log = (run / "made-up.log").read_bytes()
    (run / "made-up.log").write_bytes(log[:40])
    assert said(record, run) == []
    (run / "made-up.log").unlink()
    assert said(record, run) == []
