import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.record.run import RunRecord
from raidproof.report.cells import (
    costs,
    impossible,
    measure,
    overhead,
    promises,
    rankings,
    repetitions,
    seen,
    with_unit,
    workload_titles,
    written,
)


@pytest.mark.parametrize(
    ("name", "words", "unit"),
    [
        ("write_mb_s", "write", "MB/s"),
        ("random_read_iops", "random read", "1/s"),
        ("transactions_per_s", "transactions", "1/s"),
        ("operations_s", "operations", "1/s"),
        ("creates_s", "creates", "1/s"),
        ("outage_seconds", "outage", "s"),
        ("fsync_p99_ms", "fsync p99", "ms"),
        ("iops", "", "1/s"),
        ("files", "files", ""),
        ("", "", ""),
    ],
)
def test_a_name_carries_its_unit(name: str, words: str, unit: str) -> None:
    assert measure(name) == (words, unit)


PART = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1)


ENDINGS = {"mb_s": "MB/s", "kib_s": "KiB/s", "iops": "1/s", "per_s": "1/s", "us": "us", "ms": "ms", "s": "1/s"}


@given(st.lists(PART), st.sampled_from(sorted(ENDINGS)))
def test_of_a_name_with_a_unit_the_words_are_left(parts: list[str], ending: str) -> None:
    assert measure("_".join([*parts, ending])) == (" ".join(parts), ENDINGS[ending])
    assert with_unit("_".join([*parts, ending])) == " ".join([*parts, f"[{ENDINGS[ending]}]"])


@given(st.lists(PART.filter(lambda part: part not in {*ENDINGS, "seconds", "ns"}), min_size=1))
def test_no_name_without_a_unit_loses_a_word(parts: list[str]) -> None:
    assert measure("_".join(parts)) == (" ".join(parts), "")
    assert with_unit("_".join(parts)) == " ".join(parts)


def test_cells_of_a_workload_stand_together_the_fastest_first(plan_run: RunRecord) -> None:
    fio, postmark = rankings(plan_run)
    # Their differences are not settled.
    assert [cell.rank for cell in fio.ranked] == [1, 1, 1, 1]
    medians = [cell.median or 0 for cell in fio.ranked]
    assert medians == sorted(medians, reverse=True)
    assert [cell.median for cell in fio.unranked] == [902.4, 130.6, 115.2, None, None]
    assert (fio.title, postmark.title) == ("fio: write [MB/s]", "postmark: transactions [1/s]")


def test_workloads_of_one_tool_are_told_apart() -> None:
    workloads = [{"tool": "fio", "rw": "write", "block_size": size} for size in (1024, 4096)]
    assert workload_titles(workloads) == ["fio, block size 1KiB", "fio, block size 4KiB"]
    assert workload_titles([{"tool": "dd", "count": 1}]) == ["dd"]
    assert workload_titles([{}]) == ["workload"]


def test_untested_promises_are_never_called_kept(plan_run: RunRecord, uncut_run: RunRecord) -> None:
    # One of the three that were cut did not come back: nothing is known of it.
    assert promises(plan_run) == "a power cut tested the promises of 2 of 11 cells"
    assert "no promise was tested" in promises(uncut_run)


def test_only_a_known_loss_costs(plan_run: RunRecord) -> None:
    assert [cell.name for cell in plan_run.cells if costs(cell)] == ["level=10 chunk=64KiB export=async"]


def test_what_the_run_took_and_left_out(plan_run: RunRecord) -> None:
    assert repetitions(plan_run) == "11 cells, 27 repetitions of 33; 1 repetition without a value"
    assert (
        overhead(plan_run)
        == "building, preparing and checking took 36% of the repetitions' wall time (130 s of 205 s were timed)"
    )
    [(reason, names)] = impossible(plan_run)
    assert reason.startswith("RAID6")
    assert len(names) == 2
    assert plan_run.plan is not None
    plan_run.plan.visits_s = 0
    assert overhead(plan_run) == "no repetition was timed"


def test_what_one_visit_did_not_see_is_a_dash(plan_run: RunRecord) -> None:
    cell = plan_run.cells[0]
    cell.repeats[1].engine = None
    assert dict(seen(cell, "engine"))["cpu share"] == ["0.310", "-", "0.310"]


def test_values_are_written_by_what_they_are() -> None:
    said = [written("a.mean_bytes", 65536), written("share", 0.12345), written("files", 7), written("x", True)]
    assert said == ["64.0 KiB", "0.123", "7", "yes"]
