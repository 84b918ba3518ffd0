"""The verdict on locks: a lock granted twice fails, and a lost lock of which the client knows does not."""

from collections.abc import Sequence
from errno import EAGAIN, EIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.blame import Culprit
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.checks.locks import excused, judge_locks
from raidproof.workload.history import LEAST_DELAY_NS, Ended, Operation
from raidproof.workload.ledger import LedgerSpec

MS = 1_000_000
WORKERS = LedgerSpec(kinds=("locks",)).workers(["client1", "client2"])


def step(worker: int, kind: str, begin_ms: float, error: int = 0, place: int = 0, took_ms: float = 1) -> Operation:
    """A step of a worker that began and ended at these instants."""
    begun = round(begin_ms * MS)
    ended = Ended.FAILED if error else Ended.OK
    # `earliest_ns` is LEAST_DELAY_NS before the begin.
    return Operation(
        worker, 0, kind, place, 1, begun, begun + round(took_ms * MS), ended, error, begun + LEAST_DELAY_NS
    )


def judged(steps: Sequence[Operation], fault_at_ms: float | None = None) -> Verdict:
    at_ns = None if fault_at_ms is None else round(fault_at_ms * MS)
    (verdict,) = judge_locks(WORKERS, sorted(steps, key=lambda one: one.issued_ns), at_ns)
    return verdict


HOLDS = [step(0, "claim", 0), step(0, "guarded write", 50), step(0, "guarded write", 100), step(0, "release", 110)]
REFUSED = [step(1, "claim", at, EAGAIN) for at in (10, 20, 60)]


def test_claims_that_are_refused_while_another_client_holds_the_lock_pass() -> None:
    verdict = judged([*HOLDS, *REFUSED])
    assert verdict.outcome is Outcome.PASS
    assert verdict.reason == "3 claims were refused while another client held the lock"


def test_claims_after_the_fault_by_a_lock_held_before_it_are_counted() -> None:
    assert judged([*HOLDS, *REFUSED], 15).reason.endswith(
        ", 2 of them after the fault by a lock that was held before it"
    )
    assert ", 0 of them" in judged([*HOLDS, *REFUSED], 0.5).reason


def test_fewer_refusals_prove_nothing() -> None:
    assert judged([*HOLDS, *REFUSED[:2]]).outcome is Outcome.INCONCLUSIVE
    # Not while it was certainly held: before the claim's reply, after the last write under the lock.
    late = [step(1, "claim", at, EAGAIN) for at in (-0.5, 99.5, 105)]
    assert judged([*HOLDS, *REFUSED[:2], *late]).outcome is Outcome.INCONCLUSIVE


def test_a_claim_that_is_granted_while_another_client_holds_the_lock_fails() -> None:
    verdict = judged([*HOLDS, *REFUSED, step(1, "claim", 70)])
    assert verdict.outcome is Outcome.FAIL
    assert verdict.reason.startswith("client2 got the lock of range 0 while client1 held it")
    assert verdict.reason.endswith("wrote under this lock 0.029 s later")
    assert verdict.blame is not None
    assert verdict.blame.culprit is Culprit.STACK
    assert verdict.of_the_stack


def test_two_clients_that_write_under_the_same_lock_at_the_same_time_fail() -> None:
    # The claim began before the other one was granted, so that only the writes show it.
    other = [step(1, "claim", 0, took_ms=40), step(1, "guarded write", 80)]
    verdict = judged([*HOLDS, *other, *REFUSED])
    assert verdict.outcome is Outcome.FAIL
    assert "held the same lock for" in verdict.reason


def test_the_lock_of_another_range_is_another_lock() -> None:
    assert judged([*HOLDS, *REFUSED, step(1, "claim", 70, place=1)]).outcome is Outcome.PASS


@pytest.mark.parametrize("told", [step(0, "guarded write", 65, EIO), step(0, "release", 65)])
def test_a_client_that_knows_that_its_lock_is_lost_holds_it_no_longer(told: Operation) -> None:
    steps = [*HOLDS[:2], told, step(1, "claim", 70), step(1, "guarded write", 90), *REFUSED[:2]]
    assert judged(steps).outcome is Outcome.INCONCLUSIVE


def test_an_error_of_a_claim_is_no_refusal() -> None:
    errors = [step(1, "claim", at, EIO) for at in (10, 20, 60)]
    assert judged([*HOLDS, *errors]).outcome is Outcome.INCONCLUSIVE


def test_one_client_alone_is_not_judged() -> None:
    assert judge_locks(WORKERS[:1], HOLDS, None) == []
    assert judge_locks(LedgerSpec(kinds=("fsync",)).workers(["client1", "client2"]), HOLDS, None) == []


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), st.booleans()), max_size=30))
def test_a_sound_server_never_fails(turns: list[tuple[int, int, bool]]) -> None:
    """Claims of two clients, each granted exactly if the lock is free; the second client may know of a lost lock."""
    steps: list[Operation] = []
    holder: int | None = None
    for number, (worker, writes, lost) in enumerate(turns):
        at = number * 100.0
        if holder is None:
            steps.append(step(worker, "claim", at))
            holder = worker
        elif holder != worker:
            steps.append(step(worker, "claim", at, EAGAIN))
        held = range(writes if holder == worker else 0)
        steps += [step(worker, "guarded write", at + 10 + 10 * write) for write in held]
        if lost and holder == worker:
            steps.append(step(worker, "guarded write", at + 60, EIO))
            holder = None
        elif holder == worker and number % 3 == 0:
            steps.append(step(worker, "release", at + 60))
            holder = None
    assert judged(steps).outcome is not Outcome.FAIL


def test_local_locks_excuse_a_lock_that_is_granted_twice() -> None:
    verdict = judged([*HOLDS, step(1, "claim", 10)])
    assert verdict.outcome is Outcome.FAIL
    other = excused(verdict)
    assert (other.outcome, other.blame) == (Outcome.PASS, None)
    assert "make locks local" in other.reason
    assert verdict.reason in other.reason
