"""The demo's stack with settings of the user."""

import pytest

from raidproof.core.errors import RequestError
from raidproof.run.demo import demo_cycles, demo_stack, demo_topology, read_settings


def test_without_settings_the_array_is_md_raid5() -> None:
    array = demo_stack(sync=True).array
    assert (array.type, array.level, array.chunk_size, len(array.members)) == ("md", "5", 65536, 4)


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["raid=lvm"], "type", "lvm"),
        (["raid=lvm", "level=1"], "chunk_size", None),
        (["level=6"], "level", "6"),
        (["chunk=128KiB"], "chunk_size", 131072),
    ],
)
def test_a_setting_is_in_all_four_crash_tests(words: list[str], field: str, value: object) -> None:
    cycles = demo_cycles(settings=read_settings(words))
    assert [getattr(one.stack.array, field) for one in cycles] == [value] * 4
    assert [one.name for one in cycles] == ["sync", "async", "lying-disks", "clean-reboot"]
    assert [one.stack.export.sync for one in cycles] == [True, False, True, True]


def test_a_server_without_async_exports_has_three_crash_tests() -> None:
    cycles = demo_cycles(settings=read_settings(["server=ganesha", "recovery_backend=fs_ng"]))
    assert [one.name for one in cycles] == ["sync", "lying-disks", "clean-reboot"]
    assert {one.stack.export.type for one in cycles} == {"ganesha"}
    assert {one.stack.export.model_dump()["recovery_backend"] for one in cycles} == {"fs_ng"}


@pytest.mark.parametrize(("word", "value"), [("true", True), ("false", False)])
def test_a_switch_can_be_set(word: str, value: bool) -> None:
    stack = demo_stack(sync=True, settings=read_settings(["server=ganesha", f"nfs_commit={word}"]))
    assert stack.export.model_dump()["nfs_commit"] is value


def test_a_layer_below_md_can_be_set() -> None:
    stack = demo_stack(sync=True, settings=read_settings(["member_layer=integrity"]))
    assert stack.array.model_dump()["member_layer"] == {"type": "integrity"}


def test_a_volume_with_a_cache_has_a_further_disk() -> None:
    settings = read_settings(["volume=writecache", "high_watermark=4", "low_watermark=2"])
    stack = demo_stack(sync=True, settings=settings)
    assert stack.volume.disks == ("disk4",)
    assert stack.volume.model_dump()["high_watermark"] == 4
    assert [disk.serial for disk in demo_topology(settings=settings).disks] == [*stack.array.members, "disk4"]
    assert len(demo_topology().disks) == 4
    assert len(demo_topology(settings=read_settings(["volume=crypt"])).disks) == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["raid"], "expected a name and a value"),
        (["raid=raidframe"], "unknown value 'raidframe'"),
        (["export=async"], "the demo has its own export"),
        (["delegations=true"], "the demo has its own delegations"),
        (["vers=4.1"], "the demo has its own vers"),
        (["members=3"], "the demo has its own members"),
        (["nothing=1"], "unknown axis 'nothing'"),
    ],
)
def test_other_settings_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        read_settings(words)


def test_settings_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(RequestError, match="at least 5 members"):
        demo_cycles(settings=read_settings(["raid=lvm", "level=6"]))
