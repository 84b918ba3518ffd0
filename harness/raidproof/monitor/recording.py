"""The samples of one machine in order, and the counters of a client's reads."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from raidproof.core.errors import RigError
from raidproof.core.layer import Machine
from raidproof.guest import monitor_agent as agent
from raidproof.monitor.counters import (
    MOUNTSTATS,
    CpuCount,
    DiskCount,
    LinkCount,
    MemoryState,
    MountCount,
    NfsdCount,
    mount_at,
    parse_diskstats,
    parse_mdstat,
    parse_meminfo,
    parse_mounts,
    parse_net_dev,
    parse_nfsd,
    parse_stat,
)

T = TypeVar("T")

_FRAME = re.compile(r"@ ([\d.]+)\n|= (\S+) (\d+)\n|! (\S+) (\d+)\n|(\.)\n")
READS = ("READ", "READ_PLUS")


@dataclass(frozen=True)
class Layout:
    """The serials of disks, and the components of md devices."""

    serials: Mapping[str, str] = field(default_factory=dict)
    """Serial by the kernel's device name."""
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The kernel's device names of the components of each md device."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Size limit in bytes of a request to each md device."""


@dataclass(frozen=True)
class Snapshot:
    """One sample. None: unreadable."""

    at_s: float
    """Seconds on the machine's clock since its boot."""
    disks: Mapping[str, DiskCount] | None
    syncing: Mapping[str, str] | None
    """The running action of each busy array: resync, recovery, check, ..."""
    mounts: tuple[MountCount, ...] | None
    nfsd: NfsdCount | None
    links: Mapping[str, LinkCount] | None
    cpu: CpuCount | None
    memory: MemoryState | None
    layout: Layout | None


@dataclass(frozen=True)
class Recording:
    """The samples of one machine, at least two."""

    snapshots: tuple[Snapshot, ...]
    left_out: int
    """Number of samples left out because the recording had become too large; the last sample is always taken."""

    @property
    def first(self) -> Snapshot:
        """The sample at the beginning of the timed part."""
        return self.snapshots[0]

    @property
    def last(self) -> Snapshot:
        """The sample after the end of the timed part."""
        return self.snapshots[-1]

    @property
    def seconds(self) -> float:
        """Seconds between the first and the last sample."""
        return self.last.at_s - self.first.at_s


def parse_layout(text: str) -> Layout:
    """Parse the agent's list of disks.

    Raises:
        RigError: the text has another format.
    """
    serials: dict[str, str] = {}
    parts: dict[str, tuple[str, ...]] = {}
    limits: dict[str, int] = {}
    for line in text.splitlines():
        match line.split():
            case ["disk", serial, name]:
                serials[name] = serial
            case ["part", array, name]:
                parts[array] = (*parts.get(array, ()), name)
            case ["limit", array, kib] if kib.isdecimal():
                limits[array] = int(kib) * 1024
            case _:
                raise RigError(f"unexpected line about disks from the monitor's agent: {line!r}")
    return Layout(serials, parts, limits)


def parse_recording(text: str) -> Recording:
    """Parse the agent's output.

    Raises:
        RigError: the end is missing, so that the last sample is not the one after the timed part.
    """
    end = re.search(r"^end (\d+)\n\Z", text, re.MULTILINE)
    if end is None:
        raise RigError(f"the monitor's recording is cut off: {text[-80:]!r}")
    snapshots = tuple(_snapshots(text, end.start()))
    if len(snapshots) < 2:
        raise RigError("the monitor took only one sample")
    return Recording(snapshots, int(end.group(1)))


def _snapshots(text: str, end: int) -> Iterator[Snapshot]:
    at_s, place = 0.0, 0
    files: dict[str, str] = {}
    while place < end:
        frame = _FRAME.match(text, place)
        if frame is None:
            raise RigError(f"the monitor's recording has an invalid frame: {text[place : place + 80]!r}")
        time, path, length, _, _, over = frame.groups()
        place = frame.end()
        if time is not None:
            at_s, files = float(time), {}
        elif path is not None:
            files[path] = text[place : place + int(length)]
            place += int(length) + 1
        elif over is not None:
            yield _snapshot(at_s, files)


def _snapshot(at_s: float, files: Mapping[str, str]) -> Snapshot:
    def read(path: str, parse: Callable[[str], T]) -> T | None:
        # One file with an unexpected format must not cost the other files.
        try:
            return parse(files[path])
        except (KeyError, RigError):
            return None

    return Snapshot(
        at_s=at_s,
        disks=read("/proc/diskstats", parse_diskstats),
        syncing=read("/proc/mdstat", parse_mdstat),
        mounts=read("/proc/self/mountstats", parse_mounts),
        nfsd=read("/proc/net/rpc/nfsd", parse_nfsd),
        links=read("/proc/net/dev", parse_net_dev),
        cpu=read("/proc/stat", parse_stat),
        memory=read("/proc/meminfo", parse_meminfo),
        layout=read(agent.LAYOUT, parse_layout),
    )


class Fetched(NamedTuple):
    """The reads over one mount since it was mounted."""

    bytes: int
    """Bytes of data that the server has sent."""
    calls: int

    def since(self, before: "Fetched") -> "Fetched":
        """Return the difference from an earlier state."""
        return Fetched(self.bytes - before.bytes, self.calls - before.calls)


def parse_fetched(mountstats: str, directory: str) -> Fetched:
    """Return the reads from the text of /proc/self/mountstats. Raises as `mount_at`."""
    mount = mount_at(mountstats, directory)
    calls = sum(mount.operations[name].calls for name in READS if name in mount.operations)
    return Fetched(mount.wire_read, calls)


def fetched(client: Machine, directory: str) -> Fetched:
    """Return a client's reads over one of its mounts. Raises as `mount_at`."""
    return parse_fetched(client.get(MOUNTSTATS), directory)
