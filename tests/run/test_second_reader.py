"""The reading of the ledger by libnfs on a client: its command, and what is refused."""

import json
from typing import Any, cast

import pytest

from raidproof.core.command import Completed
from raidproof.core.errors import RequirementMissing, RigError
from raidproof.guest.libnfs_copy import NO_LIBRARY
from raidproof.machine.machine import Machine
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.run.second_reader import COPY, PROGRAM, read_by_libnfs, version_of
from raidproof.storage.mount import MountSpec
from raidproof.storage.server import SERVERS, ExportSpec
from raidproof.storage.stack import StackSpec
from raidproof.workload.ledger import Ledger

FOUND = {"w@0": {"blocks": [1], "names": ["w"]}}


class Client:
    """A client whose copy by libnfs ends with a status."""

    name = "client1"

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.ran: list[list[str]] = []
        self.files: list[str] = []

    def put(self, content: bytes, path: str) -> None:
        self.files.append(path)

    def run(self, argv: list[str], *, deadline_s: float = 0) -> Completed:
        self.ran.append(argv)
        return Completed(tuple(argv), self.status, "libnfs.so.14\n", "Refused: nfs_pread: EIO", self.name)

    def succeed(self, argv: list[str]) -> str:
        self.ran.append(argv)
        return json.dumps(FOUND)


class Scans:
    """A ledger that notes where it is read."""

    def __init__(self) -> None:
        self.roots: list[str] = []

    def scan(self, _machine: object, root: str) -> dict[str, Any]:
        self.roots.append(root)
        return FOUND


def read(client: Client, stack: StackSpec) -> dict[str, Any]:
    ledger = Scans()
    found = read_by_libnfs(cast("Machine", client), cast("Ledger", ledger), stack, "10.77.0.10:/srv/raidproof/ledger")
    assert ledger.roots == [COPY]
    return found


@pytest.mark.parametrize(("vers", "number"), [("4.2", "4"), ("4.0", "4"), ("3", "3")])
def test_libnfs_copies_the_ledger_by_the_version_of_the_mount(vers: str, number: str) -> None:
    client = Client()
    stack = stack_of(mount=MountSpec.model_validate({"vers": vers}))
    assert read(client, stack) == FOUND
    assert client.files == [PROGRAM]
    assert client.ran[1] == ["python3", PROGRAM, "10.77.0.10", number, "/srv/raidproof/ledger", COPY]
    assert client.ran[0] == client.ran[-1] == ["rm", "--recursive", "--force", COPY]


def test_a_client_without_libnfs_lacks_a_requirement() -> None:
    with pytest.raises(RequirementMissing, match="client1 has no libnfs"):
        read(Client(NO_LIBRARY), stack_of())


def test_a_call_that_fails_is_an_error_of_the_rig() -> None:
    with pytest.raises(RigError, match=r"libnfs did not read 10\.77\.0\.10:/srv/raidproof/ledger: Refused: nfs_pread"):
        read(Client(1), stack_of())


def test_a_server_that_libnfs_cannot_reach_lacks_a_requirement() -> None:
    with pytest.raises(RequirementMissing, match="port is 2050"):
        version_of(stack_of(export=ExportSpec(port=2050), mount=MountSpec(port=2050)))
    ganesha = stack_of(mount=MountSpec(vers="3")).model_copy(update={"export": SERVERS["ganesha"].model_validate({})})
    with pytest.raises(RequirementMissing, match="no NFSv3"):
        version_of(ganesha)
