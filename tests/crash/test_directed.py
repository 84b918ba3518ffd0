"""Directed states: their order, and the operations whose counterfactual state they are."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.crash.directed import Directed, in_pairs
from raidproof.crash.sampler import Choice, OnlyDirected, Policy
from raidproof.crash.states import CrashState, Recording
from raidproof.disk.writelog import Kind
from raidproof.workload.history import Ended, Operation
from tests.crash.conftest import Did, Record

FLUSH = Did(Kind.FLUSH)
KEYS = st.lists(st.sampled_from("abcdef"), max_size=40)


@pytest.fixture
def made(record: Record) -> Recording:
    """A recording of six writes, each followed by a flush; request n takes effect at 1000 * (n + 1) ns."""
    return record(*[one for turn in range(6) for one in (Did(Kind.WRITE, 0, 4096 * turn), FLUSH)])


def operation(sequence: int, promised_ns: int | None, kind: str = "fsync") -> Operation:
    return Operation(0, sequence, kind, sequence, 1, 0, promised_ns, Ended.OK, 0)


@given(KEYS)
def test_each_place_comes_once(keys: list[str]) -> None:
    assert sorted(in_pairs(keys)) == list(range(len(keys)))


@given(KEYS)
def test_each_prefix_with_twice_as_many_places_as_keys_has_a_pair_of_each(keys: list[str]) -> None:
    with_pairs = set(keys[1:])
    taken = set(list(in_pairs(keys))[: 2 * len(with_pairs)])
    assert {keys[place] for place in taken if place - 1 in taken} == with_pairs


@given(KEYS)
def test_no_key_gets_many_pairs_before_another_gets_one(keys: list[str]) -> None:
    # A pair that comes in passing does not delay the others.
    total, taken = Counter(keys[1:]), set[int]()
    for place in in_pairs(keys):
        complete = Counter(keys[one] for one in taken if one - 1 in taken)
        if all(complete[key] for key in total):
            break
        needed = {one + 1 for one in taken} | {one - 1 for one in taken}
        missing = {key for key in total if not complete[key]}
        nearby = {keys[one] for one in (place, place + 1) if one < len(keys)}
        assert place in needed or missing & nearby
        taken.add(place)


def test_the_rarest_key_comes_first() -> None:
    assert list(in_pairs("aaaba"))[:2] == [2, 3]


def test_a_place_that_serves_two_pairs_is_preferred() -> None:
    # The pair of b takes the places 2 and 3; that of c then needs only place 4, not the places 6 and 7.
    assert list(in_pairs("aaabcaac"))[:3] == [2, 3, 4]


def test_the_cut_is_that_of_the_reply_and_the_next_operation_must_be_missing(made: Recording) -> None:
    solo = [operation(0, 2500), operation(1, 4500), operation(2, 6500)]
    directed = Directed.of(made, solo)
    assert sorted(directed.cuts) == [2, 4, 6]
    assert [list(directed.after(cut)) for cut in (2, 4, 6)] == [[solo[1]], [solo[2]], []]


def test_a_reply_after_the_end_and_before_the_first_cut_has_no_state(made: Recording) -> None:
    solo = [operation(0, 2500), operation(1, 4500), operation(2, None), operation(3, made.end_ns), operation(4, 6500)]
    assert sorted(Directed.of(made, solo, first=3).cuts) == [4, 6]


def test_the_first_cut_has_a_state(made: Recording) -> None:
    assert Directed.of(made, [operation(0, 2500)], first=2).cuts == (2,)


def test_two_replies_without_a_request_between_them_have_one_state_and_no_counterfactual(made: Recording) -> None:
    directed = Directed.of(made, [operation(0, 2500), operation(1, 2600), operation(2, 4500)])
    assert sorted(directed.cuts) == [2, 4]
    assert [one.sequence for one in directed.after(2)] == [2]


def test_only_directed_states_are_those_without_a_survivor_in_their_order(made: Recording) -> None:
    directed = Directed.of(made, [operation(0, 4500), operation(1, 6500), operation(2, 2500, "link")])
    only = OnlyDirected(made, directed)
    assert only.order == [Choice(cut, Policy.DIRECTED) for cut in directed.cuts]
    assert (only.cuts, only.possible) == ([2, 4, 6], 3)
    assert only.state(only.order[0], (1, 2)) == CrashState(only.order[0].cut)
