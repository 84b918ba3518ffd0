"""The devices of an array in a checker: what is read from sysfs and from device-mapper."""

import errno
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from raidproof.guest import assembled
from raidproof.guest.assembled import (
    DM_RAID,
    FULL_SPEED,
    INTERFACES,
    MESSAGE,
    STATUS,
    SYSFS_BTRFS,
    SYSFS_MD,
    TARGET_BYTES,
    ZFS_POOL,
    idle_in,
    missing_in,
)

STATUS_LINE = b"raid5_ls 4 AAAA 376832/376832 idle 0 0 -\0"


def md_files(home: Path, monkeypatch: pytest.MonkeyPatch, **content: str) -> Path:
    monkeypatch.setattr(assembled, "BLOCK_DEVICES", str(home))
    folder = home / "md0" / "md"
    folder.mkdir(parents=True)
    for name, text in content.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(("degraded", "missing"), [({"degraded": "2\n"}, 2), ({"degraded": "0\n"}, 0), ({}, 0)])
def test_missing_members_of_an_md_device(
    degraded: dict[str, str], missing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    md_files(tmp_path, monkeypatch, **degraded)
    assert INTERFACES[SYSFS_MD]("md0").missing() == missing


@pytest.mark.parametrize(
    ("state", "left"), [("clean\n", True), ("inactive\n", True), ("clear\n", False), (None, False)]
)
def test_an_md_device_remains_until_it_is_clear_or_gone(
    state: str | None, left: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    md_files(tmp_path, monkeypatch, **({} if state is None else {"array_state": state}))
    assert INTERFACES[SYSFS_MD]("md0").remains() is left


def test_an_md_device_is_frozen_if_it_has_a_resync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = md_files(tmp_path, monkeypatch, sync_action="idle")
    INTERFACES[SYSFS_MD]("md0").freeze()
    assert (folder / "sync_action").read_text() == "frozen"
    INTERFACES[SYSFS_MD]("md7").freeze()  # RAID0 has no such file


IN_SYNC = {"sync_action": "idle\n", "resync_start": "none\n", "array_state": "clean\n"}


@pytest.mark.parametrize(
    ("files", "settled"),
    [
        ({}, True),
        ({"sync_action": "resync"}, False),
        ({"resync_start": "0"}, False),
        ({"array_state": "active"}, False),
        ({"array_state": "read-auto"}, False),
    ],
)
def test_an_md_device_has_settled_when_it_is_in_sync_and_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], settled: bool
) -> None:
    md_files(tmp_path, monkeypatch, **{**IN_SYNC, **files})
    assert INTERFACES[SYSFS_MD]("md0").settled() is settled
    assert INTERFACES[SYSFS_MD]("md7").settled(), "an array without redundancy has no file sync_action"


SCRUBBED = {**IN_SYNC, "degraded": "0\n", "mismatch_cnt": "24\n", "sync_speed_max": "200000 (system)\n"}


def test_an_md_device_is_checked_after_its_resync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = md_files(tmp_path, monkeypatch, **{**SCRUBBED, "array_state": "read-auto\n"})
    waited: list[bool] = []

    def wait_for(reached: Callable[[], bool], _: float) -> None:
        waited.append(reached())
        (folder / "sync_action").write_text("idle\n")

    monkeypatch.setattr(assembled, "wait_for", wait_for)
    assert INTERFACES[SYSFS_MD]("md0").scrub(1) == 24
    assert waited == [True, False], "a resync has ended; a check has only begun"
    assert (folder / "array_state").read_text() == "active"
    assert {file: (folder / file).read_text() for file in FULL_SPEED} == FULL_SPEED


def test_an_md_device_is_checked_at_the_speed_that_the_kernel_permits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = md_files(tmp_path, monkeypatch, **SCRUBBED)
    (folder / "stripe_cache_size").mkdir()  # cannot be written
    monkeypatch.setattr(assembled, "wait_for", lambda *_: None)
    assert INTERFACES[SYSFS_MD]("md0").scrub(1) == 24


def test_a_degraded_array_and_one_without_redundancy_cannot_be_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    md_files(tmp_path, monkeypatch, **{**SCRUBBED, "degraded": "1\n"})
    assert INTERFACES[SYSFS_MD]("md0").scrub(1) is None
    assert INTERFACES[SYSFS_MD]("md7").scrub(1) is None
    assert INTERFACES["device-mapper"]("raidproof-disk1").scrub(1) is None


def test_a_scrub_that_does_not_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    md_files(tmp_path, monkeypatch, **{**SCRUBBED, "resync_start": "0\n"})
    with pytest.raises(TimeoutError):
        INTERFACES[SYSFS_MD]("md0").scrub(0)


def test_a_target_is_checked_by_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = mapper(monkeypatch, b"raid5_ls 4 AAAA 376832/376832 idle 16 0 -\0")
    assert INTERFACES[DM_RAID]("raidproof-array").scrub(1) == 16
    assert [data[8:] for command, _, data in fake.sent if command == MESSAGE] == [b"idle\0", b"check\0"]
    mapper(monkeypatch, b"raid5_ls 4 AA-A 376832/376832 idle 0 0 -\0")
    assert INTERFACES[DM_RAID]("raidproof-array").scrub(1) is None


@pytest.mark.parametrize(("refused", "found"), [({b"idle"}, 16), ({b"idle", b"check"}, None)])
def test_a_target_that_refuses_to_be_idle_is_checked_if_it_accepts_a_check(
    monkeypatch: pytest.MonkeyPatch, refused: set[bytes], found: int | None
) -> None:
    fake = mapper(monkeypatch, b"raid5_ls 4 AAAA 376832/376832 idle 16 0 -\0")
    fake.refused = refused
    assert INTERFACES[DM_RAID]("raidproof-array").scrub(1) == found


def test_a_target_that_is_gone_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    device = INTERFACES[DM_RAID]("raidproof-array")
    fake = mapper(monkeypatch, STATUS_LINE)
    monkeypatch.setattr(device, "missing", lambda: 0)
    fake.line = None
    with pytest.raises(OSError, match="No such device"):
        device.scrub(1)


@pytest.mark.parametrize(("state", "after"), [("read-auto\n", "active"), ("clean\n", "clean\n")])
def test_an_md_device_that_waits_for_a_write_is_made_active(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, after: str
) -> None:
    folder = md_files(tmp_path, monkeypatch, array_state=state)
    INTERFACES[SYSFS_MD]("md0").write_enable()
    assert (folder / "array_state").read_text() == after


@pytest.mark.parametrize(
    ("line", "idle"),
    [
        (STATUS_LINE, True),
        (b"raid5_ls 4 aAAA 100/376832 recover 0 0 -\0", False),
        (b"raid5_ls 4 AAAA 100/376832 idle 0 0 -\0", False),
        (b"raid5_ls 4 AAAA 376832/376832 frozen 0 0 -\0", False),
    ],
)
def test_an_array_of_device_mapper_has_settled_when_it_is_in_sync_and_idle(line: bytes, idle: bool) -> None:
    assert idle_in(line) is idle


class DeviceMapper:
    """A fake of `member_disks.control` that answers with a status line, or refuses."""

    def __init__(self, line: bytes | None) -> None:
        self.line = line
        self.sent: list[tuple[int, str, bytes]] = []
        self.refused: set[bytes] = set()
        """Messages that the target answers with EINVAL."""

    def control(self, command: int, name: str, data: bytes = b"") -> tuple[int, bytes]:
        self.sent.append((command, name, data))
        if command == MESSAGE and data[8:-1] in self.refused:
            raise OSError(errno.EINVAL, "Invalid argument")
        if self.line is None:
            raise OSError(6, "No such device or address")
        return 0, bytes(TARGET_BYTES) + self.line


def mapper(monkeypatch: pytest.MonkeyPatch, line: bytes | None) -> DeviceMapper:
    fake = DeviceMapper(line)
    monkeypatch.setitem(sys.modules, "member_disks", SimpleNamespace(control=fake.control))
    return fake


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        (STATUS_LINE, 0),
        (b"raid5_ls 4 ADAA 0/376832 frozen 0 0 -\0", 1),
        (b"raid6_zr 5 DAADa 0/376832 idle 0 0 -\0", 2),
        (b"raid5_ls 4 AA-A 0/376832 idle 0 0 -\0", 1),
    ],
)
def test_dead_members_of_a_target_are_missing(line: bytes, missing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = mapper(monkeypatch, line)
    device = INTERFACES[DM_RAID]("raidproof-array")
    assert (device.missing(), device.remains()) == (missing, True)
    assert {(command, name) for command, name, _ in fake.sent} == {(STATUS, "raidproof-array")}


@pytest.mark.parametrize("line", [b"", b"raid5_ls\0", b"0 linear 8:0 8 9\0"])
def test_a_line_of_another_target_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="no status of the target raid"):
        missing_in(line)


def test_a_target_is_frozen_by_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = mapper(monkeypatch, STATUS_LINE)
    INTERFACES[DM_RAID]("raidproof-array").freeze()
    assert fake.sent == [(MESSAGE, "raidproof-array", struct.pack("=Q", 0) + b"frozen\0")]


def test_a_device_that_is_gone_does_not_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    mapper(monkeypatch, None)
    assert not INTERFACES[DM_RAID]("raidproof-array").remains()


@pytest.mark.parametrize(
    ("names", "left"),
    [
        (None, False),
        ([], False),
        (["features"], False),
        (["features", "fc19b062-4a82-4400-8fcd-04bfaee08cdb"], True),
    ],
)
def test_a_btrfs_remains_until_it_is_unmounted(
    names: list[str] | None, left: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "btrfs"
    monkeypatch.setattr(assembled, "BTRFS", str(home))
    for name in names or []:
        (home / name).mkdir(parents=True)
    device = INTERFACES[SYSFS_BTRFS]("btrfs")
    device.freeze()
    device.write_enable()
    assert (device.remains(), device.missing(), device.settled()) == (left, 0, True)


@pytest.mark.parametrize(
    ("state", "missing", "left"), [(None, 0, False), ("ONLINE\n", 0, True), ("DEGRADED\n", 1, True), ("", 1, True)]
)
def test_the_directory_of_a_pool_in_proc_shows_that_it_is_imported(
    state: str | None, missing: int, left: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembled, "POOLS", str(tmp_path))
    if state is not None:
        (tmp_path / "tank").mkdir()
        (tmp_path / "tank" / "state").write_text(state)
    device = INTERFACES[ZFS_POOL]("tank")
    device.freeze()
    assert (device.remains(), device.missing(), device.settled()) == (left, missing, True)
    assert device.scrub(1.0) is None
    assert not INTERFACES[ZFS_POOL]("other").remains()
