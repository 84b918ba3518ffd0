"""The comparison of an application's history with what its check command found, and the verdicts on it."""

from dataclasses import replace
from typing import Any

import pytest

from raidproof.guest.ledger_format import APPLICATION
from raidproof.record.exploration import End, Observation
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.run import ScanResult
from raidproof.verdict.checks.application import ApplicationData, judge_application_data
from raidproof.verdict.checks.invented import judge_nothing_invented
from raidproof.verdict.checks.promises import judge_promises
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.evidence import ON_SERVER, CrashStateEvidence, Scan
from raidproof.verdict.ledger import balance_of
from raidproof.workload.history import Ended, History, Operation, WorkerSpec

WORKER = WorkerSpec(number=0, client="client1", kind=APPLICATION, path="orders", file=0)
NOTHING: dict[str, Any] = {"ids": [], "wrong": [], "repeated": [], "damaged": [], "unreadable": [], "failed": ""}
SECOND = 1_000_000_000
CUT = 100 * SECOND
SYNC, ASYNC = Conditions(export_sync=True), Conditions(export_sync=False, write_back_s=60.0)
TEN = [*range(10)]


def done(number: int, at_s: float, *, ended: bool = True) -> Operation:
    """Return an operation that began at ``at_s`` and was acknowledged 0.1 s later, or not at all."""
    begun_ns = int(at_s * SECOND)
    ended_ns, end = (begun_ns + SECOND // 10, Ended.OK) if ended else (None, Ended.UNKNOWN)
    return Operation(0, number, APPLICATION, number, 1, begun_ns, ended_ns, end, 0)


ORDERS = [done(number, 90 + number) for number in TEN]


def seen(operations: list[Operation], **found: Any) -> ScanResult:
    """Return the evidence from a check after the cut at `CUT`."""
    scan = {"orders": {**NOTHING, "ids": TEN, **found}}
    return balance_of([WORKER], History(operations), scan, before_ns=CUT, seen_ns=CUT).result()


def failed(evidence: ScanResult, conditions: Conditions) -> list[Verdict]:
    """Return the verdicts other than PASS."""
    verdicts = judge_promises(evidence, conditions, "here") + judge_application_data(evidence, conditions, "here")
    verdicts.append(judge_nothing_invented(evidence, conditions, "here"))
    return [one for one in verdicts if one.outcome is not Outcome.PASS]


def test_operations_that_are_there_once_are_no_failure() -> None:
    assert failed(seen(ORDERS), SYNC) == []


def test_an_operation_that_is_there_again_is_damage() -> None:
    evidence = seen(ORDERS, repeated=[[4, 3]])
    assert evidence.lost == {}
    (verdict,) = failed(evidence, SYNC)
    assert (verdict.outcome, verdict.checker) == (Outcome.FAIL, "data of the application, seen here")
    assert verdict.reason == "the check command reports orders: operation 4: there 3 times"
    # The loss of a later write can bring back what the application had moved elsewhere.
    assert failed(evidence, ASYNC) == []


def test_a_scan_of_an_older_record_has_no_repeated_operations() -> None:
    scan = {name: value for name, value in NOTHING.items() if name != "repeated"} | {"ids": TEN}
    evidence = balance_of([WORKER], History(ORDERS), {"orders": scan}).result()
    assert failed(evidence, SYNC) == []


@pytest.mark.parametrize("again", [[[number, 3] for number in TEN], [[9, 2]]])
def test_every_repeated_operation_fails(again: list[list[int]]) -> None:
    assert failed(seen(ORDERS, repeated=again), SYNC)


@pytest.mark.parametrize(
    ("last", "outcome"),
    [
        (done(1, 10), Outcome.FAIL),
        (done(1, 39), Outcome.FAIL),
        (done(1, 41), Outcome.PASS),
        (done(1, 10, ended=False), Outcome.PASS),  # it is in progress at the cut
    ],
)
def test_an_async_export_excuses_damage_only_of_what_can_be_young(last: Operation, outcome: Outcome) -> None:
    operations = [done(0, 1), last, done(2, 101)]
    scan = {"orders": {**NOTHING, "ids": [0, 1], "damaged": ["index"]}}
    balance = balance_of([WORKER], History(operations), scan, before_ns=CUT, seen_ns=CUT)
    seen_then = Scan(ON_SERVER, scan, balance, balance.result(), CUT)
    evidence = CrashStateEvidence([WORKER], History(operations), CUT, (seen_then,), Observation(end=End.READ))
    (verdict,) = ApplicationData().judge(evidence, ASYNC)
    assert verdict.outcome is outcome
    assert ("longer before the fault than write-back takes" in verdict.reason) is (outcome is Outcome.FAIL)
    assert str(verdict.blame).startswith("the stack") is (outcome is Outcome.FAIL)
    # Nothing is excused on a sync export, and nothing is too old if the time of the write-back is not known.
    assert [one.outcome for one in ApplicationData().judge(evidence, SYNC)] == [Outcome.FAIL]
    unknown = replace(ASYNC, write_back_s=None)
    assert [one.outcome for one in ApplicationData().judge(evidence, unknown)] == [Outcome.PASS]
