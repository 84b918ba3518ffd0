import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.record.outcome import Outcome
from raidproof.storage.mount import MountSpec
from raidproof.verdict.freshness import Seen, Version, judge_freshness

S = 10**9
VERSIONS = [Version(number, 10 * S * number, 10 * S * number + S) for number in range(4)]
"""Version n is written from second 10 n to second 10 n + 1."""
USUAL, NOCTO = MountSpec(vers="3").effects, MountSpec(vers="3", cto=False, actimeo=15).effects


def seen(number: int, second: int) -> Seen:
    return Seen(number, second * S, second * S + S // 2)


FRESH = [seen(1, 12), seen(1, 13), seen(2, 22), seen(3, 32)]


def test_new_data_at_each_open_passes() -> None:
    verdict = judge_freshness(VERSIONS, FRESH, USUAL)
    assert verdict.outcome is Outcome.PASS
    assert verdict.reason == "4 reads followed the close of a new version"


def test_a_reader_may_see_the_old_or_the_new_version_while_it_is_written() -> None:
    reads = [*FRESH, seen(0, 10), seen(1, 10)]
    assert judge_freshness(VERSIONS, reads, USUAL).outcome is Outcome.PASS


def test_old_data_after_a_close_fails_with_usual_options() -> None:
    verdict = judge_freshness(VERSIONS, [*FRESH, seen(1, 24)], USUAL)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.reason == "a client opened the file 3.000 s after version 2 was closed, and read 1"


def test_nocto_permits_old_data_for_the_time_of_the_attributes_and_no_longer() -> None:
    verdict = judge_freshness(VERSIONS, [*FRESH, seen(1, 24)], NOCTO)
    assert verdict.outcome is Outcome.PASS
    assert verdict.reason.endswith("1 returned an older one, which the mount permits for 15 s")
    late = judge_freshness(VERSIONS, [*FRESH, seen(1, 37)], NOCTO)
    assert late.outcome is Outcome.FAIL
    assert "16.000 s after version 2 was closed, and read 1; its mount permits old data for 15 s" in late.reason


@pytest.mark.parametrize("effects", [USUAL, NOCTO])
def test_what_was_not_written_yet_is_never_excused(effects: object) -> None:
    assert isinstance(effects, type(USUAL))
    verdict = judge_freshness(VERSIONS, [*FRESH, seen(2, 14)], effects)
    assert (verdict.outcome, verdict.reason) == (Outcome.FAIL, "a read returned version 2 before it was written")


def test_too_few_reads_show_nothing() -> None:
    verdict = judge_freshness(VERSIONS, [seen(0, 5), seen(0, 6), seen(0, 7), seen(1, 12), seen(1, 14)], USUAL)
    assert verdict.outcome is Outcome.INCONCLUSIVE


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60)), max_size=8), st.integers(0, 60))
def test_a_longer_time_excuses_more_and_never_less(reads: list[tuple[int, int]], seconds: int) -> None:
    what = [seen(*one) for one in reads]
    shorter, longer = (
        judge_freshness(VERSIONS, what, MountSpec(vers="3", cto=False, actimeo=time).effects).outcome
        for time in (seconds, seconds + 5)
    )
    assert shorter is longer or shorter is Outcome.FAIL
    for number, second in reads:
        newest = max((one.number for one in VERSIONS if one.closed_ns <= (second - seconds) * S), default=0)
        if number < newest:
            assert shorter is Outcome.FAIL
