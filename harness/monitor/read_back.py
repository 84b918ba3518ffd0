"""What a client has fetched from its server, by its own count."""

from typing import NamedTuple

from harness.errors import RigError
from harness.layer import Machine
from harness.monitor.mountstats import parse_mounts

READS = ("READ", "READ_PLUS")


class Fetched(NamedTuple):
    """Of one mount, since it was mounted."""

    bytes: int
    """Of data, that the server has answered with."""
    calls: int

    def since(self, before: "Fetched") -> "Fetched":
        """Return what came in between."""
        return Fetched(self.bytes - before.bytes, self.calls - before.calls)


def parse_fetched(mountstats: str, directory: str) -> Fetched:
    """Read it out of /proc/self/mountstats.

    Raises:
        RigError: nothing of NFS is mounted there, or the text is cut off.
    """
    # Of mounts on top of each other the last one counts.
    for mount in reversed(parse_mounts(mountstats)):
        if mount.directory == directory:
            calls = sum(mount.operations[name].calls for name in READS if name in mount.operations)
            return Fetched(mount.wire_read, calls)
    raise RigError(f"no NFS mount on {directory}")


def fetched(client: Machine, directory: str) -> Fetched:
    """Ask a client what it has fetched for one of its mounts. Raises as `parse_fetched`."""
    return parse_fetched(client.succeed(["cat", "/proc/self/mountstats"]), directory)
