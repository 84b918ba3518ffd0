"""The monitor: samples counters of machines and host while a workload runs, and derives utilization and ratios."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from raidproof.core.errors import RaidproofError, RigError
from raidproof.core.layer import State
from raidproof.core.log import logger
from raidproof.core.units import MIB
from raidproof.core.waiting import Deadline, wait_until
from raidproof.guest import monitor_agent as agent
from raidproof.machine.agent import RemoteCommand
from raidproof.machine.machine import Machine
from raidproof.monitor.counters import DiskCount, MountCount, RpcCount
from raidproof.monitor.recording import Recording, parse_recording

_IDLE = ("idle", "iowait")
# Linux includes guest time in user and nice time (proc(5)).
_TWICE = ("guest", "guest_nice")

Pair = tuple[MountCount, MountCount]
_NO_CALLS = RpcCount(0, 0, 0, 0, 0)
PURE = 0.01
"""Greatest ratio of bytes read to bytes written at which a load counts as pure writes."""
AGENT = "/run/raidproof/monitor.py"
OUTPUT = "/run/raidproof/monitor.out"
START_DEADLINE_S = 10.0
STOP_DEADLINE_S = 20.0
LIMIT = 8 * MIB
"""Bytes of samples that the monitor's agent (the program that reads the counters) stores on a machine, about 20
minutes at one sample a second. After that the agent takes only the last sample."""
# Errors of monitoring: recorded, as they must not stop the workload.
_FAILURES = (RaidproofError, OSError, EOFError)


def host_times() -> dict[str, float]:
    """Return this host's CPU seconds since boot, all cores together, by kind: user, system, idle, ..."""
    return dict(psutil.cpu_times()._asdict())


def host_busy(before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    """Return this host's CPU utilization between two calls of `host_times` (0 to 1); None if no time has passed."""
    spent = {kind: after[kind] - before[kind] for kind in after if kind in before and kind not in _TWICE}
    total = sum(spent.values())
    if total <= 0:
        return None
    return min(1.0, max(0.0, 1 - sum(spent.get(kind, 0.0) for kind in _IDLE) / total))


@dataclass(frozen=True)
class EngineUse:
    """Utilization of the disk engine and of the simulated hardware. A share is a fraction of the wall time."""

    cpu_share: float
    """CPU seconds of the engine's process / wall seconds; the engine's Python code runs on one core at a time."""
    late_ns_mean: float
    """Mean time from a request's simulated completion to the engine's reply."""
    service_ns_mean: float
    """Mean service time of the simulated disks, queueing included; 0 for disks without mechanics."""
    members_busy: dict[str, float] = field(default_factory=dict)
    """Share of the time in which each simulated disk was busy, by serial."""
    controllers_busy: dict[str, float] = field(default_factory=dict)
    """Share of the time in which each simulated controller was busy, by name."""


class DiskUse(State):
    """The requests of a disk or an array in an interval. A mean is None if there was no request."""

    reads: int
    writes: int
    read_bytes: int
    written_bytes: int
    busy: float
    """Fraction of the time with requests in flight."""
    in_flight: float
    """Mean number of requests in flight."""
    mean_bytes: float | None
    """Mean size of a request in bytes."""
    mean_ms: float | None
    """Mean time from a request's arrival in the disk's queue to its end."""
    flushes: int | None
    """Number of flush requests; None before Linux 5.5."""

    @property
    def requests(self) -> int:
        """The number of reads and writes."""
        return self.reads + self.writes


class RpcUse(State):
    """The RPC calls of one or several clients in an interval. A mean time is None if there was no call."""

    calls: int
    sent_again: int
    """Number of retransmissions."""
    mean_queue_ms: float | None
    """Mean time from the creation of a call to its transmission."""
    mean_rtt_ms: float | None
    """Mean time from the transmission of a call to its reply."""
    mean_exec_ms: float | None
    """Mean time from the creation of a call to its end."""
    waiting: float
    """Mean number of calls in flight."""


class MachineUse(State):
    """CPU, memory and network use of a machine in an interval. None: unknown."""

    cpu: float | None
    """Utilization of the machine's cores (0 to 1); iowait counts as idle."""
    memory: int | None
    """Bytes of memory of the machine."""
    dirty_peak: int | None
    """Greatest number of dirty bytes in a sample."""
    writeback_peak: int | None
    """Greatest number of bytes under write-back in a sample."""
    received_bytes_s: float | None
    sent_bytes_s: float | None


def disk_use(first: DiskCount, last: DiskCount, seconds: float) -> DiskUse:
    """Return the requests of a disk or an array between two samples."""
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


def mount_pairs(recordings: Iterable[Recording]) -> tuple[Pair, ...] | None:
    """Return each NFS mount's counters in the first and in the last sample.

    The result is None if a sample has no counters, or if a mount was made or removed between the samples.
    """
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
    """Return the clients' RPC calls between two samples, of the operation ``name`` or, for None, of all operations."""
    # calls, transmissions, queue, rtt, exec
    sums = [0] * 5
    for first, last in pairs:
        for operation in last.operations if name is None else [name]:
            after = last.operations.get(operation, _NO_CALLS)
            before = first.operations.get(operation, _NO_CALLS)
            sums = [total + new - old for total, new, old in zip(sums, after, before, strict=True)]
    calls, transmissions, queue, rtt, execution = sums
    return RpcUse(
        calls=calls,
        # Linux counts a transmission at once, but a call only at its end.
        sent_again=max(0, transmissions - calls),
        mean_queue_ms=queue / calls if calls else None,
        mean_rtt_ms=rtt / calls if calls else None,
        mean_exec_ms=execution / calls if calls else None,
        waiting=rtt / 1000 / seconds,
    )


def machine_use(recording: Recording) -> MachineUse:
    """Return CPU, memory and network use of a machine between its first and its last sample."""
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


class Application(NamedTuple):
    """Bytes and requests that a workload reports; used for a workload on the server, which has no mount counters."""

    read_bytes: int
    written_bytes: int
    requests: int | None = None


class Derived(State):
    """The measurements of machines, NFS, array and disks during a workload. Sizes in bytes; None: unknown."""

    seconds: float
    server: str
    """Name of the server."""
    read_bytes: int | None
    """Bytes that the applications read, cached or not."""
    written_bytes: int | None
    wire_read_bytes: int | None
    """Bytes that the clients read from the server; None without a client."""
    wire_written_bytes: int | None
    array: DiskUse | None
    """The md device that holds the file system."""
    members: dict[str, DiskUse] | None
    """The members of the array, by serial."""
    request_limit: int | None
    """Greatest size of a request that the array accepts."""
    member_reads_per_written: float | None
    """Bytes that the members read per byte written to the array, in a pure write load: 0 if all writes are whole
    stripes. None if the applications also read."""
    write_amplification: float | None
    """Bytes written to the members per byte that an application wrote."""
    read_amplification: float | None
    """Bytes read from the members per byte that an application read."""
    splitting: float | None
    """Requests to the array per request of the application; per READ and WRITE if the workload reports no requests."""
    slowest: str | None
    """Serial of the busiest member."""
    spread: float | None
    """Utilization of the busiest member minus the median utilization of the other members."""
    writes: RpcUse | None
    """WRITE calls of all clients; None without a client."""
    reads: RpcUse | None
    """READ calls of all clients; None without a client."""
    commits: RpcUse | None
    """COMMIT calls of all clients; None without a client."""
    calls: RpcUse | None
    """All RPC calls of all clients; None without a client."""
    mean_write_bytes: float | None
    """Mean size of a WRITE."""
    mean_read_bytes: float | None
    """Mean size of a READ."""
    calls_per_mb: float | None
    """RPC calls per 10^6 bytes of file data between clients and server."""
    machines: dict[str, MachineUse]
    """Use of each monitored machine, by name."""
    host_cpu: float | None
    """Utilization of this host's cores (0 to 1)."""
    syncing: tuple[str, ...] | None
    """The md actions (resync, recovery, check, ...) that ran in at least one sample."""
    unknown: dict[str, str]
    """The reason, by machine or by kind of counter (``disks``, ``mounts``, ...), why a part was not monitored."""

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
    """Return the measurements derived from each machine's first and last sample; None if the server has no samples."""
    failed = dict(failures or {})
    seen = recordings.get(server)
    if seen is None or seen.seconds <= 0:
        return None
    others = [one for name, one in recordings.items() if name != server]
    # Sums over the clients are meaningless if one of them is missing.
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
        request_limit=seen.last.layout.limits.get(seen.last.layout.array or "") if seen.last.layout else None,
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
    name = layout.array if layout is not None else None
    if layout is None or name is None:
        return None, None
    array = disk_use(first[name], last[name], seen.seconds) if name in first and name in last else None
    # Follow the components of a nested array down to the disks.
    below, members = [name], set()
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
    # Reads by the file system are not part of a read-modify-write.
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
    """Return the utilization of ``name`` minus the median of all other utilizations; None if there are no others."""
    others = [share for other, share in busy.items() if other != name]
    return busy[name] - median(others) if others else None


def _syncing(seen: Recording) -> tuple[str, ...] | None:
    samples = [one.syncing for one in seen.snapshots]
    if all(sample is None for sample in samples):
        return None
    return tuple(sorted({action for sample in samples if sample for action in sample.values()}))


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


class Monitor:
    """Samples the counters of a server and its clients during workloads, with an agent program on each machine."""

    def __init__(self, server: Machine, clients: Iterable[Machine], interval_s: float = 1.0) -> None:
        self.server = server
        self.machines = {machine.name: machine for machine in (server, *clients)}
        self.interval_s = interval_s
        self.recordings: dict[str, Recording] = {}
        """Recordings of the last workload by machine, without machines that could not be monitored."""
        self.failures: dict[str, str] = {}
        """Why a machine could not be monitored, by machine."""
        self.host_cpu: float | None = None
        """Utilization of this host's cores (0 to 1) during the last workload."""
        self.output: dict[str, str] = {}
        """Output of the monitor's agents by machine, to be stored beside the record."""
        self._installed: dict[str, str | None] = {}
        self._commands: dict[str, tuple[RemoteCommand, str | None]] = {}

    @contextmanager
    def running(self) -> Iterator["Monitor"]:
        """Monitor during the ``with`` statement: first sample before the statement's body, last sample after it.

        Errors of monitoring are not raised; ``failures`` has their messages.
        """
        self.recordings, self.failures, self.output, self._commands = {}, {}, {}, {}
        self.host_cpu = None
        for machine in self.machines.values():
            self._run_or_note_failure(machine, self._start)
        for machine in self.machines.values():
            self._run_or_note_failure(machine, self._wait_first)
        before = host_times()
        try:
            yield self
        finally:
            self.host_cpu = host_busy(before, host_times())
            self._stop()

    def _run_or_note_failure(self, machine: Machine, step: Callable[[Machine], object]) -> None:
        if machine.name in self.failures:
            return
        try:
            step(machine)
        except _FAILURES as error:
            self.failures[machine.name] = str(error)
            logger.warning("%s is not monitored: %s", machine.name, error)

    def _start(self, machine: Machine) -> None:
        if machine.boot_id is None:
            raise RigError("the machine is off")
        if self._installed.get(machine.name) != machine.boot_id:
            machine.put(Path(agent.__file__).read_bytes(), AGENT)
            self._installed[machine.name] = machine.boot_id
        machine.succeed(["rm", "-f", OUTPUT])
        argv: Sequence[str] = ["python3", AGENT, str(self.interval_s), str(LIMIT), OUTPUT]
        self._commands[machine.name] = (machine.start_command(argv), machine.boot_id)

    def _wait_first(self, machine: Machine) -> None:
        command, _ = self._commands[machine.name]

        def has_sample() -> bool:
            if command.ended:
                raise RigError(
                    f"the monitor's agent ended before its first sample: {command.wait(Deadline.after(2)).stderr}"
                )
            return machine.run(["test", "-s", OUTPUT]).ok

        wait_until(has_sample, Deadline.after(START_DEADLINE_S), "the monitor's first sample")

    def _stop(self) -> None:
        # Close all inputs before collecting: each agent takes its last sample when its input ends.
        for name in self._commands:
            self._run_or_note_failure(self.machines[name], self._close)
        for name in self._commands:
            self._run_or_note_failure(self.machines[name], self._collect)
        for name in self.failures.keys() & self._commands.keys():
            # An agent that is still running ends when its input ends.
            with suppress(*_FAILURES):
                self._commands[name][0].close_input()

    def _close(self, machine: Machine) -> None:
        command, boot_id = self._commands[machine.name]
        if machine.boot_id != boot_id:
            raise RigError("the machine lost power while it was monitored")
        command.close_input()

    def _collect(self, machine: Machine) -> None:
        ended = self._commands[machine.name][0].wait(Deadline.after(STOP_DEADLINE_S))
        if not ended.ok:
            raise RigError(f"the monitor's agent failed: {ended.stderr.strip()}")
        self.output[machine.name] = ended.stdout
        self.recordings[machine.name] = parse_recording(ended.stdout)
