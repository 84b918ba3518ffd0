"""The engine's settings for the disks of a topology."""

import pytest

from raidproof.core.errors import RequestError, RequirementMissing
from raidproof.core.topology import ControllerSpec, DiskSpec, Topology, server_and_clients
from raidproof.core.units import MIB
from raidproof.disk.cache import CacheMode
from raidproof.disk.disks import disks_of, require_write_cache, usual_mode
from raidproof.disk.profile import load_profile

WRITE_THROUGH = "scenarios/plans/disks/hdd-write-through.toml"


def topology(*disks: DiskSpec, controllers: tuple[ControllerSpec, ...] = ()) -> Topology:
    return server_and_clients().model_copy(update={"disks": disks, "controllers": controllers})


def test_disks_without_mechanics_answer_at_once() -> None:
    disks = disks_of(topology(DiskSpec(serial="a", size=MIB), DiskSpec(serial="b", size=MIB, profile="none")))
    assert [(one.profile, one.mode) for one in disks.members] == [(None, CacheMode.VOLATILE)] * 2


def test_disks_may_be_of_different_kinds_on_different_controllers() -> None:
    fast, plain = ControllerSpec(name="fast", cache=64 * MIB), ControllerSpec(name="plain", bandwidth_mb_s=300)
    disks = disks_of(
        topology(
            DiskSpec(serial="a", size=MIB, profile="hdd-7200-sata", controller="fast"),
            DiskSpec(serial="b", size=MIB, profile="nvme-plp", controller="plain"),
            controllers=(fast, plain),
        )
    )
    assert [one.controller for one in disks.members] == ["fast", "plain"]
    assert [one.profile and one.profile.name for one in disks.members] == ["hdd-7200-sata", "nvme-plp"]
    assert [one.bandwidth_mb_s for one in disks.controllers] == [None, 300]


@pytest.mark.parametrize(
    ("profile", "cache", "battery", "mode"),
    [
        ("hdd-7200-sata", 0, "good", CacheMode.VOLATILE),
        ("nvme-plp", 0, "good", CacheMode.PROTECTED),
        ("hdd-7200-sata", MIB, "good", CacheMode.PROTECTED),
        ("hdd-7200-sata", MIB, "failed", CacheMode.VOLATILE),
        ("hdd-7200-sata", MIB, "unnoticed", CacheMode.LYING),
    ],
)
def test_what_a_cut_may_take(profile: str, cache: int, battery: str, mode: CacheMode) -> None:
    behind = ControllerSpec.model_validate({"name": "c", "cache": cache, "battery": battery})
    assert usual_mode(load_profile(profile), behind) is mode


def test_an_array_can_be_made_on_disks_that_will_lie() -> None:
    bad = ControllerSpec(name="c", cache=MIB, battery="unnoticed")
    disk = DiskSpec(serial="a", size=MIB, profile="hdd-7200-sata", controller="c")
    assert disks_of(topology(disk, controllers=(bad,))).members[0].mode is CacheMode.VOLATILE


def test_an_unknown_profile_is_refused_with_the_nearest() -> None:
    with pytest.raises(RequestError, match="hdd-7200-sata"):
        disks_of(topology(DiskSpec(serial="a", size=MIB, profile="hdd-7200-sat")))


def test_a_controller_must_exist() -> None:
    with pytest.raises(ValueError, match="controller 'b' is not specified"):
        Topology(machines=server_and_clients().machines, disks=(DiskSpec(serial="a", size=MIB, controller="b"),))


def test_a_disk_without_a_write_cache_gets_no_cache_mode_that_needs_one() -> None:
    cached, bare = DiskSpec(serial="a", size=MIB), DiskSpec(serial="b", size=MIB, profile=WRITE_THROUGH)
    without = topology(cached, bare)
    for mode in (CacheMode.LYING, CacheMode.VOLATILE):
        with pytest.raises(RequirementMissing, match="b: the profile has no write cache"):
            require_write_cache(without, mode)
        require_write_cache(without, mode, ["a"])
    require_write_cache(without, CacheMode.NONE)
    require_write_cache(topology(cached), CacheMode.LYING)
