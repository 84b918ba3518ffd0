"""The exported write log of a member, replayed onto an empty disk, gives the disk engine's image of the member.

A reader in this file replays the log, and fstests' replay-log does too if the host has it.
"""

import shutil
import struct
from pathlib import Path

from raidproof.core.command import succeed
from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.units import MIB
from raidproof.disk.client import EngineClient
from raidproof.disk.replay import DISCARD, MAGIC, MARK, SECTOR, VERSION, export_dm_log_writes, replay
from raidproof.disk.sparse_image import save_platter
from raidproof.disk.writelog import Kind, WriteLog
from raidproof.lab.lab import Lab
from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.storage.stack import Stack

TOOL = "replay-log"
"""The program of the format's authors (fstests' src/log-writes), used too if this host has it."""
REPLAY_DEADLINE_S = 120.0


def read_onto(log: Path, disk: Path) -> None:
    """Write the requests of a log onto a disk image.

    The log has the format of ``log_write_super`` and ``log_write_entry`` (drivers/md/dm-log-writes.c).
    """
    with log.open("rb") as entries, disk.open("r+b") as target:
        magic, version, count, sector = struct.unpack("<QQQI", entries.read(28))
        assert (magic, version, sector) == (MAGIC, VERSION, SECTOR)
        entries.seek(SECTOR)
        for _ in range(count):
            start, sectors, flags, _ = struct.unpack_from("<QQQQ", entries.read(SECTOR))
            if flags & MARK or not sectors:
                continue
            target.seek(start * SECTOR)
            target.write(bytes(sectors * SECTOR) if flags & DISCARD else entries.read(sectors * SECTOR))
        assert not entries.read(1)


def must_replay_to(log: Path, image: Path, folder: Path) -> None:
    """Assert that a log, replayed by each available reader onto an empty disk, gives the same bytes as an image."""
    readers = {"described": read_onto}
    if tool := shutil.which(TOOL):
        readers["tool"] = lambda log, disk: _by_tool(tool, log, disk)
    for name, read in readers.items():
        disk = folder / name
        with disk.open("wb") as file:
            file.truncate(image.stat().st_size)
        read(log, disk)
        assert same(disk, image), f"{log.name}, replayed by reader {name!r}, differs from {image}"
        disk.unlink()


def _by_tool(tool: str, log: Path, disk: Path) -> None:
    """Replay a log onto a disk image with fstests' replay-log."""
    succeed([tool, "--log", log, "--replay", disk], deadline_s=REPLAY_DEADLINE_S)


def same(one: Path, other: Path) -> bool:
    """Return whether two files have the same bytes; holes count as zeros."""
    with one.open("rb") as first, other.open("rb") as second:
        while (piece := first.read(MIB)) == second.read(MIB):
            if not piece:
                return True
    return False


def test_log_of_a_member_replays_to_the_engines_own_image(lab: Lab, tmp_path: Path) -> None:
    disks = lab.disks
    if not isinstance(disks, EngineClient):
        raise RequirementMissing(
            "these disks are not the disk engine's: there is no image to compare the replayed log with"
        )
    disks.log_start(tmp_path / "write.log")
    stack = Stack(stack_of(), lab.server, lab.clients)
    stack.create()
    stack.activate()
    lab.clients[0].put("kept" * MIB, f"{stack.mounts[lab.clients[0].name].directory}/word")
    stack.deactivate()
    disks.log_stop()
    for serial in stack.spec.disks:
        disks.image(serial, tmp_path / "image", durable=False)
        assert export_dm_log_writes(WriteLog(tmp_path / "write.log"), serial, tmp_path / serial)
        must_replay_to(tmp_path / serial, tmp_path / "image", tmp_path)
        (tmp_path / "image").unlink()


def test_log_of_a_cycle_replays_to_what_the_disk_held_before_the_cut(cycle: CrashTestRunner, tmp_path: Path) -> None:
    path = cycle(stack_of()).observations / "write.log"
    if not path.exists():
        raise RequirementMissing("the disks of this provider have no write log")
    cut_ns = next((record.completed_ns for record in WriteLog(path) if record.kind is Kind.FREEZE), None)
    if cut_ns is None:
        raise RigError(f"{path}: the crash test cut the power, but the write log has no FREEZE record")
    for serial, member in replay(WriteLog(path), until_ns=cut_ns - 1).items():
        save_platter(member.image(durable=False), tmp_path / "image", whole=True)
        assert export_dm_log_writes(WriteLog(path), serial, tmp_path / serial)
        must_replay_to(tmp_path / serial, tmp_path / "image", tmp_path)


def test_the_comparison_can_fail(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(bytes(2 * MIB))
    (tmp_path / "other").write_bytes(bytes(2 * MIB - 1) + b"1")
    (tmp_path / "short").write_bytes(bytes(MIB))
    assert same(tmp_path / "one", tmp_path / "one")
    assert not same(tmp_path / "one", tmp_path / "other")
    assert not same(tmp_path / "one", tmp_path / "short")
