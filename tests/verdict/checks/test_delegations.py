"""The check of delegations in the captured traffic of a crash test."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from raidproof.monitor.capture import Exchange, Operation, write_exchanges
from raidproof.record import RunStore
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.run import CrashTestRecord
from raidproof.verdict.checks.delegations import DelegationsKept
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.evidence import CrashTestEvidence

RECORDED = Path(__file__).resolve().parents[2] / "data" / "run"
TIMES = {"lease_s": 10, "grace_s": 15}


def opening(at_s: float, client: str, lent: str = "0") -> Exchange:
    asked = {"nfs.open.claim_type": "4", "nfs.open4.share_access": "3"}
    operation = Operation("OPEN", asked, {"nfs.open.delegation_type": lent}, "OK", "0xf1")
    return Exchange(client, str(at_s), at_s, (operation,), at_s + 0.1)


WRONG = [opening(1, "one", "2"), opening(2, "two")]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RECORDED, tmp_path / "run"))


def judged(
    run: Path, exchanges: list[Exchange] | None, times: dict[str, Any] = TIMES, *, delegations: bool = True
) -> list[Verdict]:
    record: CrashTestRecord = RunStore(run).load().cycles[0]
    record.effective["export"] = times
    record.files.wire = None
    if exchanges is not None:
        record.files.wire = "made-up.json"
        (run / "made-up.json").write_text(write_exchanges(exchanges))
    conditions = Conditions(export_sync=True, delegations=delegations)
    return DelegationsKept().judge(CrashTestEvidence(record, run), conditions)


def test_an_open_against_a_delegation_fails(run: Path) -> None:
    (verdict,) = judged(run, WRONG)
    assert (verdict.checker, verdict.outcome) == ("delegation", Outcome.FAIL)


def test_the_shorter_time_is_the_servers_patience(run: Path) -> None:
    (verdict,) = judged(run, [opening(1, "one", "2"), opening(11.5, "two")])
    assert (verdict.outcome, "revoked: 1" in verdict.reason) == (Outcome.PASS, True)


def test_what_cannot_be_judged_gives_no_verdict(run: Path) -> None:
    assert judged(run, None) == []
    assert judged(run, WRONG, {"lease_s": None, "grace_s": 10}) == []
    assert judged(run, WRONG, {}) == []
    assert judged(run, WRONG, delegations=False) == []
    assert judged(run, WRONG[:1]) == []
