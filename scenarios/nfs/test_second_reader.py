"""libnfs reads the same files from the server as the kernel's client, and finds a client that reads other ones."""

from typing import Any, cast

import pytest

from raidproof.core.blame import Culprit
from raidproof.lab.lab import Lab
from raidproof.machine.machine import Machine
from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.record.outcome import Outcome
from raidproof.run.second_reader import read_by_libnfs
from raidproof.storage.filesystem import XfsSpec
from raidproof.storage.mount import MountSpec
from raidproof.storage.server import SERVERS
from raidproof.storage.stack import Stack, StackSpec
from raidproof.verdict.checks.second_reader import CHECK, judge_second_reader
from raidproof.workload.ledger import Ledger

ATTRIBUTES_S = 600
"""Seconds for which the kernel's client uses the attributes that it has read: longer than the scenario."""


@pytest.mark.parametrize("vers", ["4.2", pytest.param("3", marks=pytest.mark.exhaustive)])
def test_libnfs_and_the_kernels_client_read_the_same(cycle: CrashTestRunner, vers: str) -> None:
    read_the_same(cycle, stack_of(root_squash=False, mount=MountSpec.model_validate({"vers": vers})))


@pytest.mark.exhaustive
def test_both_clients_read_the_same_from_ganesha(cycle: CrashTestRunner) -> None:
    ganesha = SERVERS["ganesha"].model_validate(
        {"lease_s": 10, "grace_s": 10, "delegations": False, "root_squash": False}
    )
    # With wsync, XFS commits the changes of directories that Ganesha does not commit (docs/findings.md).
    committed = XfsSpec(mount_options=("wsync",))
    read_the_same(cycle, stack_of(filesystem=committed).model_copy(update={"export": ganesha}))


def read_the_same(cycle: CrashTestRunner, stack: StackSpec) -> None:
    """Run a crash test, and check that both clients read the same afterwards."""
    ended = cycle(stack, second_reader=True)
    ended.must_keep_every_promise()
    (verdict,) = [one for one in ended.record.verdicts if one.checker == CHECK]
    assert verdict.outcome is Outcome.PASS, verdict.reason


class Attributes:
    """Reads mode, size and link count of one file, in the form of the ledger's directories."""

    def scan(self, machine: Machine, root: str) -> dict[str, Any]:
        """Return the attributes of the file ``word`` in the directory ``root`` of a machine."""
        mode, size, links = machine.succeed(["stat", "--format=%f %s %h", f"{root}/word"]).split()
        return {"tree": {"word": [int(mode, 16), int(size), int(links), None]}}


def test_a_client_with_outdated_attributes_is_blamed(lab: Lab) -> None:
    stack = Stack(stack_of(mount=MountSpec(actimeo=ATTRIBUTES_S)), lab.server, lab.clients)
    stack.create()
    stack.activate()
    client, attributes = lab.clients[-1], Attributes()
    mounted, exported = stack.mounts[client.name].directory, stack.filesystem.directory
    client.succeed(["mkdir", f"{mounted}/folder"])
    client.put("kept", f"{mounted}/folder/word")
    kernels = attributes.scan(client, f"{mounted}/folder")
    source = stack.spec.source(lab.server.address, f"{exported}/folder")

    def libnfs() -> dict[str, Any]:
        return read_by_libnfs(client, cast("Ledger", attributes), stack.spec, source)

    assert judge_second_reader(kernels, libnfs(), None).outcome is Outcome.PASS
    lab.server.succeed(["chmod", "0600", f"{exported}/folder/word"])
    outdated = attributes.scan(client, f"{mounted}/folder")
    assert outdated == kernels
    verdict = judge_second_reader(outdated, libnfs(), attributes.scan(lab.server, f"{exported}/folder"))
    stack.deactivate()
    assert verdict.outcome is Outcome.FAIL, verdict.reason
    assert verdict.blame is not None
    assert verdict.blame.culprit is Culprit.CLIENT
