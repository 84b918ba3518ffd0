"""ZFS, on stored output of zfsutils 2.3.9 with Linux 6.12."""

import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError, RigError
from raidproof.core.units import KIB, MIB
from raidproof.storage.array import Geometry
from raidproof.storage.array.array import Separate
from raidproof.storage.filesystem import Mounted, mkfs_command, mount_command
from raidproof.storage.filesystem.zfs import ZfsSpec, parse_properties
from raidproof.storage.stack import StackSpec

DATA = Path(__file__).parents[2] / "data" / "zfsutils"
TEXTS = {path.stem: path.read_text() for path in DATA.glob("*.json")}
STATUS, PROPERTIES, POOL = (TEXTS[f"{name}-2.3"] for name in ("zpool-status-scrubbed", "zfs-get", "zpool-get"))
DISKS = ("/dev/a", "/dev/b", "/dev/c", "/dev/d")


def geometry(level: str = "z1") -> Geometry:
    return Geometry(4 * KIB, 3, Separate(level, DISKS))


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"su": "64KiB", "sw": 3}, "su = 65536: zfs has no such setting"),
        ({"block_size": 1024}, "block_size = 1024: zfs has no such setting"),
        ({"recordsize": "96KiB"}, "recordsize 96KiB is not a power of two from 4KiB to 1MiB"),
        ({"recordsize": "2MiB"}, "recordsize 2MiB is not a power of two from 4KiB to 1MiB"),
        ({"ashift": 8}, "ashift 8 is not a number from 9 (512 bytes) to 16 (64KiB)"),
        ({"sync": "sometimes"}, "sync: unknown value 'sometimes'"),
    ],
)
def test_the_impossible_is_refused_with_the_reason(asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=re.escape(reason)):
        ZfsSpec.model_validate(asked)


def test_it_is_refused_on_an_array_of_another_kind() -> None:
    with pytest.raises(RequestError, match='filesystem = "zfs" makes its own RAID; write raid = "zfs"'):
        StackSpec.model_validate({"array": {"level": 5, "members": ["a", "b", "c"]}, "filesystem": {"type": "zfs"}})


@pytest.mark.parametrize(
    ("level", "vdevs"),
    [
        ("1", "mirror /dev/a /dev/b /dev/c /dev/d"),
        ("z1", "raidz1 /dev/a /dev/b /dev/c /dev/d"),
        ("z2", "raidz2 /dev/a /dev/b /dev/c /dev/d"),
        ("10", "mirror /dev/a /dev/b mirror /dev/c /dev/d"),
    ],
)
def test_the_pool_is_created_on_all_members(level: str, vdevs: str) -> None:
    made = " ".join(mkfs_command(ZfsSpec(sync="always"), "raidproof", geometry(level)))
    assert "-O mountpoint=legacy -O sharenfs=off -O sync=always -O recordsize=131072 -O compression=on" in made
    assert made.endswith(f"raidproof {vdevs}")
    assert "cachefile" not in made


def test_the_harness_creates_the_pool_on_partitions_without_a_list_of_pools() -> None:
    (made,) = ZfsSpec(log="disk4").create_commands(Mock(), "raidproof", geometry("1"))
    assert "cachefile=none" in made
    parts = [f"{disk}-part1" for disk in (*DISKS, "/dev/disk/by-id/raidproof-disk4")]
    assert made[-7:] == ["mirror", *parts[:4], "log", parts[4]]


def test_the_log_is_a_separate_device() -> None:
    made = mkfs_command(ZfsSpec(log="disk4"), "raidproof", geometry())
    assert made[-2:] == ["log", "/dev/disk/by-id/raidproof-disk4"]


def test_the_dataset_is_mounted_by_the_name_of_the_pool() -> None:
    assert mount_command(ZfsSpec(), "raidproof", "/srv") == ["mount", "--mkdir", "--types", "zfs", "raidproof", "/srv"]
    assert ZfsSpec().erase_command("raidproof") == ["zpool", "destroy", "raidproof"]
    assert ZfsSpec().least_size(geometry()) == 3 * 64 * MIB


def test_without_a_log_of_fsync_it_promises_nothing() -> None:
    assert ZfsSpec().caveats() == ()
    (caveat,) = ZfsSpec(sync="disabled").caveats()
    assert caveat == ZfsSpec(sync="disabled").fsync_caveat
    assert "sync=disabled" in caveat


def test_the_effective_state_is_read() -> None:
    machine: Any = Mock()
    machine.succeed.side_effect = [PROPERTIES, POOL, STATUS]
    machine.get.return_value = "5\n"
    mounted = Mounted(type="zfs", source="raidproof", directory="/srv", options=("rw", "xattr"))
    spec = ZfsSpec()
    state = spec.state(machine, "tank", mounted)
    assert (state.block_size, state.log) == (4 * KIB, "internal")
    assert spec.commit_s(state.options, ()) == 5
    found, asked = spec.found(state), spec.asked(geometry())
    assert {name: found[name] for name in asked if asked[name] is not None} == {
        name: value for name, value in asked.items() if value is not None
    }
    assert ZfsSpec(sync="always").asked(geometry())["sync"] != found["sync"]
    with pytest.raises(RigError, match="should have txg_timeout=NUMBER"):
        spec.commit_s(("rw",), ())


def completed(text: str) -> Completed:
    return Completed(("zpool",), 0, text, "")


def test_a_pool_without_errors_is_clean() -> None:
    assert ZfsSpec().parse_check(completed(STATUS)).outcome == "clean"


def test_a_pool_with_errors_is_corrupt() -> None:
    damaged = re.sub(r'"error_count": ?0', '"error_count": 2', STATUS)
    check = ZfsSpec().parse_check(completed(damaged))
    assert (check.outcome, len(check.reasons)) == ("corrupt", 1)
    assert "2 data errors" in check.reasons[0]


def test_a_check_begins_with_a_scrub() -> None:
    machine: Any = Mock()
    machine.run.return_value = completed(STATUS)
    assert ZfsSpec().check(machine, "raidproof").outcome == "clean"
    machine.succeed.assert_called_once()
    assert machine.succeed.call_args.args == (["zpool", "scrub", "-w", "raidproof"],)


@given(length=st.integers(0, len(STATUS.rstrip()) - 1))
def test_truncated_output_is_refused(length: int) -> None:
    with pytest.raises(RigError):
        ZfsSpec().parse_check(completed(STATUS[:length]))


@given(length=st.integers(0, len(PROPERTIES.rstrip()) - 1))
def test_truncated_properties_are_refused(length: int) -> None:
    with pytest.raises(RigError):
        parse_properties(PROPERTIES[:length], "datasets", "tank")
