"""Parsers of the kernel's counters in /proc: disks, arrays, CPU, memory, network interfaces, nfsd and NFS mounts.

Formats: Documentation/admin-guide/iostats.rst and Documentation/filesystems/proc.rst in the kernel's source, and
fs/nfsd/stats.c. Each parser raises RigError on truncated text.
"""

import re
from collections import Counter
from typing import NamedTuple

from raidproof.core.errors import RigError
from raidproof.core.layer import Machine
from raidproof.core.units import KIB, SECTOR

MOUNTSTATS = "/proc/self/mountstats"

_START = re.compile(r"^device \S+ mounted on (\S+) with fstype nfs4? statvers=(\S+)\n", re.MULTILINE)
_OPERATION = re.compile(r"^\t *([A-Z_0-9]+): ([\d ]+)\n", re.MULTILINE)


class DiskCount(NamedTuple):
    """One line of /proc/diskstats: the requests of a disk or array since boot."""

    reads: int
    read_bytes: int
    read_ms: int
    """Sum of the durations of all reads."""
    writes: int
    written_bytes: int
    write_ms: int
    """Sum of the durations of all writes."""
    busy_ms: int
    """Time with requests in flight. Linux counts jiffies: the resolution is 10 ms where HZ is 100."""
    queued_ms: int
    """Sum of the times that all requests, finished or not, have been in flight."""
    flushes: int | None
    """Number of flush requests; None before Linux 5.5."""


class CpuCount(NamedTuple):
    """The CPU time of a machine since boot, in ticks; iowait counts as idle."""

    busy: int
    total: int


class MemoryState(NamedTuple):
    """Memory of a machine in bytes: all, dirty, and under write-back."""

    total: int
    dirty: int
    writeback: int


class LinkCount(NamedTuple):
    """Bytes that a network interface has received and sent since boot, with headers."""

    received: int
    sent: int


class NfsdCount(NamedTuple):
    """Operations of nfsd and their bytes, from /proc/net/rpc/nfsd."""

    read_bytes: int
    written_bytes: int
    reads: int
    writes: int
    commits: int


def parse_diskstats(text: str) -> dict[str, DiskCount]:
    """Parse /proc/diskstats; return the counters by the kernel's device name."""
    disks = {}
    for line in whole_lines(text, "diskstats"):
        words = line.split()
        if len(words) < 14:
            raise RigError(f"diskstats: truncated line: {line!r}")
        count = numbers(words[3:], "diskstats")
        disks[words[2]] = DiskCount(
            reads=count[0],
            read_bytes=count[2] * SECTOR,
            read_ms=count[3],
            writes=count[4],
            written_bytes=count[6] * SECTOR,
            write_ms=count[7],
            busy_ms=count[9],
            queued_ms=count[10],
            flushes=count[15] if len(count) >= 17 else None,
        )
    return disks


def parse_mdstat(text: str) -> dict[str, str]:
    """Parse /proc/mdstat; return the running action (resync, recovery, check, repair, reshape) of each busy array."""
    # The kernel ends mdstat with this line.
    if not re.search(r"^unused devices: .*\n", text, re.MULTILINE):
        raise RigError("mdstat is truncated: the line 'unused devices:' is missing")
    doing: dict[str, str] = {}
    array = ""
    for line in text.splitlines():
        if named := re.match(r"(md\S*) : ", line):
            array = named.group(1)
        # Delayed and pending actions have no percentage, and are not running.
        elif action := re.search(r"\b(resync|recovery|check|repair|reshape)\s*=\s*[\d.]+%", line):
            doing[array] = action.group(1)
    return doing


def parse_stat(text: str) -> CpuCount:
    """Parse /proc/stat; return the CPU time of all cores together."""
    line = re.match(r"cpu +(\d[\d ]*)\n", text)
    times = numbers(line.group(1).split(), "stat") if line else []
    if len(times) < 8:
        raise RigError("/proc/stat is truncated: its line 'cpu' has fewer than 8 times")
    # user nice system idle iowait irq softirq steal; guest time is included in user.
    total = sum(times[:8])
    return CpuCount(busy=total - times[3] - times[4], total=total)


def parse_meminfo(text: str) -> MemoryState:
    """Parse /proc/meminfo."""
    found = {name: int(size) * KIB for name, size in re.findall(r"^(\w+): +(\d+) kB\n", text, re.MULTILINE)}
    try:
        return MemoryState(total=found["MemTotal"], dirty=found["Dirty"], writeback=found["Writeback"])
    except KeyError as error:
        raise RigError(f"/proc/meminfo has no field {error}") from error


def parse_net_dev(text: str) -> dict[str, LinkCount]:
    """Parse /proc/net/dev, without lo and without ifb devices, which receive arriving frames a second time."""
    links = {}
    for line in whole_lines(text, "net/dev")[2:]:
        name, _, rest = line.partition(":")
        count = numbers(rest.split(), "net/dev")
        if len(count) < 9:
            raise RigError(f"net/dev: truncated line: {line!r}")
        if name.strip() != "lo" and not name.strip().startswith("ifb"):
            links[name.strip()] = LinkCount(received=count[0], sent=count[8])
    return links


# Indices of READ, WRITE and COMMIT: procedures of NFSv3 (RFC 1813), operations of NFSv4 (RFC 7530, section 16).
_V3, _V4 = (6, 7, 21), (25, 38, 5)


def parse_nfsd(text: str) -> NfsdCount:
    """Parse /proc/net/rpc/nfsd; operations of all NFS versions are added up."""
    lines = {
        words[0]: numbers(words[1:], "nfsd") for line in whole_lines(text, "nfsd") if _counts(words := line.split())
    }
    try:
        read_bytes, written_bytes = lines["io"]
        # Each line begins with the number of its counters; a kernel may be built without one of the versions.
        tables = [(lines[name], places) for name, places in (("proc3", _V3), ("proc4ops", _V4)) if name in lines]
        reads, writes, commits = (sum(table[1 + places[kind]] for table, places in tables) for kind in range(3))
    except (KeyError, ValueError, IndexError) as error:
        raise RigError("/proc/net/rpc/nfsd is truncated: counters are missing") from error
    if not tables or any(len(table) != table[0] + 1 for table, _ in tables):
        raise RigError("/proc/net/rpc/nfsd is truncated: a line has fewer counters than its first number states")
    return NfsdCount(read_bytes, written_bytes, reads, writes, commits)


def _counts(words: list[str]) -> bool:
    return words[0] in {"io", "proc3", "proc4ops"}


def whole_lines(text: str, what: str) -> list[str]:
    """Return the lines of the file ``what``, which must end with a line feed.

    Raises:
        RigError: the text is empty, or its last line is truncated.
    """
    if not text.endswith("\n"):
        raise RigError(f"{what} is truncated; it ends with {text[-80:]!r}")
    return text.splitlines()


def numbers(words: list[str], what: str) -> list[int]:
    """Return the words as integers.

    Raises:
        RigError: a word is not an integer.
    """
    try:
        return [int(word) for word in words]
    except ValueError as error:
        raise RigError(f"{what}: {error}") from error


class RpcCount(NamedTuple):
    """The counters of one NFS operation on a mount; times are sums over all calls."""

    calls: int
    transmissions: int
    """Number of transmissions: one per call, plus retransmissions."""
    queue_ms: int
    """Time from the creation of a request to its transmission."""
    rtt_ms: int
    """Time from the transmission of a request to the reply."""
    exec_ms: int
    """Time from the creation of a request to its end."""


class MountCount(NamedTuple):
    """The counters of one NFS mount since it was mounted. Sizes in bytes."""

    directory: str
    application_read: int
    """Bytes that applications have read with read(2), also from the client's cache."""
    application_written: int
    """Bytes that applications have written with write(2), also if they are still in the client's cache."""
    wire_read: int
    """Bytes that the client has read from the server."""
    wire_written: int
    """Bytes that the client has written to the server."""
    operations: dict[str, RpcCount]
    """The counters of each operation with at least one call, by the operation's name."""

    @property
    def rpcs(self) -> int:
        """The number of calls of all operations."""
        return sum(operation.calls for operation in self.operations.values())


def parse_mounts(text: str) -> tuple[MountCount, ...]:
    """Parse the counters of all NFS mounts in the text of /proc/self/mountstats.

    Raises:
        RigError: the text is truncated, or its statistics have a version other than 1.1.
    """
    if not text.endswith("\n"):
        raise RigError("mountstats are truncated: the last line has no end")
    return tuple(_mount(start, text[start.end() :].split("\ndevice ", 1)[0] + "\n") for start in _START.finditer(text))


def mount_at(text: str, directory: str) -> MountCount:
    """Return the counters of the NFS mount on a directory; of stacked mounts, those of the last one listed.

    Raises:
        RigError: the directory has no NFS mount; or the text of mountstats is truncated or has another version.
    """
    for mount in reversed(parse_mounts(text)):
        if mount.directory == directory:
            return mount
    raise RigError(f"mountstats list no NFS mount on {directory}")


def _mount(start: re.Match[str], entry: str) -> MountCount:
    directory, version = start.groups()
    line = re.search(r"^\tbytes:\t([\d ]+)\n", entry, re.MULTILINE)
    _, heading, table = entry.partition("per-op statistics\n")
    if version != "1.1" or line is None or not heading:
        raise RigError(f"mountstats of {directory} are truncated, or have version {version} instead of 1.1")
    carried = numbers(line.group(1).split(), "mountstats")
    operations = {}
    for name, words in _OPERATION.findall(table):
        count = numbers(words.split(), "mountstats")
        # count transmissions timeouts sent received queue rtt execute [errors]
        if len(count) < 8:
            raise RigError(f"mountstats of {directory}: the line of {name} is truncated")
        if count[0]:
            operations[name] = RpcCount(count[0], count[1], *count[5:8])
    if len(carried) != 8 or "NULL:" not in table:
        raise RigError(f"mountstats of {directory} are truncated: bytes or operations are missing")
    # Bytes read, written; with O_DIRECT read, written; from the server, to the server; pages read, written.
    read, written, direct_read, direct_written, wire_read, wire_written = carried[:6]
    return MountCount(directory, read + direct_read, written + direct_written, wire_read, wire_written, operations)


def parse_calls(mountstats: str, directory: str) -> Counter[str]:
    """Return a mount's number of calls by operation, from /proc/self/mountstats. Raises: RigError: as `mount_at`."""
    mount = mount_at(mountstats, directory)
    return Counter({name: operation.calls for name, operation in mount.operations.items()})


def calls(client: Machine, directory: str) -> Counter[str]:
    """Return the number of calls by operation on a client's mount, since mounting. Raises: RigError: as `mount_at`."""
    return parse_calls(client.get(MOUNTSTATS), directory)
