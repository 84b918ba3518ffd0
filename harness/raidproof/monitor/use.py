"""How much of something was used between two looks: disks, remote procedure calls, machines."""

from collections.abc import Iterable

from raidproof.core.layer import State
from raidproof.monitor.counters import DiskCount
from raidproof.monitor.mountstats import MountCount, RpcCount
from raidproof.monitor.recording import Recording


class DiskUse(State):
    """A disk or an array over an interval. Sizes in bytes; None where nothing was asked of it."""

    reads: int
    writes: int
    read_bytes: int
    written_bytes: int
    busy: float
    """Share of the time with anything in flight."""
    in_flight: float
    """Requests at a time, on average."""
    mean_bytes: float | None
    """Of a request."""
    mean_ms: float | None
    """From its arrival at the disk's queue to its end."""
    flushes: int | None

    @property
    def requests(self) -> int:
        """Reads and writes."""
        return self.reads + self.writes


class RpcUse(State):
    """The calls of one kind, of one client or of several."""

    calls: int
    sent_again: int
    mean_queue_ms: float | None
    """Until it was sent; None without a call."""
    mean_rtt_ms: float | None
    """From then until the answer."""
    mean_exec_ms: float | None
    """From its creation until its end."""
    waiting: float
    """Calls that are sent and not yet answered, on average."""


class MachineUse(State):
    """A machine over an interval; None is unknown."""

    cpu: float | None
    """Share of its cores that was busy; waiting for disks is not."""
    memory: int | None
    dirty_peak: int | None
    """The most bytes that waited to be written back, of all looks."""
    writeback_peak: int | None
    received_bytes_s: float | None
    sent_bytes_s: float | None


def disk_use(first: DiskCount, last: DiskCount, seconds: float) -> DiskUse:
    """Return what a disk did between two looks."""
    reads, writes = last.reads - first.reads, last.writes - first.writes
    read, written = last.read_bytes - first.read_bytes, last.written_bytes - first.written_bytes
    requests = reads + writes
    taken_ms = last.read_ms - first.read_ms + last.write_ms - first.write_ms
    counted = first.flushes is not None and last.flushes is not None
    return DiskUse(
        reads=reads,
        writes=writes,
        read_bytes=read,
        written_bytes=written,
        busy=min(1.0, (last.busy_ms - first.busy_ms) / 1000 / seconds),
        in_flight=(last.queued_ms - first.queued_ms) / 1000 / seconds,
        mean_bytes=(read + written) / requests if requests else None,
        mean_ms=taken_ms / requests if requests else None,
        flushes=(last.flushes or 0) - (first.flushes or 0) if counted else None,
    )


Pair = tuple[MountCount, MountCount]


def mount_pairs(recordings: Iterable[Recording]) -> tuple[Pair, ...] | None:
    """Return each mount at the first and the last look; None if one is unknown, or was mounted or not in between."""
    pairs: list[Pair] = []
    for recording in recordings:
        first, last = recording.first.mounts, recording.last.mounts
        if first is None or last is None:
            return None
        before = {mount.directory: mount for mount in first}
        after = {mount.directory: mount for mount in last}
        if before.keys() != after.keys() or any(after[name].rpcs < before[name].rpcs for name in after):
            return None
        pairs += [(before[name], after[name]) for name in after]
    return tuple(pairs)


def rpc_use(pairs: Iterable[Pair], name: str | None, seconds: float) -> RpcUse:
    """Return what the clients called between two looks: one operation, or all with None."""
    # calls, transmissions, queue, rtt, exec
    sums = [0] * 5
    for first, last in pairs:
        for operation in last.operations if name is None else [name]:
            after = last.operations.get(operation, _NEVER)
            before = first.operations.get(operation, _NEVER)
            sums = [total + new - old for total, new, old in zip(sums, after, before, strict=True)]
    calls, transmissions, queue, rtt, execution = sums
    return RpcUse(
        calls=calls,
        # A call of the last moment is counted when it ends, its transmission when it is sent.
        sent_again=max(0, transmissions - calls),
        mean_queue_ms=queue / calls if calls else None,
        mean_rtt_ms=rtt / calls if calls else None,
        mean_exec_ms=execution / calls if calls else None,
        waiting=rtt / 1000 / seconds,
    )


_NEVER = RpcCount(0, 0, 0, 0, 0)


def machine_use(recording: Recording) -> MachineUse:
    """Return what a machine did between the first and the last look."""
    first, last = recording.first, recording.last
    ticks = last.cpu.total - first.cpu.total if first.cpu and last.cpu else 0
    memory = [one.memory for one in recording.snapshots if one.memory is not None]
    received = sent = None
    if first.links is not None and last.links is not None:
        common = first.links.keys() & last.links.keys()
        received = sum(last.links[name].received - first.links[name].received for name in common)
        sent = sum(last.links[name].sent - first.links[name].sent for name in common)
    return MachineUse(
        cpu=(last.cpu.busy - first.cpu.busy) / ticks if ticks and first.cpu and last.cpu else None,
        memory=memory[-1].total if memory else None,
        dirty_peak=max((one.dirty for one in memory), default=None),
        writeback_peak=max((one.writeback for one in memory), default=None),
        received_bytes_s=None if received is None else received / recording.seconds,
        sent_bytes_s=None if sent is None else sent / recording.seconds,
    )
