"""The measurements of a crash test with solo operations."""

import shutil
from pathlib import Path

import pytest

from raidproof.record import RunStore
from raidproof.record.observation import SoloSeen
from raidproof.record.run import CrashTestRecord
from raidproof.verdict.measurements import measure_rates
from raidproof.workload.history import Ended, History, Operation

S = 1_000_000_000
RECORDED = Path(__file__).resolve().parents[1] / "data" / "run"


@pytest.fixture
def record(tmp_path: Path) -> CrashTestRecord:
    record = RunStore(Path(shutil.copytree(RECORDED, tmp_path / "run"))).load().cycles[0]
    record.ledger_begun_ns, record.fault_begun_ns = 10 * S, 16 * S
    return record


def fsync(at_s: float, worker: int = 0, ended: Ended = Ended.OK) -> Operation:
    issued_ns = int(at_s * S) - S // 100
    return Operation(worker, int(at_s * 100), "fsync", 0, 1, issued_ns, int(at_s * S), ended, 0)


BUSY = [fsync(one) for one in (10.5, 11.2, 11.8, 15.5, 15.6, 15.7)]


def test_rates_do_not_count_the_time_of_solo_operations(record: CrashTestRecord) -> None:
    history = History([*BUSY, *(fsync(12 + one / 10) for one in range(1, 30))])
    record.observed.solo = SoloSeen(begun_ns=12 * S, ended_ns=15 * S)
    measure_rates(record, history)
    assert record.ledger_seconds == pytest.approx(6.0)
    assert record.throughput.fsyncs_per_s == pytest.approx(2.0)
    assert record.throughput.acknowledged_per_s == pytest.approx(2.0)
    assert record.throughput.fsyncs_each_second == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("solo", [None, SoloSeen(begun_ns=12 * S)])
def test_without_solo_operations_all_the_time_counts(record: CrashTestRecord, solo: SoloSeen | None) -> None:
    record.observed.solo = solo
    measure_rates(record, History(BUSY))
    assert record.throughput.fsyncs_per_s == pytest.approx(1.0)
    assert record.throughput.fsyncs_each_second == [1.0, 2.0, 0.0, 0.0, 0.0, 3.0]
