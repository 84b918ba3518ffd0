"""The members of a checker as the disk engine serves them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from raidproof.crash.member_disks import MemberEngine
from raidproof.crash.states import BLOCK, Patch
from raidproof.disk.cache import CacheMode
from raidproof.disk.client import EngineClient
from raidproof.disk.control import ControlServer
from raidproof.disk.engine import Engine
from raidproof.disk.messages import MemberSpec
from raidproof.disk.replay import replay
from raidproof.disk.writelog import MemberInfo, WriteLog, data_of

SIZE = 64 * BLOCK
SERIALS = ("disk0", "disk1")
BASE = Patch({(0, 1): b"a" * BLOCK, (1, 2): b"b" * BLOCK})


@pytest.fixture
def engine() -> Engine:
    return Engine([MemberSpec(serial, SIZE, CacheMode.LYING) for serial in SERIALS])


@pytest.fixture
def members(engine: Engine, tmp_path: Path) -> Iterator[MemberEngine]:
    ControlServer(engine, tmp_path / "control").start()
    infos = [MemberInfo(serial, SIZE, CacheMode.LYING, CacheMode.VOLATILE) for serial in SERIALS]
    with EngineClient(tmp_path / "control") as client:
        yield MemberEngine(infos, client, tmp_path)


def content(engine: Engine) -> list[bytes]:
    return [bytes(drive.member.image(durable=False).view(0, SIZE)) for drive in engine.drives]


def plain(*patches: Patch) -> list[bytes]:
    disks = [bytearray(SIZE) for _ in SERIALS]
    for patch in patches:
        for (member, block), data in patch.blocks.items():
            disks[member][block * BLOCK : (block + 1) * BLOCK] = data_of(data)
    return [bytes(disk) for disk in disks]


def test_each_state_stands_on_the_base_whatever_the_guest_wrote(engine: Engine, members: MemberEngine) -> None:
    members.show(BASE, keep=True)
    for state in (Patch({(0, 1): b"c" * BLOCK}), Patch({(1, 9): b"d" * BLOCK}), Patch()):
        members.show(state)
        assert content(engine) == plain(BASE, state)
        port = engine.connect("disk1")
        port.write(b"guest" * 1024, 0, True)
        port.flush()


def test_what_is_saved_is_the_base_and_the_state_and_leaves_no_images(
    engine: Engine, members: MemberEngine, tmp_path: Path
) -> None:
    members.show(BASE, keep=True)
    state = Patch({(0, 1): b"c" * BLOCK})
    members.save(state, tmp_path / "saved")
    saved = replay(WriteLog(tmp_path / "saved"))
    held = [saved[serial].image(durable=False).copy(0, SIZE) for serial in SERIALS]
    assert held == plain(BASE, state)
    assert not list(tmp_path.glob("base*"))
