"""Options of export and mount: they take effect, and permit what they declare and no more."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from raidproof.core.command import CommandFailed
from raidproof.core.errors import NotEffective
from raidproof.core.waiting import Deadline, now_ns, pause, wait_until
from raidproof.lab.lab import Lab
from raidproof.machine.machine import Machine
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.record.outcome import Outcome
from raidproof.storage.mount import MountSpec
from raidproof.storage.server import ExportSpec
from raidproof.storage.stack import Stack
from raidproof.verdict.freshness import Seen, Version, judge_freshness
from raidproof.workload.lock import lock_holder

UID, GID = 1025, 100
USER = 1234
"""A user of a client who is not root."""
OLD_S = 8
"""Seconds for which the clients use the attributes that they have read."""
TICKS_S = 0.1
"""Seconds in which the clock advances by which the server's kernel stamps files: its tick takes 10 ms.

Two writes within one tick leave the same times, by which an NFSv3 client that has read the file between them takes its
old data as current.
"""
UNPRIVILEGED = MountSpec(other_options=("noresvport",))
"""A mount that sends its requests from a port from 1024 on."""


def export_of(**options: object) -> ExportSpec:
    """Return a request for an export with these options."""
    return ExportSpec.model_validate({"delegations": False, "lease_s": 10, "grace_s": 10, **options})


@contextmanager
def mounted(lab: Lab, export: ExportSpec, mount: MountSpec, *, again: bool = False) -> Iterator[Stack]:
    """Mount a new file system on all clients, or ``again`` that of an earlier call, with other options."""
    stack = Stack(stack_of(export=export, mount=mount), lab.server, lab.clients)
    if not again:
        stack.create()
    try:
        stack.activate()
        yield stack
    finally:
        stack.deactivate()


def create(client: Machine, stack: Stack, name: str, uid: int) -> str:
    """Create a file as a user of a client, and return its owner and group on the server."""
    as_user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    client.succeed([*as_user, "touch", f"{stack.mounts[client.name].directory}/{name}"])
    return stack.filesystem.machine.succeed(["stat", "--format=%u:%g", f"{stack.filesystem.directory}/{name}"]).strip()


def test_users_are_mapped_as_the_options_of_the_export_request(lab: Lab) -> None:
    client = lab.clients[0]
    with mounted(lab, export_of(root_squash=True), MountSpec()) as stack:
        assert create(client, stack, "of-root", 0) == "65534:65534"
        assert create(client, stack, "of-user", USER) == f"{USER}:{USER}"
    options = {"all_squash": True, "anonuid": UID, "anongid": GID, "subtree_check": True, "insecure": True}
    everything = export_of(
        **options, fsid="f9a21ff2-5d4c-4b1e-9a2f-000000000001", export_options="crossmnt,mountpoint"
    )
    with mounted(lab, everything, UNPRIVILEGED, again=True) as stack:
        assert create(client, stack, "of-root-too", 0) == f"{UID}:{GID}"
        assert create(client, stack, "of-user-too", USER) == f"{UID}:{GID}"
        # What etab and the kernel list was read back; the options of another export are not in effect.
        other = export_of(root_squash=True).server(lab.server)
        with pytest.raises(NotEffective, match="no_subtree_check"):
            other.require_effective()
    secure = Stack(stack_of(export=export_of(), mount=UNPRIVILEGED), lab.server, lab.clients)
    with pytest.raises((CommandFailed, ExceptionGroup)):
        secure.activate()
    secure.export.deactivate()
    secure.filesystem.deactivate()
    secure.array.deactivate()


class OneFile:
    """A file that the first client rewrites, and the second one opens and reads."""

    def __init__(self, lab: Lab, stack: Stack, number: int) -> None:
        self.writer, self.reader = lab.clients[:2]
        self.path = f"{stack.mounts[self.writer.name].directory}/versions-{number}"
        self.versions: list[Version] = []
        self.reads: list[Seen] = []

    def write(self) -> int:
        """Write and close the next version, later than in the tick of the last one, and return its number."""
        pause(TICKS_S)
        number, begun_ns = len(self.versions), now_ns()
        self.writer.put(f"{number}\n", self.path)
        self.versions.append(Version(number, begun_ns, now_ns()))
        return number

    def read(self) -> int:
        """Open and read the file, and return the number of the version."""
        begun_ns = now_ns()
        number = int(self.reader.get(self.path))
        self.reads.append(Seen(number, begun_ns, now_ns()))
        return number


def test_nocto_shows_old_data_for_the_time_of_the_attributes_and_no_longer(lab: Lab) -> None:
    usual = MountSpec(vers="3", actimeo=OLD_S)
    nocto = MountSpec(vers="3", actimeo=OLD_S, cto=False)
    with mounted(lab, export_of(), usual) as stack:
        file = OneFile(lab, stack, 0)
        for _ in range(5):
            file.write()
            file.read()
        verdict = judge_freshness(file.versions, file.reads, usual.effects)
        assert verdict.outcome is Outcome.PASS, verdict.reason
        assert "an older one" not in verdict.reason
    with mounted(lab, export_of(), nocto, again=True) as stack:
        file = OneFile(lab, stack, 1)
        file.write()
        file.read()
        newest = file.write()
        wait_until(lambda: file.read() == newest, Deadline.after(4 * OLD_S), "the reader to see the new data", 0.3)
    verdict = judge_freshness(file.versions, file.reads, nocto.effects)
    assert verdict.outcome is Outcome.PASS, verdict.reason
    assert "an older one" in verdict.reason
    # The same reads are a failure of a mount whose options do not permit them, or only for a shorter time.
    for other in (usual, MountSpec(vers="3", actimeo=1, cto=False)):
        assert judge_freshness(file.versions, file.reads, other.effects).outcome is Outcome.FAIL


def test_nolock_makes_locks_local(lab: Lab) -> None:
    mount = MountSpec(vers="3", lock=False)
    assert mount.effects.local_locks
    with (
        mounted(lab, export_of(), mount) as stack,
        lock_holder(lab.clients[0], lab) as one,
        lock_holder(lab.clients[1], lab) as two,
    ):
        path = f"{stack.mounts[lab.clients[0].name].directory}/locked"
        mine, theirs = one.open(path), two.open(path)
        one.do("lock", mine, "write").require("lock")
        two.do("lock", theirs, "write").require("the same lock on another client")
        # An open file would prevent the unmount, and an agent ends some time after its connection.
        one.do("close", mine).require("close")
        two.do("close", theirs).require("close")
