"""What the counters mean: amplification, splitting, the busiest disk, round trips. Pure; None is unknown, never 0."""

from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

from raidproof.core.layer import State
from raidproof.monitor.recording import Recording
from raidproof.monitor.use import DiskUse, MachineUse, Pair, RpcUse, disk_use, machine_use, mount_pairs, rpc_use

ARRAY = "md0"
"""The md device that carries the filesystem."""
PURE = 0.01
"""Share of the bytes that an application may read in what is still a pure write, and the other way round."""


class Application(NamedTuple):
    """What the workload says that it did; needed where it runs on the server, for there is no mount to count it."""

    read_bytes: int
    written_bytes: int
    requests: int | None = None


class Derived(State):
    """What was measured below a workload over its timed part. Sizes in bytes; None is unknown."""

    seconds: float
    server: str
    read_bytes: int | None
    """What the applications read, from caches or not."""
    written_bytes: int | None
    wire_read_bytes: int | None
    """What clients and server exchanged; None without a client."""
    wire_written_bytes: int | None
    array: DiskUse | None
    members: dict[str, DiskUse] | None
    """By serial, those of the array."""
    request_limit: int | None
    """The most that the array takes in one request."""
    member_reads_per_written: float | None
    """Bytes (or blocks) that the members read for each that the array was given to write, in a pure write: 0 is what
    whole stripes need. None if the applications read too."""
    write_amplification: float | None
    """Bytes written to the members for each byte that an application wrote."""
    read_amplification: float | None
    splitting: float | None
    """Requests at the array for each of the applications', or, where those are unknown, for each READ and WRITE."""
    slowest: str | None
    """The busiest member."""
    spread: float | None
    """How much busier it was than the median of the others, as a share of the time."""
    writes: RpcUse | None
    """The WRITEs of all clients; None without a client."""
    reads: RpcUse | None
    commits: RpcUse | None
    calls: RpcUse | None
    """All calls of all clients."""
    mean_write_bytes: float | None
    mean_read_bytes: float | None
    calls_per_mb: float | None
    """Round trips for each 10^6 bytes that were exchanged."""
    machines: dict[str, MachineUse]
    host_cpu: float | None
    """Share of all of the host's cores."""
    syncing: tuple[str, ...] | None
    """What arrays were doing by themselves at any look: resync, recovery, check, ..."""
    unknown: dict[str, str]
    """What could not be watched, and why."""

    @property
    def clients(self) -> dict[str, MachineUse]:
        """All machines but the server."""
        return {name: use for name, use in self.machines.items() if name != self.server}


def derive(
    server: str,
    recordings: Mapping[str, Recording],
    failures: Mapping[str, str] | None = None,
    application: Application | None = None,
    host_cpu: float | None = None,
) -> Derived | None:
    """Derive all from the first and the last look at each machine; None if the server was not watched."""
    failed = dict(failures or {})
    seen = recordings.get(server)
    if seen is None or seen.seconds <= 0:
        return None
    others = [one for name, one in recordings.items() if name != server]
    # Sums over the clients mean nothing if one of them is missing.
    complete = not (failed.keys() - {server}) and all(one.seconds > 0 for one in others)
    pairs = mount_pairs(others) if others and complete else None
    if not pairs:
        pairs = None
    read, written, wire_read, wire_written = _carried(pairs)
    if application is not None:
        read, written = application.read_bytes, application.written_bytes
    array, members = _disks(seen)
    total = _sum(members)
    writes, reads, commits, calls = (
        rpc_use(pairs, name, seen.seconds) if pairs else None for name in ("WRITE", "READ", "COMMIT", None)
    )
    asked = application.requests if application else None
    if asked is None and writes and reads:
        asked = writes.calls + reads.calls
    slowest, spread = _spread(members)
    return Derived(
        seconds=seen.seconds,
        server=server,
        read_bytes=read,
        written_bytes=written,
        wire_read_bytes=wire_read,
        wire_written_bytes=wire_written,
        array=array,
        members=members,
        request_limit=seen.last.layout.limits.get(ARRAY) if seen.last.layout else None,
        member_reads_per_written=_reads_per_written(read, written, array, total),
        write_amplification=_ratio(total[1] if total else None, written),
        read_amplification=_ratio(total[0] if total else None, read),
        splitting=_ratio(array.requests if array else None, asked),
        slowest=slowest,
        spread=spread,
        writes=writes,
        reads=reads,
        commits=commits,
        calls=calls,
        mean_write_bytes=_ratio(wire_written, writes.calls if writes else None),
        mean_read_bytes=_ratio(wire_read, reads.calls if reads else None),
        calls_per_mb=_per_mb(calls, wire_read, wire_written),
        machines={name: machine_use(one) for name, one in recordings.items() if one.seconds > 0},
        host_cpu=host_cpu,
        syncing=_syncing(seen),
        unknown=failed | _unread(seen, pairs, expects_mounts=bool(others)),
    )


def _carried(pairs: tuple[Pair, ...] | None) -> tuple[int | None, int | None, int | None, int | None]:
    if pairs is None:
        return None, None, None, None
    return (
        sum(last.application_read - first.application_read for first, last in pairs),
        sum(last.application_written - first.application_written for first, last in pairs),
        sum(last.wire_read - first.wire_read for first, last in pairs),
        sum(last.wire_written - first.wire_written for first, last in pairs),
    )


def _disks(seen: Recording) -> tuple[DiskUse | None, dict[str, DiskUse] | None]:
    first, last, layout = seen.first.disks, seen.last.disks, seen.last.layout
    if first is None or last is None:
        return None, None
    array = disk_use(first[ARRAY], last[ARRAY], seen.seconds) if ARRAY in first and ARRAY in last else None
    if layout is None:
        return array, None
    # Through the legs of a nested array, down to the disks.
    below, members = [ARRAY], set()
    while below:
        parts = layout.parts.get(name := below.pop(), ())
        below += parts
        members |= set() if parts else {name}
    known = {name: layout.serials[name] for name in members & layout.serials.keys() & first.keys() & last.keys()}
    if len(known) < len(members) or not known:
        return array, None
    uses = {serial: disk_use(first[name], last[name], seen.seconds) for name, serial in known.items()}
    return array, dict(sorted(uses.items()))


def _sum(members: Mapping[str, DiskUse] | None) -> tuple[int, int] | None:
    if members is None:
        return None
    return sum(one.read_bytes for one in members.values()), sum(one.written_bytes for one in members.values())


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _reads_per_written(
    read: int | None, written: int | None, array: DiskUse | None, total: tuple[int, int] | None
) -> float | None:
    if read is None or not written or read > PURE * written or array is None or total is None:
        return None
    # What the file system itself reads is no read-modify-write.
    return _ratio(max(0, total[0] - array.read_bytes), array.written_bytes)


def _per_mb(calls: RpcUse | None, read: int | None, written: int | None) -> float | None:
    if calls is None or read is None or written is None:
        return None
    return _ratio(calls.calls, (read + written) / 1e6)


def _spread(members: Mapping[str, DiskUse] | None) -> tuple[str | None, float | None]:
    if not members:
        return None, None
    slowest = max(members, key=lambda serial: members[serial].busy)
    return slowest, busier(slowest, {serial: use.busy for serial, use in members.items()})


def busier(name: str, busy: Mapping[str, float]) -> float | None:
    """Return by how much one is busier than the median of the others; None if there are none."""
    others = [share for other, share in busy.items() if other != name]
    return busy[name] - median(others) if others else None


def _syncing(seen: Recording) -> tuple[str, ...] | None:
    looks = [one.syncing for one in seen.snapshots]
    if all(look is None for look in looks):
        return None
    return tuple(sorted({action for look in looks if look for action in look.values()}))


def _unread(seen: Recording, pairs: object, *, expects_mounts: bool) -> dict[str, str]:
    last = seen.last
    missing = [
        name
        for name, value in (
            ("disks", last.disks),
            ("arrays", last.syncing),
            ("CPU", last.cpu),
            ("disk names", last.layout),
        )
        if value is None
    ]
    if expects_mounts and pairs is None:
        missing.append("mounts")
    return dict.fromkeys(missing, "could not be read")
