"""The computed place of an array's byte on the members, and the reported owner of the byte, are right on real md."""

from pathlib import Path

import pytest

from raidproof.core.errors import RequirementMissing
from raidproof.core.units import KIB, MIB
from raidproof.crash.owner import owner
from raidproof.disk.client import EngineClient
from raidproof.lab.lab import Lab
from raidproof.pytest_plugin.fixtures import MEMBERS, stack_of
from raidproof.storage.array import MdArray, MdSpec
from raidproof.storage.array.state import Area, members_at, place_of
from raidproof.storage.array.striping import ROW, Assembled, differences
from raidproof.storage.array.superblock import OFFSET, SIZE, parse_superblock
from raidproof.storage.filesystem import FILESYSTEMS
from raidproof.storage.stack import Stack

CHUNK = 64 * KIB
MARKERS = tuple(number * (CHUNK + ROW) for number in range(40))
"""Offsets in the array, in bytes, of one page in each of forty chunks; each page has another place in its chunk."""


FIRST = {"static fs metadata", "primary superblock", "reserved for boot loaders", "F2FS superblock"}
"""Owners of the first byte of the device."""


def marker(offset: int) -> bytes:
    """Return the page that the test writes at an offset of the array: the offset in decimal digits, repeated."""
    return b"%016d" % offset * (ROW // 16)


def images(disks: EngineClient, count: int, folder: Path) -> list[bytes]:
    """Return the content of each of the first ``count`` members: 8 MiB, which include the last marker."""
    found = []
    for serial in MEMBERS[:count]:
        disks.image(serial, folder / serial, durable=False)
        with (folder / serial).open("rb") as image:
            found.append(image.read(8 * MIB))
        (folder / serial).unlink()
    return found


@pytest.mark.parametrize(
    ("level", "layout"),
    [
        ("0", None),
        ("4", None),
        ("5", "left-symmetric"),
        ("5", "left-asymmetric"),
        ("5", "right-symmetric"),
        ("5", "right-asymmetric"),
        ("6", "left-symmetric"),
        ("10", "n2"),
    ],
)
def test_markers_are_at_the_calculated_places(lab: Lab, tmp_path: Path, level: str, layout: str | None) -> None:
    if not isinstance(lab.disks, EngineClient):
        raise RequirementMissing(
            "these disks are not the disk engine's, and this test reads their contents from the disk engine"
        )
    spec = MdSpec.model_validate(
        {"level": level, "members": MEMBERS, "chunk_size": CHUNK, "layout": layout, "assume_clean": level != "0"}
    )
    array = MdArray(spec, lab.server)
    array.create()
    pattern = bytearray(MARKERS[-1] + ROW)
    for offset in MARKERS:
        pattern[offset : offset + ROW] = marker(offset)
    lab.server.put(bytes(pattern), "/run/pattern")
    lab.server.succeed(["dd", "if=/run/pattern", f"of={array.device}", "bs=64K", "oflag=direct", "status=none"])
    found = images(lab.disks, len(MEMBERS), tmp_path)
    array.deactivate()

    superblocks = {number: parse_superblock(data[OFFSET : OFFSET + SIZE]) for number, data in enumerate(found)}
    assembled = Assembled.of(superblocks)
    assert assembled is not None
    for offset in MARKERS:
        places = members_at(assembled, offset)
        assert places
        for number, at in places:
            assert found[number][at : at + ROW] == marker(offset)
            superblock = superblocks[number]
            assert superblock is not None
            place = place_of(superblock, at)
            assert (place.area, place.array_offset) == (Area.DATA, offset)
    rows = range(4 * MIB // ROW)
    assert not differences(assembled, lambda number, at, length: found[number][at : at + length], rows)


@pytest.mark.parametrize("kind", ["btrfs", "ext4", "f2fs", "xfs"])
def test_blocks_have_the_reported_owners(lab: Lab, kind: str) -> None:
    filesystem = FILESYSTEMS[kind].model_validate({})
    stack = Stack(stack_of(filesystem=filesystem), lab.server, lab.clients)
    stack.create()
    stack.activate()
    client, server = lab.clients[0], lab.server
    client.put(b"whose?" * (16 * ROW), f"{stack.mounts[client.name].directory}/word")
    root, device = stack.filesystem.directory, stack.array.device
    server.succeed(["sync", "--file-system", root])
    begin = stack.filesystem.placement().files[0].offset
    assert owner(server, filesystem, device, root, begin) == f"file /word, bytes 0-{ROW - 1}"
    third = begin + 2 * ROW + 5
    assert owner(server, filesystem, device, root, third) == f"file /word, bytes {2 * ROW}-{3 * ROW - 1}"
    assert owner(server, filesystem, device, root, 0) in FIRST
    stack.deactivate()
    stack.array.activate()
    # dump.f2fs reports the inode only; its path is known if F2FS is mounted.
    assert owner(server, filesystem, device, root, begin).startswith(("file /word", "file inode"))
    stack.array.deactivate()
