"""The lines for an administrator: they agree with the harness's own commands, and name no disk of the harness."""

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.layer import HOMEHOST
from raidproof.storage import mount as client
from raidproof.storage.array import disk_path
from raidproof.storage.deployment import COMMAND, Line, Work, deployed, lines_of, work_of
from raidproof.storage.filesystem import filesystem as local
from raidproof.storage.server import ExportSpec
from raidproof.storage.server.knfsd import export_command, nfs_conf, nfsd_command
from raidproof.storage.stack import StackSpec
from raidproof.storage.tuning import sysctl_line, udev_rule

MEMBERS = [f"disk{number}" for number in range(12)]


def stack(**layers: Any) -> StackSpec:
    array = {"level": 5, "members": MEMBERS[:3], "assume_clean": True, **layers.pop("array", {})}
    return deployed(StackSpec.model_validate({"array": array, **layers}), lease=False, grace=False)


def lines(new: StackSpec, current: StackSpec | None = None) -> list[Line]:
    return lines_of(new, stack() if current is None else current)


def texts(new: StackSpec, work: Work | None = None) -> list[str]:
    return [line.text for line in lines(new) if line.work is not Work.NONE and (work is None or line.work is work)]


def test_nothing_takes_work_without_a_change() -> None:
    found = lines(stack())
    assert {line.work for line in found} == {Work.NONE}
    places = [line.place for line in found]
    assert places.count("/etc/fstab") == 2
    assert "/etc/exports" in places
    assert [line.text.split()[0] for line in found if line.place == COMMAND] == ["mdadm", "mkfs.xfs"]


def test_mdadm_create_is_the_harness_command_without_what_only_the_harness_needs() -> None:
    spec = stack(array={"chunk_size": "64KiB"})
    (made,) = texts(spec, Work.ARRAY)
    (own,) = spec.array.create_commands()
    placed = made.replace("/dev/md/YOUR-ARRAY", "/dev/md0")
    for number, member in enumerate(spec.array.members, 1):
        placed = placed.replace(f"/dev/disk/by-id/YOUR-MEMBER-{number}", disk_path(member))
    words = shlex.split(placed)
    assert set(own) - set(words) == {"--run", f"--homehost={HOMEHOST}"}
    assert [word for word in own if word in words] == words
    assert "--assume-clean" not in words


@pytest.mark.parametrize(
    "layers",
    [
        {"array": {"level": 10, "members": MEMBERS[:4], "chunk_size": "64KiB"}},
        {"array": {"level": "1+0", "members": MEMBERS[:4]}},
        {"array": {"members": MEMBERS[:12], "chunk_size": "64KiB"}},
        {"array": {"spares": ["disk5"], "chunk_size": "64KiB"}},
        {"array": {"journal": "disk6", "chunk_size": "64KiB"}},
        {"filesystem": {"type": "xfs", "log": "disk7"}},
        {"filesystem": {"type": "ext4", "log": "disk7"}},
        {"array": {"type": "zfs"}, "filesystem": {"type": "zfs", "log": "disk7"}},
        {"volume": "crypt"},
        {"volume": {"type": "writecache", "cache_disk": "disk7"}},
        {"volume": {"type": "cache", "cache_disk": "disk7"}},
    ],
    ids=[
        "raid10",
        "nested",
        "twelve",
        "spare",
        "journal",
        "xfs log",
        "ext4 log",
        "pool",
        "crypt",
        "writecache",
        "cache",
    ],
)
def test_no_line_names_a_device_of_the_harness(layers: dict[str, Any]) -> None:
    new = stack(**layers)
    for line in lines_of(new, new):
        assert "raidproof-" not in line.text
        assert "raidproof_" not in line.text
        assert "/dev/md0" not in line.text
        assert not any(word in MEMBERS for word in line.text.split())
    named = [word for line in lines_of(new, new) for word in line.text.split() if "YOUR-MEMBER-" in word]
    assert len(set(named)) == len(new.array.members)


def test_a_pool_is_made_of_whole_disks_and_keeps_its_name() -> None:
    pool = stack(array={"type": "zfs", "level": "mirror"}, filesystem={"type": "zfs"})
    (made,) = (line.text for line in lines(pool) if line.place == COMMAND)
    disks = " ".join(f"/dev/disk/by-id/YOUR-MEMBER-{number}" for number in (1, 2, 3))
    assert made.startswith("zpool create -o ashift=12 -O mountpoint=legacy ")
    assert made.endswith(f" raidproof mirror {disks}")
    assert "cachefile" not in made
    (mounted, _) = (line.text for line in lines(pool) if line.place == "/etc/fstab")
    assert mounted.split()[0] == "raidproof"
    assert " zfs defaults " in mounted


def test_a_changed_bitmap_is_made_in_place() -> None:
    assert texts(stack(array={"bitmap": "none"})) == ["mdadm --grow /dev/md/YOUR-ARRAY --bitmap=none"]
    finer = stack(array={"bitmap_chunk": "128MiB"})
    assert texts(finer) == [
        "mdadm --grow /dev/md/YOUR-ARRAY --bitmap=none",
        "mdadm --grow /dev/md/YOUR-ARRAY --bitmap=internal --bitmap-chunk=131072K",
    ]
    without = stack(array={"bitmap": "none"})
    (line,) = [one for one in lines_of(stack(), without) if one.work is not Work.NONE]
    assert line.text == "mdadm --grow /dev/md/YOUR-ARRAY --bitmap=internal"


def test_a_new_array_takes_a_new_file_system() -> None:
    works = [line.work for line in lines(stack(array={"chunk_size": "64KiB"}))]
    assert Work.ARRAY in works
    assert Work.FILESYSTEM in works


def test_mkfs_does_not_force_an_overwrite() -> None:
    for kind, flags in (("xfs", {"-f"}), ("ext4", {"-F", "-q"})):
        new = stack(filesystem={"type": kind, "block_size": "1KiB"})
        own = new.filesystem.mkfs_command("/dev/md0", new.array.geometry)
        (made,) = texts(new, Work.FILESYSTEM)
        assert set(own) - set(shlex.split(made)) == {*flags, "/dev/md0"}


def test_a_changed_setting_takes_only_its_own_line() -> None:
    assert texts(stack(export={"threads": 16})) == ["threads=16"]
    assert texts(stack(export={"wdelay": False})) == [
        "/YOUR/EXPORT YOUR-CLIENTS(rw,sync,no_wdelay,no_subtree_check,root_squash)"
    ]
    (mounted,) = texts(stack(mount={"wsize": "64KiB"}))
    assert mounted.startswith("YOUR-SERVER:/YOUR/EXPORT /YOUR/MOUNT-POINT nfs ")
    assert "wsize=65536" in mounted
    assert "retry" not in mounted
    assert texts(stack(tuning={"server_dirty_bytes": "1MiB"})) == ["vm.dirty_bytes = 1048576"]
    assert texts(stack(tuning={"stripe_cache_size": 1024})) == [
        'ACTION=="add|change", SUBSYSTEM=="block", KERNEL=="YOUR-MD-DEVICE", ATTR{md/stripe_cache_size}="1024"'
    ]
    assert texts(stack(tuning={"scheduler": "none"})) == [
        'ACTION=="add|change", SUBSYSTEM=="block", KERNEL=="YOUR-MEMBER-DEVICE", ATTR{queue/scheduler}="none"'
    ]


def test_lines_of_clients_are_for_clients() -> None:
    new = stack(mount={"wsize": "64KiB"}, tuning={"client_dirty_bytes": "1MiB"})
    assert {line.machine for line in lines(new) if line.work is not Work.NONE} == {"clients"}


def test_the_short_lease_of_the_harness_is_no_advice() -> None:
    asked = StackSpec.model_validate(
        {"array": {"level": 5, "members": MEMBERS[:3]}, "export": {"lease_s": 10, "grace_s": 15}}
    )
    for lease, grace in ((False, False), (True, False), (False, True)):
        found = [line.text for line in lines(deployed(asked, lease=lease, grace=grace))]
        assert ("lease-time=10" in found, "grace-time=15" in found) == (lease, grace)


def test_the_line_of_exports_gives_clients_no_rights_of_root() -> None:
    for squash in (False, True):
        found = [line.text for line in lines(stack(export={"root_squash": squash})) if line.place == "/etc/exports"]
        assert "no_root_squash" not in found[0]
        assert ("root_squash" in found[0]) == squash


@given(st.booleans(), st.booleans(), st.booleans(), st.integers(0, 9) | st.none())
def test_the_line_of_exports_has_the_options_of_exportfs(
    sync: bool, wdelay: bool, tree: bool, fsid: int | None
) -> None:
    spec = ExportSpec.model_validate({"sync": sync, "wdelay": wdelay, "subtree_check": tree, "fsid": fsid})
    (line,) = [one.text for one in spec.lines("/x", "host") if one.file == "/etc/exports"]
    options = export_command(spec, "/x")[2].split(",")
    assert line == f"/x host({','.join(one for one in options if one != 'no_root_squash')})"


@given(
    st.integers(1, 64),
    st.integers(10, 90) | st.none(),
    st.integers(10, 90) | st.none(),
    st.sampled_from([2049, 20049]),
)
def test_nfs_conf_has_the_values_of_rpc_nfsd(threads: int, lease: int | None, grace: int | None, port: int) -> None:
    spec = ExportSpec(threads=threads, lease_s=lease, grace_s=grace, port=port)
    command = nfsd_command(spec)
    options = dict(zip(command[1:-1:2], command[2:-1:2], strict=True))
    named = dict(line.split("=") for line in nfs_conf(spec))
    assert named.pop("threads") == command[-1]
    names = {"-p": "port", "-G": "grace-time", "-L": "lease-time"}
    # The command also sets what an earlier start may have changed; on a server the defaults need no line.
    usual = {"lease-time": "90", "grace-time": "90"}
    assert {**usual, **named} == {names[option]: value for option, value in options.items()}


def test_delegations_are_switched_off_by_the_kernel_setting() -> None:
    assert texts(stack(export={"delegations": False})) == ["fs.leases-enable = 0"]


def test_the_lines_of_fstab_have_the_options_of_mount() -> None:
    spec = client.MountSpec.model_validate({"wsize": "64KiB", "sync": True, "nconnect": 2, "vers": "4.1"})
    options = client.mount_command(spec, "s:/x", "/m")[5].split(",")
    fields = client.fstab_line(spec, "s:/x", "/m").split()
    assert fields[:3] == ["s:/x", "/m", "nfs"]
    assert fields[3].split(",") == [*(one for one in options if one != "retry=0"), "_netdev"]
    own = stack(filesystem={"type": "ext4", "mount_options": "noatime"}).filesystem
    command = local.mount_command(own, "/dev/x", "/m")
    assert local.fstab_line(own, "/dev/x", "/m") == f"/dev/x /m ext4 {command[command.index('--options') + 1]} 0 2"


def test_paths_of_the_kernel_become_names_of_settings() -> None:
    assert sysctl_line("/proc/sys/fs/xfs/xfssyncd_centisecs", "100") == "fs.xfs.xfssyncd_centisecs = 100"
    assert 'KERNEL=="md0"' in udev_rule("/sys/block/md0/queue/read_ahead_kb", "64")


@pytest.mark.parametrize(
    ("field", "work"),
    [
        ("array.chunk_size", Work.ARRAY),
        ("array.bitmap", Work.IN_PLACE),
        ("filesystem.block_size", Work.FILESYSTEM),
        ("filesystem.mount_options", Work.REMOUNT),
        ("export.sync", Work.IN_PLACE),
        ("mount.wsize", Work.REMOUNT),
        ("tuning.scheduler", Work.IN_PLACE),
        ("", Work.ARRAY),
    ],
)
def test_what_a_change_takes(field: str, work: Work) -> None:
    assert work_of(field) is work
    assert work.destroys == (work in {Work.ARRAY, Work.FILESYSTEM})


def test_lines_of_a_volume_make_it_between_array_and_file_system() -> None:
    volume = {"type": "writecache", "cache_disk": "disk7"}
    commands = [line.text for line in lines(stack(volume=volume)) if line.place == COMMAND]
    assert [text.split()[0] for text in commands] == ["mdadm", "dd", "blockdev", "dmsetup", "mkfs.xfs"]
    assert commands[2] == "blockdev --getsz /dev/md/YOUR-ARRAY"
    assert commands[3].startswith("dmsetup create YOUR-VOLUME --table '0 SECTORS writecache s /dev/md/YOUR-ARRAY")
    assert commands[4].endswith(" /dev/mapper/YOUR-VOLUME")
    changed = lines_of(stack(volume=volume), stack())
    assert {line.work for line in changed if "dmsetup" in line.text} == {Work.FILESYSTEM}
