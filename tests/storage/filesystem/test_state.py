from collections.abc import Iterable
from typing import cast

import pytest

from raidproof.core.errors import RigError
from raidproof.core.layer import Machine, State
from raidproof.storage.filesystem.ext4 import commit_of
from raidproof.storage.filesystem.filesystem import EXPIRE, WAKE, read_write_back
from raidproof.storage.filesystem.state import WriteBackState
from raidproof.storage.filesystem.xfs import SYNC


class Mounted(State):
    type: str
    options: tuple[str, ...] = ()


class Files:
    """A machine with these files."""

    def __init__(self, **files: str) -> None:
        self.files = {EXPIRE: "3000\n", WAKE: "500\n", SYNC: "3000\n"} | files

    def read_files(self, paths: Iterable[str]) -> dict[str, str]:
        return {path: self.files[path] for path in paths if self.files[path]}


def found(mounted: Mounted, **files: str) -> WriteBackState:
    return read_write_back(cast("Machine", Files(**files)), mounted)


def test_xfs_forces_its_log_by_a_file_of_its_own() -> None:
    assert found(Mounted(type="xfs")) == WriteBackState(expire_s=30, wake_s=5, commit_s=30)


def test_ext4_commits_at_the_interval_of_its_options() -> None:
    state = found(Mounted(type="ext4", options=("rw", "commit=5", "data=ordered", "commit=60")))
    assert state == WriteBackState(expire_s=30, wake_s=5, commit_s=60)
    assert state.longest_s == pytest.approx(125)


def test_a_flusher_that_never_wakes_limits_nothing() -> None:
    assert found(Mounted(type="xfs"), **{WAKE: "0\n"}).longest_s is None


@pytest.mark.parametrize("said", ["", "x\n", "1\n2\n"])
def test_what_is_no_interval_is_the_rigs(said: str) -> None:
    with pytest.raises(RigError, match="dirty_expire"):
        found(Mounted(type="xfs"), **{EXPIRE: said})


def test_missing_output_about_ext4_is_an_error_of_the_rig() -> None:
    with pytest.raises(RigError, match="commit="):
        commit_of(("rw", "relatime"))
