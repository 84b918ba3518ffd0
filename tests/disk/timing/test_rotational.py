"""The choice of a drive's next request."""

import pytest

from raidproof.core.units import KIB, MIB
from raidproof.disk.profile import load_profile
from raidproof.disk.timing.hardware import Hardware
from raidproof.disk.timing.request import Op, Request
from raidproof.disk.timing.rotational import Placement

PROFILE = load_profile("hdd-7200-sata")
HALF_S = 500_000_000


def reads_ns(share: float) -> int:
    """Return the duration of random reads after this share of the cache was filled with writes."""
    hardware = Hardware([(PROFILE, PROFILE.capacity, Placement.SPREAD, None)])
    for number in range(int(PROFILE.cache.size * share) // MIB):
        hardware.submit(Request(Op.WRITE, number * 101 * MIB, MIB), 0)
    hardware.advance(HALF_S)
    strip = PROFILE.capacity // 8 // MIB * MIB
    reads = [Request(Op.READ, strip * (1 + number % 7) + number * 200 * MIB, 4 * KIB) for number in range(12)]
    for request in reads:
        hardware.submit(request, HALF_S)
    while any(request.done_ns is None for request in reads):
        hardware.advance(hardware.next_ns or 0)
    return max(request.done_ns or 0 for request in reads) - HALF_S


def test_reads_go_before_what_is_cached_until_the_cache_is_nearly_full() -> None:
    beside_little, beside_half, beside_much = reads_ns(0.25), reads_ns(0.5), reads_ns(1.0)
    assert beside_half == beside_little
    assert beside_much > 1.5 * beside_half


def busy_ns(number: int) -> int:
    """Return the time for which the heads are busy for this number of sequential reads, one each 5 ms."""
    hardware = Hardware([(PROFILE, PROFILE.capacity, Placement.SPREAD, None)])
    for at in range(number):
        hardware.advance(at * 5_000_000)
        hardware.submit(Request(Op.READ, at * 128 * KIB, 128 * KIB), at * 5_000_000)
    hardware.advance(HALF_S)
    ((used,), _) = hardware.busy(HALF_S)
    assert used.requests == number
    return used.busy_ns


def test_read_ahead_counts_as_busy_time_only_if_it_is_used() -> None:
    assert PROFILE.rotational is not None
    each_ns = 128 * KIB / PROFILE.rotational.media_rate_rim_mb_s * 1000
    first, stream = busy_ns(1), busy_ns(50)
    assert first < each_ns + PROFILE.rotational.turn_ms * 1e6
    assert stream - first == pytest.approx(49 * each_ns, rel=0.1)


def test_heads_that_have_stopped_to_read_ahead_wait_for_the_next_sector_as_for_any() -> None:
    assert PROFILE.rotational is not None
    turn_ns, waited = PROFILE.rotational.turn_ms * 1e6, []
    for part in range(8):
        hardware = Hardware([(PROFILE, PROFILE.capacity, Placement.SPREAD, None)])
        hardware.submit(Request(Op.READ, 0, 128 * KIB), 0)
        later = HALF_S + round(part * turn_ns / 8)
        hardware.advance(later)
        read = Request(Op.READ, 128 * KIB + PROFILE.cache.read_ahead, 4 * KIB)
        hardware.submit(read, later)
        while read.done_ns is None:
            hardware.advance(hardware.next_ns or 0)
        waited.append(read.done_ns - later)
    assert min(waited) < turn_ns / 4
    assert turn_ns * 3 / 4 < max(waited) < turn_ns * 5 / 4
