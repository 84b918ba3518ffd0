"""The recording of a recovery: it begins with the content of the first crash state, which is durable."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from raidproof.crash.disk_states import DiskStates
from raidproof.crash.states import BLOCK, CrashState, Origin, Patch, Recording, Torn
from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import Flag, Kind, LogWriter, MemberInfo, WriteLog, pack_kept
from tests.crash.conftest import Did, write_log

INFO = MemberInfo("disk0", 1 << 16, CacheMode.VOLATILE, CacheMode.VOLATILE)


def recovering(folder: Path, done: Sequence[Did], mode: CacheMode = CacheMode.VOLATILE, **origin: Any) -> Recording:
    """Return a recording of a recovery of disks with one block: block 3 of member 1 holds 9."""
    log = write_log(folder / "recovery.log", done, mode=mode, blank=False)
    return Recording(log, origin=Origin(Patch({(1, 3): bytes([9]) * BLOCK}), acknowledged_ns=77, **origin))


@pytest.mark.parametrize("mode", [CacheMode.VOLATILE, CacheMode.NONE, CacheMode.LYING])
def test_a_recovery_begins_with_the_durable_content_of_the_first_state(tmp_path: Path, mode: CacheMode) -> None:
    made = recovering(tmp_path, [Did(Kind.WRITE, 1, 3 * BLOCK, byte=2), Did(Kind.FLUSH, 1)], mode)
    assert made.first_cut == 3, "the content, and the cache mode of two members"
    assert made.modes(made.first_cut) == (mode, mode)
    disks = DiskStates(made)
    disks.move(made.first_cut)
    # The first request of the recovery is in flight.
    assert disks.open == (3,)
    assert disks.read(CrashState(3), 1, 3 * BLOCK, 1) == bytes([9])
    assert disks.read(CrashState(3), 0, 3 * BLOCK, 1) == bytes(1)
    disks.move(5)
    assert disks.read(CrashState(5), 1, 3 * BLOCK, 1) == bytes([2])
    assert list(disks.content(CrashState(5)).runs()) == [(1, 3 * BLOCK, bytes([2]) * BLOCK)]


def test_during_a_recovery_nothing_more_is_acknowledged(tmp_path: Path) -> None:
    made = recovering(tmp_path, [Did(Kind.WRITE), Did(Kind.WRITE)])
    assert {made.acknowledged_ns(cut) for cut in made.cuts} == {77}
    assert made.instant_ns(made.first_cut + 1) == 1999


def test_what_was_torn_at_the_first_cut_stays_torn(tmp_path: Path) -> None:
    made = recovering(tmp_path, [Did(Kind.WRITE)], torn=True, torn_blocks=frozenset({(4, 8192)}))
    assert Torn(made).blocks(CrashState(4)) == {(4, 8192)}


def test_a_lying_flush_of_a_recovery_keeps_its_requests(tmp_path: Path) -> None:
    """The sequence numbers of a partial flush are those of the log, not of the recording."""
    path = tmp_path / "log"
    log = LogWriter(path, [INFO], 0, blank=False)
    log.write(0, 0, 0, (0, 1000), bytes([1]) * BLOCK)
    log.write(0, 0, BLOCK, (0, 2000), bytes([2]) * BLOCK)
    log.note(Kind.FLUSH, Flag.LIED, 0, (0, 0), (2500, 3000), data=pack_kept([1]))
    log.close(4000)
    made = Recording(WriteLog(path), origin=Origin(Patch({(0, 5): bytes([9]) * BLOCK}), acknowledged_ns=0))
    disks = DiskStates(made)
    disks.move(len(made.records))
    dropped = CrashState(len(made.records))
    assert [disks.read(dropped, 0, block * BLOCK, 1)[0] for block in (0, 1, 5)] == [0, 2, 9]
