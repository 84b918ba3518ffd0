"""Shrinking of a failing case: each candidate is smaller and legal, the search ends, and a planted cause is found."""

from hypothesis import given, settings
from hypothesis import strategies as st

from raidproof.disk.cache import CacheMode
from raidproof.fault import MemberFails, PowerCut
from raidproof.fault.schedule import after_recovery, at
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.run.storm.case import Case, draw, why_not
from raidproof.run.storm.shrinking import candidates, shrunk, size_of
from raidproof.storage.stack import StackSpec
from tests.run.storm.test_case import seeds, stacks

NO_END = 10_000


@given(seeds, stacks)
def test_each_candidate_is_smaller_and_legal(seed: int, stack: StackSpec) -> None:
    case = draw(seed, [stack])
    for one in candidates(case):
        assert size_of(one) < size_of(case)
        assert why_not(one) is None


@settings(max_examples=30)
@given(seeds, stacks, st.data())
def test_shrinking_ends_whatever_fails(seed: int, stack: StackSpec, data: st.DataObject) -> None:
    answers = data.draw(st.randoms(use_true_random=False))
    case = draw(seed, [stack])
    smallest, tried = shrunk(case, lambda _: answers.random() < 0.5, most=NO_END)
    assert size_of(smallest) <= size_of(case)
    assert tried < NO_END


@given(seeds)
def test_a_case_of_which_one_fault_and_one_worker_fail_is_shrunk_to_these(seed: int) -> None:
    case = draw(seed, [stack_of("10")])
    names, worker = {one.fault.name for one in case.faults}, case.kinds[0]
    cause = min(names)

    def fails(one: Case) -> bool:
        return cause in {scheduled.fault.name for scheduled in one.faults} and worker in one.kinds

    smallest, _ = shrunk(case, fails, most=NO_END)
    assert fails(smallest)
    # One that stays in effect needs another one that ends.
    assert len(smallest.faults) <= 2
    assert smallest.kinds == (worker,)


def test_times_become_shorter_down_to_a_limit() -> None:
    faults = (at(4.0, MemberFails("disk0"), lasts_s=2.0), at(6.0, PowerCut()), after_recovery(2.0, PowerCut()))
    case = Case(stack_of("10"), CacheMode.NONE, ("fsync",), faults)

    def needs_all(one: Case) -> bool:
        return len(one.faults) == len(faults) and one.stack == case.stack

    smallest, _ = shrunk(case, needs_all, most=NO_END)
    assert [str(one) for one in smallest.faults] == [
        "at 0.5 s member-fails disk0, for 0.5 s",
        "at 0.5 s power-cut",
        "0 s after the recovery power-cut",
    ]


def test_a_search_ends_after_its_budget_and_when_it_cannot_go_on() -> None:
    case = draw(3, [stack_of("10")])
    assert shrunk(case, lambda _: True, most=2)[1] == 2
    assert shrunk(case, lambda _: None, most=9) == (case, 1)
