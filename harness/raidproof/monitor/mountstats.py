"""The counters of an NFS client for one mount, from /proc/self/mountstats."""

import re
from collections import Counter
from typing import NamedTuple

from raidproof.core.errors import RigError
from raidproof.core.layer import Machine
from raidproof.monitor.counters import numbers

MOUNTSTATS = "/proc/self/mountstats"

_START = re.compile(r"^device \S+ mounted on (\S+) with fstype nfs4? statvers=(\S+)\n", re.MULTILINE)
_OPERATION = re.compile(r"^\t *([A-Z_0-9]+): ([\d ]+)\n", re.MULTILINE)


class RpcCount(NamedTuple):
    """The counters of one operation; times are sums over the calls."""

    calls: int
    transmissions: int
    """Number of transmissions: one per call, plus retransmissions."""
    queue_ms: int
    """From the creation of the request to its transmission."""
    rtt_ms: int
    """From the transmission to the reply."""
    exec_ms: int
    """From the creation of the request to its end."""


class MountCount(NamedTuple):
    """The counters of one mount since it was mounted. Application bytes (read(), write()) include cached ones."""

    directory: str
    application_read: int
    application_written: int
    wire_read: int
    """Bytes that the client requested from the server."""
    wire_written: int
    operations: dict[str, RpcCount]
    """The operations with at least one call."""

    @property
    def rpcs(self) -> int:
        """The number of calls of all operations."""
        return sum(operation.calls for operation in self.operations.values())


def parse_mounts(text: str) -> tuple[MountCount, ...]:
    """Parse the counters of all NFS mounts.

    Raises:
        RigError: the text is truncated, or of another version.
    """
    if not text.endswith("\n"):
        raise RigError("mountstats are cut off")
    return tuple(_mount(start, text[start.end() :].split("\ndevice ", 1)[0] + "\n") for start in _START.finditer(text))


def mount_at(text: str, directory: str) -> MountCount:
    """Return the mount on a directory: of several on top of each other the last one.

    Raises:
        RigError: no NFS mount is there, or the text is truncated.
    """
    for mount in reversed(parse_mounts(text)):
        if mount.directory == directory:
            return mount
    raise RigError(f"no NFS mount on {directory}")


def _mount(start: re.Match[str], entry: str) -> MountCount:
    directory, version = start.groups()
    line = re.search(r"^\tbytes:\t([\d ]+)\n", entry, re.MULTILINE)
    _, heading, table = entry.partition("per-op statistics\n")
    if version != "1.1" or line is None or not heading:
        raise RigError(f"mountstats of {directory} are cut off, or not of version 1.1 but {version}")
    carried = numbers(line.group(1).split(), "mountstats")
    operations = {}
    for name, words in _OPERATION.findall(table):
        count = numbers(words.split(), "mountstats")
        # count transmissions timeouts sent received queue rtt execute [errors]
        if len(count) < 8:
            raise RigError(f"mountstats of {directory}: {name} is cut off")
        if count[0]:
            operations[name] = RpcCount(count[0], count[1], *count[5:8])
    if len(carried) != 8 or "NULL:" not in table:
        raise RigError(f"mountstats of {directory} are cut off")
    # read, written, the same with O_DIRECT, from and to the server, in pages
    read, written, direct_read, direct_written, wire_read, wire_written = carried[:6]
    return MountCount(directory, read + direct_read, written + direct_written, wire_read, wire_written, operations)


def parse_calls(mountstats: str, directory: str) -> Counter[str]:
    """Return the calls by operation name from the text of /proc/self/mountstats. Raises as `mount_at`."""
    mount = mount_at(mountstats, directory)
    return Counter({name: operation.calls for name, operation in mount.operations.items()})


def calls(client: Machine, directory: str) -> Counter[str]:
    """Return the calls of a client for one of its mounts since it was mounted. Raises as `mount_at`."""
    return parse_calls(client.get(MOUNTSTATS), directory)
