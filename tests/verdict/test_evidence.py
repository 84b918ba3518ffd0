"""The evidence of a crash test is read from its files when it is needed, and once."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from raidproof.core.errors import RigError
from raidproof.disk.writelog import Kind
from raidproof.record import RunStore
from raidproof.record.outcome import Outcome
from raidproof.record.run import ControlSpec, CrashTestRecord
from raidproof.verdict.crash_test import judge_crash_test
from raidproof.verdict.evidence import ON_CLIENT, ON_SERVER, CrashTestEvidence, Stage
from tests.crash.conftest import Did, write_log

RECORDED = Path(__file__).resolve().parents[1] / "data" / "run"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RECORDED, tmp_path / "run"))


@pytest.fixture
def record(run: Path) -> CrashTestRecord:
    return RunStore(run).load().cycles[0]


def test_each_file_is_opened_once(run: Path, record: CrashTestRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: Counter[str] = Counter()
    open_path = Path.open

    def counted(path: Path, *words: object, **more: object) -> object:
        opened[str(path)] += 1
        return open_path(path, *words, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", counted)
    judge_crash_test(record, run)
    once = {record.files.history, record.files.write_log, record.files.on_server, record.files.on_client} - {None}
    assert len(once) >= 3
    assert {name: opened[str(run / str(name))] for name in once} == dict.fromkeys(once, 1)


def test_a_scan_is_compared_at_each_place(run: Path, record: CrashTestRecord) -> None:
    evidence = CrashTestEvidence(record, run)
    assert [scan.place for scan in evidence.scans] == [ON_SERVER, ON_CLIENT]
    assert evidence.scans is evidence.scans
    record.files.on_client = None
    assert CrashTestEvidence(record, run).scan_at(ON_CLIENT) is None


def test_what_is_missing_is_none(run: Path, record: CrashTestRecord) -> None:
    (run / "write.log").unlink(missing_ok=True)
    record.files.write_log, record.files.wire = "write.log", None
    record.files.consoles["client2"] = "no such file"
    evidence = CrashTestEvidence(record, run)
    assert (evidence.write_log, evidence.exchanges) == (None, None)
    assert "client2" not in evidence.consoles
    record.files.history = None
    with pytest.raises(RigError, match="before the clients began"):
        _ = CrashTestEvidence(record, run).history


@pytest.mark.parametrize(
    ("changes", "stage"),
    [
        ({}, Stage.COMPLETE),
        ({"not_recovered": "it does not mount"}, Stage.NOT_RECOVERED),
        ({"rig_error": "x"}, Stage.BROKEN_OFF),
        ({"rig_error": "x", "not_recovered": "y"}, Stage.BROKEN_OFF),
        ({"rig_error": "x", "control": ControlSpec(expects_loss=False)}, Stage.UNREAD),
    ],
)
def test_the_stage_is_how_far_the_crash_test_came(
    run: Path, record: CrashTestRecord, changes: dict[str, object], stage: Stage
) -> None:
    assert CrashTestEvidence(record.model_copy(update=changes), run).stage is stage


def test_a_crash_test_that_broke_off_before_the_scan_has_nothing_to_judge(run: Path, record: CrashTestRecord) -> None:
    record.rig_error, record.files.on_server = "x", None
    assert CrashTestEvidence(record, run).stage is Stage.UNREAD


def test_a_write_log_that_cannot_be_read_changes_no_verdict(run: Path, record: CrashTestRecord) -> None:
    record.files.write_log = "broken.log"
    (run / "broken.log").write_bytes(b"no write log" * 10)
    judge_crash_test(record, run)
    assert (record.outcome, record.sensitivity, record.lives) == (Outcome.PASS, [], [])


@pytest.mark.parametrize("with_data", [True, False])
def test_the_sensitivity_needs_a_write_log_with_data(run: Path, record: CrashTestRecord, with_data: bool) -> None:
    done = [Did(Kind.WRITE), Did(Kind.FLUSH), Did(Kind.FREEZE)]
    write_log(run / "made-up.log", done)
    if not with_data:
        raw = bytearray((run / "made-up.log").read_bytes())
        raw[12:16] = (2).to_bytes(4, "little")  # the flags of the header: blank disks, no data
        (run / "made-up.log").write_bytes(raw)
    record.files.write_log = "made-up.log"
    judge_crash_test(record, run)
    assert bool(record.sensitivity) is with_data


def test_lying_disks_of_a_test_that_broke_off_before_the_scan_are_no_error(run: Path, record: CrashTestRecord) -> None:
    write_log(run / "made-up.log", [Did(Kind.WRITE), Did(Kind.FREEZE)])
    record.disks = {"disk0": {"broken_promises": 3}}
    record.files.write_log, record.files.on_server, record.rig_error = "made-up.log", "never written", "the rig failed"
    judge_crash_test(record, run)
    assert (record.outcome, record.reason) == (Outcome.ERROR, "the rig failed")
