"""Power cuts of exports with no_root_squash, root_squash and all_squash: who writes, and who owns the files."""

from typing import Any

import pytest

from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.storage.mount import MountSpec
from raidproof.storage.server import ExportSpec

USERS = {1001, 1002, 1003}


@pytest.mark.parametrize(
    ("export", "vers", "users", "owners"),
    [
        ({"root_squash": False}, "4.2", {0}, {0}),
        pytest.param({"root_squash": False}, "3", {0}, {0}, marks=pytest.mark.exhaustive),
        ({}, "4.2", USERS, USERS),
        pytest.param(
            {"all_squash": True, "anonuid": 1025, "anongid": 100}, "4.2", USERS, {1025}, marks=pytest.mark.exhaustive
        ),
    ],
    ids=["root", "root-3", "usual", "all_squash"],
)
def test_every_promise_is_kept_to_each_user(
    cycle: CrashTestRunner, export: dict[str, Any], vers: str, users: set[int], owners: set[int]
) -> None:
    requested = ExportSpec.model_validate({"delegations": False, "lease_s": 10, "grace_s": 10, **export})
    ended = cycle(stack_of(export=requested, mount=MountSpec.model_validate({"vers": vers})))
    ended.must_keep_every_promise()
    workers = ended.record.workers
    assert {one["uid"] for one in workers} == users
    assert {one["owner"] for one in workers} == owners
    assert ("root_squash" in (ended.record.observed.export or ())) == export.get("root_squash", True)
    assert ("chown" in ended.record.workload["left_out"]) == (users == USERS)


def test_root_that_the_server_maps_keeps_every_promise(cycle: CrashTestRunner) -> None:
    ended = cycle(stack_of(), ledger={"users": 0}).must_keep_every_promise()
    assert {(one["uid"], one["owner"]) for one in ended.record.workers} == {(0, 65534)}
