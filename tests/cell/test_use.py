from harness.cell.use import engine_use
from harness.disk.messages import Busy, Use

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
