"""Recordings: the samples of a machine's counters in order; and the counters of a client's reads."""

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
"""The NFS operations that read file data."""


@dataclass(frozen=True)
class Layout:
    """The disks of a machine, and the devices that consist of them: serials, components, and limits of requests."""

    serials: Mapping[str, str] = field(default_factory=dict)
    """Serial by the kernel's device name."""
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The kernel's device names of the components of each device that consists of others."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Greatest size in bytes of a request, by the device that has components."""

    @property
    def array(self) -> str | None:
        """The kernel's name of the array: the device with components that is no component; None if not exactly one."""
        components = {name for parts in self.parts.values() for name in parts}
        tops = sorted(self.parts.keys() - components)
        return tops[0] if len(tops) == 1 else None


@dataclass(frozen=True)
class Snapshot:
    """One sample of a machine's counters. None: the file could not be read or parsed."""

    at_s: float
    """Seconds on the machine's clock since its boot."""
    disks: Mapping[str, DiskCount] | None
    """Counters of disks and arrays by the kernel's device name."""
    syncing: Mapping[str, str] | None
    """The running action (resync, recovery, check, ...) of each busy array."""
    mounts: tuple[MountCount, ...] | None
    nfsd: NfsdCount | None
    links: Mapping[str, LinkCount] | None
    """Counters by network interface."""
    cpu: CpuCount | None
    memory: MemoryState | None
    layout: Layout | None


@dataclass(frozen=True)
class Recording:
    """The samples of one machine, at least two."""

    snapshots: tuple[Snapshot, ...]
    left_out: int
    """Number of samples that the agent left out because the recording had become too large."""

    @property
    def first(self) -> Snapshot:
        """The sample before the workload."""
        return self.snapshots[0]

    @property
    def last(self) -> Snapshot:
        """The sample after the workload."""
        return self.snapshots[-1]

    @property
    def seconds(self) -> float:
        """Seconds between the first and the last sample."""
        return self.last.at_s - self.first.at_s


def parse_layout(text: str) -> Layout:
    """Parse the list of disks and md devices that the monitor's agent prints.

    Raises:
        RigError: a line has an unknown format.
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
    """Parse the output of the monitor's agent.

    Raises:
        RigError: the output is truncated, has an unknown format, or has only one sample.
    """
    end = re.search(r"^end (\d+)\n\Z", text, re.MULTILINE)
    if end is None:
        raise RigError(f"the output of the monitor's agent is truncated; it ends with {text[-80:]!r}")
    snapshots = tuple(_snapshots(text, end.start()))
    if len(snapshots) < 2:
        raise RigError("the monitor's agent took fewer than 2 samples")
    return Recording(snapshots, int(end.group(1)))


def _snapshots(text: str, end: int) -> Iterator[Snapshot]:
    at_s, place = 0.0, 0
    files: dict[str, str] = {}
    while place < end:
        frame = _FRAME.match(text, place)
        if frame is None:
            raise RigError(
                "the output of the monitor's agent has an invalid header of a sample or file: "
                f"{text[place : place + 80]!r}"
            )
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
        # An unexpected format of one file must not make the other files of the sample unusable.
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
    """The file data that a client has read over one NFS mount since mounting."""

    bytes: int
    """Bytes of file data that the server has sent."""
    calls: int
    """Number of calls of `READS`."""

    def since(self, before: "Fetched") -> "Fetched":
        """Return the bytes and calls since an earlier state."""
        return Fetched(self.bytes - before.bytes, self.calls - before.calls)


def parse_fetched(mountstats: str, directory: str) -> Fetched:
    """Return a mount's reads from the text of /proc/self/mountstats. Raises: RigError: as `mount_at`."""
    mount = mount_at(mountstats, directory)
    calls = sum(mount.operations[name].calls for name in READS if name in mount.operations)
    return Fetched(mount.wire_read, calls)


def fetched(client: Machine, directory: str) -> Fetched:
    """Return a client's reads over the NFS mount on a directory. Raises: RigError: as `mount_at`."""
    return parse_fetched(client.get(MOUNTSTATS), directory)
