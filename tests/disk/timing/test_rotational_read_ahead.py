"""The read-ahead of a drive."""

from raidproof.disk.timing.rotational import ReadAhead


def test_a_stream_is_one_segment_and_only_its_last_part_is_kept() -> None:
    ahead = ReadAhead(1000)
    first = ahead.began(0, 500)
    assert (first.start, first.end, first.limit) == (0, 500, 1500)
    for start in range(500, 10_000, 500):
        assert ahead.began(start, start + 500) is first
    assert (first.start, first.end, first.limit) == (8000, 10_000, 11_000)
    assert ahead.of(10_000) is first
    assert ahead.of(7999) is None


def test_the_latest_streams_are_distinguished() -> None:
    ahead = ReadAhead(1000)
    for number in range(9):
        ahead.began(number * 100_000, number * 100_000 + 10)
    assert ahead.of(0) is None
    assert ahead.of(100_000) is not None


def test_a_continued_stream_is_the_latest_again() -> None:
    ahead = ReadAhead(1000)
    kept = ahead.began(0, 10)
    for number in range(1, 8):
        ahead.began(number * 100_000, number * 100_000 + 10)
    assert ahead.began(10, 20) is kept
    ahead.began(900_000, 900_010)
    assert ahead.of(5) is kept
    assert ahead.of(100_005) is None
