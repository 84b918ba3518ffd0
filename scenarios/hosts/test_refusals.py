"""On existing machines, the harness refuses disks with foreign data, gives the reason, and writes no sector of them.

A lab's server serves as the existing machine; mkfs, mdadm and similar tools write the foreign data onto its disks.
"""

import struct
import uuid
import zlib
from collections.abc import Iterator
from contextlib import suppress

import pytest

from raidproof.core.errors import RequestError, RequirementMissing, RigError
from raidproof.core.waiting import Deadline, wait_until
from raidproof.disk.cache import CacheMode
from raidproof.lab.lab import Lab
from raidproof.machine.machine import Machine
from raidproof.provider.hosts.disks import HostDisks
from raidproof.provider.hosts.gate import adopt, propose
from raidproof.provider.hosts.inventory import BY_ID, HostSpec, Inventory, MemberDisk
from raidproof.storage.array import MdSpec, stop_command

GONE = f"{BY_ID}virtio-gone"
FOREIGN_ARRAY = "/dev/md127"
MOUNTED = "/mnt/theirs"


def by_id(serial: str) -> str:
    """Return the path in /dev/disk/by-id that udev would give to a disk with this serial."""
    return f"{BY_ID}virtio-{serial}"


def inventory_of(*paths: str) -> Inventory:
    """Return an inventory with one server, one client, and these disks."""
    return Inventory(
        server=HostSpec(name="server", host="server.example"),
        client=(HostSpec(name="client1", host="client.example"),),
        disk=tuple(MemberDisk(id=path) for path in paths),
    )


@pytest.fixture
def hardware(lab: Lab) -> Iterator[Machine]:
    """Yield the server of a lab, whose disks have names in /dev/disk/by-id as on a real machine."""
    server = lab.server
    devices = server.succeed(["realpath", *(f"{BY_ID}raidproof-{serial}" for serial in lab.serials)]).split()
    for serial, device in zip(lab.serials, devices, strict=True):
        server.succeed(["ln", "-sfn", device, by_id(serial)])
    # An image has no machine-id before its first boot; an existing machine has one.
    machine_id = server.run(["cat", "/etc/machine-id"]).stdout
    server.put(machine_id.strip() or "5f1d7ad1c0de4a5e8d5b1f1d7ad1c0de", "/etc/machine-id")
    yield server
    # After a failed scenario the lab no longer exists: commands then raise RigError.
    with suppress(RigError):
        server.run(["swapoff", "--all"])
        server.run(["umount", MOUNTED])
        server.run(["mdadm", "--stop", "--scan"])
        server.put(machine_id, "/etc/machine-id")
        for serial, device in zip(lab.serials, devices, strict=True):
            server.succeed(["ln", "-sfn", device, f"{BY_ID}raidproof-{serial}"])
        server.succeed(["rm", "--force", *map(by_id, lab.serials)])


def content(lab: Lab) -> tuple[str, dict[str, tuple[int, ...]]]:
    """Return the checksums of all disks, and for each disk the disk engine's counters of writes."""
    sums = lab.server.succeed(["sha256sum", *map(by_id, lab.serials)], deadline_s=120)
    return sums, {
        serial: (one.writes, one.written_bytes, one.discards, one.zeroes)
        for serial, one in lab.disks.counters().items()
    }


def adopted(server: Machine, *paths: str) -> Inventory:
    """Return an inventory with these disks, after its owner has confirmed that they may be overwritten."""
    inventory = inventory_of(*paths)
    adopt(inventory, server, show=lambda _: None, yes=propose(inventory, server).fingerprint)
    return inventory


def lvm() -> bytes:
    """Return the beginning of a disk that is a physical volume of LVM."""
    body = struct.pack("<I8s32sQ", 32, b"LVM2 001", b"0123456789abcdefghijklmnopqrstuv", 64 << 20).ljust(492, b"\0")
    # LVM's CRC-32 has another initial value and no final inversion.
    crc = zlib.crc32(body, 0xF597A6CF ^ 0xFFFFFFFF) ^ 0xFFFFFFFF
    return bytes(512) + b"LABELONE" + struct.pack("<QI", 1, crc) + body


def luks() -> bytes:
    """Return the beginning of a disk with a LUKS header."""
    fields = [
        b"LUKS\xba\xbe\0\1",
        b"aes".ljust(32, b"\0"),
        b"xts-plain64".ljust(32, b"\0"),
        b"sha256".ljust(32, b"\0"),
    ]
    return b"".join(fields).ljust(168, b"\0") + str(uuid.UUID(int=1)).encode()


def gpt() -> bytes:
    """Return the beginning of a disk of 64 MiB with a GPT partition table."""
    kind = uuid.UUID("0fc63daf-8483-4772-8e79-3d69d8477de4").bytes_le
    table = (kind + uuid.UUID(int=1).bytes_le + struct.pack("<QQQ", 2048, 67583, 0)).ljust(128 * 128, b"\0")
    sectors = 1 << 17
    place = struct.pack("<QQQQ16sQII", 1, sectors - 1, 34, sectors - 34, uuid.UUID(int=2).bytes_le, 2, 128, 128)

    def header(crc: int) -> bytes:
        return struct.pack("<8sIIII", b"EFI PART", 0x10000, 92, crc, 0) + place + struct.pack("<I", zlib.crc32(table))

    protective = struct.pack("<B3sB3sII", 0, b"\0\2\0", 0xEE, b"\xff\xff\xff", 1, sectors - 1)
    return (
        bytes(446)
        + protective.ljust(64, b"\0")
        + b"\x55\xaa"
        + header(zlib.crc32(header(0))).ljust(512, b"\0")
        + table
    )


def test_every_foreign_disk_is_refused_with_its_reason(lab: Lab, hardware: Machine) -> None:
    photos, mounted, member, free = map(by_id, lab.serials)
    hardware.succeed(["mkfs.ext4", "-q", "-L", "photos", photos])
    hardware.succeed(["mkfs.ext4", "-q", mounted])
    hardware.succeed(["mkdir", "--parents", MOUNTED])
    hardware.succeed(["mount", "-o", "ro,noload", mounted, MOUNTED])
    array = ["--homehost=nas", "--run", "--assume-clean", "--level=1", "--raid-devices=2", "--bitmap=none"]
    hardware.succeed(["mdadm", "--create", FOREIGN_ARRAY, *array, member, "missing"])
    hardware.succeed(["mdadm", "--readonly", FOREIGN_ARRAY])
    changing = hardware.succeed(["realpath", free]).strip()
    inventory = inventory_of(photos, mounted, member, GONE, changing)
    before = content(lab)

    shown: list[str] = []
    with pytest.raises(RequestError) as refused:
        adopt(inventory, hardware, show=shown.append, yes=propose(inventory, hardware).fingerprint)

    said = {line.split(" ", 1)[0]: line for line in str(refused.value).splitlines()}
    assert f"has the signature ext4 named 'photos' on {kernel_name(hardware, photos)}" in said["disk0"]
    assert f"mounted on {MOUNTED}" in said["disk1"]
    assert "has the signature ext4" in said["disk1"]
    assert "in use by md127" in said["disk2"]
    assert "has the signature linux_raid_member named 'nas:127'" in said["disk2"]
    assert f"missing: {hardware.name} has no {GONE}" in said["disk3"]
    assert f"not named by a path in /dev/disk/by-id: {changing} is a kernel name" in said["disk4"]
    assert all(any(serial in line for line in shown) for serial in inventory.disks)
    with pytest.raises(RequestError, match="not adopted"):
        HostDisks(inventory, hardware).reset()
    assert content(lab) == before


def kernel_name(server: Machine, path: str) -> str:
    """Return the kernel's name (vda) of the disk behind a path."""
    return server.succeed(["realpath", path]).strip().removeprefix("/dev/")


@pytest.mark.parametrize(
    ("theirs", "reason"),
    [
        pytest.param(lvm(), "has the signature LVM2_member", id="LVM"),
        pytest.param(luks(), "has the signature crypto_LUKS", id="LUKS", marks=pytest.mark.exhaustive),
        pytest.param(gpt(), "has the signature gpt", id="GPT", marks=pytest.mark.exhaustive),
        pytest.param(
            b"no tool knows this" * 500, "has overwritten the mark at the beginning of the disk", id="unknown"
        ),
    ],
)
def test_an_adopted_disk_with_new_foreign_data_is_refused(
    lab: Lab, hardware: Machine, theirs: bytes, reason: str
) -> None:
    ours, taken = map(by_id, lab.serials[:2])
    inventory = adopted(hardware, ours, taken)
    HostDisks(inventory, hardware).reset()
    hardware.succeed(["dd", f"of={taken}", "bs=64K", "conv=fsync", "status=none"], stdin=theirs)
    before = content(lab)
    with pytest.raises(RequestError, match=reason):
        HostDisks(inventory, hardware).reset()
    assert content(lab) == before


def test_swap_an_open_disk_and_an_alias_are_refused(lab: Lab, hardware: Machine) -> None:
    swap, opened, alias = by_id(lab.serials[0]), by_id(lab.serials[1]), f"{BY_ID}wwn-0x5000c5"
    hardware.succeed(["mkswap", swap])
    hardware.succeed(["swapon", swap])
    hardware.succeed(["ln", "-sfn", hardware.succeed(["realpath", opened]).strip(), alias])
    before = content(lab)
    # A program that keeps the disk open for reading until its standard input ends.
    reader = hardware.start_command(["python3", "-c", f"held = open({opened!r}, 'rb'); input()"])
    inventory = inventory_of(swap, opened, alias)
    wait_until(
        lambda: "open in" in propose(inventory, hardware).lines()[1],
        Deadline.after(20),
        f"a process to be listed as a reader of {opened}",
    )
    lines = propose(inventory, hardware).lines()
    reader.close_input()
    hardware.succeed(["rm", alias])
    assert "used as swap" in lines[0]
    assert "open in python3" in lines[1]
    assert "the same disk as disk2" in lines[1]
    assert "the same disk as disk1" in lines[2]
    assert content(lab) == before


def test_adopted_disks_carry_our_arrays_and_are_blanked_again(lab: Lab, hardware: Machine) -> None:
    inventory = adopted(hardware, *map(by_id, lab.serials))
    disks = HostDisks(inventory, hardware)
    disks.reset()
    spec = MdSpec(level="5", members=tuple(inventory.disks))
    for command in spec.create_commands():
        hardware.succeed(command)
    hardware.succeed(["mkfs.xfs", "-q", "-f", spec.devices[-1].device])
    with pytest.raises(RequestError, match="in use by md0"):
        disks.reset()
    # As a real machine does when it boots: it assembles the arrays on its disks, under other names.
    hardware.succeed(stop_command([spec.devices[-1].device]))
    hardware.succeed(["mdadm", "--assemble", FOREIGN_ARRAY, *map(by_id, lab.serials)])
    assert disks.stop_arrays() == ("md127",)
    written = disks.counters()
    disks.reset()
    assert all(one.written_bytes for one in written.values())
    assert not hardware.run(["mdadm", "--examine", by_id("disk0")]).ok
    assert hardware.succeed(["wipefs", "--json", *map(by_id, lab.serials)]).count('"device"') == 0


def test_only_the_fingerprint_adopts(lab: Lab, hardware: Machine) -> None:
    inventory = inventory_of(*map(by_id, lab.serials))
    before = content(lab)
    with pytest.raises(RequestError, match="not confirmed"):
        adopt(inventory, hardware, show=lambda _: None, ask=lambda _: "yes please")
    assert content(lab) == before
    adopted(hardware, *map(by_id, lab.serials))
    assert content(lab) != before


def test_missing_abilities_of_real_disks_are_reported(lab: Lab, hardware: Machine) -> None:
    disks = HostDisks(adopted(hardware, *map(by_id, lab.serials)), hardware)
    disks.set_mode(CacheMode.VOLATILE)
    for mode in (CacheMode.LYING, CacheMode.PROTECTED, CacheMode.NONE):
        with pytest.raises(RequirementMissing, match=mode.value):
            disks.set_mode(mode)
    assert disks.log_stop() is None
