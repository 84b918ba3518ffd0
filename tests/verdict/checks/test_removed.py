"""The verdict on open files without a name: other content fails, and too few reads prove nothing."""

from dataclasses import replace
from errno import EBADMSG, EIO

from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.checks.removed import judge_removed
from raidproof.verdict.conditions import Conditions
from raidproof.workload.history import LEAST_DELAY_NS, Ended, Operation

SYNC = Conditions(export_sync=True)
FAULT = 100


def step(kind: str, at: int, error: int = 0, place: int = 1) -> Operation:
    ended = Ended.FAILED if error else Ended.OK
    return Operation(0, 0, kind, place, 1, at, at + 1, ended, error, at + LEAST_DELAY_NS)


def judged(*steps: Operation, conditions: Conditions = SYNC, fault: int | None = FAULT) -> Verdict:
    (verdict,) = judge_removed([step("open and remove", 0), *steps], conditions, fault)
    return verdict


USES = [step("use removed", at) for at in (10, 20, 30)]


def test_reads_and_those_after_the_fault_are_counted() -> None:
    verdict = judged(*USES, step("use removed", 110), step("use removed", 120, place=2))
    assert verdict.outcome is Outcome.PASS
    assert verdict.reason.startswith("5 reads had the content that was written, 2 of them after the fault")
    late = judge_removed([step("open and remove", 105), step("use removed", 110), *USES], SYNC, FAULT)
    assert ", 0 of them after the fault" in late[0].reason
    assert judged(*USES, fault=None).reason == "3 reads had the content that was written"


def test_few_reads_are_inconclusive() -> None:
    assert judged(*USES[:2]).outcome is Outcome.INCONCLUSIVE
    assert judged(*USES[:2], step("use removed", 40, EIO)).outcome is Outcome.INCONCLUSIVE


def test_other_content_fails_and_is_blamed_as_a_loss_is() -> None:
    verdict = judged(*USES, step("use removed", 110, EBADMSG))
    assert (verdict.outcome, str(verdict.blame).partition(":")[0]) == (Outcome.FAIL, "the stack")
    lying = replace(SYNC, lying_disks=("disk0",))
    assert str(judged(*USES, step("use removed", 110, EBADMSG), conditions=lying).blame).startswith("the disks")


def test_an_async_export_excuses_other_content_after_the_fault_only() -> None:
    fast = replace(SYNC, export_sync=False)
    assert judged(*USES, step("use removed", 110, EBADMSG), conditions=fast).outcome is Outcome.PASS
    assert judged(*USES, step("use removed", 50, EBADMSG), conditions=fast).outcome is Outcome.FAIL


def test_a_ledger_without_such_workers_is_not_judged() -> None:
    assert judge_removed([step("claim", 1)], SYNC, FAULT) == []
