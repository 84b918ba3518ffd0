"""Properties of every disk, controller and load."""

from itertools import count, takewhile
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from raidproof.core.units import KIB, MIB
from raidproof.disk.profile import Profile, load_profile, profile_names
from raidproof.disk.timing.hardware import Battery, ControllerSpec, Hardware, Member, drive
from raidproof.disk.timing.request import Op, Request
from raidproof.disk.timing.rotational import Placement

PROFILES = [load_profile(name) for name in profile_names()]
TIMED = [profile for profile in PROFILES if profile.timed]
VOLATILE = [profile for profile in TIMED if not profile.cache.protected]
ROTATIONAL = [profile for profile in TIMED if profile.rotational]
BLOCK = 4 * KIB
SPACE = 512 * MIB
"""Bytes of each member."""

profiles = st.sampled_from(PROFILES)
controllers = st.builds(
    ControllerSpec,
    st.just("c0"),
    st.none() | st.floats(1, 5000),
    st.none() | st.floats(100, 1e6),
    st.sampled_from([0, 64 * KIB, 2 * MIB, 64 * MIB]),
    st.sampled_from(Battery),
)
members = st.tuples(profiles, st.just(SPACE), st.sampled_from(Placement), st.sampled_from([None, "c0"]))
asked = st.tuples(
    st.sampled_from(Op),
    st.integers(0, 255) | st.integers(0, SPACE // BLOCK - 257),
    st.sampled_from([1, 1, 8, 32, 256]),
    st.booleans(),
    st.integers(0, 3),
    st.sampled_from([0, 0, 0, 1000, 10**6, 10**8]),
)
Asked = tuple[Op, int, int, bool, int, int]


def made(one: Asked, count_of_members: int) -> Request:
    op, block, blocks, fua, member, _ = one
    bare = op is Op.FLUSH
    span = (0, 0) if bare else (block * BLOCK, blocks * BLOCK)
    return Request(op, *span, fua=fua and not bare, member=member % count_of_members)


def play(disks: list[Member], controller: ControllerSpec, load: list[Asked]) -> list[Request]:
    """Submit requests at given times, also while others are in progress, and wait for the last reply."""
    hardware, now, done = Hardware(disks, [controller]), 0, []
    for one in load:
        now += one[-1]
        hardware.submit(made(one, len(disks)), now)
        done += hardware.advance(now)
    while (upcoming := hardware.next_ns) is not None:
        done += hardware.advance(upcoming)
    return done


@settings(max_examples=150, deadline=None)
@given(st.lists(members, min_size=1, max_size=3), controllers, st.lists(asked, max_size=80))
def test_all_is_answered_once_not_before_it_was_asked_and_always_alike(
    disks: list[Member], controller: ControllerSpec, load: list[Asked]
) -> None:
    done = play(disks, controller, load)
    assert len({id(request) for request in done}) == len(done) == len(load)
    times = [request.done_ns for request in done if request.done_ns is not None]
    assert times == sorted(times)
    assert all(request.done_ns is not None and request.done_ns >= request.submitted_ns for request in done)
    again = play(disks, controller, load)
    assert [(r.op, r.offset, r.member, r.done_ns) for r in done] == [
        (r.op, r.offset, r.member, r.done_ns) for r in again
    ]


def total_ns(profile: Profile, requests: list[Request], depth: int, size: int = SPACE) -> int:
    done = drive(Hardware([(profile, size, Placement.SPREAD, None)]), requests, depth)
    assert len(done) == len(requests)
    return max(request.done_ns or 0 for request in done)


apart = st.lists(st.integers(0, SPACE // (64 * KIB) - 1), min_size=64, max_size=64, unique=True)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(TIMED), apart, st.sampled_from([Op.READ, Op.WRITE]), st.sampled_from([1, 8, 32]))
def test_never_faster_than_the_interface_and_the_medium(
    profile: Profile, places: list[int], op: Op, depth: int
) -> None:
    length = 64 * KIB
    requests = [Request(op, place * length, length) for place in places]
    hardware = Hardware([(profile, SPACE, Placement.SPREAD, None)])
    drive(hardware, requests, depth)
    took = drive_to_the_medium(hardware)
    assert len(places) * length / took * 1e3 <= profile.interface_mb_s * 1.001
    if profile.rotational is not None:
        # Reading ahead for the last request may have brought what the first ones asked for, never more.
        assert len(places) * length / took * 1e3 <= profile.rotational.media_rate_rim_mb_s * 1.05


def drive_to_the_medium(hardware: Hardware) -> int:
    """Flush, let all requests end, and return the time of the end."""
    upcoming = hardware.next_ns
    last = 0
    flush = Request(Op.FLUSH)
    hardware.submit(flush, 0)
    while (upcoming := hardware.next_ns) is not None:
        last = upcoming
        hardware.advance(upcoming)
    return last


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(TIMED), st.sampled_from([Op.READ, Op.WRITE]), st.sampled_from([1, 4]), st.randoms())
def test_a_sequence_is_faster_than_its_requests_in_disorder(
    profile: Profile, op: Op, depth: int, chance: object
) -> None:
    if profile.flash is not None and op is Op.WRITE:
        return  # flash writes everything as a log
    fua = op is Op.WRITE
    places = list(range(100))
    order = sorted(places, key=lambda _: chance.random())  # type: ignore[attr-defined]
    stride = SPACE // 100 // BLOCK * BLOCK
    ordered = [Request(op, place * BLOCK, BLOCK, fua=fua) for place in places]
    disordered = [Request(op, place * stride, BLOCK, fua=fua) for place in order]
    assert total_ns(profile, ordered, depth) < total_ns(profile, disordered, depth)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(TIMED), st.integers(0, 10**6), st.booleans())
def test_a_deeper_queue_is_never_slower_over_a_random_batch(profile: Profile, seed: int, write: bool) -> None:
    chance = Random(seed)
    places = [chance.randrange(SPACE // BLOCK) for _ in range(200)]

    def batch() -> list[Request]:
        return [Request(Op.WRITE if write else Op.READ, place * BLOCK, BLOCK, fua=write) for place in places]

    times = [total_ns(profile, batch(), depth) for depth in (1, 4, 16)]
    # The nearest first is not the best of all orders: it may lose a little by chance.
    assert times[1] <= times[0] * 1.05
    assert times[2] <= times[1] * 1.05


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(VOLATILE), st.lists(asked, max_size=60), st.sampled_from([0, 0, 10**6, 10**8]))
def test_after_a_flush_nothing_that_was_acknowledged_is_left_to_do(
    profile: Profile, load: list[Asked], later_ns: int
) -> None:
    writes = [made(one, 1) for one in load if one[0] is Op.WRITE]
    hardware = Hardware([(profile, SPACE, Placement.SPREAD, None)])
    drive(hardware, writes, 8)
    now = max((write.done_ns or 0 for write in writes), default=0) + later_ns
    flush = Request(Op.FLUSH)
    hardware.submit(flush, now)
    done: list[Request] = []
    while hardware.next_ns is not None:
        done += hardware.advance(hardware.next_ns)
    assert done == [flush]
    assert flush.done_ns is not None
    (at_the_flush,), _ = hardware.busy(flush.done_ns)
    (in_the_end,), _ = hardware.busy(flush.done_ns + 10**12)
    assert at_the_flush.busy_ns == in_the_end.busy_ns
    covered = {block for write in writes for block in range(write.offset, write.offset + write.length, BLOCK)}
    written_ns = len(covered) * BLOCK / profile.sequential_mb_s * 1e3
    # A track passes a little faster than it is sustained: the head switch comes after it.
    assert in_the_end.busy_ns >= written_ns * 0.8


def test_a_flush_does_not_wait_for_later_writes() -> None:
    profile = load_profile("atlas-10k5")

    def flush_ns(later: int) -> int:
        hardware = Hardware([(profile, profile.capacity, Placement.SPREAD, None)])
        flush = Request(Op.FLUSH)
        for number in range(20):
            hardware.submit(Request(Op.WRITE, number * 7_000_002_560, BLOCK), 0)
        hardware.submit(flush, 10**7)
        for number in range(later):
            hardware.submit(Request(Op.WRITE, number * 70_004_736, BLOCK), 10**7 + 1000)
        while flush.done_ns is None:
            hardware.advance(hardware.next_ns or 0)
        return flush.done_ns - flush.submitted_ns

    assert flush_ns(1000) < 2 * flush_ns(0)


def test_an_idle_disk_or_one_with_a_protected_cache_flushes_at_once() -> None:
    for name in ("atlas-10k5", "nvme-plp"):
        profile = load_profile(name)
        assert total_ns(profile, [Request(Op.FLUSH)], 1) == profile.command_overhead_us * 1e3


def test_a_forced_write_waits_for_the_medium() -> None:
    for profile in TIMED:
        if not profile.cache.protected:
            plain, forced = (
                total_ns(profile, [Request(Op.WRITE, SPACE // 2, BLOCK, fua=fua)], 1) for fua in (False, True)
            )
            assert forced > plain * 2, profile.name


def test_no_request_starves_beside_a_stream_of_nearer_ones() -> None:
    """A stream of reads does not starve distant requests, a full cache or a flush."""
    for profile in ROTATIONAL:
        hardware = Hardware([(profile, profile.capacity, Placement.SPREAD, None)])
        far = profile.capacity // 2 // BLOCK * BLOCK
        room = profile.cache.size // (64 * KIB)
        others = [Request(Op.READ, far, BLOCK), Request(Op.WRITE, far, BLOCK, fua=True)]
        others += [Request(Op.WRITE, far + number * MIB, 64 * KIB) for number in range(min(room, 200) + 4)]
        others.append(Request(Op.FLUSH))
        for request in others:
            hardware.submit(request, 0)
        numbers = takewhile(lambda _: any(request.done_ns is None for request in others), count())  # noqa: B023
        stream = (Request(Op.READ, number * 128 * KIB, 128 * KIB) for number in numbers)
        drive(hardware, stream, 4 + len(others), until_ns=60 * 10**9)
        assert all(request.done_ns is not None for request in others), profile.name


def test_reset_forgets_requests_and_keeps_counters() -> None:
    profile = load_profile("atlas-10k5")
    hardware = Hardware([(profile, SPACE, Placement.SPREAD, "c0")], [ControllerSpec("c0", 100.0)])
    drive(hardware, [Request(Op.READ, 0, MIB)], 1)
    hardware.submit(Request(Op.READ, SPACE // 2, MIB), 10**9)
    before = hardware.busy(10**9)
    hardware.reset(10**9)
    assert hardware.next_ns is None
    assert hardware.advance(10**12) == []
    after = hardware.busy(10**12)
    for one, other in zip(before[0] + before[1], after[0] + after[1], strict=True):
        assert (one.busy_ns, one.requests, one.bytes) == (other.busy_ns, other.requests, other.bytes)
    assert after[0][0].requests == 1
