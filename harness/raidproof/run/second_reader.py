"""The reading of the ledger by a second NFS client, libnfs, which shares no code with the kernel's client."""

from pathlib import Path

from raidproof.core.errors import RequirementMissing, RigError
from raidproof.guest import libnfs_copy
from raidproof.machine.machine import Machine
from raidproof.storage.server.server import NFS_PORT
from raidproof.storage.stack import StackSpec
from raidproof.workload.ledger import SCAN_DEADLINE_S, Found, Ledger

PROGRAM = "/run/raidproof/libnfs_copy.py"
COPY = "/tmp/raidproof-libnfs"  # noqa: S108  in the machine, where no other user works
"""The copy of the ledger on the client: a directory in memory."""
_V3, _V4 = "3", "4.0"


def version_of(stack: StackSpec) -> str:
    """Return the NFS version of libnfs for a stack: 3 if the mount has version 3, else 4.0, its only version 4.

    Raises:
        RequirementMissing: the server lacks this version, or listens on another port than libnfs connects to.
    """
    version = _V3 if stack.mount.vers == _V3 else _V4
    if version not in stack.export.versions:
        raise RequirementMissing(f"server {stack.export.type} has no NFSv{version}, which libnfs needs")
    if stack.export.port != NFS_PORT:
        raise RequirementMissing(f"the server's port is {stack.export.port}; raidproof connects libnfs to {NFS_PORT}")
    return version


def read_by_libnfs(client: Machine, ledger: Ledger, stack: StackSpec, source: str) -> Found:
    """Copy the ledger by libnfs into the memory of a client, and return the content of all workers' files.

    ``source``: the exported directory of the ledger, as ADDRESS:PATH.

    Raises:
        RequirementMissing: the client has no libnfs, or the server lacks what libnfs needs.
        RigError: a call of libnfs failed.
    """
    address, _, path = source.partition(":")
    client.put(Path(libnfs_copy.__file__).read_bytes(), PROGRAM)
    client.succeed(["rm", "--recursive", "--force", COPY])
    command = ["python3", PROGRAM, address, version_of(stack)[0], path, COPY]
    ended = client.run(command, deadline_s=SCAN_DEADLINE_S)
    if ended.status == libnfs_copy.NO_LIBRARY:
        raise RequirementMissing(
            f"{client.name} has no libnfs of version 4 or 5",
            remedy="add the package libnfs14 to the recipe of the image",
        )
    if not ended.ok:
        raise RigError(f"{client.name}: libnfs did not read {source}: {ended.stderr.strip()[-500:]}")
    try:
        return ledger.scan(client, COPY)
    finally:
        client.succeed(["rm", "--recursive", "--force", COPY])
