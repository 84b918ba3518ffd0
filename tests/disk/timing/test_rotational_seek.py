"""The seek curve gives the seek times of the data sheet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.disk.profile import Rotational, load_profile, profile_names
from raidproof.disk.timing.rotational import SeekCurve

MECHANICS = {name: load_profile(name).rotational for name in profile_names() if load_profile(name).rotational}
mechanics = st.sampled_from(sorted(MECHANICS))


def of(name: str) -> Rotational:
    found = MECHANICS[name]
    assert found is not None
    return found


@pytest.mark.parametrize("name", MECHANICS)
def test_the_mean_over_random_seeks_is_the_average_seek(name: str) -> None:
    curve, steps = SeekCurve(of(name)), 20_000
    middles = [(step + 0.5) / steps for step in range(steps)]
    mean_ns = sum(curve.ns(d) * 2 * (1 - d) for d in middles) / steps
    assert mean_ns == pytest.approx(of(name).average_seek_ms * 1e6, rel=0.001)


@pytest.mark.parametrize("name", MECHANICS)
def test_it_begins_track_to_track_and_ends_at_the_full_stroke(name: str) -> None:
    curve = SeekCurve(of(name))
    assert curve.ns(0) == pytest.approx(of(name).track_to_track_ms * 1e6, abs=1)
    assert curve.ns(1) == pytest.approx(of(name).full_stroke_ms * 1e6, abs=1)


@given(mechanics, st.floats(0, 1), st.floats(0, 1))
def test_a_longer_way_never_takes_less_time(name: str, one: float, other: float) -> None:
    curve = SeekCurve(of(name))
    assert curve.ns(min(one, other)) <= curve.ns(max(one, other)) + 1
