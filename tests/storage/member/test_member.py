"""The layer between a disk and its array: commands, states read back, and md above it."""

from collections.abc import Sequence
from typing import Any

import pytest

from raidproof.core.command import Completed
from raidproof.core.errors import DeadlineExceeded, NotEffective, RequestError, RequirementMissing, RigError
from raidproof.guest.assembled import DEVICE_MAPPER, SYSFS_MD
from raidproof.storage.array import MdSpec, holders_of_old_data
from raidproof.storage.member import MEMBER_LAYERS, disk_path, integrity, serial_of
from raidproof.storage.member.integrity import parse_table, recalculated
from tests.guest_files import FilesByCommands

# cryptsetup 2.7.5, Linux 6.12
TABLES = {
    "integrity": "0 387144 integrity 254:64 0 4 J 7 journal_sectors:2992 fix_hmac internal_hash:crc32c\n",
    "integrity-bitmap": (
        "0 387144 integrity 254:64 0 4 B 8 journal_sectors:2992 interleave_sectors:32768 buffer_sectors:128 "
        "sectors_per_bit:32768 bitmap_flush_interval:10000 fix_padding fix_hmac internal_hash:crc32c\n"
    ),
    "crypt": "0 360448 crypt aes-xts-plain64 :64:logon:cryptsetup:c8296135-d0 0 254:64 32768\n",
}
STATUS = "0 387144 integrity 0 387144 -\n"
SERIALS = ("disk0", "disk1", "disk2")


def layered(name: str) -> MdSpec:
    return MdSpec.model_validate({"members": SERIALS, "member_layer": name, "chunk_size": "64KiB"})


class Server(FilesByCommands):
    """A fake machine that has the devices that were opened, with one table."""

    name = "server"
    address = "10.77.0.10"

    def __init__(self, table: str, status: str = STATUS) -> None:
        self.table, self.status = table, status
        self.opened: list[str] = []
        self.typed: list[str] = []

    def run(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 1.0) -> Completed:
        self.typed.append(" ".join(argv))
        said = ""
        match list(argv):
            case ["dmsetup", "info", *_]:
                said = (
                    "".join(f"{name}:dm-{number}\n" for number, name in enumerate(self.opened)) or "No devices found\n"
                )
            case ["dmsetup", "table", _]:
                said = self.table
            case ["dmsetup", "status", _]:
                said = self.status
            case [_, "open", *_, name]:
                self.opened.append(name)
            case [_, "close", name]:
                self.opened.remove(name)
        return Completed(tuple(argv), 0, said, "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 1.0) -> str:
        return self.run(argv, stdin=stdin, deadline_s=deadline_s).stdout


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_layer_is_created_opened_and_closed(name: str) -> None:
    layer, server = MEMBER_LAYERS[name].model_validate({}), Server(TABLES[name])
    layer.create(server, SERIALS)
    assert server.opened == [f"raidproof-{serial}" for serial in SERIALS]
    assert layer.kernel_names(server, SERIALS)["/dev/mapper/raidproof-disk2"] == "dm-2"
    layer.deactivate(server, SERIALS)
    assert server.opened == []
    layer.open_readable(server, SERIALS[:1])
    typed = len(server.typed)
    layer.activate(server, SERIALS)
    opened = [line for line in server.typed[typed:] if " open " in line]
    assert len(opened) == 2, "a member that is open is not opened again"
    assert not any("recalculate" in line for line in opened)


@pytest.mark.parametrize("name", sorted(TABLES))
def test_another_layer_than_the_requested_one_is_refused(name: str) -> None:
    other = {"integrity": "integrity-bitmap", "integrity-bitmap": "integrity"}.get(name, name)
    table = TABLES[other].replace("aes-xts-plain64", "null")
    with pytest.raises(NotEffective):
        MEMBER_LAYERS[name].model_validate({}).activate(Server(table), SERIALS)


@pytest.mark.parametrize("name", sorted(TABLES))
def test_md_has_the_devices_of_the_layer_as_members(name: str) -> None:
    spec = layered(name)
    assert spec.devices[0].members == tuple(f"/dev/mapper/raidproof-{serial}" for serial in SERIALS)
    assert [serial_of(path) for path in spec.devices[0].members] == list(SERIALS)
    assert spec.disks == SERIALS
    assert spec.unreadable
    *below, top = spec.checking().assemble
    assert [one.interface for one in below] == [DEVICE_MAPPER] * 3
    assert top.interface == SYSFS_MD
    assert [command[0] for command in spec.checking().stop] == ["mdadm", *[below[0].command[0]] * 3]
    with pytest.raises(RequirementMissing):
        spec.array(Server(TABLES[name])).upkeep("disk0")


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_member_on_a_layer_is_taken_out_of_md_and_back(name: str) -> None:
    server = Server(TABLES[name])
    array = layered(name).array(server)
    array.take_out("disk1")
    array.take_back("disk1")
    path = "/dev/mapper/raidproof-disk1"
    assert [line for line in server.typed if line.startswith("mdadm")] == [
        f"mdadm /dev/md0 --fail {path}",
        f"mdadm /dev/md0 --remove {path}",
        f"mdadm /dev/md0 --re-add {path}",
    ]
    with pytest.raises(RequestError, match="no member"):
        array.take_out("disk9")


def test_what_blank_disks_look_like_decides_about_the_first_resync() -> None:
    def clean(name: str) -> MdSpec:
        return MdSpec.model_validate({**layered(name).model_dump(), "assume_clean": True})

    def assumed(name: str) -> bool:
        return any("--assume-clean" in command for command in clean(name).create_commands())

    # Each disk has another key.
    assert (assumed("disk"), assumed("integrity"), assumed("crypt")) == (True, True, False)
    # Checksums are computed of all blocks, and a checker's disks have zeros in blocks that were never written.
    assert [bool(holders_of_old_data(clean(name))) for name in ("disk", "integrity", "crypt")] == [True, False, False]


def test_without_a_layer_md_has_the_disks() -> None:
    spec = layered("disk")
    assert spec.devices[0].members == tuple(map(disk_path, SERIALS))
    assert spec.unreadable is None
    assert [one.interface for one in spec.checking().assemble] == [SYSFS_MD]
    assert len(spec.checking().stop) == 1


@pytest.mark.parametrize(
    ("status", "done"),
    [
        ("0 387144 integrity 0 387144 -\n", True),
        ("0 387144 integrity 0 387144 387144\n", True),
        ("0 387144 integrity 0 387144 8192\n", False),
    ],
)
def test_the_progress_of_the_first_checksums(status: str, done: bool) -> None:
    assert recalculated(status) is done


@pytest.mark.parametrize("text", ["", "0 387144 integrity 0", "0 1 linear 8:0 0\n"])
def test_truncated_lines_are_refused(text: str) -> None:
    with pytest.raises(RigError):
        recalculated(text)
    with pytest.raises(RigError):
        parse_table(text)


def test_a_computation_that_does_not_end_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integrity, "FORMAT_DEADLINE_S", 0.05)
    server = Server(TABLES["integrity"], "0 387144 integrity 0 387144 8\n")
    with pytest.raises(DeadlineExceeded):
        MEMBER_LAYERS["integrity"].model_validate({}).create(server, SERIALS)


def test_a_member_without_a_device_is_an_error() -> None:
    with pytest.raises(RigError, match="no device of the members disk0"):
        MEMBER_LAYERS["crypt"].model_validate({}).kernel_names(Server(TABLES["crypt"]), SERIALS)


@pytest.mark.parametrize("value", ["integrity", {"type": "integrity"}])
def test_a_layer_is_named_by_a_word_or_a_table(value: Any) -> None:
    assert layered(value).member_layer.type == "integrity"
