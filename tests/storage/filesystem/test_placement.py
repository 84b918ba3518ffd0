from pathlib import Path
from unittest.mock import Mock

import pytest

from raidproof.core.errors import RigError
from raidproof.core.units import KIB
from raidproof.storage.array import Geometry
from raidproof.storage.filesystem import Ext4Spec, Extent, XfsSpec, ext4
from raidproof.storage.filesystem.placement import files_command, parse_files
from raidproof.storage.filesystem.xfs import parse_log

TEXTS = Path(__file__).parents[2] / "data"
FILEFRAG = (TEXTS / "e2fsprogs" / "filefrag-1.47.0.txt").read_text()
JOURNAL = (TEXTS / "e2fsprogs" / "debugfs-1.47.2-stat-journal.txt").read_text()
XFS_LOG = (TEXTS / "xfsprogs" / "xfs_db-6.13-log.txt").read_text()
BLOCK = 4096


def test_extents_of_all_files_in_the_order_of_their_bytes() -> None:
    assert parse_files(FILEFRAG) == tuple(
        Extent(offset=begin * BLOCK, length=blocks * BLOCK)
        for begin, blocks in ((22711768, 2), (66126992, 2), (66127360, 2), (46799349, 5))
    )
    assert parse_files("") == ()


def test_truncated_output_of_filefrag_is_refused() -> None:
    lines = FILEFRAG.splitlines()
    with pytest.raises(RigError, match="truncated"):
        parse_files("\n".join(lines[:5]))
    with pytest.raises(RigError, match="no number of extents"):
        parse_files("\n".join(lines[:5] + lines[7:]))


def test_find_passes_all_files_of_one_file_system_to_filefrag() -> None:
    command = files_command("/srv/raidproof")
    assert command[:2] == ["find", "/srv/raidproof"]
    assert "-xdev" in command
    assert command[-1] == "+"


def test_place_of_the_journal_of_ext4() -> None:
    assert ext4.parse_journal(JOURNAL, BLOCK) == Extent(offset=65536 * BLOCK, length=4096 * BLOCK)
    with pytest.raises(RigError, match="extents of the journal"):
        ext4.parse_journal(JOURNAL.partition("EXTENTS")[0], BLOCK)
    machine = Mock(succeed=Mock(return_value=JOURNAL))
    assert Ext4Spec().log_place(machine, "/dev/md0") == ext4.parse_journal(JOURNAL, BLOCK)
    assert Ext4Spec(journal=False).log_place(machine, "/dev/md0") is None


def test_place_of_the_log_of_xfs() -> None:
    # agblklog is 16: the log begins with block 7 of allocation group 2.
    log = Extent(offset=(2 * 65408 + 7) * BLOCK, length=16384 * BLOCK)
    assert parse_log(XFS_LOG) == log
    assert parse_log(XFS_LOG.replace("logstart = 131079", "logstart = 0")) is None
    with pytest.raises(RigError, match="agblklog"):
        parse_log(XFS_LOG.partition("agblklog")[0])
    machine = Mock(succeed=Mock(return_value=XFS_LOG))
    assert XfsSpec().log_place(machine, "/dev/md0") == log


@pytest.mark.parametrize(
    ("spec", "geometry", "size"),
    [
        (XfsSpec(), None, KIB),
        (XfsSpec(), Geometry(64 * KIB, 3), 64 * KIB),
        (XfsSpec(), Geometry(512 * KIB, 3), 32 * KIB),
        (XfsSpec(aligned=False), Geometry(64 * KIB, 3), KIB),
        (XfsSpec(log="disk9"), Geometry(64 * KIB, 3), KIB),
        (XfsSpec(log_su="16KiB"), Geometry(64 * KIB, 3), 16 * KIB),
    ],
)
def test_size_of_a_write_to_the_log_of_xfs(spec: XfsSpec, geometry: Geometry | None, size: int) -> None:
    assert spec.log_writes(None, geometry) == (size,)


def test_the_effective_stripe_unit_of_the_log_counts() -> None:
    state = Mock(log_su=32 * KIB)
    assert XfsSpec().log_writes(state, Geometry(64 * KIB, 3)) == (32 * KIB,)
    assert XfsSpec().log_writes(Mock(log_su=0), Geometry(64 * KIB, 3)) == (KIB,)
