"""How often a client has sent each call, by its own count."""

from collections import Counter

from raidproof.core.layer import Machine
from raidproof.monitor.mountstats import MOUNTSTATS, mount_at


def parse_calls(mountstats: str, directory: str) -> Counter[str]:
    """Read it out of /proc/self/mountstats, by the kernel's names. Raises as `mount_at`."""
    mount = mount_at(mountstats, directory)
    return Counter({name: operation.calls for name, operation in mount.operations.items()})


def calls(client: Machine, directory: str) -> Counter[str]:
    """Return what a client has sent for one of its mounts since it was mounted. Raises as `mount_at`."""
    return parse_calls(client.get(MOUNTSTATS), directory)
