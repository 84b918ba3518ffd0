"""Power cuts under an export that maps root, or all users: the clients' programs are ordinary users."""

from typing import Any

import pytest

from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.storage.mount import MountSpec
from raidproof.storage.server import ExportSpec


@pytest.mark.parametrize(
    ("export", "vers", "owners"),
    [
        ({"root_squash": True}, "4.2", {1001, 1002, 1003}),
        pytest.param({"root_squash": True}, "3", {1001, 1002, 1003}, marks=pytest.mark.exhaustive),
        pytest.param(
            {"all_squash": True, "anonuid": 1025, "anongid": 100}, "4.2", {1025}, marks=pytest.mark.exhaustive
        ),
    ],
    ids=["root_squash", "root_squash-3", "all_squash"],
)
def test_ordinary_users_keep_every_promise(
    cycle: CrashTestRunner, export: dict[str, Any], vers: str, owners: set[int]
) -> None:
    requested = ExportSpec.model_validate({"delegations": False, "lease_s": 10, "grace_s": 10, **export})
    ended = cycle(stack_of(export=requested, mount=MountSpec.model_validate({"vers": vers})))
    ended.must_keep_every_promise()
    workers = ended.record.workers
    assert {one["uid"] for one in workers} == {1001, 1002, 1003}
    assert {one["owner"] for one in workers} == owners
    assert "chown" in ended.record.workload["left_out"]


def test_root_that_the_server_maps_keeps_every_promise(cycle: CrashTestRunner) -> None:
    requested = ExportSpec(delegations=False, lease_s=10, grace_s=10, root_squash=True)
    ended = cycle(stack_of(export=requested), ledger={"users": 0}).must_keep_every_promise()
    assert {(one["uid"], one["owner"]) for one in ended.record.workers} == {(0, 65534)}
