"""Which missing flushes and FUA writes a crash state of a made-up write log would have shown."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.record.sensitivity import Defect, Subject, missing_flushes, noticed_in
from raidproof.verdict.durability import Copy, Durability, Flush, Needed, Requests, Write, needed_of_names
from raidproof.verdict.sensitivity import EARLY_NS, Order, before_commits, missed_at, rounds_of, sensitivity
from raidproof.workload.history import Ended, Operation, WorkerSpec

END = 1_000
WORKER = WorkerSpec(number=0, client="client1", kind="fsync", path="w", file=7, blocks=16)


def counted(
    needed: list[Needed], flushes: dict[int, list[Flush]], cut_ns: int | None = None
) -> dict[Defect, tuple[int, int, int | None]]:
    found = sensitivity(Order(Requests({}, flushes, END)), needed, cut_ns)
    return {one.defect: (one.instances, one.in_some_state, one.in_this_cut) for one in found}


@pytest.mark.parametrize(
    ("promised_ns", "later", "shown"),
    [
        (130, [Flush(200, 210)], 1),  # volatile until 210, after the reply
        (120, [Flush(200, 210)], 1),  # the flush ends with the reply
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
    found = sensitivity(Order(Requests({}, flushes, END)), [Needed(130, [Copy(0, 100, fua=False)])], None, checked_ns)
    by_defect = {one.defect: one.in_checked_states for one in found}
    assert [by_defect[one] for one in (Defect.FLUSH_OF_A_MEMBER, Defect.FLUSH, Defect.FUA)] == [shown, shown, 0]
    assert noticed_in(found) == shown


def test_each_cut_shows_the_flushes_whose_absence_would_lose_data() -> None:
    flushes = {0: [Flush(110, 120), Flush(200, 210)], 1: [Flush(111, 121)]}
    needed = [Needed(130, [Copy(0, 100, fua=False)]), Needed(150, [Copy(1, 100, fua=False)])]
    found = missed_at(Requests({}, flushes, END), needed, [500, 130, 131, 209, 210])
    first, second = frozenset({(0, 0)}), frozenset({(1, 0)})
    assert found == {130: set(), 131: {first}, 209: {first, second}, 210: {second}, 500: {second}}


def test_without_checked_states_nothing_is_known_of_them() -> None:
    found = sensitivity(
        Order(Requests({}, {0: [Flush(110, 120)]}, END)), [Needed(130, [Copy(0, 100, fua=False)])], None
    )
    assert {one.in_checked_states for one in found} == {None}
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


@pytest.mark.parametrize(
    ("promised_ns", "later_ns", "shown"),
    [
        (130, None, 1),  # the flush takes effect after the reply
        (120 + EARLY_NS, None, 0),  # the reply came later than the effect
        (130, 131, 1),  # the next flush makes the data durable, after the reply
        (220, 200, 0),  # the next flush came before the reply
    ],
)
def test_an_early_flush_shows_if_the_reply_came_before_its_effect_and_the_next_flush(
    promised_ns: int, later_ns: int | None, shown: int
) -> None:
    later = [] if later_ns is None else [Flush(later_ns, later_ns + 10)]
    requests = Requests({}, {0: [Flush(110, 120), *later]}, 10 * EARLY_NS)
    found = sensitivity(Order(requests), [Needed(promised_ns, [Copy(0, 100, fua=False)])], None)
    (early,) = (one for one in found if one.defect is Defect.EARLY_FLUSH)
    assert (early.instances, early.in_some_state) == (1, shown)


def write(issued_ns: int, done_ns: int, *, fua: bool = False, member: int = 0, digest: int = 0) -> Write:
    return Write(issued_ns, done_ns, member, fua, digest)


FLUSHED = {0: [Flush(110, 120)], 1: [Flush(111, 121)]}
BOTH = frozenset({(0, 0), (1, 0)})


@pytest.mark.parametrize(
    ("writes", "commits"),
    [
        ([write(90, 100), write(125, 130, fua=True)], {BOTH: (110, 121, True)}),
        ([write(90, 100), write(125, 130)], {}),  # no commit record
        ([write(90, 100), write(122, 124), write(125, 130, fua=True)], {}),  # another write comes between
        ([write(90, 100), write(119, 130, fua=True)], {}),  # it began before the flush had ended
        ([write(90, 100), write(125, 130, fua=True), write(131, 135, fua=True)], {BOTH: (110, 121, True)}),
    ],
)
def test_the_flush_right_before_a_fua_write_is_its_preflush(
    writes: list[Write], commits: dict[frozenset[tuple[int, int]], tuple[int, int, bool]]
) -> None:
    requests = Requests({}, FLUSHED, END, writes=writes)
    assert before_commits(requests, rounds_of(FLUSHED)) == commits


def test_a_write_that_does_not_follow_its_flush_hides_no_later_commit_record() -> None:
    flushes = {0: [Flush(110, 120), Flush(200, 210)]}
    writes = [write(90, 100), write(125, 130), write(140, 150, fua=True), write(215, 220, fua=True)]
    found = before_commits(Requests({}, flushes, END, writes=writes), rounds_of(flushes))
    assert found == {frozenset({(0, 1)}): (200, 210, True)}


def test_a_commit_record_without_its_preflush_loses_what_the_flush_covered() -> None:
    needed = [Needed(140, [Copy(0, 100, fua=False)])]
    writes = [write(90, 100), write(125, 130, fua=True)]
    found = {one.defect: one for one in sensitivity(Order(Requests({}, FLUSHED, END, writes=writes)), needed, 150)}
    without = found[Defect.NO_PREFLUSH]
    assert (without.instances, without.in_some_state, without.in_this_cut) == (1, 1, 1)
    plain = {one.defect: one for one in sensitivity(Order(Requests({}, FLUSHED, END, writes=writes[:1])), needed, 150)}
    assert plain[Defect.NO_PREFLUSH].instances == 0
    assert plain[Defect.FLUSH].instances == 1


@pytest.mark.parametrize(
    ("before", "cut_ns", "some", "this"),
    [
        ([write(90, 100)], 115, 1, 1),
        ([write(90, 100)], 121, 1, 0),  # the flush had ended
        ([write(90, 100)], 110, 1, 0),  # it had not begun
        ([write(90, 112)], 115, 0, 0),  # the flush covered no write: the order makes no difference
        ([write(90, 100, fua=True)], 115, 0, 0),
    ],
)
def test_a_commit_record_that_overtakes_its_flush_shows_while_the_flush_runs(
    before: list[Write], cut_ns: int, some: int, this: int
) -> None:
    requests = Requests({}, FLUSHED, END, writes=[*before, write(125, 130, fua=True)])
    (first,) = (one for one in sensitivity(Order(requests), [], cut_ns) if one.defect is Defect.COMMIT_FIRST)
    assert (first.instances, first.in_some_state, first.in_this_cut) == (1, some, this)


def operation(kind: str, issued_ns: int, replied_ns: int) -> Operation:
    return Operation(0, 0, kind, 0, 1, issued_ns, None, Ended.OK, 0, replied_ns=replied_ns)


def test_all_writes_of_a_solo_operation_belong_to_its_change_of_names() -> None:
    writes = [
        write(80, 85, digest=1),  # before the operation
        write(91, 95, digest=2),
        write(92, 96, digest=2, member=1),  # a copy
        write(97, 99, digest=3, fua=True),
        write(120, 150, digest=4),  # had not ended at the reply
        write(141, 142, digest=5),  # after the reply
    ]
    requests = Requests({}, {}, END, writes=writes)
    done = operation("rename", 90, 140)
    assert needed_of_names(requests, [done]) == [
        Needed(140, [Copy(0, 95, fua=False), Copy(1, 96, fua=False)]),
        Needed(140, [Copy(0, 99, fua=True)]),
    ]
    # The blocks of the ledger are found by their headers; an operation after the cut says nothing.
    assert needed_of_names(requests, [operation("fsync", 90, 140)]) == []
    assert needed_of_names(requests, [operation("rename", 90, END)]) == []


def test_the_sensitivity_for_names_is_counted_apart() -> None:
    requests = Requests({}, FLUSHED, END, writes=[write(91, 95), write(125, 128, fua=True)])
    names = sensitivity(
        Order(requests), needed_of_names(requests, [operation("mkdir", 90, 140)]), None, subject=Subject.NAMES
    )
    counts = {one.defect: (one.instances, one.in_some_state) for one in names}
    # Both writes have equal data, and the one with FUA is durable at its reply.
    assert counts[Defect.FLUSH_OF_A_MEMBER] == (1, 0)
    assert Defect.COMMIT_FIRST not in counts
    assert {one.subject for one in names} == {Subject.NAMES}
    assert missing_flushes(names) is None


@pytest.mark.parametrize(
    ("begun_ns", "replied_ns", "commits"),
    [
        (80, 200, {BOTH: (110, 121, False)}),  # flush and write belong to the operation
        (80, 124, {}),  # the write came after the reply
        (115, 200, {}),  # the flush is that of an earlier operation
    ],
)
def test_without_fua_the_first_write_after_a_flush_of_a_solo_operation_is_its_commit_record(
    begun_ns: int, replied_ns: int, commits: dict[frozenset[tuple[int, int]], tuple[int, int, bool]]
) -> None:
    requests = Requests({}, FLUSHED, END, writes=[write(90, 100), write(125, 130), write(126, 131)])
    solo = [operation("append", begun_ns, replied_ns)]
    assert before_commits(requests, rounds_of(FLUSHED), solo) == commits
    (first,) = (one for one in sensitivity(Order(requests, solo), [], 115) if one.defect is Defect.COMMIT_FIRST)
    # A commit record in the volatile cache is lost with all the rest: only a cut that keeps it shows the order.
    assert (first.instances, first.in_some_state, first.in_this_cut) == (len(commits), len(commits), 0)


TIMES = st.integers(0, 400)
SPANS = st.tuples(TIMES, st.integers(1, 60)).map(lambda one: (one[0], one[0] + one[1]))
WRITES = st.lists(
    st.builds(
        lambda span, member, fua, digest: Write(span[0], span[1], member, fua, digest),
        SPANS,
        st.integers(0, 2),
        st.booleans(),
        st.integers(0, 5),
    ),
    max_size=12,
).map(sorted)
FLUSHES = st.dictionaries(
    st.integers(0, 2), st.lists(SPANS.map(lambda one: Flush(*one)), max_size=6).map(sorted), max_size=3
)
LOGS = st.builds(lambda flushes, writes: Requests({}, flushes, 500, writes=writes), FLUSHES, WRITES)


@given(LOGS, st.lists(SPANS, max_size=4), st.one_of(st.none(), TIMES), st.lists(TIMES, max_size=4))
def test_the_counts_agree_with_each_other_for_every_write_log(
    requests: Requests, solo: list[tuple[int, int]], cut_ns: int | None, checked_ns: list[int]
) -> None:
    done = [operation("rename", *span) for span in solo]
    needed = needed_of_names(requests, done)
    both = [sensitivity(Order(requests, done), needed, cut_ns, checked_ns, subject=one) for one in Subject]
    for found in both:
        for one in found:
            assert 0 <= one.in_some_state <= one.instances
            assert (one.in_this_cut is None) == (cut_ns is None)
            assert one.in_checked_states is not None
            # A cut or a checked state is one of the states, unless it lies behind the end of the log.
            assert max(one.in_this_cut or 0, one.in_checked_states) <= one.in_some_state
    data = {one.defect: one for one in both[0]}
    assert data[Defect.NO_PREFLUSH].instances <= data[Defect.FLUSH].instances
    assert data[Defect.NO_PREFLUSH].in_some_state <= data[Defect.FLUSH].in_some_state
    # A flush that takes effect late is worth at least as much as one that is missing.
    early, missing = data[Defect.EARLY_FLUSH], data[Defect.FLUSH_OF_A_MEMBER]
    assert early.instances == missing.instances
    assert early.in_some_state <= missing.in_some_state
    names = both[1]
    assert [(one.defect, one.instances, one.in_some_state) for one in names] == [
        (one.defect, one.instances, one.in_some_state) for one in both[0] if one.defect is not Defect.COMMIT_FIRST
    ]
