from collections import Counter

import pytest

from raidproof.crash import sampler as module
from raidproof.crash.sampler import Choice, Choices, Policy
from raidproof.crash.states import Caches, CrashState, Survivor
from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import Kind
from tests.crash.conftest import Did, Record

LOG = [
    *(Did(Kind.WRITE, member, place * 4096, byte=place + 1) for place in range(3) for member in (0, 1)),
    Did(Kind.FLUSH, 0),
    Did(Kind.FLUSH, 1),
]


def test_the_same_seed_gives_the_same_states(record: Record) -> None:
    made = record(*LOG)
    assert Choices(made, 1).order == Choices(made, 1).order
    assert Choices(made, 1).order != Choices(made, 2).order


def test_each_policy_comes_early(record: Record) -> None:
    order = Choices(record(*LOG), 1, replies={"link": [6500]}).order
    assert {choice.policy for choice in order[: len(Policy) - 2]} == set(Policy) - {Policy.FEW_LOST, Policy.DIRECTED}


def test_what_the_policies_keep(record: Record) -> None:
    choices = Choices(record(*LOG), 1)
    requests = (0, 1, 2, 3)

    def kept(policy: Policy, number: int = 0) -> list[int]:
        return [one.request for one in choices.state(Choice(4, policy, number), requests).survivors]

    assert kept(Policy.DROP_ALL) == []
    assert kept(Policy.KEEP_ALL) == [0, 1, 2, 3]
    assert kept(Policy.ONE_MISSING, 1) == [0, 2, 3]
    assert kept(Policy.ONE_KEPT, 2) == [2]
    assert kept(Policy.MEMBER_MISSING, 0) == [1, 3]
    assert kept(Policy.MEMBER_KEPT, 0) == [0, 2]
    assert kept(Policy.RANDOM) == kept(Policy.RANDOM)
    assert {len(kept(Policy.RANDOM, number)) for number in range(50)} > {1, 2, 3}


def test_what_is_torn_is_torn_at_the_disks_unit(record: Record) -> None:
    made = record(Did(Kind.WRITE, length=16384), Did(Kind.WRITE))
    torn = [
        span
        for number in range(200)
        for one in Choices(made, 1, unit=4096).state(Choice(1, Policy.TORN, number), (0,)).survivors
        for span in one.spans or ()
    ]
    assert torn
    assert not any(edge % 4096 for span in torn for edge in span)


@pytest.mark.parametrize(("length", "torn"), [(2048, False), (4096, False), (8192, True)])
def test_only_what_is_longer_than_the_unit_is_torn(record: Record, length: int, torn: bool) -> None:
    order = Choices(record(Did(Kind.WRITE, length=length)), 1, unit=4096).order
    assert (Policy.TORN in {choice.policy for choice in order}) is torn


def test_all_subsets_are_counted(record: Record) -> None:
    made = record(*LOG)
    # Nothing open at 0; all six and the flush at the end of the writes.
    assert Choices(made, 1, first=6).possible == 2**6 + 2**3 + 1


def test_of_many_cuts_some_are_drawn_and_all_are_counted(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    made = record(*(Did(Kind.WRITE, turn % 2, turn * 512) for turn in range(40)), mode=CacheMode.NONE)
    every = Choices(made, 1)
    monkeypatch.setattr(module, "MOST_CUTS", 10)
    few = Choices(made, 1)
    assert (few.cuts, few.possible) == (every.cuts, every.possible)
    drawn = {choice.cut for choice in few.order}
    assert len(drawn) == 10 < len({choice.cut for choice in every.order}) == 41
    assert Choices(made, 1).order == few.order
    assert {choice.cut for choice in Choices(made, 2).order} != drawn
    assert {choice.policy for choice in few.order} == {choice.policy for choice in every.order}


def test_a_single_open_request_has_two_states(record: Record) -> None:
    made = record(Did(Kind.WRITE, length=512), Did(Kind.FLUSH))
    choices = Choices(made, 1, first=1)
    states = [choices.state(choice, (0,)) for choice in choices.order if choice.cut == 1]
    assert sorted(states) == [CrashState(1), CrashState(1, (Survivor(0),))]


def test_random_states_keep_from_almost_none_to_almost_all(record: Record) -> None:
    made = record(*(Did(Kind.WRITE, offset=4096 * place) for place in range(50)))
    kept = []
    for seed in range(25):
        choices = Choices(made, seed)
        caches = Caches(made)
        assert not list(caches.roll(50))
        drawn = [one for one in choices.order if one.cut == 50 and one.policy in {Policy.RANDOM, Policy.TORN}]
        kept += [len(choices.state(one, caches.open).survivors) for one in drawn]
    fifths = Counter(min(count // 10, 4) for count in kept)
    assert all(len(kept) // 10 <= fifths[fifth] <= len(kept) * 3 // 10 for fifth in range(5)), fifths


def test_at_a_reply_nothing_is_there_that_came_later(record: Record) -> None:
    made = record(*LOG)
    ends = [one.completed_ns for one in made.records]
    replies = [ends[5] - 2, ends[5] - 1, ends[6] - 1, ends[7] + 1, made.end_ns - 2, made.end_ns]
    choices = Choices(made, 1, replies={"link": replies}, only_replies=True)
    # The first binds at cut 5; the second comes too late for it. At a cut that comes before the reply, nothing binds.
    assert sorted(choices.order) == [Choice(cut, Policy.AT_REPLY) for cut in (5, 6, 7)]
    assert all(made.instant_ns(6) > at for at in replies[:2])
    assert choices.state(Choice(6, Policy.AT_REPLY), (0, 1, 2)) == CrashState(6)
    later = Choices(made, 1, first=6, replies={"link": replies[:2]}, only_replies=True)
    assert [one.cut for one in later.order] == [6]
    assert Policy.AT_REPLY in {one.policy for one in Choices(made, 1, replies={"link": replies}).order[: len(Policy)]}


def test_a_rare_kind_of_operation_is_cut_at_as_often_as_a_frequent_one(record: Record) -> None:
    made = record(*LOG)
    ends = [one.completed_ns for one in made.records]
    frequent, rare = [one - 2 for one in ends[4:7]], [ends[7] - 2]
    order = Choices(made, 1, replies={"fsync": frequent, "link": rare}, only_replies=True).order
    assert 7 in [choice.cut for choice in order[:2]]
    assert sorted(choice.cut for choice in order) == [4, 5, 6, 7]
    # What one cut shows of two kinds is checked at once.
    assert len(Choices(made, 1, replies={"fsync": rare, "link": rare}, only_replies=True).order) == 1


def test_a_torn_request_without_surviving_sectors_is_lost(record: Record) -> None:
    made = record(*(Did(Kind.WRITE, offset=8192 * place, length=1024) for place in range(40)))
    requests = tuple(range(40))
    choices = Choices(made, 1)
    drawn = [
        one
        for number in range(20)
        for one in choices.state(Choice(40, Policy.TORN, number), requests).survivors
        if one.spans is not None
    ]
    assert drawn
    assert all(one.spans for one in drawn)


def test_by_interest_the_order_has_the_same_states(record: Record) -> None:
    made = record(*LOG)
    replies = {"link": [2500, 6500]}
    uniform, weighted = (Choices(made, 1, replies=replies, by_interest=by) for by in (False, True))
    assert set(uniform.order) == set(weighted.order)
    assert uniform.order != weighted.order
    assert weighted.order == Choices(made, 1, replies=replies, by_interest=True).order
    assert [one.policy for one in uniform.order] == [one.policy for one in weighted.order]


def test_cuts_of_greater_interest_come_early(record: Record) -> None:
    # In each of 20 flush epochs a write completes; only in the last one a client was told of it before the flush.
    done = [Did(kind, 0, 4096 * turn) for turn in range(20) for kind in (Kind.WRITE, Kind.FLUSH)]
    made, replies = record(*done), {"fsync": [39100]}

    def places(*, by_interest: bool) -> list[int]:
        orders = [Choices(made, seed, replies=replies, by_interest=by_interest).order for seed in range(40)]
        dropped = [[one.cut for one in order if one.policy is Policy.DROP_ALL] for order in orders]
        return sorted(cuts.index(39) for cuts in dropped)

    assert places(by_interest=True)[20] < places(by_interest=False)[20] / 3
