"""The samples of one machine in order, and what a client fetched from its server."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from raidproof.core.errors import RigError
from raidproof.core.layer import Machine
from raidproof.guest import monitor_agent as agent
from raidproof.monitor.counters import (
    CpuCount,
    DiskCount,
    LinkCount,
    MemoryState,
    NfsdCount,
    parse_diskstats,
    parse_mdstat,
    parse_meminfo,
    parse_net_dev,
    parse_nfsd,
    parse_stat,
)
from raidproof.monitor.mountstats import MOUNTSTATS, MountCount, mount_at, parse_mounts

T = TypeVar("T")

_FRAME = re.compile(r"@ ([\d.]+)\n|= (\S+) (\d+)\n|! (\S+) (\d+)\n|(\.)\n")
READS = ("READ", "READ_PLUS")


@dataclass(frozen=True)
class Layout:
    """Which disk is which, and what the arrays are made of."""

    serials: Mapping[str, str] = field(default_factory=dict)
    """Serial by the kernel's name."""
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The kernel's names of what each md device is made of."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Bytes of the largest request that each md device takes."""


@dataclass(frozen=True)
class Snapshot:
    """One look. None is what could not be read."""

    at_s: float
    """On the machine's own clock, since its boot."""
    disks: Mapping[str, DiskCount] | None
    syncing: Mapping[str, str] | None
    """What the arrays that do so are doing: resync, recovery, check, ..."""
    mounts: tuple[MountCount, ...] | None
    nfsd: NfsdCount | None
    links: Mapping[str, LinkCount] | None
    cpu: CpuCount | None
    memory: MemoryState | None
    layout: Layout | None


@dataclass(frozen=True)
class Recording:
    """The looks at one machine, two at least."""

    snapshots: tuple[Snapshot, ...]
    left_out: int
    """Looks that were not taken because the recording had become too large; the last one always is."""

    @property
    def first(self) -> Snapshot:
        """When the timed part began."""
        return self.snapshots[0]

    @property
    def last(self) -> Snapshot:
        """When it had ended."""
        return self.snapshots[-1]

    @property
    def seconds(self) -> float:
        """Between them."""
        return self.last.at_s - self.first.at_s


def parse_layout(text: str) -> Layout:
    """Read what the agent says of the disks.

    Raises:
        RigError: it is no such text.
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
                raise RigError(f"the monitor's agent said of the disks: {line!r}")
    return Layout(serials, parts, limits)


def parse_recording(text: str) -> Recording:
    """Read what the agent printed.

    Raises:
        RigError: its end is missing, so that the last look is not the one after the timed part.
    """
    end = re.search(r"^end (\d+)\n\Z", text, re.MULTILINE)
    if end is None:
        raise RigError(f"the monitor's recording is cut off: {text[-80:]!r}")
    snapshots = tuple(_snapshots(text, end.start()))
    if len(snapshots) < 2:
        raise RigError("the monitor looked only once")
    return Recording(snapshots, int(end.group(1)))


def _snapshots(text: str, end: int) -> Iterator[Snapshot]:
    at_s, place = 0.0, 0
    files: dict[str, str] = {}
    while place < end:
        frame = _FRAME.match(text, place)
        if frame is None:
            raise RigError(f"the monitor's recording makes no sense: {text[place : place + 80]!r}")
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
        # One file that makes no sense must not cost what the others say.
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
