from raidproof.disk.messages import Busy, Use
from raidproof.monitor import Recording, Snapshot
from raidproof.run.repetition import engine_use, trimmed

SECOND = 10**9


def use(at_s: float, disks_s: float, *, busy_s: float, served: int) -> Use:
    return Use(
        at_ns=round(at_s * SECOND), disks_ns=round(disks_s * SECOND), cpu_ns=round(at_s * SECOND / 4), served=served,
        late_ns=served * 10, service_ns=served * 1000, members=(Busy("disk0", round(busy_s * SECOND), 1, 1),),
        controllers=(),
    )  # fmt: skip


def test_what_was_before_does_not_count() -> None:
    found = engine_use(use(10, 10, busy_s=9, served=5), use(12, 12, busy_s=10, served=25))
    assert (found.cpu_share, found.late_ns_mean, found.service_ns_mean) == (0.25, 10, 1000)
    assert found.members_busy == {"disk0": 0.5}


def test_disks_are_busy_in_their_own_time() -> None:
    found = engine_use(use(0, 0, busy_s=0, served=0), use(10, 1, busy_s=0.5, served=1))
    assert found.members_busy == {"disk0": 0.5}


def test_no_more_than_all_the_time_and_no_division_by_none() -> None:
    one = use(1, 1, busy_s=1, served=1)
    assert engine_use(one, one).late_ns_mean == 0
    assert engine_use(one, use(2, 2, busy_s=9, served=1)).members_busy == {"disk0": 1.0}


def test_the_start_of_a_tool_is_no_time_in_which_disks_were_idle() -> None:
    found = engine_use(use(0, 0, busy_s=0, served=0), use(6, 6, busy_s=5, served=1), working_s=5)
    assert found.members_busy == {"disk0": 1.0}
    assert found.cpu_share == 0.3


def test_what_a_tool_does_untimed_is_work_all_the_same() -> None:
    found = engine_use(use(0, 0, busy_s=0, served=0), use(40, 40, busy_s=20, served=1), working_s=7)
    assert found.members_busy == {"disk0": 0.5}


def test_looks_from_before_the_timed_part_are_left_out() -> None:
    looks = tuple(Snapshot.__new__(Snapshot) for _ in range(4))
    for at_s, look in zip((0.0, 1.0, 2.0, 6.5), looks, strict=True):
        object.__setattr__(look, "at_s", at_s)
    recording = Recording(looks, 0)
    assert trimmed({"server": recording}, 5.0, 5.0)["server"].first.at_s == 2.0
    assert trimmed({"server": recording}, 0.5, 0.5)["server"] is recording
    assert trimmed({"server": recording}, 2.0, 5.0)["server"] is recording
