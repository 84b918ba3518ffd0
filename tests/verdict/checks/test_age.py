import pytest

from raidproof.record.outcome import Outcome
from raidproof.record.run import ScanResult
from raidproof.verdict.checks.age import judge_age
from raidproof.verdict.conditions import Conditions

S = 10**9
ASYNC = Conditions(export_sync=False, write_back_s=95)
LOST = ScanResult(acknowledged={"fsync": 9}, lost={"fsync": 2}, first_lost_ns=100 * S)


def test_what_the_kernel_had_to_have_written_is_a_class_of_its_own() -> None:
    (verdict,) = judge_age(LOST, ASYNC, 700 * S, "on the server")
    assert verdict.outcome is Outcome.FAIL
    assert verdict.checker == "older than write-back allows, seen on the server"
    assert "acknowledged 600 s before the fault" in verdict.reason
    assert "within 95 s" in verdict.reason


@pytest.mark.parametrize(
    ("evidence", "conditions", "until_ns"),
    [
        (LOST, ASYNC, 195 * S),
        (LOST, ASYNC, None),
        (ScanResult(), ASYNC, 700 * S),
        (LOST, Conditions(export_sync=False), 700 * S),
        (LOST, Conditions(export_sync=True, write_back_s=95), 700 * S),
    ],
)
def test_it_is_claimed_of_nothing_else(evidence: ScanResult, conditions: Conditions, until_ns: int | None) -> None:
    assert judge_age(evidence, conditions, until_ns, "here") == []
