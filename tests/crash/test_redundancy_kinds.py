"""Copies and parity are compared by the metadata of the kind of array; content that cannot be read is named."""

from pathlib import Path
from typing import Any

import pytest

from raidproof.crash.disk_states import DiskStates
from raidproof.crash.page.superblocks import ELSEWHERE, _assembly
from raidproof.crash.redundancy import Redundancy
from raidproof.crash.states import BLOCK, CrashState, Recording
from raidproof.storage.array import ARRAYS
from tests.crash.conftest import write_log
from tests.crash.made_up import written

MEMBERS = ("disk0", "disk1", "disk2", "disk3")


def recording(path: Path, **asked: Any) -> Recording:
    asked = {"members": MEMBERS, "chunk_size": "64KiB", "level": 5, **asked}
    return Recording(write_log(path / "write.log", written()), ARRAYS[asked.get("type", "md")].model_validate(asked))


@pytest.mark.parametrize(
    ("asked", "reason", "in_page"),
    [
        ({}, "no member has a whole superblock", True),
        ({"type": "lvm"}, "no member has a whole superblock", False),
        ({"type": "lvm", "integrity": "journal"}, "the members' data is below dm-integrity", False),
        ({"member_layer": "integrity"}, "the members are devices of dm-integrity, whose journal", False),
        ({"member_layer": "crypt"}, "the members are encrypted", False),
        ({"type": "btrfs"}, "btrfs stores the places of copies and parity in a tree", False),
    ],
)
def test_why_copies_are_not_compared(asked: dict[str, Any], reason: str, in_page: bool, tmp_path: Path) -> None:
    made = recording(tmp_path, **asked)
    window = DiskStates(made)
    redundancy = Redundancy(window)
    redundancy.moved(window.move(3))
    assert redundancy.rows(CrashState(3)).unchecked is not None
    assert str(redundancy.array(CrashState(3))).startswith(reason)
    assert made.in_page is in_page


def test_a_page_without_superblocks_says_so() -> None:
    assert ELSEWHERE.unchecked != _assembly([bytes(BLOCK)] * 2).unchecked
    assert not ELSEWHERE.compared
