"""One crash test: build the stack, run the clients, inject the fault, recover, observe the result."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from typing import Any
from zlib import crc32

from pydantic import BaseModel, ConfigDict, Field, SkipValidation

from raidproof.core.command import CommandFailed
from raidproof.core.errors import DeadlineExceeded, NotRecovered, RequestError, RigError, nearest
from raidproof.core.files import write_durably
from raidproof.core.log import step
from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.crash.unwritten import never_written
from raidproof.disk.cache import CacheMode, CutPolicy
from raidproof.disk.disks import require_write_cache
from raidproof.fault import FAULTS, Fault, FaultContext, PowerCut
from raidproof.fault.fault import why_no_locks
from raidproof.guest.ledger_format import APPLICATION
from raidproof.lab.lab import Lab
from raidproof.machine.kernel_errors import ErrorWatch
from raidproof.machine.kernel_log import moment, said_since, stuck_tasks
from raidproof.machine.machine import Machine
from raidproof.monitor.capture import capturing, write_exchanges
from raidproof.monitor.counters import calls
from raidproof.monitor.recording import fetched
from raidproof.record.observation import KernelSeen, ReadBack, SoloSeen
from raidproof.record.run import ControlSpec, CrashTestRecord, Throughput
from raidproof.run.member_watch import MemberWatch
from raidproof.run.replies import ReplyWatch
from raidproof.run.second_reader import read_by_libnfs
from raidproof.storage.array import holders_of_old_data
from raidproof.storage.filesystem import read_write_back
from raidproof.storage.stack import Stack, StackSpec, StackState, on_disks
from raidproof.verdict.checks.second_reader import differing_workers
from raidproof.workload.fio import FioSpec, fio_command, parse_fio_jobs
from raidproof.workload.ledger import Found, Ledger, LedgerSpec, ServerPlace
from raidproof.workload.workload import on_all

NO_FAULT = "none"

LEDGER_DIRECTORY = "ledger"
RESUME_DEADLINE_S = 30.0
"""Seconds, in addition to `protocol_s`, until a client must have continued its work after the fault."""
STOP_DEADLINE_S = 60.0
"""Seconds, in addition to `protocol_s`, until all clients must have finished their work."""
DROP_CACHES = "/proc/sys/vm/drop_caches"
FIO_DEADLINE_S = 300.0
_AT_ONCE = """
import os, sys, threading
for _ in range(int(sys.argv[2])):
    threading.Thread(target=os.statvfs, args=sys.argv[1:2]).start()
"""
AGAIN_S = 0.5
"""Seconds that all workers work between the solo operations and a cut that strikes while they work."""
MEASUREMENTS = 3
"""Number of measurements of the sequential write; a single measurement varies with other load of the host."""


class CrashTestSpec(BaseModel):
    """The specification of one crash test."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    title: str
    stack: StackSpec
    cache_mode: CacheMode = CacheMode.VOLATILE
    """Where the disks keep acknowledged writes, and whether flushes and power cuts act on them."""
    fault: str | SkipValidation[Fault] = PowerCut.name
    """A fault, or the name of a fault that needs only ``policy`` and ``seed``; ``none``: no fault."""
    during: tuple[SkipValidation[Fault], ...] = ()
    """Faults in effect from before the clients begin until after the main fault: a missing member, a rebuild."""
    policy: CutPolicy = CutPolicy.DROP
    """Which unflushed writes survive a power cut."""
    cache_mode_of: tuple[str, ...] | None = None
    """Serials of the disks with ``cache_mode``; all other disks have a volatile cache. None: all disks."""
    seed: int = 1
    """Seed of the random choices of a fault given by name."""
    ledger: LedgerSpec = LedgerSpec()
    """The work of the clients, whose acknowledged operations are checked after the fault."""
    ledger_seconds: float = 3.0
    """Seconds that all workers of the clients work at the same time before the fault."""
    solo_seconds: float = Field(default=1.0, ge=0)
    """Greatest number of seconds in which the clients carry out solo operations, see workload/solo.py.

    Only if the fault is a power cut of the server, or without a fault, and not in a control. An application has its
    own schedule.
    """
    solo_extra_s: float = Field(default=0.0, ge=0)
    """Greatest number of further seconds of solo operations, as long as a client lacks some; see `solo.LEAST`."""
    fio: FioSpec | None = None
    """Sequential write that is measured before the crash test; None: no measurement."""
    capture: bool = False
    """Whether to capture and judge NFS traffic while the ledger runs."""
    second_reader: bool = False
    """Whether libnfs, an NFS client in user space, also reads the ledger at the end (run/second_reader.py)."""
    control: ControlSpec | None = None
    """Known result, if the crash test is a control."""

    @property
    def fault_name(self) -> str:
        """The fault's name."""
        return self.fault if isinstance(self.fault, str) else self.fault.name


def fault_of(spec: CrashTestSpec) -> Fault | None:
    """Return the fault that a crash test requests; None for no fault.

    Raises:
        RequestError: the name is unknown, or the fault needs more than ``policy`` and ``seed``.
    """
    if not isinstance(spec.fault, str):
        return spec.fault
    if spec.fault == NO_FAULT:
        return None
    if spec.fault not in FAULTS:
        raise RequestError(f"unknown fault: {spec.fault!r}", remedy=nearest(spec.fault, [NO_FAULT, *FAULTS]))
    return FAULTS[spec.fault].by_name(spec.policy, spec.seed)


class CrashTestFiles:
    """The directory of one crash test's raw observations."""

    def __init__(self, run: Path, name: str) -> None:
        self._run = run
        self._directory = run / name
        self._directory.mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        """Return the path of a file in the crash test's directory."""
        return self._directory / name

    def entry(self, name: str) -> str:
        """Return the path of a file relative to the run's directory, as in a record."""
        return str(self.path(name).relative_to(self._run))

    def write(self, name: str, content: str) -> str:
        """Write a file and return its path relative to the run's directory."""
        write_durably(self.path(name), content)
        return self.entry(name)


def run_crash_test(lab: Lab, spec: CrashTestSpec, record: CrashTestRecord, directory: Path) -> None:
    """Run a crash test and fill in its record; raw observations go to ``directory / spec.name``.

    Raises:
        RequestError: the stack or the fault is impossible.
        RequirementMissing: a machine lacks a program that the crash test needs.
        NotRecovered: the array does not assemble, or the file system does not mount, after the fault.
        RigError: the rig failed; the record has the observations until then.
        NotEffective: the effective stack differs from the requested one.
    """
    CrashTest(lab, spec, record, directory).run()


class CrashTest:
    """One crash test in a lab: its steps, in order."""

    def __init__(self, lab: Lab, spec: CrashTestSpec, record: CrashTestRecord, directory: Path) -> None:
        self.lab = lab
        self.spec = spec
        self.record = record
        self.files = CrashTestFiles(directory, spec.name)
        self.stack = Stack(on_disks(spec.stack, zeroed=lab.disks.zeroed), lab.server, lab.clients)
        self.context = FaultContext(lab, self.stack)
        self.fault = fault_of(spec)
        self.target = self.fault.target(self.context) if self.fault else None
        self.members = MemberWatch(self.context, record)
        self.replies: ReplyWatch | None = None
        self.errors = ErrorWatch({})

    def run(self) -> None:
        """Execute all steps of the crash test. After an error the lab is unusable; the record has what was seen."""
        if self.spec.fio is not None:
            self.lab.clients[0].require("fio")
        self.lab.disks.require(self.spec.cache_mode, self.spec.policy)
        require_write_cache(self.lab.topology, self.spec.cache_mode, self.spec.cache_mode_of)
        self.lab.disks.reset(self._old())
        begun = {name: moment(machine) for name, machine in self.lab.machines.items()}
        self.errors = ErrorWatch(self.lab.machines)
        try:
            if self.spec.fio is not None:
                self._provision()
                self._measure(self.spec.fio)
            # Begin the log with blank disks, as crash states are rebuilt from it.
            self.record.files.write_log = self.files.entry("write.log")
            self.lab.disks.log_start(self.files.path("write.log"))
            self._promise_and_break(self._provision())
            self._check()
        finally:
            self._enter_replies()
            self.errors.look()
            self.record.observed.kernels = {
                name: KernelSeen(errors=list(one.errors), tainted=sorted(one.tainted))
                for name, one in self.errors.found.items()
            }
            for name, since in begun.items():
                # A failed machine may have no readable console; read the consoles of the others all the same.
                with suppress(RigError):
                    messages = said_since(self.lab.machines[name], since)
                    self.record.files.consoles[name] = self.files.write(f"console.{name}.log", messages)

    def _old(self) -> tuple[str, ...]:
        """Return the serials of the disks on which sectors that the crash test has not written contain old data."""
        offered = {disk.serial for disk in self.lab.topology.disks if disk.old_data}
        holders = holders_of_old_data(self.stack.spec.array)
        # Either all of these disks hold old data or none does; otherwise parity would not match.
        old = tuple(holders) if offered.issuperset(holders) else ()
        self.record.observed.old_data = list(old)
        return old

    def _say(self, what: str) -> None:
        step(f"{self.spec.title}: {what}")

    def _provision(self) -> StackState:
        self._say("building array and file system")
        self.stack.create()
        effective = self.stack.activate()
        self.record.effective = effective.model_dump(mode="json")
        return effective

    def _measure(self, fio: FioSpec) -> None:
        """Measure the sequential write on a separate stack, as the write log would distort the result."""
        self._say("measuring a sequential write")
        client = self.lab.clients[0]
        command = fio_command(fio, f"{self._mount_point}/throughput", times=MEASUREMENTS + 1)
        output = client.succeed(command, deadline_s=FIO_DEADLINE_S)
        self.record.files.fio.append(self.files.write("fio.json", output))
        # The first measurement is discarded: the engine allocates memory for the first writes to fresh disks.
        rates = [one.mb_per_s for one in parse_fio_jobs(output)[1:]]
        self.record.throughput = Throughput(sequential_write_mb_s=median(rates), sequential_write_each=rates)
        self.stack.deactivate()
        self.lab.disks.reset(self._old())

    @property
    def _mount_point(self) -> str:
        return self.stack.mounts[self.lab.clients[0].name].directory

    def _ledger(self) -> Ledger:
        """Return the ledger of the crash test, and record its settings."""
        root = f"{self._mount_point}/{LEDGER_DIRECTORY}"
        # Each user may create files there.
        self.lab.clients[0].succeed(["mkdir", "--mode=1777", root])
        # Set the cache mode only now: if disks lied from the start, a cut would destroy the array itself.
        self.lab.disks.set_mode(self.spec.cache_mode, self.spec.cache_mode_of)
        # The seed depends on the name, so that blocks of an earlier crash test are not mistaken for current ones.
        seed = self.spec.ledger.seed + crc32(self.spec.name.encode())
        stack = self.spec.stack
        fitting, left_out = self.spec.ledger.fitting(
            stack.mount.vers,
            stack.filesystem.type,
            stack.export.type,
            no_locks=why_no_locks(stack, None if self.fault is None else self.record.effects),
            root_squash=stack.export.squashes_root,
            shows_old_data=stack.filesystem.shows_old_data,
        )
        self.record.workload["left_out"] = left_out
        ledger_spec = fitting.model_copy(update={"seed": seed, "tolerated_errnos": self._tolerated_errnos()})
        self.record.files.history = self.files.entry("history")
        server = ServerPlace(self.lab.server, f"{self.stack.filesystem.directory}/{LEDGER_DIRECTORY}")
        ledger = Ledger(
            ledger_spec, self.lab.clients, self.lab, root, self.files.path("history"), server, stack.export.owner_of
        )
        if self.spec.second_reader and any(worker.owner for worker in ledger.workers):
            raise RequestError(
                "libnfs reads as root, who may not read the files of ordinary users; "
                "export with no_root_squash, or leave out second_reader"
            )
        if ledger.application:
            self.record.files.application = self.files.write("application.json", json.dumps(ledger.application))
        self.record.workers = [worker.model_dump() for worker in ledger.workers]
        return ledger

    def _promise_and_break(self, effective: StackState) -> None:
        ledger = self._ledger()
        for condition in self.spec.during:
            self._say(condition.name)
            self.members.begin(condition)
        self.members.start()
        observed = self.record.observed
        observed.write_back = read_write_back(self.lab.server, effective.filesystem)
        observed.disks = dict(self.lab.disks.counters())
        sent = self._calls()
        self._end_lockd_grace()
        # Without this sync, a power cut within seconds would lose the server's record of the newest client, and with
        # it the client's locks (docs/findings.md). The array's members are not on this file system.
        self.lab.server.succeed(["sync", "--file-system", self.stack.export.client_records])
        # The RPCs of an application have no mark, and several of them may belong to one operation.
        marked = [worker for worker in ledger.workers if worker.kind != APPLICATION]
        self.replies = ReplyWatch(self.lab, marked, ledger.path.parent) if marked else None
        watching = self.replies.watching(ledger.path) if self.replies else nullcontext()
        with self._captured(), watching, ledger.running():
            self._work_and_break(ledger)
        observed.calls = {name: counted - sent[name] for name, counted in self._calls().items()}
        if self.fault is None:
            self._end_recording()
        self.lab.disks.set_mode(CacheMode.VOLATILE)
        if self.record.files.on_server is None:
            self._scan_server(ledger)
        self._scan_client(ledger)
        self.members.heal()

    def _work_and_break(self, ledger: Ledger) -> None:
        self._say("clients at work")
        self.record.ledger_begun_ns = now_ns()
        strikes_solo = self._strikes_solo
        ledger.work(self.spec.ledger_seconds)
        if self._has_solo and not strikes_solo:
            # After the work of all, so that at the cuts of directed states each kind of operation was acknowledged.
            with self._solo(ledger):
                pass
            ledger.work(AGAIN_S)
        # Read the export options before the fault: a reboot would hide changes made during the work.
        self.record.observed.export = list(self.stack.export.applied())
        before = {client.name: moment(client) for client in self.lab.clients}
        self.errors.look()
        with self._solo(ledger) if strikes_solo else nullcontext():
            if self.fault is not None:
                self._break(self.fault)
        if self.fault is not None:
            self._bring_back(self.fault, ledger)
        self._say("clients finish")
        ledger.stop(Deadline.after(protocol_s(self.record.effective) + STOP_DEADLINE_S))
        # All clients have finished, so the server serves each of them again.
        for name, since in before.items():
            messages = said_since(self.lab.machines[name], since)
            self.record.files.away[name] = self.files.write(f"away.{name}.log", messages)

    @contextmanager
    def _solo(self, ledger: Ledger) -> Iterator[None]:
        """Let the clients carry out solo operations, after which they pause until the ``with`` body ends."""
        if not self._has_solo:
            yield
            return
        self._say("clients at work, one operation at a time")
        solo = self.record.observed.solo = SoloSeen(begun_ns=now_ns(), struck=self._strikes_solo)
        with ledger.solo(self.spec.solo_seconds, self._requests, self.spec.solo_extra_s) as lacking:
            solo.ended_ns = now_ns()
            solo.lacking = list(lacking)
            yield

    @property
    def _has_solo(self) -> bool:
        """Whether the clients carry out solo operations, see `CrashTestSpec.solo_seconds`."""
        spec = self.spec.ledger
        alone = spec.quiet_s or spec.application is not None or self.spec.control is not None
        return bool(self.spec.solo_seconds) and not alone and (self.fault is None or self._caches is not None)

    @property
    def _strikes_solo(self) -> bool:
        """Whether the cut strikes right after the reply to a solo operation: half of the cuts do, by name and seed.

        A cut that keeps a part of the disks' caches strikes while all clients write: then the caches have much data.
        A fault that does more than cut the power does, too: it may wait for requests.
        """
        drawn = Random(f"{self.spec.name} {self.spec.seed}").random()  # noqa: S311
        plain = type(self.fault) is PowerCut and self._caches is CutPolicy.DROP
        return self._has_solo and plain and drawn < 0.5

    @property
    def _caches(self) -> CutPolicy | None:
        return self.record.effects.caches

    def _requests(self) -> int:
        """Return the number of requests that may change the disks so far."""
        counted = self.lab.disks.counters().values()
        return sum(one.writes + one.flushes + one.discards + one.zeroes for one in counted)

    def _end_lockd_grace(self) -> None:
        """End lockd's grace period, unless the clients use NFSv3 and may have locks to reclaim."""
        if self.spec.stack.mount.vers != "3":
            self.stack.export.end_lockd_grace()

    def _calls(self) -> dict[str, Counter[str]]:
        """Return the number of NFS calls by operation on the mount of each client that has not lost power."""
        clients = [client for client in self.lab.clients if client.name not in self.record.lost_power]
        return {client.name: calls(client, self.stack.mounts[client.name].directory) for client in clients}

    def _tolerated_errnos(self) -> tuple[int, ...]:
        """Return the errors (errno) that the faults may cause, after which the ledger continues."""
        others = (one.effects(self.spec.stack).errors for one in self.spec.during)
        return tuple(sorted(self.record.effects.errors.union(*others)))

    @contextmanager
    def _captured(self) -> Iterator[None]:
        """Capture NFS traffic during the ``with`` statement, if the crash test requests a capture."""
        if not self.spec.capture:
            yield
            return
        self.record.files.capture = self.files.entry("nfs.pcapng")
        with capturing(self.lab, self.files.path("nfs.pcapng")) as capture:
            yield
        self.record.files.wire = self.files.write("wire.json", write_exchanges(capture.exchanges()))

    def _enter_replies(self) -> None:
        """Record where the times of the server's replies to the ledger are stored, and a summary of these times."""
        if self.replies is not None:
            self.replies.finish()
            self.record.observed.replies = self.replies.seen
            if self.replies.found is not None:
                self.record.files.replies = self.files.entry(self.replies.found.name)

    def _break(self, fault: Fault) -> None:
        self._say(fault.name)
        self.record.fault_begun_ns = now_ns()
        injected = fault.inject(self.context)
        self.record.fault_ended_ns = now_ns()
        self.record.fault_at_ns = injected.at_ns
        self.record.fault_proof = injected.proof
        self.record.disks = {cut_result.serial: asdict(cut_result) for cut_result in injected.cut_results}
        self.record.fault_target = injected.target
        self._end_recording()
        if self.spec.cache_mode is CacheMode.NONE:
            # Set the mode while no guest is connected: a guest that has seen a disk without a cache never flushes it.
            self.lab.disks.set_mode(CacheMode.VOLATILE)

    def _end_recording(self) -> None:
        if (closed := self.lab.disks.log_stop()) is not None:
            self.record.observed.write_log = closed
        for serial, counters in self.lab.disks.counters().items():
            self.record.disks[serial] = asdict(counters) | self.record.disks.get(serial, {})

    def _bring_back(self, fault: Fault, ledger: Ledger) -> None:
        self._say("recovering")
        recovery = self.record.recovery
        if self.target is None:
            resumed_ns = self.record.resumed_ns = now_ns()
            fault.heal(self.context)
            self._end_lockd_grace()
        elif self.target is self.lab.server:
            recovery.boot_s = timed(partial(fault.heal, self.context))
            self.members.before_assembly()
            # Assemble the existing array and mount its file system; create nothing, force nothing.
            assemble, mount, export = (one.run for one in self.stack.server_steps())
            try:
                recovery.assemble_s = timed(assemble)
                self.members.after_assembly()
                recovery.mount_s = timed(mount)
            except CommandFailed as error:
                raise NotRecovered(f"the storage does not recover after the fault {fault.name}: {error}") from error
            except DeadlineExceeded as error:
                stuck = stuck_tasks(self.lab.server, self._disk_counters)
                if stuck is None:
                    raise
                raise NotRecovered(f"the server hangs after the fault {fault.name}: {stuck}; {error}") from error
            # Read back before any client can write again: a resent write would replace a torn block.
            self._scan_server(ledger)
            resumed_ns = self.record.resumed_ns = now_ns()
            export()
            self._end_lockd_grace()
            self._rouse_clients(wait=ledger.is_idle())
        else:
            recovery.boot_s = timed(partial(fault.heal, self.context))
            recovery.mount_s = timed(partial(self.stack.activate_client, self.target.name))
            resumed_ns = self.record.resumed_ns = now_ns()
        deadline = Deadline.after(protocol_s(self.record.effective) + RESUME_DEADLINE_S)
        wait_until(lambda: ledger.heard_since(resumed_ns) or ledger.is_idle(), deadline, "a client to continue")
        if self.target is None:
            # A disconnected client may need longer. If a client never continues, its operations in the ledger show it.
            with suppress(DeadlineExceeded):
                wait_until(lambda: ledger.all_began_since(resumed_ns), deadline, "every client to continue")

    def _disk_counters(self) -> dict[str, dict[str, Any]]:
        """Return the disk engine's counters of each member, by serial."""
        return {serial: asdict(counted) for serial, counted in self.lab.disks.counters().items()}

    def _rouse_clients(self, *, wait: bool) -> None:
        """Make every client send a new request, so that it detects the dead connection at once.

        ``wait``: wait for the replies, because no worker of a client continues and shows that the client is served.

        Without a new request, an NFSv4 client whose requests had all reached the server before the fault detects the
        dead connection only at its next lease renewal, 60 s into a lease of 90 s: it retransmits a request only on a
        new connection. An NFSv3 client detects it as late, when a request times out (timeo, nfs(5)).
        """
        connections = self.spec.stack.mount.nconnect or 1
        # All clients at the same time: a client that reconnects first retries at growing intervals until all others
        # have reclaimed their state.
        deadline_s = protocol_s(self.record.effective) + RESUME_DEADLINE_S

        def rouse(client: Machine) -> None:
            command = rousing_command(self.stack.mounts[client.name].directory, connections)
            if wait:
                client.succeed(command, deadline_s=deadline_s)
            else:
                client.start_command(command)

        on_all(self.lab.clients, rouse)

    def _scan_server(self, ledger: Ledger) -> None:
        self._say("reading back on the server")
        self.lab.server.put("3\n", DROP_CACHES)
        found = ledger.scan(self.lab.server, f"{self.stack.filesystem.directory}/{LEDGER_DIRECTORY}")
        self.record.files.on_server = self.files.write("on-server.json", json.dumps(found))

    def _scan_client(self, ledger: Ledger) -> None:
        """Remount on the last client, drop caches, and read the ledger's files back through this client."""
        self._say("reading back through a client")
        client = self.lab.clients[-1]
        mount = self.stack.mounts[client.name]
        mount.deactivate()
        mount.activate()
        on_all([self.lab.server, client], lambda machine: machine.put("3\n", DROP_CACHES))
        before = fetched(client, mount.directory)
        found = ledger.scan(client, ledger.root)
        counted = fetched(client, mount.directory).since(before)
        self.record.observed.read_back = ReadBack(client=client.name, **counted._asdict())
        self.record.files.on_client = self.files.write("on-client.json", json.dumps(found))
        if self.spec.second_reader:
            self._scan_by_libnfs(ledger, client, found)

    def _scan_by_libnfs(self, ledger: Ledger, client: Machine, kernels: Found) -> None:
        """Read the ledger by libnfs on a client; read it on the server again if both clients differ."""
        self._say("reading back by libnfs")
        source = self.spec.stack.source(self.lab.server.address, self.stack.filesystem.directory)
        found = read_by_libnfs(client, ledger, self.spec.stack, f"{source.rstrip('/')}/{LEDGER_DIRECTORY}")
        self.record.files.by_libnfs = self.files.write("by-libnfs.json", json.dumps(found))
        if differing_workers(kernels, found):
            again = ledger.scan(self.lab.server, f"{self.stack.filesystem.directory}/{LEDGER_DIRECTORY}")
            self.record.files.on_server_again = self.files.write("on-server-again.json", json.dumps(again))

    def _check(self) -> None:
        self._say("checking file system and array")
        self.stack.deactivate_clients()
        self.stack.deactivate_export()
        self.stack.filesystem.deactivate()
        self.record.observed.filesystem = self.stack.filesystem.check()
        array = self.record.observed.array = self.members.end(self.stack.array.scrub())
        if any(array.mismatch_cnt.values()) and self.record.observed.write_log is not None:
            array.never_written = never_written(self.files.path("write.log"), self.spec.stack.array) or []
        # The machine keeps running: restore its settings for the next crash test.
        self.stack.tuning.deactivate()
        self.stack.volume.deactivate()
        self.stack.array.deactivate()
        if self.record.fault_at_ns is not None:
            self.record.verified_s = (now_ns() - self.record.fault_at_ns) / 1e9


def rousing_command(directory: str, connections: int) -> list[str]:
    """Return a command that sends new requests on each connection of a mount.

    With several connections, the kernel sends a request on a connection on which no more requests wait than the
    average. A dead connection gets a request only while the others are busy. The command therefore sends eight
    requests for each connection at the same time.
    """
    if connections == 1:
        return ["stat", "--file-system", directory]
    return ["python3", "-c", _AT_ONCE, directory, str(8 * connections)]


def protocol_s(effective: Mapping[str, Any]) -> float:
    """Return the longest time in seconds for which an NFSv4 client may wait after a restart of its server.

    The client detects the restart with the next renewal of its lease at the latest. Its next OPEN may then wait for
    the end of the grace period, which NFSv4.0 clients cannot shorten.
    """
    return float(effective["export"]["lease_s"] + effective["export"]["grace_s"])


def timed(action: Callable[[], object]) -> float:
    """Call a function and return its duration in seconds."""
    begun = now_ns()
    action()
    return (now_ns() - begun) / 1e9
