"""Which missing flushes and FUA writes a crash state of a made-up write log would have shown."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.record.sensitivity import Defect, noticed_in
from raidproof.verdict.durability import Copy, Durability, Flush, Needed, Requests
from raidproof.verdict.sensitivity import missed_at, rounds_of, sensitivity
from raidproof.workload.history import WorkerSpec

END = 1_000
WORKER = WorkerSpec(number=0, client="client1", kind="fsync", path="w", file=7, blocks=16)


def counted(
    needed: list[Needed], flushes: dict[int, list[Flush]], cut_ns: int | None = None
) -> dict[Defect, tuple[int, int, int | None]]:
    found = sensitivity(Requests({}, flushes, END), needed, cut_ns)
    return {one.defect: (one.instances, one.in_some_state, one.in_this_cut) for one in found}


@pytest.mark.parametrize(
    ("promised_ns", "later", "shown"),
    [
        (130, [Flush(200, 210)], 1),  # volatile until 210, after the reply
        (220, [Flush(200, 210)], 0),  # the next flush came before the reply
        (210, [Flush(200, 210)], 0),
        (130, [], 1),  # volatile until the end
    ],
)
def test_a_missing_flush_shows_if_the_reply_came_before_the_next_one(
    promised_ns: int, later: list[Flush], shown: int
) -> None:
    found = counted([Needed(promised_ns, [Copy(0, 100, fua=False)])], {0: [Flush(110, 120), *later]})
    assert found[Defect.FLUSH_OF_A_MEMBER] == (1, shown, None)
    assert found[Defect.FLUSH] == (1, shown, None)
    assert found[Defect.FUA] == (0, 0, None)


@pytest.mark.parametrize(("cut_ns", "shown"), [(129, 0), (131, 1), (209, 1), (210, 0)])
def test_the_injected_cut_shows_it_only_between_the_reply_and_the_next_flush(cut_ns: int, shown: int) -> None:
    flushes = {0: [Flush(110, 120), Flush(200, 210)]}
    found = counted([Needed(130, [Copy(0, 100, fua=False)])], flushes, cut_ns)
    assert found[Defect.FLUSH_OF_A_MEMBER] == (1, 1, shown)


@pytest.mark.parametrize(
    ("checked_ns", "shown"),
    [([], 0), ([130], 0), ([131], 1), ([209], 1), ([210], 0), ([500, 130], 0), ([500, 140, 20], 1)],
)
def test_a_checked_state_shows_it_only_between_the_reply_and_the_next_flush(checked_ns: list[int], shown: int) -> None:
    flushes = {0: [Flush(110, 120), Flush(200, 210)]}
    found = sensitivity(Requests({}, flushes, END), [Needed(130, [Copy(0, 100, fua=False)])], None, checked_ns)
    assert [one.in_checked_states for one in found] == [shown, shown, 0]
    assert noticed_in(found) == shown


def test_each_cut_shows_the_flushes_whose_absence_would_lose_data() -> None:
    flushes = {0: [Flush(110, 120), Flush(200, 210)], 1: [Flush(111, 121)]}
    needed = [Needed(130, [Copy(0, 100, fua=False)]), Needed(150, [Copy(1, 100, fua=False)])]
    found = missed_at(Requests({}, flushes, END), needed, [500, 130, 131, 209, 210])
    first, second = frozenset({(0, 0)}), frozenset({(1, 0)})
    assert found == {130: set(), 131: {first}, 209: {first, second}, 210: {second}, 500: {second}}


def test_without_checked_states_nothing_is_known_of_them() -> None:
    found = sensitivity(Requests({}, {0: [Flush(110, 120)]}, END), [Needed(130, [Copy(0, 100, fua=False)])], None)
    assert [one.in_checked_states for one in found] == [None, None, None]
    assert noticed_in(found) is noticed_in([]) is None


def test_a_copy_that_is_durable_hides_the_missing_flush_of_the_other_member() -> None:
    copies = [Copy(0, 100, fua=False), Copy(1, 101, fua=False)]
    found = counted([Needed(130, copies)], {0: [Flush(110, 120)], 1: [Flush(110, 121)]})
    assert found[Defect.FLUSH_OF_A_MEMBER] == (2, 0, None)
    assert found[Defect.FLUSH] == (1, 1, None)


def test_one_flush_is_one_instance_for_all_that_it_made_durable() -> None:
    both = [Needed(130, [Copy(0, 100, fua=False)]), Needed(300, [Copy(0, 101, fua=False)])]
    found = counted(both, {0: [Flush(110, 120), Flush(200, 210)]})
    assert found[Defect.FLUSH_OF_A_MEMBER] == (1, 1, None)


def test_data_that_were_volatile_at_the_reply_anyway_say_nothing_about_the_flush() -> None:
    found = counted([Needed(115, [Copy(0, 100, fua=False)])], {0: [Flush(110, 120)]})
    assert found[Defect.FLUSH_OF_A_MEMBER] == (0, 0, None)


@pytest.mark.parametrize(("flushes", "shown"), [([], 1), ([Flush(105, 108)], 0), ([Flush(105, 180)], 1)])
def test_a_fua_write_without_fua_is_volatile_until_the_next_flush(flushes: list[Flush], shown: int) -> None:
    found = counted([Needed(130, [Copy(0, 100, fua=True)])], {0: flushes})
    assert found[Defect.FUA] == (1, shown, None)
    assert found[Defect.FLUSH_OF_A_MEMBER] == (0, 0, None)


def test_a_flush_that_began_later_may_end_first() -> None:
    flushes = {0: [Flush(110, 180), Flush(115, 125), Flush(130, 140)]}
    assert Durability(flushes).flush_of(Copy(0, 100, fua=False)) == (0, 1)
    found = counted([Needed(130, [Copy(0, 100, fua=False)])], flushes)
    assert found[Defect.FLUSH_OF_A_MEMBER] == (1, 1, None)  # volatile until 140 without it


def test_flushes_of_different_members_at_the_same_time_are_one_round() -> None:
    flushes = {0: [Flush(10, 20), Flush(30, 40)], 1: [Flush(11, 19), Flush(12, 18)], 2: [Flush(25, 26)]}
    rounds = {frozenset(one) for one in rounds_of(flushes).values()}
    assert rounds == {frozenset({(0, 0), (1, 0)}), frozenset({(1, 1)}), frozenset({(2, 0)}), frozenset({(0, 1)})}


times = st.integers(0, 900)
flush_lists = st.lists(st.tuples(times, st.integers(1, 90)).map(lambda one: Flush(one[0], sum(one))), max_size=6)
members = st.dictionaries(st.integers(0, 2), flush_lists.map(sorted), max_size=3)
copy_lists = st.lists(st.builds(Copy, st.integers(0, 2), times, st.booleans()), min_size=1, max_size=3)


def test_a_round_lasts_until_its_last_flush_has_ended() -> None:
    flushes = {0: [Flush(10, 50)], 1: [Flush(12, 14)], 2: [Flush(20, 30)], 3: [Flush(51, 60)]}
    rounds = {frozenset(one) for one in rounds_of(flushes).values()}
    assert rounds == {frozenset({(0, 0), (1, 0), (2, 0)}), frozenset({(3, 0)})}


@given(members, copy_lists)
def test_leaving_out_flushes_never_makes_data_durable_earlier(
    flushes: dict[int, list[Flush]], data: list[Copy]
) -> None:
    durability, rounds = Durability(flushes), rounds_of(flushes)
    whole = durability.durable_ns(data)
    for one, together in rounds.items():
        assert whole <= durability.durable_ns(data, frozenset({one})) <= durability.durable_ns(data, together)
    everything = frozenset(rounds)
    left = [one.done_ns for one in data if one.fua]
    assert durability.durable_ns(data, everything) == min(left, default=inf)


@given(members, st.lists(st.builds(Needed, times, copy_lists), max_size=4), st.none() | times)
def test_no_more_show_than_there_are(
    flushes: dict[int, list[Flush]], needed: list[Needed], cut_ns: int | None
) -> None:
    for instances, in_some, in_this in counted(needed, flushes, cut_ns).values():
        assert 0 <= (in_this or 0) <= in_some <= instances
        assert (in_this is None) == (cut_ns is None)
