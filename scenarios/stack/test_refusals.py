"""Impossible stacks are refused with a reason before any machine boots; these tests need no lab."""

from collections.abc import Callable

import pytest

from raidproof.core.errors import RequestError
from raidproof.core.units import GIB, KIB, MIB
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.storage.array import MdSpec
from raidproof.storage.filesystem import Ext4Spec, XfsSpec
from raidproof.storage.mount import MountSpec
from raidproof.storage.server import ExportSpec

IMPOSSIBLE: list[tuple[Callable[[], object], str]] = [
    (lambda: stack_of("6", members=3), "RAID6 needs at least 4 members, not 3"),
    (lambda: stack_of("55"), "did you mean '5'"),
    (lambda: MdSpec(level="1", members=("disk0", "disk0")), "only once: disk0"),
    (lambda: stack_of(filesystem=XfsSpec(block_size=8 * KIB)), "larger than the page size"),
    (lambda: stack_of(filesystem=Ext4Spec(su=6 * KIB, sw=3)), "su 6KiB is not a multiple of the block size"),
    (lambda: stack_of(filesystem=XfsSpec(log="disk0")), "disk0 is in the array"),
    (lambda: stack_of(mount=MountSpec(wsize=2 * MIB)), "clamp it to 1MiB"),
    (
        lambda: stack_of(export=ExportSpec(max_block_size=64 * KIB), mount=MountSpec(wsize=MIB)),
        "the server would clamp it to its max_block_size, 64KiB",
    ),
    (lambda: stack_of().refuse_disks({"disk0": GIB}), "the server has no disk 'disk1'"),
    (lambda: stack_of("1", members=2).refuse_disks({"disk0": 192 * MIB, "disk1": 192 * MIB}), "is too small for xfs"),
]


@pytest.mark.parametrize(("request_it", "reason"), IMPOSSIBLE, ids=[reason for _, reason in IMPOSSIBLE])
def test_impossible_request_names_its_reason(request_it: Callable[[], object], reason: str) -> None:
    with pytest.raises(RequestError) as refused:
        request_it()
    assert reason in str(refused.value)
