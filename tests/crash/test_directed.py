"""Directed states: their order, and the operations whose counterfactual state they are."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.crash.directed import MOST_VOLATILE, Directed, in_pairs
from raidproof.crash.sampler import Choice, OnlyDirected, Policy
from raidproof.crash.states import CrashState, Recording
from raidproof.disk.writelog import Kind
from raidproof.workload.history import Ended, Operation
from tests.crash.conftest import Did, Record

FLUSH = Did(Kind.FLUSH)
KEYS = st.lists(st.sampled_from("abcdef"), max_size=40)
SHOWN = st.dictionaries(st.integers(0, 39), st.sets(st.integers(0, 5), min_size=1), max_size=12)


@pytest.fixture
def made(record: Record) -> Recording:
    """A recording of six writes, each followed by a flush; request n takes effect at 1000 * (n + 1) ns."""
    return record(*[one for turn in range(6) for one in (Did(Kind.WRITE, 0, 4096 * turn), FLUSH)])


def operation(sequence: int, promised_ns: int | None, kind: str = "fsync") -> Operation:
    return Operation(0, sequence, kind, sequence, 1, 0, promised_ns, Ended.OK, 0)


def order(keys: Sequence[str], shows: Mapping[int, set[int]] | None = None) -> list[int]:
    """Return the order of places with these keys; ``shows``: what places show, by place."""
    return list(in_pairs(keys, [(shows or {}).get(place, set()) for place in range(len(keys))]))


@given(KEYS, SHOWN)
def test_each_place_comes_once(keys: list[str], shows: dict[int, set[int]]) -> None:
    assert sorted(order(keys, shows)) == list(range(len(keys)))


@given(KEYS, SHOWN)
def test_the_first_places_have_a_pair_of_each_key(keys: list[str], shows: dict[int, set[int]]) -> None:
    with_pairs = set(keys[1:])
    taken = set(order(keys, shows)[: 2 * len(with_pairs)])
    assert {keys[place] for place in taken if place - 1 in taken} >= with_pairs


@given(KEYS, SHOWN)
def test_after_the_pairs_come_the_places_that_show_something_new(keys: list[str], shows: dict[int, set[int]]) -> None:
    everything = set().union(*(found for place, found in shows.items() if place < len(keys)))
    seen: set[int] = set()
    for number, place in enumerate(order(keys, shows)):
        gain = shows.get(place, set()) - seen
        if number >= 2 * len(set(keys[1:])) and everything - seen:
            assert gain
        seen |= gain


def test_the_rarest_key_comes_first() -> None:
    assert order("aaaba")[:2] == [2, 3]


def test_a_place_that_serves_two_pairs_is_preferred() -> None:
    # The pair of b takes the places 2 and 3; that of c then needs only place 4, not the places 6 and 7.
    assert order("aaabcaac")[:3] == [2, 3, 4]


def test_a_pair_that_shows_something_is_preferred() -> None:
    assert order("aaaa")[:2] == [0, 1]
    assert order("aaaa", {3: {1}})[:2] == [2, 3]
    assert order("aaaa", {1: {1}, 3: {1, 2}})[:2] == [2, 3]


def test_what_was_shown_before_is_worth_nothing() -> None:
    # After the pair of b, place 6 shows nothing new, but place 8 does.
    assert order("abaaaaaaa", {1: {1}, 6: {1}, 8: {2, 3}})[:4] == [0, 1, 7, 8]


@given(KEYS, SHOWN, st.lists(st.sets(st.integers(0, 9)), max_size=20))
def test_a_place_without_a_key_comes_only_if_it_shows_something_new(
    keys: list[str], shows: dict[int, set[int]], others: list[set[int]]
) -> None:
    every = [*(shows.get(place, set()) for place in range(len(keys))), *others]
    found, seen = list(in_pairs(keys, every)), set[int]()
    assert sorted(place for place in found if place < len(keys)) == list(range(len(keys)))
    for place in found:
        assert place < len(keys) or every[place] - seen
        seen |= every[place]
    assert seen == set().union(*every)


@given(st.lists(st.sets(st.integers(0, 12)), max_size=30))
def test_places_without_a_key_come_in_the_order_of_what_they_add(shows: list[set[int]]) -> None:
    greedy, seen, left = [], set[int](), set(range(len(shows)))
    while left := {place for place in left if shows[place] - seen}:
        best = max(left, key=lambda place: (len(shows[place] - seen), -place))
        greedy.append(best)
        seen |= shows[best]
    assert list(in_pairs((), shows)) == greedy


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


def test_what_a_cut_shows_is_requested_for_its_last_instant(made: Recording) -> None:
    requested: list[int] = []

    def missed_at(cuts_ns: Iterable[int]) -> dict[int, set[int]]:
        requested.extend(sorted(cuts_ns))
        return {requested[0]: set(), requested[1]: set(), requested[2]: set(), requested[3]: {1}}

    solo = [operation(number, 2500 + 2000 * number) for number in range(4)]
    directed = Directed.of(made, solo, missed_at=missed_at)
    assert requested == [made.instant_ns(cut) for cut in (2, 4, 6, 8)]
    assert directed.cuts[:2] == (6, 8), "the last reply shows something"


def shown_at(made: Recording, shows: Mapping[int, set[int]]) -> Callable[[Iterable[int]], dict[int, set[int]]]:
    """Return a function that returns what cuts show, by their instants; ``shows``: by cut."""
    by_instant = {made.instant_ns(cut): found for cut, found in shows.items()}
    return lambda cuts_ns: {cut_ns: by_instant.get(cut_ns, set()) for cut_ns in cuts_ns}


def test_a_reply_to_another_operation_has_a_state_if_it_shows_what_no_solo_operation_shows(made: Recording) -> None:
    solo, others = ([operation(number, 2500 + 2000 * number) for number in pair] for pair in ((0, 1), (2, 3)))
    missed_at = shown_at(made, {2: {1}, 4: {2}, 6: {1, 2}, 8: {2, 3}})
    directed = Directed.of(made, solo, others, missed_at=missed_at)
    assert directed.cuts == (2, 4, 8)
    assert not directed.after(8), "its state is no counterfactual state"
    assert Directed.of(made, solo, others).cuts == (2, 4), "what they show is not known"


def test_states_with_volatile_data_come_first(made: Recording) -> None:
    solo = [operation(0, 2500), operation(1, 4500)]
    directed = Directed.of(made, solo, volatile=[operation(2, 8500), operation(0, 2500), operation(3, None)])
    assert directed.cuts == (8, 2, 4)
    many = Directed([], volatile=range(2 * MOST_VOLATILE))
    assert many.cuts == tuple(range(MOST_VOLATILE)), "as many as an async export has would leave no other states"
