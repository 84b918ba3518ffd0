"""The cache of one member, compared with a simple model: sectors in a list, and each pending request separately."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raidproof.disk.cache import SECTOR, CacheMode, CutPolicy, CutResult, Member, PoweredOff
from raidproof.disk.sparse_image import CHUNK

SECTORS = 3 * CHUNK // SECTOR + 8  # the last chunk is not a whole one


Steps: TypeAlias = list[tuple[str, tuple[int, int] | None, bool | None]]


@dataclass
class Request:
    """One write or zeroing that no flush has covered, in sectors; the value 0 means zeros."""

    start: int
    count: int
    value: int
    durable: bool
    promised: bool


@dataclass
class Naive:
    """A simple model of a disk."""

    mode: CacheMode
    durable: list[int] = field(default_factory=lambda: [0] * SECTORS)
    pending: list[Request] = field(default_factory=list)

    def seen(self) -> list[int]:
        return self.after([range(r.start, r.start + r.count) for r in self.pending])

    def after(self, kept: list[range]) -> list[int]:
        sectors = list(self.durable)
        for request, span in zip(self.pending, kept, strict=True):
            for sector in span:
                sectors[sector] = request.value
        return sectors

    def write(self, start: int, count: int, value: int, fua: bool) -> None:
        lying, volatile = self.mode is CacheMode.LYING, self.mode is CacheMode.VOLATILE
        self.pending.append(Request(start, count, value, fua and volatile, fua and lying))
        if not self.mode.loses:
            self.settle()

    def flush(self) -> None:
        if self.mode is CacheMode.LYING:
            for request in self.pending:
                request.promised = True
        else:
            self.settle()

    def settle(self) -> None:
        self.durable, self.pending = self.seen(), []

    def dropped(self) -> list[int]:
        return self.after([range(r.start, r.start + r.count * r.durable) for r in self.pending])

    def subsets(self) -> list[list[int]]:
        choices = [[range(r.start, r.start + r.count), *([] if r.durable else [range(0)])] for r in self.pending]
        return [self.after(list(kept)) for kept in product(*choices)]

    def torn_is_legal(self, image: list[int]) -> bool:
        for sector, value in enumerate(image):
            legal = [self.durable[sector]]
            for request in self.pending:
                if request.start <= sector < request.start + request.count:
                    legal = [request.value] if request.durable else [*legal, request.value]
            if value not in legal:
                return False
        return True


def content(value: int, count: int) -> bytes:
    return value.to_bytes(4, "little") * (SECTOR // 4) * count


def sectors(data: bytes) -> list[int]:
    """Return one value for each sector of an image; -1 for a sector with mixed content."""
    found = []
    for at in range(0, len(data), SECTOR):
        piece = data[at : at + SECTOR]
        found.append(int.from_bytes(piece[:4], "little") if piece == piece[:4] * (SECTOR // 4) else -1)
    return found


def read(member: Member) -> bytes:
    buffer = bytearray(member.size)
    member.read_into(memoryview(buffer), 0)
    return bytes(buffer)


def durable(member: Member) -> list[int]:
    platter = member.image()
    return sectors(bytes(platter.view(0, platter.size)))


starts = st.one_of(st.integers(0, 20), st.integers(120, 140), st.integers(250, 260), st.integers(380, 390))
counts = st.one_of(st.integers(1, 8), st.sampled_from([64, 128, 130, 260]))
spans = st.tuples(starts, counts).map(lambda s: (s[0], min(s[1], SECTORS - s[0])))
operations = st.lists(
    st.one_of(
        st.tuples(st.just("write"), spans, st.booleans()),
        st.tuples(st.just("write"), spans, st.just(False)),
        st.tuples(st.just("zero"), spans, st.booleans()),
        st.tuples(st.just("flush"), st.none(), st.none()),
    ),
    max_size=9,
)


def apply(member: Member, naive: Naive, steps: Steps, first: int) -> None:
    for value, (name, span, fua) in enumerate(steps, first):
        if span is None:
            member.flush()
            naive.flush()
            continue
        start, count = span
        if name == "write":
            member.write(content(value, count), start * SECTOR, bool(fua))
        else:
            member.zero(start * SECTOR, count * SECTOR, bool(fua))
        naive.write(start, count, value if name == "write" else 0, bool(fua))


@given(st.sampled_from(CacheMode), st.sampled_from(CutPolicy), st.integers(), operations, operations)
@settings(max_examples=300, deadline=None)
def test_member_is_the_model(mode: CacheMode, policy: CutPolicy, seed: int, before: Steps, after: Steps) -> None:
    member, naive = Member("d0", SECTORS * SECTOR, mode), Naive(mode)
    for first, steps in ((1, before), (100, after)):
        apply(member, naive, steps, first)
        assert sectors(read(member)) == naive.seen()
        assert durable(member) == naive.dropped(), "the durable image is what DROP leaves"
        assert sectors(read(member)) == naive.seen(), "asking for it changes nothing"
        assert member.pending == sum(not r.durable for r in naive.pending)
        cut_result = member.cut(policy, Random(seed))
        member.power_on()
        image = sectors(read(member))
        if policy is CutPolicy.DROP:
            assert image == naive.dropped()
        elif policy is CutPolicy.KEEP:
            assert image == naive.seen()
        elif policy is CutPolicy.RANDOM:
            assert image in naive.subsets()
        assert naive.torn_is_legal(image)
        check_fate(cut_result, naive, policy)
        naive.durable, naive.pending = image, []
        assert member.pending == member.pending_bytes == 0


@given(st.sampled_from(CutPolicy), st.integers(), operations, operations)
@settings(max_examples=200, deadline=None)
def test_a_lying_disk_that_merges_its_oldest_notes_is_still_the_model(
    policy: CutPolicy, seed: int, before: Steps, after: Steps
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("raidproof.disk.cache.COALESCE_FROM", 16 * SECTOR)
        volatile, naive = Member("d0", SECTORS * SECTOR), Naive(CacheMode.VOLATILE)
        apply(volatile, naive, before, 1)
        volatile.mode = naive.mode = CacheMode.LYING
        apply(volatile, naive, after, 100)
        assert sectors(read(volatile)) == naive.seen()
        assert durable(volatile) == naive.dropped()
        assert volatile.pending == sum(not r.durable for r in naive.pending)
        cut_result = volatile.cut(policy, Random(seed))
    volatile.power_on()
    image = sectors(read(volatile))
    if policy is CutPolicy.KEEP:
        assert image == naive.seen()
    elif policy is CutPolicy.DROP:
        assert image == naive.dropped()
    assert naive.torn_is_legal(image)
    check_fate(cut_result, naive, policy)


def test_a_lying_disk_takes_no_more_memory_than_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raidproof.disk.cache.COALESCE_FROM", 64 * SECTOR)
    member = Member("d0", SECTORS * SECTOR, CacheMode.LYING)
    for value in range(1, 2000):
        member.write(content(value, 8), value % 4 * 8 * SECTOR)
        member.flush()
    assert len(member._pending) < 32
    assert member.pending == 1999
    cut_result = member.cut(CutPolicy.DROP, Random(0))
    counted = (cut_result.dropped, cut_result.broken_promises, cut_result.dropped_bytes)
    assert counted == (1999, 1999, 1999 * 8 * SECTOR)
    member.power_on()
    assert not any(read(member))


def check_fate(cut_result: CutResult, naive: Naive, policy: CutPolicy) -> None:
    open_requests = [r for r in naive.pending if not r.durable]
    assert cut_result.pending == len(open_requests) == cut_result.kept + cut_result.dropped
    assert cut_result.torn <= cut_result.kept
    assert cut_result.broken_promises <= sum(r.promised for r in open_requests)
    if policy is CutPolicy.DROP:
        assert cut_result.kept == 0
        assert cut_result.dropped_bytes == sum(r.count for r in open_requests) * SECTOR
        assert cut_result.broken_promises == sum(r.promised for r in open_requests)
    if policy is not CutPolicy.TORN:
        assert cut_result.torn == 0


@given(operations, st.sampled_from(CutPolicy), st.integers())
def test_flushed_data_survives_a_volatile_disk_and_not_a_lying_one(steps: Steps, policy: CutPolicy, seed: int) -> None:
    honest, liar = Member("d0", SECTORS * SECTOR), Member("d1", SECTORS * SECTOR, CacheMode.LYING)
    for member in (honest, liar):
        apply(member, Naive(member.mode), steps, 1)
        member.flush()
    seen = read(honest)
    cut_result = honest.cut(policy, Random(seed))
    honest.power_on()
    assert read(honest) == seen
    assert cut_result.pending == cut_result.broken_promises == 0
    liar.cut(CutPolicy.DROP, Random(seed))
    liar.power_on()
    assert not any(read(liar))


def test_the_model_finds_an_old_write_over_a_durable_one() -> None:
    naive = Naive(CacheMode.VOLATILE)
    naive.write(0, 2, 1, fua=False)
    naive.write(0, 1, 2, fua=True)
    assert not naive.torn_is_legal(naive.after([range(2), range(0)]))
    assert naive.after([range(2), range(0)]) not in naive.subsets()
    assert naive.dropped()[:2] == [2, 0]


def test_the_model_finds_a_lost_flush_and_a_torn_sector() -> None:
    naive = Naive(CacheMode.VOLATILE)
    naive.write(0, 4, 7, fua=False)
    naive.flush()
    assert not naive.torn_is_legal([0] * SECTORS)
    assert sectors(content(7, 1)[:256] + bytes(256)) == [-1]
    assert not naive.torn_is_legal([-1] * SECTORS)


@pytest.mark.parametrize("policy", [CutPolicy.RANDOM, CutPolicy.TORN])
def test_same_seed_same_outcome_and_seeds_differ(policy: CutPolicy) -> None:
    def outcome(seed: int) -> bytes:
        member = Member("d0", SECTORS * SECTOR)
        for value in range(1, 40):
            member.write(content(value, 8), value * 8 * SECTOR)
        member.cut(policy, Random(seed))
        member.power_on()
        return read(member)

    assert outcome(1) == outcome(1)
    outcomes = [sectors(outcome(seed)) for seed in range(30)]
    assert len({tuple(o) for o in outcomes}) > 20
    torn = [o for o in outcomes if any(0 < sum(s == v for s in o) < 8 for v in range(1, 40))]
    assert bool(torn) is (policy is CutPolicy.TORN)


def test_a_disk_that_begins_to_lie_keeps_what_was_durable() -> None:
    member = Member("d0", SECTORS * SECTOR)
    member.write(content(1, 2), 0)
    member.flush()
    member.mode = CacheMode.LYING
    member.write(content(2, 1), 0)
    member.flush()
    cut_result = member.cut(CutPolicy.DROP, Random(0))
    assert cut_result.broken_promises == 1
    member.power_on()
    assert sectors(read(member))[:3] == [1, 1, 0]


def test_a_lie_is_forgiven_by_an_honest_flush() -> None:
    member = Member("d0", SECTORS * SECTOR, CacheMode.LYING)
    member.write(content(1, 1), 0)
    member.flush()
    member.mode = CacheMode.VOLATILE
    assert member.pending == 1
    member.flush()
    assert member.cut(CutPolicy.DROP, Random(0)).broken_promises == 0
    member.power_on()
    assert sectors(read(member))[0] == 1


def test_what_a_cut_keeps_has_lost_nothing() -> None:
    member = Member("d0", SECTORS * SECTOR)
    for place in range(3):
        member.write(content(place + 1, 1), place * SECTOR)
    assert member.cut(CutPolicy.KEEP, Random(0)) == CutResult("d0", 3, 3, 0, 0, 0, 0)
    member.power_on()
    assert sectors(read(member))[:3] == [1, 2, 3]


@pytest.mark.parametrize("mode", [CacheMode.PROTECTED, CacheMode.NONE])
def test_safe_modes_keep_what_a_volatile_disk_had_pending(mode: CacheMode) -> None:
    member = Member("d0", SECTORS * SECTOR)
    member.write(content(1, 1), 0)
    member.mode = mode
    member.write(content(2, 1), SECTOR)
    assert member.cut(CutPolicy.DROP, Random(0)) == CutResult("d0", 0, 0, 0, 0, 0, 0)
    member.power_on()
    assert sectors(read(member))[:2] == [1, 2]


def test_without_power_nothing_is_served() -> None:
    member = Member("d0", SECTORS * SECTOR)
    member.cut(CutPolicy.DROP, Random(0))
    requests: list[Callable[[], None]] = [
        lambda: member.write(b"x" * SECTOR, 0),
        lambda: member.zero(0, SECTOR),
        lambda: member.read_into(memoryview(bytearray(1)), 0),
        member.flush,
    ]
    for request in requests:
        with pytest.raises(PoweredOff, match="d0: "):
            request()


def test_blank_forgets_everything() -> None:
    member = Member("d0", SECTORS * SECTOR)
    member.write(content(1, 300), 0)
    member.blank()
    assert not any(read(member))
    assert member.pending == 0
    assert list(member.image().extents()) == []


def test_a_slow_flush_owes_nothing_to_what_came_after_it() -> None:
    member = Member("d", 1 << 20)
    member.write(b"a" * 512, 0)
    covered = member.acknowledged
    member.write(b"b" * 512, 512)
    member.flush(covered)
    assert (member.pending, member.pending_bytes) == (1, 512)
    cut_result = member.cut(CutPolicy.DROP, Random(1))
    assert (cut_result.pending, cut_result.dropped) == (1, 1)
    member.power_on()
    buffer = bytearray(1024)
    member.read_into(memoryview(buffer), 0)
    assert bytes(buffer) == b"a" * 512 + bytes(512)


def test_two_flushes_may_end_in_either_order() -> None:
    member = Member("d", 1 << 20)
    member.write(b"a" * 512, 0)
    first = member.acknowledged
    member.write(b"b" * 512, 512)
    second = member.acknowledged
    member.write(b"c" * 512, 1024)
    member.flush(second)
    member.flush(first)
    assert member.pending == 1
    member.flush(member.acknowledged)
    assert member.pending == 0


@pytest.mark.parametrize("policy", [CutPolicy.RANDOM, CutPolicy.TORN])
def test_random_keeps_from_almost_none_to_almost_all(policy: CutPolicy) -> None:
    shares = []
    for seed in range(200):
        member = Member("d0", SECTORS * SECTOR)
        for sector in range(100):
            member.write(b"1" * 512, sector * 512)
        shares.append(member.cut(policy, Random(seed)).kept)
    # Each tenth of the range has its tenth of the seeds, within what chance allows.
    tenths = Counter(min(share // 10, 9) for share in shares)
    assert all(8 <= tenths[tenth] <= 34 for tenth in range(10)), tenths
