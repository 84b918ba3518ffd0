"""Member disks in memory: the calls of device-mapper, and where data goes; the kernel is made up."""

import os
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from raidproof.guest import member_disks
from raidproof.guest.member_disks import CREATE, LOAD, STATUS, SUSPEND, MemberDisks, SnapshotLost, target

SIZES = (1 << 20, 4096 + 512)


class Kernel:
    """Device-mapper and its disks: a snapshot ends with the table that replaces it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loaded: dict[str, str] = {}
        self.tables: dict[str, str] = {}
        self.history: list[str] = []
        self.written: dict[int, dict[int, bytes]] = {}
        self.status = "16/2048 8"
        self.links: dict[str, str] = {}
        self.paths: list[str] = []
        self.removed: list[str] = []
        monkeypatch.setattr(member_disks, "control", self.control)
        made_up = SimpleNamespace(
            O_WRONLY=os.O_WRONLY,
            O_DIRECT=os.O_DIRECT,
            path=os.path,
            open=self.open,
            close=lambda _: None,
            makedirs=lambda *_, **__: None,
            unlink=self.removed.append,
            symlink=lambda path, link: self.links.update({link: path}),
            pwritev=self.write,
        )
        monkeypatch.setattr(member_disks, "os", made_up)

    def open(self, path: str, _flags: int) -> int:
        self.paths.append(path)
        return len(self.paths) - 1

    def write(self, fd: int, buffers: list[Any], offset: int) -> int:
        self.written.setdefault(fd, {})[offset] = bytes(buffers[0])
        return len(buffers[0])

    def control(self, command: int, name: str, targets: bytes = b"") -> tuple[int, bytes]:
        if command == CREATE:
            return 252 << 8 | int(name[-1]), b""
        if command == LOAD:
            sectors, kind, text = struct.unpack_from("=8xQ8x16s", targets)[0], targets[24:40], targets[40:]
            self.loaded[name] = f"{sectors} {kind.rstrip(bytes(1)).decode()} {text.partition(bytes(1))[0].decode()}"
        if command == SUSPEND:
            self.tables[name] = self.loaded.pop(name)
            self.history.append(f"{name}: {self.tables[name]}")
        if command == STATUS:
            return 0, bytes(40) + self.status.encode() + b"\0"
        return 0, b""


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


def source(data: bytes, at_once: int = 1000) -> Any:
    rest = memoryview(data)

    def fill(buffer: memoryview) -> int:
        nonlocal rest
        count = min(len(buffer), at_once, len(rest))
        buffer[:count] = rest[:count]
        rest = rest[count:]
        return count

    return fill


def test_members_are_snapshots_of_their_base(kernel: Kernel) -> None:
    MemberDisks(SIZES, ["/dev/disk/a", "/dev/disk/b"])
    assert kernel.links == {"/dev/disk/a": "/dev/dm-0", "/dev/disk/b": "/dev/dm-1"}
    assert kernel.tables == {
        "member0": "2048 snapshot 1:0 1:2 N 128",
        "member1": "9 snapshot 1:1 1:3 N 128",
    }


def test_no_tool_finds_the_disks_below_the_members(kernel: Kernel) -> None:
    MemberDisks(SIZES, ["/dev/disk/a", "/dev/disk/b"])
    assert kernel.removed == ["/dev/ram0", "/dev/ram1", "/dev/ram2", "/dev/ram3"]


def test_another_table_ends_a_snapshot_before_the_next_one_begins(kernel: Kernel) -> None:
    disks = MemberDisks(SIZES, ["/dev/disk/a", "/dev/disk/b"])
    kernel.history.clear()
    disks.show([], source(b""))
    assert [line for line in kernel.history if line.startswith("member0")] == [
        "member0: 2048 linear 1:0 0",
        "member0: 2048 snapshot 1:0 1:2 N 128",
    ]


def test_the_base_and_a_state_are_written_to_different_disks(kernel: Kernel) -> None:
    disks = MemberDisks(SIZES, ["/dev/disk/a", "/dev/disk/b"])
    disks.advance([(1, 4096, 512)], source(b"b" * 512))
    disks.show([(0, 0, 2048), (0, 8192, 512)], source(b"a" * 2048 + b"c" * 512, at_once=700))
    written = {kernel.paths[fd]: data for fd, data in kernel.written.items()}
    assert written == {"/dev/ram1": {4096: b"b" * 512}, "/dev/dm-0": {0: b"a" * 2048, 8192: b"c" * 512}}


def test_a_snapshot_without_room_is_an_error_of_the_rig(kernel: Kernel) -> None:
    disks = MemberDisks(SIZES, ["/dev/disk/a", "/dev/disk/b"])
    disks.require_valid()
    kernel.status = "Invalid"
    with pytest.raises(SnapshotLost, match="too little memory"):
        disks.require_valid()


def test_a_table_ends_at_a_multiple_of_eight_bytes() -> None:
    for text in ("", "1234567", "12345678"):
        table = target(8, "linear", text)
        assert len(table) % 8 == 0
        assert struct.unpack_from("=QQiI", table)[3] == len(table)
