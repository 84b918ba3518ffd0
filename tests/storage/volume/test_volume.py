"""The volume of a machine: commands, states read back, and the checker of crash states."""

from collections.abc import Sequence
from typing import Any

import pytest

from raidproof.core.command import Completed
from raidproof.core.errors import NotEffective, RequestError, RigError
from raidproof.core.units import GIB, KIB, MIB
from raidproof.crash.checker import config_of
from raidproof.guest.assembled import DEVICE_MAPPER, SECTORS, SYSFS_MD, sized
from raidproof.storage.stack import StackSpec
from raidproof.storage.volume import VOLUMES, Volume, VolumeSpec
from raidproof.storage.volume.mapper import NAME, PATH, MappedVolume, parse_deps
from tests.guest_files import FilesByCommands

ARRAY = "/dev/md0"
SECTORS_OF_ARRAY = 1173504
# Linux 6.12.113, dmsetup 1.02.205, cryptsetup 2.7.5
TABLES = {
    "crypt": "0 1140736 crypt aes-xts-plain64 :64:logon:cryptsetup:c8296135-d0 0 9:0 32768\n",
    "writecache": "0 1173504 writecache s 9:0 254:64 4096 0\n",
    "cache": "0 1173504 cache 252:0 252:1 9:0 128 1 writeback smq 0\n",
}
STATUS = {
    "crypt": "0 1140736 crypt \n",
    "writecache": "0 1173504 writecache 0 48960 32482 3 29 28 16525 41 0 0 16484 0 2 0\n",
    "cache": (
        "0 1173504 cache 8 12/2048 128 1100/2944 71 30 340 157 0 1100 1092 2 writeback no_discard_passdown "
        "2 migration_threshold 2048 smq 0 rw - \n"
    ),
}
DEPS = {
    "crypt": "1 dependencies\t: (md0)\n",
    "writecache": "2 dependencies\t: (vde) (md0)\n",
    "cache": "3 dependencies\t: (md0) (dm-1) (dm-0)\n",
}
KINDS = sorted(TABLES)
DISK = "/dev/disk/by-id/raidproof-disk4"


def spec_of(name: str, **settings: Any) -> VolumeSpec:
    disks = dict.fromkeys(VOLUMES[name].further_disks, "disk4")
    return VOLUMES[name].model_validate({**disks, **settings})


def mapped(name: str, **settings: Any) -> MappedVolume:
    spec = spec_of(name, **settings)
    assert isinstance(spec, MappedVolume)
    return spec


class Server(FilesByCommands):
    """A fake machine that has the devices that were made, with the output of one kind's tools."""

    name = "server"
    address = "10.77.0.10"

    def __init__(self, kind: str) -> None:
        self.table, self.status, self.deps = TABLES.get(kind, ""), STATUS.get(kind, ""), DEPS.get(kind, "")
        self.made: list[str] = []
        self.typed: list[list[str]] = []

    def run(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 1.0) -> Completed:
        self.typed.append(list(argv))
        said = ""
        match list(argv):
            case ["dmsetup", "info", *_]:
                said = "".join(f"{name}:dm-{number}\n" for number, name in enumerate(self.made))
            case ["dmsetup", "table", _]:
                said = self.table
            case ["dmsetup", "status", _]:
                said = self.status
            case ["dmsetup", "deps", *_]:
                said = self.deps
            case ["blockdev", "--getsz", _]:
                said = f"{SECTORS_OF_ARRAY}\n"
            case ["dmsetup", "create", _, name, *_] | ["cryptsetup", "open", *_, name]:
                self.made.append(name)
            case ["dmsetup", "remove", _, name] | ["cryptsetup", "close", name]:
                self.made.remove(name)
        return Completed(tuple(argv), 0, said, "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 1.0) -> str:
        return self.run(argv, stdin=stdin, deadline_s=deadline_s).stdout

    def resolve(self, paths: Any) -> list[str]:
        return [{ARRAY: "/dev/md0", DISK: "/dev/vde"}[path] for path in paths]


@pytest.mark.parametrize("kind", KINDS)
def test_a_volume_is_made_read_back_and_removed(kind: str) -> None:
    server = Server(kind)
    volume = Volume(spec_of(kind), server, ARRAY)
    assert volume.device == PATH
    volume.create()
    assert server.made[-1] == NAME
    volume.deactivate()
    assert server.made == []
    typed = len(server.typed)
    state = volume.activate()
    assert state.type == kind
    assert not any(line[0] in {"dd", "wipefs"} or "luksFormat" in line for line in server.typed[typed:])
    assert not any(SECTORS in word for line in server.typed for word in line)
    volume.destroy()
    assert server.made == []


def test_without_a_volume_no_command_runs() -> None:
    server = Server("direct")
    volume = Volume(spec_of("direct"), server, ARRAY)
    volume.create()
    assert volume.activate().settings == {}
    volume.deactivate()
    volume.destroy()
    assert server.typed == []
    assert volume.device == ARRAY


@pytest.mark.parametrize(
    ("kind", "asked", "right", "wrong"),
    [
        ("crypt", {}, "aes-xts-plain64", "null"),
        ("crypt", {}, "32768", "4096"),
        ("writecache", {}, "4096 0", "512 0"),
        ("writecache", {}, "writecache s", "writecache p"),
        ("writecache", {"high_watermark": 3, "low_watermark": 2}, "", ""),
        ("cache", {}, "writeback", "writethrough"),
        ("cache", {}, " 128 ", " 64 "),
        ("cache", {}, "smq", "cleaner"),
    ],
)
def test_another_volume_than_the_requested_one_is_refused(
    kind: str, asked: dict[str, Any], right: str, wrong: str
) -> None:
    server = Server(kind)
    server.table = server.table.replace(right, wrong)
    with pytest.raises(NotEffective):
        Volume(spec_of(kind, **asked), server, ARRAY).create()


@pytest.mark.parametrize("kind", KINDS)
def test_a_volume_on_other_devices_is_refused(kind: str) -> None:
    server = Server(kind)
    server.deps = server.deps.replace("md0", "md1")
    with pytest.raises(NotEffective, match="inputs"):
        Volume(spec_of(kind), server, ARRAY).create()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["", "0 1173504", "0 1 linear 8:0 0\n"])
def test_truncated_lines_are_refused(kind: str, text: str) -> None:
    with pytest.raises(RigError):
        mapped(kind).found(text)
    if spec_of(kind).further_disks:
        with pytest.raises(RigError):
            mapped(kind).counters(text)
    with pytest.raises(RigError):
        parse_deps("2 dependencies : (md0)")


def test_the_counters_of_caches_are_in_bytes() -> None:
    assert mapped("writecache").counters(STATUS["writecache"]) == {
        "errors": 0,
        "size": 48960 * 4 * KIB,
        "dirty": 16478 * 4 * KIB,
        "in_write_back": 3 * 4 * KIB,
    }
    assert mapped("cache").counters(STATUS["cache"]) == {
        "errors": 0,
        "size": 2944 * 64 * KIB,
        "used": 1100 * 64 * KIB,
        "demotions": 0,
        "promotions": 1100,
        "dirty": 1092 * 64 * KIB,
    }


def test_a_cache_that_failed_has_errors() -> None:
    assert mapped("cache").counters(STATUS["cache"].replace("rw -", "ro needs_check"))["errors"] == 1
    assert mapped("writecache").counters(STATUS["writecache"].replace("cache 0", "cache 5"))["errors"] == 5


def test_watermarks_are_in_the_table_and_are_read_back() -> None:
    spec = mapped("writecache", high_watermark=3, low_watermark=2)
    (one,) = spec.assembly(ARRAY)
    assert one.command[-1] == (f"0 SECTORS writecache s /dev/md0 {DISK} 4096 4 high_watermark 3 low_watermark 2")
    table = "0 1173504 writecache s 9:0 254:64 4096 4 high_watermark 3 low_watermark 2\n"
    assert spec.found(table) == spec.asked()


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ("writecache", {"high_watermark": 40}, "low_watermark 45 % is above high_watermark 40 %"),
        ("writecache", {"low_watermark": 60}, "low_watermark 60 % is above"),
        ("cache", {"cache_block": 48 * KIB}, "not a multiple of 32KiB"),
        ("cache", {"cache_size": 100 * KIB}, "does not consist of blocks"),
    ],
)
def test_impossible_settings_are_refused(kind: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        spec_of(kind, **settings)


def test_a_disk_must_hold_cache_and_metadata() -> None:
    spec = spec_of("cache", cache_size=128 * MIB)
    assert spec.least_disk == 128 * MIB + 9 * MIB
    spec.refuse_sizes({"disk4": 137 * MIB})
    with pytest.raises(RequestError, match=r"disk disk4 of the volume cache has 136MiB; it needs at least 137MiB"):
        spec.refuse_sizes({"disk4": 136 * MIB})
    assert spec_of("cache", cache_size=16 * GIB).least_disk == 16 * GIB + 12 * MIB


@pytest.mark.parametrize("kind", ["direct", *KINDS])
def test_a_checker_assembles_the_volume_last_and_stops_it_first(kind: str) -> None:
    volume = {"type": kind, **dict.fromkeys(VOLUMES[kind].further_disks, "disk4")}
    stack = StackSpec.model_validate({"array": {"members": ["a", "b", "c"]}, "volume": volume})
    config = config_of(stack, {})
    array, *devices = config["assemble"]
    assert array["interface"] == SYSFS_MD
    assert [one["interface"] for one in devices] == [DEVICE_MAPPER] * len(devices)
    assert [one["device"] for one in devices][-1:] == ([] if kind == "direct" else [PATH])
    assert config["stop"][-1][0] == "mdadm"
    assert len(config["stop"]) == len(devices) + 1
    assert stack.device in config["mount"]
    for one in devices:
        assert one["sized"] or not any(SECTORS in word for word in one["command"])


def test_the_number_of_sectors_replaces_its_word() -> None:
    assert sized(["dmsetup", "--table", "0 SECTORS linear SECTORS-4 0"], 8) == [
        "dmsetup",
        "--table",
        "0 8 linear SECTORS-4 0",
    ]
