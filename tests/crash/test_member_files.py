"""The members of a checker as files: what is shown, what is undone, what is kept."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raidproof.crash.member_files import MemberFiles, extents
from raidproof.crash.states import BLOCK, Patch
from raidproof.disk.cache import CacheMode
from raidproof.disk.replay import replay
from raidproof.disk.writelog import MemberInfo, WriteLog

SIZE = 16 * BLOCK
MEMBERS = tuple(MemberInfo(f"disk{number}", SIZE, CacheMode.LYING, CacheMode.VOLATILE) for number in range(2))
Blocks = dict[tuple[int, int], bytes]
blocks = st.dictionaries(
    st.tuples(st.integers(0, 1), st.integers(0, 15)), st.sampled_from([bytes(BLOCK), b"a" * BLOCK, b"b" * BLOCK])
)


def content(files: MemberFiles) -> list[bytes]:
    return [path.read_bytes() for path in files.paths]


def after(*patches: Blocks) -> list[bytes]:
    disks = [bytearray(SIZE) for _ in MEMBERS]
    for patch in patches:
        for (member, block), data in patch.items():
            disks[member][block * BLOCK : (block + 1) * BLOCK] = data
    return [bytes(disk) for disk in disks]


@settings(max_examples=60)
@given(st.lists(st.tuples(blocks, st.booleans(), blocks), max_size=6))
def test_what_is_shown_stands_on_the_base_whatever_the_guest_wrote(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Blocks, bool, Blocks]]
) -> None:
    files = MemberFiles(MEMBERS)
    files.create(tmp_path_factory.mktemp("files"))
    kept: list[Blocks] = []
    for patch, keep, guest in steps:
        files.show(Patch(patch), keep=keep)
        assert content(files) == after(*kept, patch)
        if keep:
            kept.append(patch)
            continue
        for (member, block), data in guest.items():
            with files.paths[member].open("r+b") as disk:
                disk.seek(block * BLOCK)
                disk.write(data)
    files.show(Patch())
    assert content(files) == after(*kept)
    log = files.paths[0].parent / "saved.log"
    files.save(Patch({(1, 3): b"c" * BLOCK}), log)
    saved = replay(WriteLog(log))
    assert [saved[m.serial].image(durable=False).copy(0, SIZE) or bytes(SIZE) for m in MEMBERS] == after(
        *kept, {(1, 3): b"c" * BLOCK}
    )
    files.close()


def test_a_member_that_ends_within_a_block_is_not_made_longer(tmp_path: Path) -> None:
    files = MemberFiles([MemberInfo("disk0", BLOCK + 512, CacheMode.LYING, CacheMode.VOLATILE)])
    files.create(tmp_path)
    files.show(Patch({(0, 1): b"a" * BLOCK}), keep=True)
    assert content(files) == [bytes(BLOCK) + b"a" * 512]
    files.close()


def test_zeroes_take_no_room(tmp_path: Path) -> None:
    files = MemberFiles(MEMBERS)
    files.create(tmp_path)
    files.show(Patch({(0, block): bytes(BLOCK) for block in range(16)}), keep=True)
    with files.paths[0].open("rb") as disk:
        assert extents(disk.fileno()) == []
    files.close()


def test_zeroes_over_data_are_written(tmp_path: Path) -> None:
    files = MemberFiles(MEMBERS)
    files.create(tmp_path)
    for block in (0, 7, 15):
        files.show(Patch({(0, block): b"a" * BLOCK}), keep=True)
    for block in (0, 7, 15):
        files.show(Patch({(0, block): bytes(BLOCK)}))
        assert content(files) == after({(0, one): b"a" * BLOCK for one in (0, 7, 15) if one != block})
    files.close()


def test_what_the_machine_is_told(tmp_path: Path) -> None:
    files = MemberFiles(MEMBERS)
    files.create(tmp_path)
    assert files.arguments == (f"ubdd={tmp_path}/member0", f"ubde={tmp_path}/member1")
    assert files.links == [
        ["/dev/disk/by-id/raidproof-disk0", "/dev/ubdd"],
        ["/dev/disk/by-id/raidproof-disk1", "/dev/ubde"],
    ]
    files.close()


def test_a_hole_that_the_guest_has_punched_is_filled_again(tmp_path: Path) -> None:
    files = MemberFiles(MEMBERS)
    files.create(tmp_path)
    base: Blocks = {(0, block): b"a" * BLOCK for block in range(8)}
    files.show(Patch(base), keep=True)
    files.show(Patch())
    where = ["--offset", str(2 * BLOCK), "--length", str(3 * BLOCK)]
    subprocess.run(["fallocate", "--punch-hole", *where, files.paths[0]], check=True)  # noqa: S607
    assert content(files) != after(base)
    files.show(Patch())
    assert content(files) == after(base)
