"""Addresses, tracks, and the times at which they pass the heads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError
from raidproof.core.units import GIB, MIB
from raidproof.disk.profile import load_profile, profile_names
from raidproof.disk.timing.rotational import Geometry, Placement

ROTATIONAL = [name for name in profile_names() if load_profile(name).rotational]


@st.composite
def placed(draw: st.DrawFn) -> tuple[Geometry, int]:
    profile = load_profile(draw(st.sampled_from(ROTATIONAL)))
    size = draw(st.integers(MIB, profile.capacity) | st.just(profile.capacity)) // 512 * 512
    return Geometry(profile, size, draw(st.sampled_from(Placement))), size


@given(placed(), st.floats(0, 1, exclude_max=True))
def test_an_address_passes_the_heads_at_the_calculated_time(disk: tuple[Geometry, int], share: float) -> None:
    geometry, size = disk
    address = int(size * share) // 512 * 512
    stream = geometry.stream_ns(address)
    # Times are whole nanoseconds: a sector may be a sector early.
    assert 0 <= address - geometry.address(stream) <= 512
    assert geometry.address(stream + 1) >= address - 512


@given(placed(), st.floats(0, 1), st.floats(0, 1))
def test_what_lies_later_passes_later(disk: tuple[Geometry, int], one: float, other: float) -> None:
    geometry, size = disk
    first, last = sorted((int(size * one), int(size * other)))
    assert geometry.stream_ns(first) <= geometry.stream_ns(last)
    assert geometry.stream_ns(last) <= geometry.tracks * geometry.step_ns


@given(placed())
def test_there_is_room_for_the_member(disk: tuple[Geometry, int]) -> None:
    geometry, size = disk
    assert geometry.capacity >= size
    assert geometry.address(geometry.tracks * geometry.step_ns) == geometry.capacity


@pytest.mark.parametrize("name", ROTATIONAL)
def test_rim_and_hub_pass_at_their_rates(name: str) -> None:
    profile = load_profile(name)
    geometry, mechanics = Geometry(profile, profile.capacity, Placement.SPREAD), profile.rotational
    assert mechanics is not None
    span = profile.capacity // 100
    rim = span / geometry.stream_ns(span) * 1e3
    hub = span / (geometry.stream_ns(profile.capacity) - geometry.stream_ns(profile.capacity - span)) * 1e3
    assert rim == pytest.approx(mechanics.media_rate_rim_mb_s, rel=0.01)
    assert hub == pytest.approx(mechanics.media_rate_hub_mb_s, rel=0.01)


def test_a_small_member_is_the_outer_edge_or_is_spread() -> None:
    profile = load_profile("atlas-10k5")
    outer, spread = (Geometry(profile, GIB, placement) for placement in (Placement.OUTER, Placement.SPREAD))
    assert outer.stream_ns(GIB) < spread.stream_ns(GIB)
    assert outer.tracks > 100 * spread.tracks  # the same seek is a smaller share of the stroke


def test_flash_has_no_tracks() -> None:
    with pytest.raises(RequestError, match="no table"):
        Geometry(load_profile("nvme-plp"), GIB, Placement.OUTER)
