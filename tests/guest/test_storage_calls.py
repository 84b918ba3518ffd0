"""Commands of a check as system calls: which forms are replaced, and what the kernel is asked for."""

import os
import stat
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from raidproof.guest import storage_calls
from raidproof.guest.storage_calls import ADD_NEW_DISK, RUN_ARRAY, SET_ARRAY_INFO, STOP_ARRAY, NoCall, options_of
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.storage.array import MdSpec
from raidproof.storage.array.mdadm import assemble_command, stop_command
from raidproof.storage.filesystem.filesystem import mount_command
from raidproof.storage.mount import MountSpec
from raidproof.storage.mount import mount_command as nfs_mount_command


class Kernel:
    """Notes calls of the C library and ioctls; those in ``fails`` fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.did: list[tuple[Any, ...]] = []
        self.fails: set[object] = set()
        self.events: dict[int, int] = {}
        """Event counts of members by their numbers; of others: 7."""
        monkeypatch.setattr(storage_calls, "call", self.call)
        monkeypatch.setattr(storage_calls, "fcntl", SimpleNamespace(ioctl=self.ioctl))
        made_up = SimpleNamespace(
            **{name: getattr(os, name) for name in ("O_RDWR", "O_RDONLY", "major", "minor", "makedev")},
            open=lambda path, _: int(path[-1]),
            close=lambda _: None,
            pread=lambda fd, size, _: self.events.get(fd, 7).to_bytes(size, "little"),
            makedirs=lambda *_, **__: None,
            mknod=lambda *_: None,
            path=os.path,
            stat=lambda path: SimpleNamespace(st_rdev=os.makedev(252, int(path[-1]))),
        )
        monkeypatch.setattr(storage_calls, "os", made_up)

    def call(self, name: str, *arguments: Any) -> None:
        self.did.append((name, *(getattr(one, "value", one) for one in arguments)))
        if name in self.fails:
            raise OSError(16, "busy")

    def ioctl(self, _fd: int, request: int, data: bytes = b"") -> None:
        self.did.append((request, *struct.unpack(f"={len(data) // 4}i", data)))
        if request in self.fails:
            raise OSError(5, "no")


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


def test_the_commands_of_a_run_have_calls(kernel: Kernel) -> None:
    stack = stack_of("5")
    assert isinstance(stack.array, MdSpec)
    (md,) = stack.array.devices
    for argv in (
        assemble_command(md),
        assemble_command(md, starts_dirty=True),
        mount_command(stack.filesystem, md.device),
        nfs_mount_command(MountSpec(), "10.0.0.1:/srv", "/mnt"),
        ["umount", "/mnt"],
        stop_command([md.device]),
    ):
        kernel.did.clear()
        storage_calls.CALLS[argv[0]](argv[1:])
        assert kernel.did, argv


def test_an_array_is_assembled_by_what_its_members_say(kernel: Kernel) -> None:
    storage_calls.mdadm(["--assemble", "/dev/md0", "/dev/member1", "/dev/member2"])
    assert [one[0] for one in kernel.did] == [SET_ARRAY_INFO, ADD_NEW_DISK, ADD_NEW_DISK, RUN_ARRAY]
    assert kernel.did[0][1:4] == (1, 2, 0)
    assert [one[2:4] for one in kernel.did[1:3]] == [(252, 1), (252, 2)]


@pytest.mark.parametrize(
    ("events", "starts"), [({2: 6}, True), ({2: 5}, False), ({1: 8}, True), ({1: 9, 2: 8}, False)]
)
def test_mdadm_decides_whether_an_array_starts_without_a_stale_member(
    kernel: Kernel, events: dict[int, int], starts: bool
) -> None:
    kernel.events = events
    argv = ["--assemble", "/dev/md0", "/dev/member1", "/dev/member2", "/dev/member3"]
    if starts:
        storage_calls.mdadm(argv)
        assert kernel.did[-1][0] == RUN_ARRAY
    else:
        with pytest.raises(NoCall):
            storage_calls.mdadm(argv)
        assert kernel.did == []


@pytest.mark.parametrize("request_", [ADD_NEW_DISK, RUN_ARRAY])
def test_an_array_that_does_not_start_is_stopped(kernel: Kernel, request_: int) -> None:
    kernel.fails = {request_}
    with pytest.raises(OSError, match="no"):
        storage_calls.mdadm(["--assemble", "/dev/md0", "/dev/member1"])
    assert kernel.did[-1] == (STOP_ARRAY,)


def test_options_are_flags_or_the_file_systems(kernel: Kernel) -> None:
    assert options_of("") == (0, [])
    assert options_of("noatime,ro,logdev=/dev/x,async") == (1025, ["logdev=/dev/x"])
    storage_calls.mount(["--mkdir", "--types", "xfs", "--options", "noatime,inode64", "/dev/md0", "/srv"])
    assert kernel.did == [("mount", b"/dev/md0", b"/srv", b"xfs", 1024, b"inode64")]


def test_an_nfs_mount_names_the_servers_address(kernel: Kernel) -> None:
    storage_calls.mount(["--mkdir", "--types", "nfs", "--options", "vers=4.2,retry=0,hard", "10.0.0.1:/srv", "/mnt"])
    assert kernel.did == [("mount", b"10.0.0.1:/srv", b"/mnt", b"nfs", 0, b"vers=4.2,hard,addr=10.0.0.1")]


def test_the_mode_of_a_directory_is_set(tmp_path: Path) -> None:
    storage_calls.CALLS["chmod"](["1777", str(tmp_path)])
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777
    for other in (["--reference=/", str(tmp_path)], ["u+s", str(tmp_path)]):
        with pytest.raises(ValueError, match="invalid literal"):
            storage_calls.CALLS["chmod"](other)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("mount", ["-a"]),
        ("mount", ["--types", "xfs", "--bind", "x", "/dev/md0", "/srv"]),
        ("umount", ["--lazy", "/srv"]),
        ("umount", ["--all"]),
        ("mdadm", ["--create", "/dev/md0"]),
        ("mdadm", ["--assemble", "/dev/md0"]),
    ],
)
def test_other_forms_have_no_call(kernel: Kernel, command: str, arguments: list[str]) -> None:
    with pytest.raises(NoCall):
        storage_calls.CALLS[command](arguments)
    assert kernel.did == []


def test_a_call_that_fails_raises_the_error_of_the_kernel() -> None:
    with pytest.raises(OSError, match=r"Invalid argument|not permitted|No such file"):
        storage_calls.call("umount2", b"/proc/self/no-such-mount-point", 0)
