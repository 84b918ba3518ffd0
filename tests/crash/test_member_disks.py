"""The members of a checker in its machine's memory: what is sent, what is kept on the host, what is undone."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raidproof.crash import member_disks
from raidproof.crash.member_disks import MemberMemory, content_of
from raidproof.crash.states import BLOCK, Patch
from raidproof.disk.cache import CacheMode
from raidproof.disk.replay import replay
from raidproof.disk.writelog import MemberInfo, WriteLog
from raidproof.machine.machine import Machine

SIZE = 16 * BLOCK
MEMBERS = tuple(MemberInfo(f"disk{number}", SIZE, CacheMode.LYING, CacheMode.VOLATILE) for number in range(2))
Blocks = dict[tuple[int, int], bytes]
blocks = st.dictionaries(
    st.tuples(st.integers(0, 1), st.integers(0, 15)), st.sampled_from([bytes(BLOCK), b"a" * BLOCK, b"b" * BLOCK])
)


class Agent:
    """Stands in for the agent of one boot: bases and snapshots in the memory of the test."""

    def __init__(self, sizes: Sequence[int] = (SIZE, SIZE)) -> None:
        self.base = [bytearray(size) for size in sizes]
        self.shown = [bytearray(size) for size in sizes]
        self.requests: list[dict[str, Any]] = []

    def ask(self, request: dict[str, Any], data: Sequence[bytes]) -> dict[str, Any]:
        self.requests.append(request)
        assert [length for *_, length in request["runs"]] == [len(one) for one in data]
        if request["verb"] == "show":
            self.shown = [bytearray(one) for one in self.base]
        target = self.shown if request["verb"] == "show" else self.base
        for (member, at, _), one in zip(request["runs"], data, strict=True):
            target[member][at : at + len(one)] = one
            assert len(target[member]) == len(self.base[member]), "a member must not become longer"
        return {}


def after(*patches: Blocks) -> list[bytes]:
    disks = [bytearray(SIZE) for _ in MEMBERS]
    for patch in patches:
        for (member, block), data in patch.items():
            disks[member][block * BLOCK : (block + 1) * BLOCK] = data
    return [bytes(disk) for disk in disks]


@settings(max_examples=60)
@given(st.lists(st.tuples(blocks, st.booleans(), st.booleans()), max_size=6))
def test_each_state_is_the_base_with_its_patch_also_after_a_reboot(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Blocks, bool, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("members")
    members, agent, kept = MemberMemory(MEMBERS, folder), Agent(), list[Blocks]()
    for patch, keep, reboot in steps:
        members.show(Patch(patch), None if keep and reboot else agent.ask, keep=keep)
        if keep:
            kept.append(patch)
        else:
            assert [bytes(one) for one in agent.shown] == after(*kept, patch)
        if reboot:
            agent = Agent()
            members.connected(agent.ask)
        assert [bytes(one) for one in agent.base] == after(*kept)
    members.save(Patch({(1, 3): b"c" * BLOCK}), folder / "saved.log")
    saved = replay(WriteLog(folder / "saved.log"))
    assert [saved[m.serial].image(durable=False).copy(0, SIZE) or bytes(SIZE) for m in MEMBERS] == after(
        *kept, {(1, 3): b"c" * BLOCK}
    )
    members.close()


def test_a_member_that_ends_within_a_block_is_not_made_longer(tmp_path: Path) -> None:
    size = BLOCK + 512
    members = MemberMemory([MemberInfo("disk0", size, CacheMode.LYING, CacheMode.VOLATILE)], tmp_path)
    agent = Agent([size])
    members.show(Patch({(0, 1): b"a" * BLOCK}), agent.ask, keep=True)
    assert bytes(agent.base[0]) == bytes(BLOCK) + b"a" * 512
    assert (tmp_path / "base0").stat().st_size == size
    members.close()


def test_zeroes_on_a_blank_member_are_not_sent(tmp_path: Path) -> None:
    members, agent = MemberMemory(MEMBERS, tmp_path), Agent()
    zeroes = Patch({(0, block): bytes(BLOCK) for block in range(16)})
    members.show(zeroes, agent.ask, keep=True)
    members.show(zeroes, agent.ask)
    assert [request["runs"] for request in agent.requests] == [[], []]
    with (tmp_path / "base0").open("rb") as disk:
        assert list(content_of(disk.fileno())) == []
    members.close()


def test_a_large_base_is_sent_in_several_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_disks, "_COPY", BLOCK)
    monkeypatch.setattr(member_disks, "_AT_ONCE", 3 * BLOCK)
    members, agent = MemberMemory(MEMBERS, tmp_path), Agent()
    members.show(Patch({(0, block): b"a" * BLOCK for block in range(8)}), None, keep=True)
    members.connected(agent.ask)
    assert [len(request["runs"]) for request in agent.requests] == [3, 3, 2]
    assert bytes(agent.base[0]) == after({(0, block): b"a" * BLOCK for block in range(8)})[0]
    members.close()


@pytest.mark.parametrize("lacks", [None, "brd", "dm-snapshot"])
def test_a_kernel_without_one_of_the_modules_cannot_have_the_members_in_memory(
    tmp_path: Path, lacks: str | None
) -> None:
    ran: list[list[str]] = []

    def run(argv: list[str]) -> SimpleNamespace:
        ran.append(argv)
        return SimpleNamespace(status=int(argv[1] == lacks))

    members = MemberMemory(MEMBERS, tmp_path)
    assert members.prepare(cast("Machine", SimpleNamespace(run=run))) is (lacks is None)
    assert ran[0] == ["modprobe", "brd", "rd_nr=4", f"rd_size={SIZE // 1024}"]
    members.close()


def test_the_agent_gets_sizes_and_paths(tmp_path: Path) -> None:
    members = MemberMemory(MEMBERS, tmp_path)
    assert members.config == {
        "sizes": [SIZE, SIZE],
        "links": ["/dev/disk/by-id/raidproof-disk0", "/dev/disk/by-id/raidproof-disk1"],
    }
    members.close()
