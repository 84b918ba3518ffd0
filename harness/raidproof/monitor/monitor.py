"""The monitor: samples machines, host and disk engine while a workload runs, and derives utilization and ratios."""

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
# Linux counts these in user and nice already.
_TWICE = ("guest", "guest_nice")

Pair = tuple[MountCount, MountCount]
_NEVER = RpcCount(0, 0, 0, 0, 0)
ARRAY = "md0"
"""The md device that carries the filesystem."""
PURE = 0.01
"""Limit of the fraction of other bytes in a load that still counts as pure reads or pure writes."""
AGENT = "/run/raidproof/monitor.py"
OUTPUT = "/run/raidproof/monitor.out"
START_DEADLINE_S = 10.0
STOP_DEADLINE_S = 20.0
LIMIT = 8 * MIB
"""Memory in bytes for a machine's samples; beyond it only the last is taken. About 20 minutes at 1 s."""
# A machine that cannot be monitored does not stop the workload.
_FAILURES = (RaidproofError, OSError, EOFError)


def host_times() -> dict[str, float]:
    """Return the CPU seconds of all cores together since boot, by kind."""
    return dict(psutil.cpu_times()._asdict())


def host_busy(before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    """Return the utilization of all cores between two times (0 to 1); None if no time has passed."""
    spent = {kind: after[kind] - before[kind] for kind in after if kind in before and kind not in _TWICE}
    total = sum(spent.values())
    if total <= 0:
        return None
    return min(1.0, max(0.0, 1 - sum(spent.get(kind, 0.0) for kind in _IDLE) / total))


@dataclass(frozen=True)
class EngineUse:
    """Utilization of the disk engine and of the simulated hardware; shares are of wall time, 1.0 is all of it."""

    cpu_share: float
    """CPU seconds of the engine's process over wall seconds; its Python runs on one core at a time."""
    late_ns_mean: float
    """Mean delay of replies after the simulated disk's completion time."""
    service_ns_mean: float
    """Mean service time of the simulated disks, queueing included; 0 for disks without mechanics."""
    members_busy: dict[str, float] = field(default_factory=dict)
    """By serial."""
    controllers_busy: dict[str, float] = field(default_factory=dict)
    """By name."""


class DiskUse(State):
    """A disk or an array over an interval. Sizes in bytes; None without a request."""

    reads: int
    writes: int
    read_bytes: int
    written_bytes: int
    busy: float
    """Fraction of the time with requests in flight."""
    in_flight: float
    """Mean number of requests in flight."""
    mean_bytes: float | None
    """Mean size of a request."""
    mean_ms: float | None
    """Mean time from a request's arrival in the disk's queue to its end."""
    flushes: int | None

    @property
    def requests(self) -> int:
        """The number of reads and writes."""
        return self.reads + self.writes


class RpcUse(State):
    """The calls of one kind, of one client or of several; times are None without a call."""

    calls: int
    sent_again: int
    mean_queue_ms: float | None
    """From the creation of a call to its transmission."""
    mean_rtt_ms: float | None
    """From the transmission to the reply."""
    mean_exec_ms: float | None
    """From the creation to the end."""
    waiting: float
    """Mean number of calls in flight."""


class MachineUse(State):
    """A machine over an interval. None: unknown."""

    cpu: float | None
    """Utilization of its cores (0 to 1); iowait counts as idle."""
    memory: int | None
    dirty_peak: int | None
    """Maximum of dirty bytes over the samples."""
    writeback_peak: int | None
    received_bytes_s: float | None
    sent_bytes_s: float | None


def disk_use(first: DiskCount, last: DiskCount, seconds: float) -> DiskUse:
    """Return the work of a disk between two samples."""
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
    """Return each mount at the first and the last sample; None if one is unknown, or was mounted or not in between."""
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
    """Return the clients' calls between two samples: of one operation, or of all if ``name`` is None."""
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
        # A call in flight at the end has its transmission counted, but not yet the call.
        sent_again=max(0, transmissions - calls),
        mean_queue_ms=queue / calls if calls else None,
        mean_rtt_ms=rtt / calls if calls else None,
        mean_exec_ms=execution / calls if calls else None,
        waiting=rtt / 1000 / seconds,
    )


def machine_use(recording: Recording) -> MachineUse:
    """Return the utilization of a machine between the first and the last sample."""
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
    """Bytes and requests as the workload reports them; needed for a workload on the server, which has no mount."""

    read_bytes: int
    written_bytes: int
    requests: int | None = None


class Derived(State):
    """The measurements below a workload over its timed part. Sizes in bytes. None: unknown."""

    seconds: float
    server: str
    read_bytes: int | None
    """Bytes that the applications read, cached or not."""
    written_bytes: int | None
    wire_read_bytes: int | None
    """Bytes that the clients read from the server; None without a client."""
    wire_written_bytes: int | None
    array: DiskUse | None
    members: dict[str, DiskUse] | None
    """The members of the array, by serial."""
    request_limit: int | None
    """Size limit of a request to the array."""
    member_reads_per_written: float | None
    """Bytes that the members read per byte written to the array, in a pure write load: 0 for whole stripes.
    None if the applications read too."""
    write_amplification: float | None
    """Bytes written to the members per byte that an application wrote."""
    read_amplification: float | None
    splitting: float | None
    """Requests to the array per application request, or where those are unknown, per READ and WRITE."""
    slowest: str | None
    """The busiest member."""
    spread: float | None
    """Utilization of the busiest member minus the median of the others'."""
    writes: RpcUse | None
    """The WRITEs of all clients; None without a client."""
    reads: RpcUse | None
    commits: RpcUse | None
    calls: RpcUse | None
    """All calls of all clients."""
    mean_write_bytes: float | None
    mean_read_bytes: float | None
    calls_per_mb: float | None
    """Calls per 10^6 bytes between clients and server."""
    machines: dict[str, MachineUse]
    host_cpu: float | None
    """Utilization of the host's cores (0 to 1)."""
    syncing: tuple[str, ...] | None
    """The actions that arrays had running in any sample: resync, recovery, check, ..."""
    unknown: dict[str, str]
    """The parts that could not be monitored, with the reason."""

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
    """Derive all numbers from the first and the last sample of each machine; None if the server was not monitored."""
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
    # Through the components of a nested array, down to the disks.
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
    # Reads of the file system are no read-modify-write.
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
    """Return one utilization minus the median of the others; None if there are no others."""
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


class Monitor:
    """Monitors a server and its clients. Reusable: it installs its agent once per boot of a machine."""

    def __init__(self, server: Machine, clients: Iterable[Machine], interval_s: float = 1.0) -> None:
        self.server = server
        self.machines = {machine.name: machine for machine in (server, *clients)}
        self.interval_s = interval_s
        self.recordings: dict[str, Recording] = {}
        """Recordings of the last run by machine; without the machines that could not be monitored."""
        self.failures: dict[str, str] = {}
        """The reasons of failed monitoring, by machine."""
        self.host_cpu: float | None = None
        """Utilization of the host's cores (0 to 1)."""
        self.output: dict[str, str] = {}
        """The agents' output by machine, to be stored beside the record."""
        self._installed: dict[str, str | None] = {}
        self._commands: dict[str, tuple[RemoteCommand, str | None]] = {}

    @contextmanager
    def running(self) -> Iterator["Monitor"]:
        """Monitor while the body runs: the first sample is taken before it, the last one after it.

        Raises no errors: ``failures`` has them.
        """
        self.recordings, self.failures, self.output, self._commands = {}, {}, {}, {}
        self.host_cpu = None
        for machine in self.machines.values():
            self._try(machine, self._start)
        for machine in self.machines.values():
            self._try(machine, self._wait_first)
        before = host_times()
        try:
            yield self
        finally:
            self.host_cpu = host_busy(before, host_times())
            self._stop()

    def _try(self, machine: Machine, step: Callable[[Machine], object]) -> None:
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

        def looked() -> bool:
            if command.ended:
                raise RigError(f"the monitor's agent ended: {command.wait(Deadline.after(2)).stderr}")
            return machine.run(["test", "-s", OUTPUT]).ok

        wait_until(looked, Deadline.after(START_DEADLINE_S), "the monitor's first sample")

    def _stop(self) -> None:
        # All at once: each agent takes its last sample when its input ends.
        for name in self._commands:
            self._try(self.machines[name], self._close)
        for name in self._commands:
            self._try(self.machines[name], self._collect)
        for name in self.failures.keys() & self._commands.keys():
            # The end of its input ends an agent that is still running.
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
