"""bcache: commands, state read back, and the checker of crash states."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from raidproof.core.command import Completed
from raidproof.core.errors import NotEffective, RigError
from raidproof.core.units import GIB, MIB
from raidproof.crash.checker import config_of
from raidproof.guest.assembled import BLOCK, SYSFS_MD
from raidproof.storage.stack import StackSpec
from raidproof.storage.volume import Volume
from raidproof.storage.volume.bcache import DEVICE, FILES, SET, BcacheVolume, parse_size
from tests.guest_files import FilesByCommands

ARRAY, DISK = "/dev/md0", "/dev/disk/by-id/raidproof-disk4"
# Linux 6.12.113
CONTENTS = {
    "cache_mode": "writethrough [writeback] writearound none",
    "state": "dirty",
    "dirty_data": "7.0M",
    "stats_total/bypassed": "0.5k",
}


class Server(FilesByCommands):
    """A fake machine with bcache: the device exists while its cache and its array are registered."""

    name = "server"
    address = "10.77.0.10"

    def __init__(self, contents: Mapping[str, str] = CONTENTS, slaves: str = "md0\nvde\n") -> None:
        self.contents, self.slaves = contents, slaves
        self.made: list[str] = []
        self.registered: list[str] = []

    def run(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 1.0) -> Completed:
        said = ""
        match list(argv):
            case ["make-bcache", *words]:
                self.made = words
            case [program, path] if program.endswith("/bcache-register"):
                self.registered.append(path)
            case ["python3", _, file, *below]:
                assert (file, below) == (f"/sys/fs/bcache/{SET}/stop", [ARRAY, DISK])
                self.registered.clear()
            case ["ls", path]:
                assert path == f"/sys/block/{DEVICE}/slaves"
                said = self.slaves
        return Completed(tuple(argv), 0, said, "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 1.0) -> str:
        return self.run(argv, stdin=stdin, deadline_s=deadline_s).stdout

    def read_files(self, paths: Any) -> dict[str, str]:
        return {path: self.contents[path.removeprefix(f"{FILES}/")] for path in paths}

    def put(self, content: str | bytes, path: str) -> None:
        assert path == "/run/raidproof/release.py"
        assert "O_EXCL" in str(content)

    def resolve(self, paths: Any) -> list[str]:
        return [{ARRAY: "/dev/md0", DISK: "/dev/vde"}[path] for path in paths]


def volume_on(server: Server) -> Volume:
    return Volume(BcacheVolume(cache_disk="disk4"), server, ARRAY)


def test_a_volume_is_made_read_back_and_stopped() -> None:
    server = Server()
    volume = volume_on(server)
    assert volume.device == "/dev/bcache0"
    volume.create()
    assert server.made == ["-C", DISK, "-B", ARRAY, "--bucket", "128k", "--cset-uuid", SET, "--writeback"]
    assert server.registered == [DISK, ARRAY]
    volume.deactivate()
    assert server.registered == []
    server.made = []
    state = volume.activate()
    assert server.made == []
    assert state.settings == {"mode": "writeback", "attached": True, "inputs": ("md0", "vde")}
    assert state.counters == {"dirty": 7 * MIB, "bypassed": 512}
    volume.destroy()
    assert server.registered == []


@pytest.mark.parametrize(
    ("file", "content"), [("cache_mode", "[writethrough] writeback"), ("state", "no cache"), ("state", "inconsistent")]
)
def test_another_mode_or_state_is_refused(file: str, content: str) -> None:
    with pytest.raises(NotEffective):
        volume_on(Server({**CONTENTS, file: content})).create()


def test_a_volume_on_other_devices_is_refused() -> None:
    with pytest.raises(NotEffective, match="inputs"):
        volume_on(Server(slaves="md1\nvde\n")).create()


def test_a_file_without_a_marked_mode_is_an_error() -> None:
    with pytest.raises(RigError, match="expected one word in brackets"):
        volume_on(Server({**CONTENTS, "cache_mode": ""})).create()


@pytest.mark.parametrize(("text", "size"), [("0.0k", 0), ("7.0M", 7 * MIB), ("1.5G", 3 * GIB // 2)])
def test_sizes_are_in_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "12", "7M", "1.5x"])
def test_another_text_than_a_size_is_an_error(text: str) -> None:
    with pytest.raises(RigError, match="expected a size"):
        parse_size(text)


def test_a_disk_must_hold_513_buckets() -> None:
    assert BcacheVolume(cache_disk="disk4").least_disk == 513 * 128 * 1024


def test_a_checker_registers_the_cache_and_then_the_array() -> None:
    volume = {"type": "bcache", "cache_disk": "disk4", "bcache_mode": "writethrough"}
    stack = StackSpec.model_validate({"array": {"members": ["a", "b", "c"]}, "volume": volume})
    config = config_of(stack, {})
    array, *devices = config["assemble"]
    assert array["interface"] == SYSFS_MD
    assert {(one["device"], one["interface"], one["name"]) for one in devices} == {("/dev/bcache0", BLOCK, "bcache0")}
    assert [one["command"][-1] for one in devices] == ["bcache", DISK, ARRAY]
    assert [words[0] for words in config["stop"]] == ["python3", "mdadm"]
    assert stack.device in config["mount"]
    assert "/run/raidproof/release.py" in dict(config["parameters"])
