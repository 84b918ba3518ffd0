"""An NFS server commits a change of a directory before it replies: nfsd on each file system, NFS-Ganesha."""

import pytest

from findings.answer import Record, conclude
from findings.test_nfsd import flushes
from raidproof.lab.lab import Lab
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.storage.filesystem import FILESYSTEMS
from raidproof.storage.server import SERVERS
from raidproof.storage.stack import Stack, StackSpec

ROUNDS = 5
CHANGES = (
    ("mkdir", "{root}/folder{n}"),
    ("ln", "--symbolic", "target", "{root}/symlink{n}"),
    ("ln", "{root}/file", "{root}/link{n}"),
    ("mv", "{root}/link{n}", "{root}/renamed{n}"),
    ("chmod", "{mode}", "{root}/file"),
    ("truncate", "--size={n}", "{root}/file"),
    ("rm", "{root}/renamed{n}"),
    ("rmdir", "{root}/folder{n}"),
)
"""Commands of a client, each of which sends one operation that changes metadata and that `sync` must make durable."""


@pytest.mark.parametrize("kind", ["btrfs", "ext4", "f2fs", "xfs"])
def test_directories_are_durable_when_a_change_is_acknowledged(lab: Lab, record: Record, kind: str) -> None:
    conclude_on(lab, record, stack_of(filesystem=FILESYSTEMS[kind].model_validate({})), kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_directories_are_durable_when_ganesha_acknowledges_a_change(lab: Lab, record: Record, kind: str) -> None:
    stack = stack_of(filesystem=FILESYSTEMS[kind].model_validate({}))
    ganesha = SERVERS["ganesha"].model_validate({"lease_s": 10, "grace_s": 10})
    conclude_on(lab, record, stack.model_copy(update={"export": ganesha}), f"NFS-Ganesha on {kind}")


def conclude_on(lab: Lab, record: Record, spec: StackSpec, what: str) -> None:
    """Change directories by NFS, and end with the answer: whether each change was flushed before its reply.

    ``what`` names the server and its file system in the answer.
    """
    stack = Stack(spec, lab.server, lab.clients)
    stack.create()
    stack.activate()
    client = lab.clients[0]
    root = stack.mounts[client.name].directory
    client.succeed(["touch", f"{root}/file"])
    client.succeed(["sync"])
    lab.server.succeed(["sync"])
    unflushed = dict.fromkeys((command[0] for command in CHANGES), 0)
    for number in range(1, ROUNDS + 1):
        for command in CHANGES:
            before = flushes(lab)
            client.succeed([word.format(root=root, n=number, mode=f"06{number}0") for word in command])
            # The members have volatile caches: without a flush, no change since the last one is durable.
            unflushed[command[0]] += flushes(lab) == before
    stack.deactivate()
    wrong, seen = sum(unflushed.values()), ROUNDS * len(CHANGES)
    which = ", ".join(f"{count} {name}" for name, count in unflushed.items() if count)
    measured = f"{what}: {wrong} of {seen} changes were acknowledged before any member received a flush"
    conclude(record, lab.server, f"{measured} ({which})" if which else measured, wrong=wrong, seen=seen, least=seen)
