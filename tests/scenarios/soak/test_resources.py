"""A process that takes more and more is found; a process that needs some time until it has all is not."""

from typing import cast

import pytest

from scenarios.soak.resources import RECORD_BYTES, SLACK, SLACK_BYTES, WARM, Sample, Watch


def watch_of(*samples: dict[str, int]) -> Watch:
    usual = Sample(processes=40, threads=8, files=24, rss=120_000_000)
    watch = Watch()
    watch.samples = [cast("Sample", usual | one) for one in samples]
    return watch


def test_a_sample_counts_this_process() -> None:
    found = Watch().sample()
    assert found["threads"] >= 1
    assert found["files"] >= 3
    assert found["rss"] > 1_000_000


def test_a_process_that_does_not_grow_is_accepted() -> None:
    warming = [{"processes": 4 * number} for number in range(WARM + 1)]
    watch_of(*warming, {"files": 24 + SLACK}).must_not_grow()


def test_the_records_of_the_crash_tests_may_stay_in_memory() -> None:
    grown = watch_of({}).samples[0]["rss"] + SLACK_BYTES + RECORD_BYTES * WARM
    watch_of(*({} for _ in range(WARM)), {"rss": grown}).must_not_grow()


@pytest.mark.parametrize(
    ("what", "more"),
    [("processes", SLACK), ("threads", SLACK), ("files", SLACK), ("rss", SLACK_BYTES + RECORD_BYTES * (WARM + 1))],
)
def test_growth_is_found(what: str, more: int) -> None:
    usual = watch_of({}).samples[0]
    grown = usual[what] + more + 1  # type: ignore[literal-required]
    with pytest.raises(AssertionError):
        watch_of(*({} for _ in range(WARM)), {what: grown}).must_not_grow()
