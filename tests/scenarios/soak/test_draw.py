"""Each drawn crash test can be run, and its result is known."""

from raidproof.core.blame import Cause
from raidproof.disk.cache import CacheMode
from raidproof.run.crash_test import schedule_of
from scenarios.soak.draw import draw

DRAWN = [draw(1, number) for number in range(300)]


def test_a_crash_test_depends_only_on_seed_and_number() -> None:
    assert draw(1, 17) == DRAWN[17] != draw(2, 17)


def test_disks_that_drop_flushes_must_be_found_and_no_others() -> None:
    lying = [spec for spec in DRAWN if spec.control is not None]
    assert len(lying) > 10
    for spec in DRAWN:
        assert (spec.cache_mode is CacheMode.LYING) == (spec.control is not None)
    for spec in lying:
        assert spec.control is not None
        assert (spec.control.expects_loss, spec.control.expects_blame) == (True, Cause.LOST_FLUSHES)


def test_all_kinds_are_drawn() -> None:
    assert {spec.stack.filesystem.type for spec in DRAWN} == {"xfs", "ext4"}
    assert {spec.stack.array.level for spec in DRAWN} == {"1", "4", "5", "6", "10"}
    faults = {
        fault.name for spec in DRAWN for fault in (schedule_of(spec).main_fault, *spec.during) if fault is not None
    }
    assert len(faults) == 14


def test_a_degraded_array_with_parity_meets_no_power_cut() -> None:
    degraded = [spec for spec in DRAWN if {one.name for one in spec.during} & {"degraded", "rebuilding"}]
    assert {spec.stack.array.level for spec in degraded} == {"1", "10"}
