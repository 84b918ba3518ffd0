from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RigError
from raidproof.workload.fio import (
    FioResult,
    added_series,
    after_ramp,
    last_report,
    merged,
    parse_fio,
    parse_fio_jobs,
    parse_fio_reports,
    percentile_ns,
    series,
)
from raidproof.workload.workload import Point

DATA = Path(__file__).parents[1] / "data" / "fio"


def told(name: str) -> str:
    return (DATA / f"fio-3.39-{name}.txt").read_text()


def result(seconds: float, ios: int, at_s: float = 0.0) -> FioResult:
    return FioResult(
        fio_version="fio-3.39",
        at_s=at_s,
        bytes_of={"read": 0, "write": ios * 4096},
        ios_of={"read": 0, "write": ios},
        seconds_of={"read": 0.0, "write": seconds},
        seconds=seconds,
        latencies={"read": {}, "write": {}, "fsync": {}},
    )


def test_one_job() -> None:
    found = parse_fio(told("write"))
    assert found.bytes_of == {"read": 0, "write": 64 << 20}
    assert found.mb_per_s == pytest.approx(74.8, abs=0.05)  # fio: bw_bytes 74814787
    assert found.values.keys() == {"write_mb_s", "write_iops"}


def test_all_jobs_count_over_the_longest() -> None:
    found = parse_fio(told("fsync-two-jobs"))
    assert found.ios_of["write"] == 2 * 675
    assert found.seconds == 2.002
    assert found.values["write_iops"] == pytest.approx(2 * 675 / 2.002)


def test_groups_follow_one_another() -> None:
    found = parse_fio(told("job-file"))
    assert found.seconds_of == {"read": 2.001, "write": 2.112}
    assert found.seconds == pytest.approx(4.113)
    assert found.values["total_mb_s"] == pytest.approx((359727104 + 91508736) / 1e6 / 4.113)


def test_jobs_in_sequence_are_a_result_each() -> None:
    text = told("in-sequence")
    found = parse_fio_jobs(text)
    assert [one.seconds for one in found] == [1.080, 0.386, 0.541, 0.487]
    assert [round(one.mb_per_s) for one in found] == [62, 174, 124, 138]  # fio: bw_bytes
    assert [one.seconds for one in parse_fio_jobs(told("fsync-two-jobs"))] == [2.002]


@given(st.data())
def test_no_truncated_or_damaged_report_of_jobs_is_read(data: st.DataObject) -> None:
    text = told("in-sequence").rstrip()
    with pytest.raises(RigError):
        parse_fio_jobs(text[: data.draw(st.integers(0, len(text) - 1))])
    with pytest.raises(RigError):
        parse_fio_jobs(text.replace('"groupid"', '"group"'))


def test_percentiles_are_those_of_fio() -> None:
    values = parse_fio(told("job-file")).values
    assert (values["read_p50_ms"], values["read_p99_ms"]) == (0.11008, 0.888832)
    assert (values["write_p50_ms"], values["write_p99_ms"]) == (0.022656, 5.40672)
    assert "fsync_p99_ms" not in values


def test_percentiles_of_several_jobs_lie_between_theirs() -> None:
    values = parse_fio(told("fsync-two-jobs")).values
    assert 0.448512 <= values["write_p99_ms"] <= 0.602112
    assert 7.3728 <= values["fsync_p99_ms"] <= 7.503872


@given(st.dictionaries(st.integers(1, 10**9), st.integers(1, 1000), min_size=1), st.floats(1, 100))
def test_a_percentile_is_a_latency_that_so_many_did_not_exceed(histogram: dict[int, int], percent: float) -> None:
    found = percentile_ns(histogram, percent)
    total = sum(histogram.values())
    assert sum(count for of, count in histogram.items() if of <= found) >= total * percent / 100
    assert sum(count for of, count in histogram.items() if of < found) < total * percent / 100


def test_a_warning_before_the_json() -> None:
    text = told("warning")
    assert text.startswith("note: both iodepth >= 1")
    assert parse_fio(text).bytes == 4 << 20


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("enospc", r"job 'job' reports error 28 \(No space left on device\): fio: pid=905, err=28"),
        ("one-job-failed", r"job 'c' reports error 25"),
        ("interrupted", "a signal ended fio before its end: fio: terminating on signal 2"),
        ("typo", "fio printed no report; its messages: .*failed parsing rw=wriet"),
    ],
)
def test_the_error_has_fios_output(name: str, why: str) -> None:
    with pytest.raises(RigError, match=f"(?s){why}"):
        parse_fio(told(name))


def test_errors_that_a_job_went_on_after_count() -> None:
    text = told("write").replace('"error" : 0,', '"error" : 0, "total_err" : 3, "first_error" : 5,')
    with pytest.raises(RigError, match="error 5"):
        parse_fio(text)


@given(st.data())
def test_no_truncated_report_is_read(data: st.DataObject) -> None:
    text = told("warning").rstrip()
    with pytest.raises(RigError):
        parse_fio(text[: data.draw(st.integers(0, len(text) - 1))])


def test_a_truncated_second_report_hides_nothing() -> None:
    text = told("intervals").rstrip()
    with pytest.raises(RigError, match="truncated"):
        parse_fio(text[:-10])


@pytest.mark.parametrize("text", ["", "{}", '{\n"jobs" : []\n}', '{\n"jobs" : [1]\n}', "[]"])
def test_what_is_no_report(text: str) -> None:
    with pytest.raises(RigError):
        parse_fio(text)


def test_intervals_add_up() -> None:
    reports = parse_fio_reports(told("intervals"))
    assert [one.seconds for one in reports] == [0.865, 1.865, 2.865, 3.002]
    assert [point.at_s for point in series(reports, ["write"], "iops")] == [0.865, 1.865, 2.865]
    assert series(reports, ["write"], "mb_s")[1].value == pytest.approx((3260416 - 1425408) / 1e6)
    assert series(reports, ["read"], "mb_s")[1].value == 0


def test_only_the_last_report_is_kept() -> None:
    text = told("intervals")
    assert parse_fio_reports(last_report(text)) == parse_fio_reports(text)[-1:]
    assert last_report("warning\n" + text).startswith("warning\n{")
    assert last_report("nothing") == "nothing"


def test_the_ramp_is_not_in_the_series() -> None:
    # As fio 3.39 reported a job with a ramp of 1.5 s.
    reports = [result(0.5, 900, 10.5), result(1.4, 2400, 11.4), result(1.0, 1650, 12.5), result(2.0, 3000, 13.6)]
    values = [point.value for point in series(after_ramp(reports, 1.5), ["write"], "iops")]
    assert values == [1650, 1350]
    # Even where its count is less than what comes after it.
    reports = [result(0.5, 9, 10.5), result(1.0, 1650, 12.1), result(2.0, 3000, 13.2)]
    assert [point.value for point in series(after_ramp(reports, 1.0), ["write"], "iops")] == [1650, 1350]
    assert after_ramp(reports, 0) == reports


def test_a_job_file_with_a_ramp_begins_anew() -> None:
    reports = [result(0.5, 900), result(1.4, 2400), result(1.0, 1650), result(2.0, 3000)]
    assert [point.value for point in series(reports, ["write"], "iops")] == [1650, 1350]


def test_machines_add_up_over_the_longest_time() -> None:
    both = merged([result(2.0, 100), result(4.0, 300)])
    assert both.values["write_iops"] == 100
    one, two = Point(at_s=1, value=5), Point(at_s=1.5, value=6)
    assert added_series([(one, two), (two,)]) == (Point(at_s=1.5, value=11),)
