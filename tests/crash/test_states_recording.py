from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.crash.states import Caches, Recording
from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import ALL_MEMBERS, Flag, Kind, LogError, LogWriter, MemberInfo, WriteLog
from tests.crash.conftest import Did, Record, write_log

INFO = MemberInfo("disk0", 1 << 16, CacheMode.VOLATILE, CacheMode.VOLATILE)


def test_cuts_are_before_after_and_between_flushes(record: Record) -> None:
    made = record(Did(Kind.WRITE), Did(Kind.WRITE), Did(Kind.WRITE), Did(Kind.WRITE), Did(Kind.FLUSH), Did(Kind.WRITE))
    assert made.cuts == (0, 2, 4, 5, 6)


def test_a_fua_write_is_a_place_to_cut_at(record: Record) -> None:
    assert record(Did(Kind.WRITE), Did(Kind.WRITE, flags=Flag.FUA), Did(Kind.WRITE), Did(Kind.WRITE)).cuts == (
        0,
        1,
        2,
        3,
        4,
    )


@pytest.mark.parametrize("mode", [CacheMode.PROTECTED, CacheMode.NONE])
def test_where_a_disk_loses_nothing_each_write_is_a_place_to_cut_at(record: Record, mode: CacheMode) -> None:
    done = [Did(Kind.WRITE), Did(Kind.ZERO), Did(Kind.DISCARD), Did(Kind.WRITE), Did(Kind.WRITE)]
    assert record(*done, mode=mode).cuts == (0, 1, 2, 3, 4, 5)


def test_the_mode_at_that_moment_counts(record: Record) -> None:
    into_cache, through = (
        Did(Kind.MODE, member, mode=mode)
        for member, mode in ((ALL_MEMBERS, CacheMode.VOLATILE), (1, CacheMode.PROTECTED))
    )
    four = [Did(Kind.WRITE, member) for member in (0, 0, 0, 0)]
    made = record(*four, through, *four, Did(Kind.WRITE, 1), into_cache, Did(Kind.WRITE, 1), *four)
    assert made.cuts == (0, 2, 4, 5, 7, 9, 10, 13, 16)


modes = st.tuples(st.sampled_from([0, 1, ALL_MEMBERS]), st.sampled_from(CacheMode)).map(
    lambda said: Did(Kind.MODE, said[0], mode=said[1])
)
requests = st.tuples(
    st.sampled_from([Kind.WRITE, Kind.WRITE, Kind.ZERO, Kind.FLUSH]),
    st.integers(0, 1),
    st.sampled_from([0, 0, int(Flag.FUA)]),
).map(lambda said: Did(said[0], said[1], flags=said[2]))


@given(st.lists(st.one_of(modes, requests, requests), max_size=20), st.sampled_from(CacheMode))
def test_wherever_something_becomes_durable_both_sides_are_cuts(done: list[Did], mode: CacheMode) -> None:
    with TemporaryDirectory() as folder:
        recording = Recording(write_log(Path(folder) / "log", done, mode=mode))
        caches = Caches(recording)
        for cut in range(1, len(recording.records) + 1):
            if list(caches.roll(cut)):
                assert {cut - 1, cut} <= set(recording.cuts)
            assert caches.count == len(caches.open)


def test_the_instant_of_a_cut_is_the_last_possible(record: Record) -> None:
    made = record(Did(Kind.WRITE), Did(Kind.WRITE))
    assert [made.instant_ns(cut) for cut in (0, 1, 2)] == [999, 1999, 2000]
    assert [made.place(instant) for instant in (0, 1000, 1001, 2001)] == [0, 0, 1, 2]


def test_a_recording_ends_at_its_own_cut(record: Record) -> None:
    made = record(
        Did(Kind.WRITE),
        Did(Kind.FREEZE),
        Did(Kind.WRITE, byte=7, flags=Flag.IN_FLIGHT),
        Did(Kind.POWER_ON),
        Did(Kind.WRITE),
    )
    assert (len(made.records), len(made.caught), made.end_ns) == (1, 1, 2000)
    assert made.request(1).data[0] == 7


def test_what_is_done_while_the_power_is_off_is_not_of_the_recording(record: Record) -> None:
    made = record(Did(Kind.WRITE), Did(Kind.FREEZE), Did(Kind.MODE, mode=CacheMode.LYING), Did(Kind.WRITE))
    assert (len(made.records), made.end_ns) == (1, 2000)


def test_the_first_mark_tells_when_something_was_corrupted(record: Record) -> None:
    made = record(Did(Kind.WRITE), Did(Kind.MARK), Did(Kind.WRITE), Did(Kind.MARK), Did(Kind.WRITE))
    assert (made.corrupted_ns, len(made.records)) == (2000, 3)


def test_without_a_mark_nothing_was(record: Record) -> None:
    assert record(Did(Kind.WRITE)).corrupted_ns is None


@pytest.mark.parametrize(("options", "words"), [({"data": False}, "no data"), ({"blank": False}, "not blank")])
def test_a_log_from_which_nothing_can_be_rebuilt_is_refused(
    tmp_path: Path, options: dict[str, bool], words: str
) -> None:
    LogWriter(tmp_path / "log", [INFO], 0, **options).close(1)
    with pytest.raises(LogError, match=words):
        Recording(WriteLog(tmp_path / "log"))
