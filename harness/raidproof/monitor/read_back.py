"""What a client has fetched from its server, by its own count."""

from typing import NamedTuple

from raidproof.core.layer import Machine
from raidproof.monitor.mountstats import MOUNTSTATS, mount_at

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
    """Read it out of /proc/self/mountstats. Raises as `mount_at`."""
    mount = mount_at(mountstats, directory)
    calls = sum(mount.operations[name].calls for name in READS if name in mount.operations)
    return Fetched(mount.wire_read, calls)


def fetched(client: Machine, directory: str) -> Fetched:
    """Return what a client has fetched for one of its mounts. Raises as `mount_at`."""
    return parse_fetched(client.get(MOUNTSTATS), directory)
