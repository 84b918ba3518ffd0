import pytest

from raidproof.record.outcome import Outcome
from raidproof.record.run import BlockClass, ScanResult
from raidproof.verdict.cell import Safety, SafetyWord, judge_safety

WHOLE = ScanResult(acknowledged={"fsync": 40, "close": 10})
LOSSY = ScanResult(acknowledged={"fsync": 40, "close": 10}, lost={"fsync": 7})


def judged(outcome: Outcome, *seen: ScanResult, **changes: object) -> Safety:
    asked = {"memory_lost": True, "export_sync": True, "seconds": 3.09} | changes
    return judge_safety(outcome, "because", seen, **asked)  # type: ignore[arg-type]


def test_all_that_was_acknowledged_survived_the_loss_of_memory() -> None:
    safety = judged(Outcome.PASS, WHOLE, WHOLE)
    assert str(safety) == "SAFE: all 50 acknowledged operations survived"
    assert safety.brief == "SAFE: 0 of 50 lost"
    assert not safety.loses


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE])
@pytest.mark.parametrize("sync", [True, False])
def test_a_loss_is_a_loss_whether_by_design_or_not(outcome: Outcome, sync: bool) -> None:
    safety = judged(outcome, LOSSY, WHOLE, export_sync=sync)
    assert safety.loses
    assert str(safety) == "LOSES DATA: 7 of 50 acknowledged operations lost, the earliest 3.1 s before the fault"
    assert safety.brief == "LOSES DATA: 7 of 50 lost"


def test_a_loss_that_only_a_client_sees_is_a_loss() -> None:
    assert judged(Outcome.FAIL, WHOLE, LOSSY).lost == 7


def test_a_loss_without_a_fault_is_a_loss() -> None:
    assert judged(Outcome.FAIL, LOSSY, memory_lost=False, seconds=None).brief == "LOSES DATA: 7 of 50 lost"


def test_storage_that_does_not_come_back_loses_everything() -> None:
    safety = judged(Outcome.FAIL, not_recovered="no array")
    assert safety.loses
    assert safety.brief == "LOSES DATA: all data, the storage did not recover"


def test_damaged_blocks_are_a_loss() -> None:
    damaged = WHOLE.model_copy(update={"blocks": {BlockClass.GARBAGE: 3, BlockClass.DURABLE: 90}})
    assert str(judged(Outcome.FAIL, damaged)) == "LOSES DATA: 3 blocks damaged"


@pytest.mark.parametrize(
    ("outcome", "seen", "changes", "why"),
    [
        (Outcome.PASS, [WHOLE], {"memory_lost": False}, "this fault loses no unwritten data of the server"),
        (Outcome.PASS, [WHOLE], {"export_sync": False}, "the export is async, but this fault lost no operation"),
        (Outcome.PASS, [ScanResult()], {}, "no operation was acknowledged"),
        (Outcome.PASS, [], {}, "no operation was acknowledged"),
        (Outcome.FAIL, [WHOLE], {}, "because"),
        (Outcome.INCONCLUSIVE, [WHOLE], {}, "because"),
        (Outcome.INCONCLUSIVE, [ScanResult(acknowledged={"close": 9}, lost={"close": 2})], {}, "because"),
        (Outcome.ERROR, [LOSSY], {}, "the rig failed"),
        (Outcome.INVALID, [LOSSY], {}, "a control did not show what it had to show"),
        (Outcome.SKIP, [], {}, "a requirement is missing"),
    ],
)
def test_a_run_that_cannot_say_is_not_called_safe(
    outcome: Outcome, seen: list[ScanResult], changes: dict[str, object], why: str
) -> None:
    safety = judged(outcome, *seen, **changes)
    assert safety.word is SafetyWord.NOT_SHOWN
    assert str(safety) == f"NOT SHOWN: {why}"
    assert safety.brief == "NOT SHOWN"
