from itertools import combinations
from math import comb
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError
from raidproof.crash import exhaustive as module
from raidproof.crash.exhaustive import AllLosses, Issues, nth_combination
from raidproof.crash.states import Caches, CrashState, Recording
from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import CHANGES, Flag, Kind
from tests.crash.conftest import Did, Record, write_log

WRITES = [Did(Kind.WRITE, 0, place * 4096) for place in range(3)]
TWICE = [Did(Kind.FLUSH, 1), *WRITES, Did(Kind.FLUSH, 0), *WRITES, Did(Kind.FLUSH, 0)]


def durable(recording: Recording, at_ns: int) -> frozenset[int]:
    """What is durable after the instant, computed from the requests alone, by another rule than `Caches` uses."""
    done = [(number, one) for number, one in enumerate(recording.records) if one.completed_ns <= at_ns]
    flushes = [one for _, one in done if one.kind is Kind.FLUSH and not one.flags & Flag.LIED]

    def survives(number: int) -> bool:
        one = recording.records[number]
        return (
            not recording.members[one.member].mode.loses
            or bool(one.flags & Flag.FUA)
            or any(flush.member == one.member and one.completed_ns <= flush.issued_ns for flush in flushes)
        )

    return frozenset(number for number, one in done if one.kind in CHANGES and survives(number))


def issued(recording: Recording, at_ns: int, number: int | None = None) -> frozenset[int]:
    """The requests issued until an instant; of those issued at this very instant, the ones up to ``number``."""
    total = len(recording.records) + len(recording.caught)
    asked = [(one, recording.request(one)) for one in range(total)]
    last = total if number is None else number
    return frozenset(one for one, it in asked if it.kind in CHANGES and (it.issued_ns, one) <= (at_ns, last))


def moments(recording: Recording, first: int) -> list[tuple[int, int | None]]:
    """All (instant, number) after which something differs: each completion, and each issue of a request."""
    begin, total = recording.instant_ns(first), len(recording.records) + len(recording.caught)
    found: list[tuple[int, int | None]] = [(begin, None), (recording.end_ns, None)]
    for number in range(total):
        one = recording.request(number)
        found += [(one.issued_ns, number)] if begin < one.issued_ns <= recording.end_ns else []
        found += [(one.completed_ns, None)] if begin <= one.completed_ns <= recording.end_ns else []
    return found


def by_brute_force(recording: Recording, most: int, first: int) -> dict[frozenset[int], int]:
    """All sets of requests that are there after some cut with at most ``most`` lost, and the fewest lost of each."""
    found: dict[frozenset[int], int] = {}
    for at_ns, number in moments(recording, first):
        kept = durable(recording, at_ns)
        loose = issued(recording, at_ns, number) - kept
        for count in range(most + 1):
            for lost in combinations(sorted(loose), count):
                there = kept | loose - set(lost)
                found[there] = min(found.get(there, count), count)
    return found


def there(recording: Recording, state: CrashState) -> frozenset[int]:
    return durable(recording, recording.instant_ns(state.cut)) | {one.request for one in state.survivors}


def possible_cuts(recording: Recording, requests: frozenset[int]) -> list[int]:
    cuts = []
    for cut in range(len(recording.records) + 1):
        kept = durable(recording, recording.instant_ns(cut))
        if kept <= requests <= kept | issued(recording, recording.instant_ns(cut)):
            cuts.append(cut)
    return cuts


def requests() -> st.SearchStrategy[list[Did]]:
    """Requests of two members: plain and FUA writes, discards, flushes that are honest or not, and some in flight."""
    kinds = st.sampled_from(
        [
            *[(Kind.WRITE, 0)] * 4,
            (Kind.WRITE, int(Flag.FUA)),
            (Kind.DISCARD, 0),
            (Kind.FLUSH, 0),
            (Kind.FLUSH, 0),
            (Kind.FLUSH, int(Flag.LIED)),
        ]
    )
    one = st.tuples(kinds, st.integers(0, 1), st.integers(0, 3), st.integers(0, 3))
    return st.tuples(st.lists(one, max_size=9), st.integers(0, 2)).map(lambda drawn: dids(*drawn))


def dids(drawn: list[tuple[tuple[Kind, int], int, int, int]], in_flight: int) -> list[Did]:
    done = [
        # No request is issued before the log begins.
        Did(kind, member, offset * 4096, flags=flags, took=min(took, place))
        for place, ((kind, flags), member, offset, took) in enumerate(drawn)
    ]
    caught = [
        Did(Kind.WRITE, offset=place * 4096, flags=int(Flag.IN_FLIGHT), took=min(2 * place + 1, place + len(drawn)))
        for place in range(in_flight)
    ]
    return [*done, Did(Kind.FREEZE), *caught]


@given(requests(), st.integers(0, 3), st.integers(0, 4), st.sampled_from([CacheMode.VOLATILE, CacheMode.NONE]))
def test_the_states_are_those_of_brute_force(done: list[Did], most: int, first: int, mode: CacheMode) -> None:
    with TemporaryDirectory() as folder:
        recording = Recording(write_log(Path(folder) / "write.log", done, mode=mode))
        first = min(first, len(recording.records))
        states = AllLosses(recording, most, first=first)
        expected = by_brute_force(recording, most, first)
        order = states.order
        made = [states.state(one) for one in order]
        sets = [there(recording, one) for one in made]
        assert set(sets) == set(expected)
        assert len(sets) == len(expected) == states.total == sum(states.counts)
        assert [states.lost(one) for one in order] == [expected[one] for one in sets]
        assert [expected[one] for one in sets] == sorted(expected.values())
        assert [one.cut for one in made] == [one.cut for one in order]
        # No later cut allows the state, and its survivors are among the requests that the cut leaves open.
        assert [one.cut for one in made] == [possible_cuts(recording, one)[-1] for one in sets]
        for state in made:
            caches = Caches(recording)
            for _ in caches.roll(state.cut):
                pass
            assert {one.request for one in state.survivors} <= set(caches.open)


@given(st.integers(0, 12), st.integers(0, 4), st.integers(1, 6))
def test_the_number_is_that_of_the_binomials(writes: int, most: int, epochs: int) -> None:
    with TemporaryDirectory() as folder:
        one_epoch = [*(Did(Kind.WRITE, 0, place * 4096) for place in range(writes)), Did(Kind.FLUSH, 0)]
        recording = Recording(write_log(Path(folder) / "write.log", [Did(Kind.FLUSH, 1), *one_epoch * epochs]))
        # After n requests of an epoch, each of at most k lost: sum of C(n, j), here by the hockey-stick identity.
        expected = 1 + epochs * sum(comb(writes, lost + 1) for lost in range(most + 1))
        assert AllLosses(recording, most).total == expected


@given(st.integers(0, 9), st.integers(0, 5))
def test_a_combination_by_its_rank(size: int, chosen: int) -> None:
    listed = list(combinations(range(size), chosen))
    assert [nth_combination(size, chosen, rank) for rank in range(len(listed))] == listed


def test_flush_epochs(record: Record) -> None:
    issues = Issues(record(*TWICE), 0)
    assert issues.epochs == [1, 1, 1, 1, 2, 2, 2]
    assert issues.outstanding == [0, 1, 2, 0, 1, 2]


def test_a_flush_of_any_member_ends_an_epoch(record: Record) -> None:
    done = [Did(Kind.FLUSH), Did(Kind.WRITE, 0), Did(Kind.WRITE, 1), Did(Kind.FLUSH, 0), Did(Kind.WRITE, 1, 4096)]
    issues = Issues(record(*done), 0)
    assert issues.epochs == [1, 1, 1, 2]
    assert issues.outstanding == [0, 1, 1]


def test_a_flush_of_an_empty_cache_ends_no_epoch(record: Record) -> None:
    done = [Did(Kind.FLUSH, 1), *WRITES, Did(Kind.FLUSH, 1), *WRITES]
    assert Issues(record(*done), 0).epochs == [1] * 7


def test_some_epochs(record: Record) -> None:
    recording = record(*TWICE)
    all_of_them, first, second = (AllLosses(recording, 2, epochs=one) for one in (None, (1, 1), (2, 2)))
    assert all_of_them.epochs == (1, 2)
    assert first.counts == (4, 3, 1)
    assert all_of_them.total == first.total + second.total
    assert {*first.order, *second.order} == set(all_of_them.order)
    assert all_of_them.counts_of(first.order) == first.counts


def test_epochs_that_do_not_exist_are_refused(record: Record) -> None:
    with pytest.raises(RequestError, match=r"flush epochs 2 to 3 do not exist: the recording has the epochs 1 to 2"):
        AllLosses(record(*TWICE), 2, epochs=(2, 3))


def test_too_many_states_are_refused_with_what_would_do(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_STATES", 13)
    recording = record(*TWICE)
    states = AllLosses(recording, 2)
    with pytest.raises(RequestError, match=r"15 crash states have up to 2 lost requests") as refused:
        states.require_few()
    assert refused.value.remedy == "choose --all-losses 1 or --epochs 1-1"
    AllLosses(recording, 1).require_few()
