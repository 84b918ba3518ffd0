"""F2FS, on stored output of f2fs-tools."""

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
from raidproof.storage.filesystem import F2fsSpec, Mounted, mkfs_command, mount_command
from raidproof.storage.filesystem.f2fs import parse_owner, parse_super
from raidproof.verdict.kernel_log import findings

DATA = Path(__file__).parents[2] / "data" / "f2fs-tools"
TEXTS = {path.stem: path.read_text() for path in DATA.glob("*.txt")}
GEOMETRY = Geometry(64 * KIB, 3)
OPTIONS = ("rw", "relatime", "mode=lfs", "fsync_mode=strict")


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"su": "64KiB", "sw": 3}, "su = 65536: f2fs has no such setting"),
        ({"log": "disk5"}, "log = disk5: f2fs has no such setting"),
        ({"block_size": "2KiB"}, "block size 2KiB is not 4KiB"),
        ({"mount_options": "nobarrier"}, "a field of the file system's request sets this option"),
        ({"fsync_mode": "loose"}, "fsync_mode: unknown value 'loose'"),
    ],
)
def test_the_impossible_is_refused_with_the_reason(asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=re.escape(reason)):
        F2fsSpec.model_validate(asked)


def test_commands() -> None:
    spec = F2fsSpec(fsync_mode="strict", mount_options=("noatime",))
    assert mkfs_command(spec, "/dev/md0", GEOMETRY) == ["mkfs.f2fs", "-f", "-q", "-t", "0", "/dev/md0"]
    assert mkfs_command(F2fsSpec(discard=True), "/dev/md0", None)[3:5] == ["-t", "1"]
    mounted = "mount --mkdir --types f2fs --options noatime,fsync_mode=strict,mode=adaptive /dev/md0 /srv"
    assert mount_command(spec, "/dev/md0", "/srv") == mounted.split()
    assert spec.alignment(GEOMETRY) is None
    assert spec.least_size(GEOMETRY) == 50 * MIB


def test_without_flushes_it_promises_nothing() -> None:
    assert F2fsSpec().caveats() == ()
    (caveat,) = F2fsSpec(fsync_mode="nobarrier").caveats()
    assert caveat == F2fsSpec(fsync_mode="nobarrier").fsync_caveat
    assert "fsync_mode=nobarrier" in caveat


def test_the_effective_state_is_read() -> None:
    machine: Any = Mock()
    machine.succeed.return_value = TEXTS["dump-1.16-super"]
    machine.get.return_value = "60\n"
    mounted = Mounted(type="f2fs", source="/dev/md0", directory="/srv", options=OPTIONS)
    spec = F2fsSpec(fsync_mode="strict", allocation="lfs")
    state = spec.state(machine, "/dev/md0", mounted)
    machine.get.assert_called_once_with("/sys/fs/f2fs/md0/cp_interval")
    assert (state.block_size, state.size) == (4 * KIB, 192 * MIB)
    found, asked = spec.found(state), spec.asked(GEOMETRY)
    assert {name: found[name] for name in asked if asked[name] is not None} == {
        name: value for name, value in asked.items() if value is not None
    }
    assert spec.commit_s(state.options, ()) == 60
    # Another request is not effective.
    assert F2fsSpec().asked(GEOMETRY)["fsync_mode"] != found["fsync_mode"]
    with pytest.raises(RigError, match="no cp_interval="):
        spec.commit_s(OPTIONS, ())


@given(length=st.integers(0, TEXTS["dump-1.16-super"].index("\nDone: ")))
def test_a_truncated_superblock_is_refused(length: int) -> None:
    with pytest.raises(RigError):
        parse_super(TEXTS["dump-1.16-super"][:length])


def ended(name: str, status: int) -> Completed:
    return Completed(("fsck.f2fs",), status, TEXTS[name], "", "server")


@pytest.mark.parametrize(
    ("name", "status", "outcome"),
    [("fsck-1.16-clean", 0, "clean"), ("fsck-1.16-corrupt", 255, "corrupt"), ("fsck-1.16-none", 255, "corrupt")],
)
def test_the_checkers_verdict(name: str, status: int, outcome: str) -> None:
    check = F2fsSpec().parse_check(ended(name, status))
    assert (check.outcome, check.status) == (outcome, status)
    assert bool(check.reasons) == (outcome != "clean")


def test_each_failed_check_is_damage() -> None:
    text = TEXTS["fsck-1.16-clean"]
    for number in range(text.count("[Ok..]")):
        parts = text.split("[Ok..]")
        broken = "[Ok..]".join(parts[: number + 1]) + "[Fail]" + "[Ok..]".join(parts[number + 1 :])
        check = F2fsSpec().parse_check(Completed(("fsck.f2fs",), 0, broken, "", "server"))
        assert check.outcome == "corrupt"


@pytest.mark.parametrize(("name", "status"), [("fsck-1.16-mounted", 8), ("fsck-1.16-clean", 127)])
def test_no_answer_is_no_verdict(name: str, status: int) -> None:
    with pytest.raises(RigError, match="did not complete its check"):
        F2fsSpec().parse_check(ended(name, status))


@given(length=st.integers(0, TEXTS["fsck-1.16-clean"].index("\nDone: ")))
def test_truncated_output_of_the_checker_is_never_clean(length: int) -> None:
    with pytest.raises(RigError):
        F2fsSpec().parse_check(Completed(("fsck.f2fs",), 0, TEXTS["fsck-1.16-clean"][:length], "", "server"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("data", "file inode 5, bytes 8192-12287"),
        ("node", "node of inode 5"),
        ("directory", "file inode 3, bytes 0-4095"),
        ("free", "free space"),
        ("superblock", "F2FS superblock"),
        ("checkpoint", "F2FS checkpoint"),
        ("sit", "F2FS SIT"),
        ("super", "owner unknown"),
    ],
)
def test_each_block_has_an_owner(name: str, said: str) -> None:
    assert str(parse_owner(TEXTS[f"dump-1.16-{name}"], 5 * 4096 + 7)) == said


def test_messages_of_damage_are_found() -> None:
    assert findings("F2FS-fs (md0): inconsistent node block, nid:5, node_footer[nid:0,ino:0,ofs:0,cpver:0,blkaddr:0]")
    assert findings("F2FS-fs (md0): Stopped filesystem due to reason: 3")
    assert not findings("F2FS-fs (md0): Mounted with checkpoint version = 7fcac5eb")
