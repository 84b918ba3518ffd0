"""One crash test: build the stack, run the clients, inject the fault, recover, observe the result."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from random import Random
from statistics import median
from typing import Self
from zlib import crc32

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, model_validator

from raidproof.core.errors import RequestError, RigError, nearest
from raidproof.core.log import step
from raidproof.core.waiting import Deadline, now_ns
from raidproof.crash.redundancy import never_written
from raidproof.disk.cache import CacheMode, CutPolicy
from raidproof.disk.disks import require_write_cache
from raidproof.fault import FAULTS, Fault, FaultContext, PowerCut
from raidproof.fault.fault import FaultEffects, combined, why_no_locks
from raidproof.fault.schedule import Schedule, ScheduledFault
from raidproof.guest.ledger_format import APPLICATION, USERS
from raidproof.lab.lab import Lab
from raidproof.machine.kernel_errors import ErrorWatch
from raidproof.machine.kernel_log import moment, said_since
from raidproof.machine.machine import Machine
from raidproof.monitor.capture import capturing, write_exchanges
from raidproof.monitor.counters import calls
from raidproof.monitor.recording import fetched
from raidproof.record.observation import KernelSeen, ReadBack, RepliesSeen, SoloSeen
from raidproof.record.run import ControlSpec, CrashTestRecord, Throughput
from raidproof.run.crash_test_files import CrashTestFiles
from raidproof.run.fault_sequence import DROP_CACHES, FaultSequence, protocol_s
from raidproof.run.intruders import attempts
from raidproof.run.member_watch import MemberWatch
from raidproof.run.replies import ReplyWatch
from raidproof.run.second_reader import read_by_libnfs
from raidproof.storage.array import holders_of_old_data
from raidproof.storage.filesystem import read_write_back
from raidproof.storage.intruder import Occasion
from raidproof.storage.kerberos import KRB5P, SYS
from raidproof.storage.stack import Stack, StackSpec, StackState, on_disks
from raidproof.storage.tls import NONE
from raidproof.verdict.checks.second_reader import differing_workers
from raidproof.workload.fio import FioSpec, fio_command, parse_fio_jobs
from raidproof.workload.ledger import LEDGER_DIRECTORY, Found, Ledger, LedgerSpec, ServerPlace
from raidproof.workload.many_names import fill
from raidproof.workload.workload import on_all

NO_FAULT = "none"

STOP_DEADLINE_S = 60.0
"""Seconds, in addition to `protocol_s`, until all clients must have finished their work."""
FIO_DEADLINE_S = 300.0
AGAIN_S = 0.5
"""Seconds that all workers work between the solo operations and a cut that strikes while they work."""
ZEROED_BYTES = 4096
"""Size in bytes of the file by which a crash test finds out whether clients can zero a range."""
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
    faults: tuple[SkipValidation[ScheduledFault], ...] = ()
    """Several faults, each with its moment (fault/schedule.py), instead of ``fault``, ``during`` and ``policy``."""
    policy: CutPolicy = CutPolicy.DROP
    """Which unflushed writes survive a power cut."""
    cache_mode_of: tuple[str, ...] | None = None
    """Serials of the disks with ``cache_mode``; all other disks have a volatile cache. None: all disks."""
    seed: int = 1
    """Seed of the random choices of a fault given by name."""
    ledger: LedgerSpec = LedgerSpec()
    """The work of the clients, whose acknowledged operations are checked after the fault."""
    ledger_seconds: float = 3.0
    """Seconds that all workers of the clients work at the same time before the fault; not used with ``faults``."""
    solo_seconds: float = Field(default=1.0, ge=0)
    """Greatest number of seconds in which the clients carry out solo operations, see workload/solo.py.

    Only if the fault is a power cut of the server, or without a fault, and not in a control or with ``faults``. An
    application has its own schedule.
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

    @model_validator(mode="after")
    def _one_way_to_request_faults(self) -> Self:
        if self.faults and (both := sorted({"fault", "during", "policy"} & self.model_fields_set)):
            raise RequestError(
                f"crash test {self.name}: faults has all faults in their order, and excludes {', '.join(both)}",
                remedy="put each fault into faults, with its arguments: at(2.5, PowerCut(policy=CutPolicy.TORN))",
            )
        if self.stack.mount.secured:
            self._refuse_with_security()
        return self

    def _refuse_with_security(self) -> None:
        mount = self.stack.mount
        asked = f"crash test {self.name}: xprtsec = {mount.xprtsec}, sec = {mount.sec}"
        if self.capture:
            raise RequestError(f"{asked}: a capture cannot read the traffic, or not which user sent a request")
        if self.second_reader:
            raise RequestError(f"{asked}: raidproof sets up neither TLS nor Kerberos for libnfs")
        if mount.sec != SYS and (self.ledger.users or 0) > USERS:
            raise RequestError(f"{asked}: only {USERS} users have a ticket, not {self.ledger.users}")


def schedule_of(spec: CrashTestSpec) -> Schedule:
    """Return the faults that a crash test requests, in their order.

    Raises:
        RequestError: the order of ``faults`` is impossible, or `named_fault` refuses ``fault``.
    """
    if spec.faults:
        return Schedule.of(spec.faults, spec.stack)
    return Schedule.short(spec.during, named_fault(spec))


def named_fault(spec: CrashTestSpec) -> Fault | None:
    """Return the field ``fault`` of a crash test, with the fault of its name; None for no fault.

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
        self._first = lab.server
        """The server that is active at the beginning."""
        self.context = FaultContext(lab, self.stack)
        self.schedule = schedule_of(spec)
        self.members = MemberWatch(self.context, record)
        self.faults = FaultSequence(self.schedule, self.context, record, self.files, self.members, spec.cache_mode)
        self.replies: ReplyWatch | None = None
        self.errors = ErrorWatch({})

    def run(self) -> None:
        """Execute all steps of the crash test. After an error the lab is unusable; the record has what was seen."""
        if self.spec.fio is not None:
            self.lab.clients[0].require("fio")
        self.lab.disks.require(self.spec.cache_mode, combined(self._effects).caches or self.spec.policy)
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
            self._restore_servers()
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

    def _restore_servers(self) -> None:
        """After a takeover, boot the server that lost its power; the next crash test begins with the same one."""
        standby = self.lab.standby
        if standby is not None and standby.boot_id is None:
            self._say(f"booting {standby.name} again")
            standby.start()
        if self.lab.server is not self._first:
            self.lab.hand_over()

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
            no_locks=why_no_locks(stack, self._effects),
            no_zero_range=self._why_no_zero_range(),
            root_squash=stack.export.squashes_root,
            shows_old_data=stack.filesystem.shows_old_data,
            shares_blocks=stack.filesystem.shares_blocks,
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
        if stack.export.sees_local_changes:
            fill(ledger, server)
        self.record.workers = [worker.model_dump() for worker in ledger.workers]
        return ledger

    def _why_no_zero_range(self) -> str | None:
        """Return which client cannot zero a range of a file; None if all can: the Linux client can since 6.16."""
        if self.spec.stack.mount.vers != "4.2" or "zero_range" not in self.spec.ledger.doing():
            return None
        probe, size = f"{self._mount_point}/probe", str(ZEROED_BYTES)
        self.lab.clients[0].succeed(["truncate", "--size", size, probe])
        tried = {one.name: one.run(["fallocate", "--zero-range", "--length", size, probe]) for one in self.lab.clients}
        self.lab.clients[0].succeed(["rm", probe])
        refused = next(((name, ended) for name, ended in tried.items() if not ended.ok), None)
        return None if refused is None else f"FALLOC_FL_ZERO_RANGE fails on {refused[0]}: {refused[1].stderr.strip()}"

    def _promise_and_break(self, effective: StackState) -> None:
        observed = self.record.observed
        observed.intruders += attempts(self.stack, self.lab.clients[0], Occasion.BEFORE)
        ledger = self._ledger()
        for condition in self.schedule.conditions:
            self._say(condition.name)
            self.members.begin(condition)
        self.members.start()
        observed.write_back = read_write_back(self.lab.server, effective.filesystem)
        observed.disks = dict(self.lab.disks.counters())
        sent = self._calls()
        self.faults.end_lockd_grace()
        self.faults.keep_client_records()
        # The RPCs of an application have no mark, and several of them may belong to one operation.
        marked = [worker for worker in ledger.workers if worker.kind != APPLICATION]
        if self.spec.stack.mount.secured:
            mount = self.spec.stack.mount
            why_not = "the traffic between clients and server is encrypted"
            if mount.xprtsec == NONE and mount.sec != KRB5P:
                why_not = f"requests with sec={mount.sec} have no mark of the process that sent them"
            observed.replies = RepliesSeen(why_not=why_not)
            marked = []
        self.replies = ReplyWatch(self.lab, marked, ledger.path.parent) if marked else None
        watching = self.replies.watching(ledger.path) if self.replies else nullcontext()
        with self._captured(), watching, ledger.running():
            self._work_and_break(ledger)
        observed.calls = {name: counted - sent[name] for name, counted in self._calls().items()}
        if self.schedule.main is None:
            self.faults.end_recording()
        self.lab.disks.set_mode(CacheMode.VOLATILE)
        if self.record.files.on_server is None:
            self.record.files.on_server = self.faults.scan_server(ledger)
        self._scan_client(ledger)
        observed.intruders += attempts(self.stack, self.lab.clients[0], Occasion.AFTER)
        self.members.heal()

    def _work_and_break(self, ledger: Ledger) -> None:
        self._say("clients at work")
        self.record.ledger_begun_ns = now_ns()
        main, strikes_solo = self.schedule.main, self._strikes_solo
        before = {client.name: moment(client) for client in self.lab.clients}
        if self.schedule.is_short:
            ledger.work(self.spec.ledger_seconds)
        else:
            self.faults.earlier(ledger)
        if self._has_solo and not strikes_solo:
            # After the work of all, so that at the cuts of directed states each kind of operation was acknowledged.
            with self._solo(ledger):
                pass
            ledger.work(AGAIN_S)
        # Read the export options before the fault: a reboot would hide changes made during the work.
        self.record.observed.export = list(self.stack.export.applied())
        self.errors.look()
        with self._solo(ledger) if strikes_solo else nullcontext():
            if main is not None:
                self.faults.inject_main(main.scheduled.fault)
        if main is not None:
            self.faults.recover_main(main, ledger)
            self.faults.later(ledger)
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
        cut_or_none = self.schedule.main is None or self._caches is not None
        return bool(self.spec.solo_seconds) and not alone and self.schedule.is_short and cut_or_none

    @property
    def _strikes_solo(self) -> bool:
        """Whether the cut strikes right after the reply to a solo operation: half of the cuts do, by name and seed.

        A cut that keeps a part of the disks' caches strikes while all clients write: then the caches have much data.
        A fault that does more than cut the power does, too: it may wait for requests.
        """
        drawn = Random(f"{self.spec.name} {self.spec.seed}").random()  # noqa: S311
        plain = type(self.schedule.main_fault) is PowerCut and self._caches is CutPolicy.DROP
        return self._has_solo and plain and drawn < 0.5

    @property
    def _caches(self) -> CutPolicy | None:
        return self.record.effects.caches

    def _requests(self) -> int:
        """Return the number of requests that may change the disks so far."""
        counted = self.lab.disks.counters().values()
        return sum(one.writes + one.flushes + one.discards + one.zeroes for one in counted)

    def _calls(self) -> dict[str, Counter[str]]:
        """Return the number of NFS calls by operation on the mount of each client that has not lost power."""
        clients = [client for client in self.lab.clients if client.name not in self.record.lost_power]
        return {client.name: calls(client, self.stack.mounts[client.name].directory) for client in clients}

    @property
    def _effects(self) -> list[FaultEffects]:
        """The effects of each fault."""
        return [one.effects(self.spec.stack) for one in self.schedule.faults]

    def _tolerated_errnos(self) -> tuple[int, ...]:
        """Return the errors (errno) that the faults may cause, after which the ledger continues."""
        return tuple(sorted(combined(self._effects).errors))

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
