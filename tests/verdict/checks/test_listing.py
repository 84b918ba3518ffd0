"""The verdict on listings: a wrong name fails, and too few parts prove nothing."""

from dataclasses import replace
from errno import EIO

import pytest

from raidproof.guest.ledger_format import NAME_MISSING, NAME_TWICE, NAME_UNKNOWN
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.checks.listing import judge_listings
from raidproof.verdict.conditions import Conditions
from raidproof.workload.history import LEAST_DELAY_NS, Ended, Operation

SYNC = Conditions(export_sync=True)
FAULT = 100


def part(at: int, error: int = 0, place: int = 1, names: int = 48) -> Operation:
    ended = Ended.FAILED if error else Ended.OK
    return Operation(0, 0, "list names", place, names, at, at + 1, ended, error, at + LEAST_DELAY_NS)


def judged(*steps: Operation, conditions: Conditions = SYNC, fault: int | None = FAULT) -> Verdict:
    (verdict,) = judge_listings(steps, conditions, fault)
    return verdict


PARTS = [part(at) for at in (10, 20, 30)]


def test_listings_parts_and_those_across_the_fault_are_counted() -> None:
    verdict = judged(*PARTS, part(110), part(120, place=2, names=60))
    assert verdict.outcome is Outcome.PASS
    assert verdict.reason == (
        "2 listings of up to 60 names, in 5 parts, had each name once; none of a directory of thousands of names; 1 "
        "of them began before the fault and continued after it"
    )
    assert judged(*PARTS, fault=None).reason == (
        "1 listings of up to 48 names, in 3 parts, had each name once; none of a directory of thousands of names"
    )
    many = judged(*PARTS, part(110, names=2000, place=3), part(120, names=2000, place=3))
    assert "; 1 of them of a directory of thousands of names" in many.reason
    # A part in which the fault struck is neither before nor after it.
    assert "; 0 of them began" in judged(*PARTS, part(99)).reason


def test_few_parts_are_inconclusive() -> None:
    assert judged(*PARTS[:2]).outcome is Outcome.INCONCLUSIVE
    assert judged(*PARTS[:2], part(40, EIO)).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("error", "what"), [(NAME_MISSING, "lacked a name"), (NAME_TWICE, "had a name twice"), (NAME_UNKNOWN, "no client")]
)
def test_a_wrong_name_fails_and_is_blamed_as_a_loss_is(error: int, what: str) -> None:
    verdict = judged(*PARTS, part(110, error))
    assert (verdict.outcome, str(verdict.blame).partition(":")[0]) == (Outcome.FAIL, "the stack")
    assert what in verdict.reason
    lying = replace(SYNC, lying_disks=("disk0",))
    assert str(judged(*PARTS, part(110, error), conditions=lying).blame).startswith("the disks")


def test_an_async_export_excuses_wrong_names_after_the_fault_only() -> None:
    fast = replace(SYNC, export_sync=False)
    assert judged(*PARTS, part(110, NAME_MISSING), conditions=fast).outcome is Outcome.PASS
    assert judged(*PARTS, part(50, NAME_MISSING), conditions=fast).outcome is Outcome.FAIL


def test_a_ledger_without_listings_is_not_judged() -> None:
    assert judge_listings([part(1)._replace(kind="claim")], SYNC, FAULT) == []
