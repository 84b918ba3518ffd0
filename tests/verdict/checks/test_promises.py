from dataclasses import replace

import pytest

from raidproof.core.blame import Culprit
from raidproof.guest.ledger_format import KINDS
from raidproof.record.outcome import Outcome
from raidproof.record.run import ScanResult
from raidproof.verdict.checks.invented import judge_nothing_invented
from raidproof.verdict.checks.promises import judge_promise, judge_promises
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.contract import LEAST_JUDGED, PROMISES

SYNC = Conditions(export_sync=True)
ASYNC = Conditions(export_sync=False)
LYING = Conditions(export_sync=True, lying_disks=("disk2",))
BOTH = Conditions(export_sync=False, lying_disks=("disk2",))
UNSYNCED = Conditions(export_sync=True, fsync_caveat="the mount option nobarrier omits flushes")


@pytest.mark.parametrize(
    ("conditions", "lost", "outcome", "blame"),
    [
        (SYNC, 0, Outcome.PASS, None),
        (SYNC, 1, Outcome.FAIL, "the stack"),
        (ASYNC, 0, Outcome.PASS, None),
        (ASYNC, 1, Outcome.PASS, "the async export"),
        (LYING, 0, Outcome.PASS, None),
        (LYING, 1, Outcome.FAIL, "disk2"),
        (BOTH, 1, Outcome.FAIL, "disk2"),
        (UNSYNCED, 1, Outcome.FAIL, "the file system's settings: the mount option nobarrier"),
        (replace(UNSYNCED, lying_disks=("disk2",)), 1, Outcome.FAIL, "disk2"),
        (replace(UNSYNCED, export_sync=False), 1, Outcome.PASS, "the async export"),
    ],
)
def test_a_promise(conditions: Conditions, lost: int, outcome: Outcome, blame: str | None) -> None:
    verdict = judge_promise("fsync", 5, 5, lost, conditions)
    assert verdict.outcome is outcome
    assert (verdict.blame is None) if blame is None else blame in str(verdict.blame)


def test_a_setting_that_loses_names_explains_no_loss_of_synced_data() -> None:
    evidence = ScanResult(
        acknowledged={"mkdir": 5, "append": 5, "fsync": 5}, lost={"mkdir": 1, "append": 1, "fsync": 1}
    )
    conditions = replace(SYNC, names_caveat="ext4 has no journal")
    found = {one.kind: one for one in judge_promises(evidence, conditions, "here")}
    assert {one.outcome for one in found.values()} == {Outcome.FAIL}
    blamed = {kind: one.blame.culprit for kind, one in found.items() if one.blame}
    assert blamed == {"mkdir": Culprit.FILESYSTEM_SETTINGS, "append": Culprit.STACK, "fsync": Culprit.STACK}
    lying = {one.kind: one for one in judge_promises(evidence, replace(conditions, lying_disks=("disk2",)), "here")}
    assert "disk2" in str(lying["mkdir"].blame)


def test_a_loss_under_async_says_how_much() -> None:
    assert "measured loss: 3 of 5" in judge_promise("fsync", 5, 5, 3, ASYNC).reason


def test_without_an_acknowledgement_nothing_is_proved() -> None:
    assert judge_promise("fsync", 0, 0, 0, SYNC).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("judged", "outcome"), [(LEAST_JUDGED - 1, Outcome.INCONCLUSIVE), (LEAST_JUDGED, Outcome.PASS)]
)
def test_too_few_operations_that_could_have_shown_a_loss_prove_nothing(judged: int, outcome: Outcome) -> None:
    assert judge_promise("fsync", 50, judged, 0, SYNC).outcome is outcome
    assert judge_promise("fsync", 50, judged, 1, SYNC).outcome is Outcome.FAIL


def test_each_kind_of_operation_is_a_promise_of_its_own() -> None:
    evidence = ScanResult(acknowledged={"mkdir": 9, "rename": 4, "rmdir": 0}, lost={"rename": 1}, judged={"mkdir": 9})
    outcomes = {one.checker: one.outcome for one in judge_promises(evidence, SYNC, "here")}
    assert outcomes == {
        "mkdir, seen here": Outcome.PASS,
        "rename, seen here": Outcome.FAIL,
        "rmdir, seen here": Outcome.INCONCLUSIVE,
    }


def test_each_kind_of_operation_has_a_promise() -> None:
    assert set(PROMISES) == set(KINDS)


@pytest.mark.parametrize("conditions", [SYNC, ASYNC, LYING])
def test_what_nobody_wrote_is_never_excused(conditions: Conditions) -> None:
    assert judge_nothing_invented(ScanResult(), conditions, "here").outcome is Outcome.PASS
    assert judge_nothing_invented(ScanResult(invented=["x"]), conditions, "here").outcome is Outcome.FAIL
