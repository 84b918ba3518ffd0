from pathlib import Path

import pytest

from harness.crash.recording import Recording
from harness.disk.cache import CacheMode
from harness.disk.writelog import Flag, Kind, LogError, LogWriter, MemberInfo, WriteLog
from tests.crash.conftest import Did, Record

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


@pytest.mark.parametrize(("options", "words"), [({"data": False}, "times only"), ({"blank": False}, "not blank")])
def test_a_log_from_which_nothing_can_be_rebuilt_is_refused(
    tmp_path: Path, options: dict[str, bool], words: str
) -> None:
    LogWriter(tmp_path / "log", [INFO], 0, **options).close(1)
    with pytest.raises(LogError, match=words):
        Recording(WriteLog(tmp_path / "log"))
