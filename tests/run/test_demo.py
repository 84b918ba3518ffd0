"""The demo's stack with settings of the user."""

import pytest

from raidproof.core.errors import RequestError
from raidproof.core.topology import Platform, SoftwareSpec
from raidproof.provider.vagrant import box
from raidproof.run.demo import DISK_SIZES, demo_cycles, demo_platform, demo_stack, demo_topology, read_settings


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


def test_a_setting_of_the_mounts_is_that_of_all_clients() -> None:
    stack = demo_stack(sync=True, settings=read_settings(["xprtsec=tls", "sec=krb5p"]))
    assert (stack.mount.xprtsec, stack.mount.sec) == ("tls", "krb5p")
    assert {"xprtsec=tls", "sec=krb5p"} < {*stack.export.options()}


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


@pytest.mark.parametrize("kind", ["btrfs", "zfs"])
def test_an_array_that_only_a_file_system_makes_has_this_file_system(kind: str) -> None:
    stack = demo_stack(sync=True, settings=read_settings([f"raid={kind}"]))
    assert (stack.array.type, stack.filesystem.type) == (kind, kind)
    with pytest.raises(RequestError, match="cannot carry xfs"):
        demo_stack(sync=True, settings=read_settings([f"raid={kind}", "filesystem=xfs"]))


@pytest.mark.parametrize(("words", "kind"), [([], "xfs"), (["filesystem=ext4"], "ext4"), (["raid=zfs"], "zfs")])
def test_an_external_log_has_a_further_disk(words: list[str], kind: str) -> None:
    settings = read_settings([*words, "log=external"])
    stack = demo_stack(sync=True, settings=settings)
    assert (stack.filesystem.type, stack.filesystem.log) == (kind, "disk4")
    assert [disk.serial for disk in demo_topology(settings=settings).disks] == [*stack.array.members, "disk4"]
    assert demo_stack(sync=True, settings=read_settings(["log=internal"])).filesystem.log is None


def test_properties_of_zfs_can_be_set() -> None:
    words = ["raid=zfs", "level=raidz2", "sync=always", "recordsize=16KiB", "compression=off", "ashift=9"]
    stack = demo_stack(sync=True, settings=read_settings(words))
    assert stack.array.level == "z2"
    found = stack.filesystem.model_dump()
    asked = {"sync": "always", "recordsize": 16384, "compression": "off", "ashift": 9}
    assert {name: found[name] for name in asked} == asked


def test_the_server_has_the_software_that_the_array_needs() -> None:
    zfs, qemu = read_settings(["raid=zfs"]), Platform(provider="qemu")
    chosen = demo_platform(qemu, zfs)
    assert chosen.server == SoftwareSpec(kernel="debian/trixie/zfs", image="debian/trixie-zfs")
    assert chosen.clients == SoftwareSpec()
    assert demo_platform(qemu, read_settings(["raid=lvm"])) == qemu
    own = qemu.model_copy(update={"server": SoftwareSpec(kernel="debian/sid/zfs")})
    assert demo_platform(own, zfs).server.kernel == "debian/sid/zfs"


def test_a_box_keeps_its_own_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box, "find", lambda _: None)
    boxed = Platform(provider="vagrant", server=SoftwareSpec(image="box:example/stock"))
    assert demo_platform(boxed, read_settings(["raid=zfs"])) == boxed


def test_a_provider_without_the_software_is_refused_with_the_options_to_write() -> None:
    options = "--provider qemu --server kernel=debian/trixie/zfs --server image=debian/trixie-zfs"
    with pytest.raises(RequestError, match=rf"raid=zfs needs a server with kernel=debian/trixie/zfs.*write {options}"):
        demo_platform(None, read_settings(["raid=zfs"]))
    with pytest.raises(RequestError, match="unknown provider: 'none'"):
        demo_platform(Platform(provider="none"), read_settings([]))


def test_settings_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(RequestError, match="at least 5 members"):
        demo_cycles(settings=read_settings(["raid=lvm", "level=6"]))


@pytest.mark.parametrize(
    ("kind", "levels"),
    [
        ("md", ["0", "1", "4", "5", "6", "10"]),
        ("lvm", ["1", "5", "10"]),
        ("btrfs", ["1", "5", "6", "10"]),
        ("zfs", ["1", "10", "z1", "z2", "z3"]),
    ],
)
def test_the_disks_are_large_enough_for_each_level(kind: str, levels: list[str]) -> None:
    for level in levels:
        settings = read_settings([f"raid={kind}", f"level={level}"])
        disks = {disk.serial: disk.size for disk in demo_topology(settings=settings).disks}
        demo_stack(sync=True, settings=settings).refuse_disks(disks)
    assert {disk.size for disk in demo_topology().disks} == {DISK_SIZES[0]}
