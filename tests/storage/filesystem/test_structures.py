"""The structures of a file system, by the first bytes of the requests that write them."""

import json
from pathlib import Path

import pytest

from raidproof.storage.filesystem import Ext4Spec, FilesystemSpec, XfsSpec

DATA = Path(__file__).parents[2] / "data"
XFS = json.loads((DATA / "xfsprogs" / "structures-linux-6.12.json").read_text())
"""First bytes of requests that Linux 6.12 sent to the members of a RAID5 with XFS."""
EXT4 = json.loads((DATA / "e2fsprogs" / "structures-1.47.0.json").read_text())
"""First bytes of blocks that mkfs.ext4 wrote, and of a transaction that debugfs wrote to the journal."""


@pytest.mark.parametrize(
    ("filesystem", "name", "begin"),
    [
        *((XfsSpec(), name, begin) for name, begin in XFS.items()),
        *((Ext4Spec(), name, begin) for name, begin in EXT4.items()),
    ],
)
def test_structures_have_names(filesystem: FilesystemSpec, name: str, begin: str) -> None:
    data = bytes.fromhex(begin)
    assert filesystem.structure_of(data) == name
    assert filesystem.structure_of(data.ljust(4096, b"\0")) == name


@pytest.mark.parametrize("data", [b"", bytes(4096), b"IN a book\n" * 400, b"\xfe\xed"])
def test_other_data_is_no_structure(data: bytes) -> None:
    assert XfsSpec().structure_of(data) is None
    assert Ext4Spec().structure_of(data) is None


def test_a_structure_of_another_file_system_is_none() -> None:
    assert {Ext4Spec().structure_of(bytes.fromhex(begin)) for begin in XFS.values()} == {None}
    assert {XfsSpec().structure_of(bytes.fromhex(begin)) for begin in EXT4.values()} == {None}
