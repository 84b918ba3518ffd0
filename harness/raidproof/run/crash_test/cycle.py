"""One cycle: build the stack, measure it, let clients work, break something, bring it back, and look at what is left.

Everything that is seen goes to disk before anything is judged. The order of the steps after a fault is part of the
test: the server's own view is read before clients can write again, the clients' view after they have resumed.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from zlib import crc32

from raidproof.core.command import CommandFailed
from raidproof.core.errors import DeadlineExceeded, NotRecovered, RigError
from raidproof.core.log import step
from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.disk.cache import CacheMode
from raidproof.fault import Fault, FaultContext, allowed_by
from raidproof.machine.kernel_log import moment, said_since
from raidproof.machine.tasks import stuck_tasks
from raidproof.monitor.calls import calls
from raidproof.monitor.capture import capturing
from raidproof.monitor.packets import write_exchanges
from raidproof.monitor.read_back import fetched
from raidproof.provider.registry import Lab
from raidproof.record.run import CycleRecord, Throughput
from raidproof.run.crash_test.files import CycleFiles
from raidproof.run.crash_test.members import MemberWatch
from raidproof.run.crash_test.replies import ReplyWatch
from raidproof.run.crash_test.spec import CycleSpec, fault_of
from raidproof.storage.array import holders_of_old_data
from raidproof.storage.filesystem.write_back import read_write_back
from raidproof.storage.stack import Stack, on_disks
from raidproof.workload.fio import FioSpec, fio_command, parse_fio
from raidproof.workload.ledger import Ledger
from raidproof.workload.machines import on_all

LEDGER_DIRECTORY = "ledger"
RESUME_DEADLINE_S = 30.0
STOP_DEADLINE_S = 60.0
"""Both beyond the time that NFS itself may take; see `protocol_s`."""
CLIENT_RECORDS = "/var/lib/nfs"
DROP_CACHES = "/proc/sys/vm/drop_caches"
FIO_DEADLINE_S = 300.0
_AT_ONCE = """
import os, sys, threading
for _ in range(int(sys.argv[2])):
    threading.Thread(target=os.statvfs, args=sys.argv[1:2]).start()
"""
MEASUREMENTS = 3
"""Of a cycle's sequential write: one alone wavers with whatever else the host does."""


def run_cycle(lab: Lab, spec: CycleSpec, record: CycleRecord, directory: Path) -> None:
    """Carry out a cycle and fill its record; raw observations go to ``directory / spec.name``.

    Raises:
        RequestError: the stack or the fault cannot be.
        RequirementMissing: a machine lacks a program that the cycle needs.
        NotRecovered: array or file system do not come back after the fault.
        RigError: the rig failed; the record holds what was seen until then.
        NotEffective: the stack is not what was asked for.
    """
    Cycle(lab, spec, record, directory).run()


class Cycle:
    """The steps of one cycle, in their order."""

    def __init__(self, lab: Lab, spec: CycleSpec, record: CycleRecord, directory: Path) -> None:
        self.lab = lab
        self.spec = spec
        self.record = record
        self.files = CycleFiles(record, directory, spec.name)
        self.stack = Stack(on_disks(spec.stack, zeroed=lab.disks.zeroed), lab.server, lab.clients)
        self.context = FaultContext(lab, self.stack)
        self.fault = fault_of(spec)
        self.victim = self.fault.victim(self.context) if self.fault else None
        self.members = MemberWatch(self.context, record)
        self.replies: ReplyWatch | None = None

    def run(self) -> None:
        """Go through all steps. After an error the lab is of no more use; what was seen until then is kept."""
        if self.spec.fio is not None:
            self.lab.clients[0].require("fio")
        self.lab.disks.require(self.spec.cache_mode, self.spec.policy)
        self.lab.disks.reset(self._old())
        begun = {name: moment(machine) for name, machine in self.lab.machines.items()}
        try:
            if self.spec.fio is not None:
                self._provision()
                self._measure(self.spec.fio)
            # From blank disks on, or no crash state of it could be rebuilt.
            self.lab.disks.log_start(self.files.path("write log", "write.log"))
            self._provision()
            self._promise_and_break()
            self._check()
        finally:
            self._enter_replies()
            for name, since in begun.items():
                # One that is dead may have no console to read; that must not cost what the others said.
                with suppress(RigError):
                    said = said_since(self.lab.machines[name], since)
                    self.files.write(f"console {name}", f"console.{name}.log", said)

    def _old(self) -> tuple[str, ...]:
        """Return the disks that hold old data where nothing was written."""
        offered = {disk.serial for disk in self.lab.topology.disks if disk.old_data}
        holders = holders_of_old_data(self.stack.spec.array)
        # Without one of them the others' parity is not zero.
        old = tuple(holders) if offered.issuperset(holders) else ()
        self.record.checks["old data"] = list(old)
        return old

    def _say(self, what: str) -> None:
        step(f"{self.spec.title}: {what}")

    def _provision(self) -> None:
        self._say("building array and file system")
        self.stack.create()
        self.record.effective = self.stack.activate().model_dump(mode="json")

    def _measure(self, fio: FioSpec) -> None:
        """Measure on a stack of its own: to log every byte would be part of what was measured."""
        self._say("sequential write")
        client = self.lab.clients[0]
        path = f"{self._mount_point}/throughput"
        rates = []
        # The first measurement is discarded: the engine allocates memory for the first writes to fresh disks.
        for number in range(MEASUREMENTS + 1):
            client.succeed(["rm", "-f", path])
            said = client.succeed(fio_command(fio, path), deadline_s=FIO_DEADLINE_S)
            if number:
                self.files.write(f"fio {number}", f"fio-{number}.json", said)
                rates.append(parse_fio(said).mb_per_s)
        self.record.throughput = Throughput(sequential_write_mb_s=median(rates), sequential_write_each=rates)
        self.stack.deactivate()
        self.lab.disks.reset(self._old())

    @property
    def _mount_point(self) -> str:
        return self.stack.mounts[self.lab.clients[0].name].directory

    def _promise_and_break(self) -> None:
        root = f"{self._mount_point}/{LEDGER_DIRECTORY}"
        self.lab.clients[0].succeed(["mkdir", root])
        # Only now: of a disk that lied from the start, no array would be left to lose anything.
        self.lab.disks.set_mode(self.spec.cache_mode, self.spec.cache_mode_of)
        # A block of an earlier cycle must not pass for one of this.
        seed = self.spec.ledger.seed + crc32(self.spec.name.encode())
        fitting, left_out = self.spec.ledger.fitting(self.spec.stack.mount.vers, self.spec.stack.filesystem.type)
        self.record.workload["left_out"] = left_out
        ledger_spec = fitting.model_copy(update={"seed": seed, "endured": self._allow_errors()})
        ledger = Ledger(ledger_spec, self.lab.clients, self.lab, root, self.files.path("history", "history"))
        self.record.workers = [worker.model_dump() for worker in ledger.workers]
        faults = (*self.spec.during, self.fault)
        self.record.explanation = next(filter(None, (getattr(one, "explains", None) for one in faults)), None)
        for condition in self.spec.during:
            self._say(condition.name)
            self.members.begin(condition)
        alarms = [word for one in (self.fault, *self.spec.during) for word in getattr(one, "alarms", ())]
        self.record.checks["alarms"] = alarms
        self.members.start()
        written = read_write_back(self.lab.server, self.stack.filesystem.state())
        self.record.checks["write back"] = written.model_dump(mode="json")
        self.record.checks["disks"] = self._disk_counters()
        sent = self._calls()
        self._end_lockd_grace()
        # nfsdcld's record of the client that came last, and with it a lock, is lost if the power goes within seconds
        # (docs/findings.md). The members are not on that file system.
        self.lab.server.succeed(["sync", "--file-system", CLIENT_RECORDS])
        self.replies = ReplyWatch(self.lab, ledger.workers, ledger.path.parent)
        with self._captured(), self.replies.watching(ledger.path), ledger.running():
            self._say("clients at work")
            self.record.ledger_begun_ns = now_ns()
            ledger.work(self.spec.ledger_seconds)
            # What an administrator changed meanwhile nobody would see after a reboot.
            self.record.checks["export"] = self.stack.export.applied()
            before = {client.name: moment(client) for client in self.lab.clients}
            if self.fault is not None:
                self._break(self.fault)
                self._bring_back(self.fault, ledger)
            self._say("clients finish")
            ledger.stop(Deadline.after(protocol_s(self.record.effective) + STOP_DEADLINE_S))
            # Each client was served again, or it would not have come to its end.
            for name, since in before.items():
                said = said_since(self.lab.machines[name], since)
                self.files.write(f"server away {name}", f"away.{name}.log", said)
        self.record.checks["calls"] = {name: counted - sent[name] for name, counted in self._calls().items()}
        if self.fault is None:
            self._end_recording()
        self.lab.disks.set_mode(CacheMode.VOLATILE)
        if "on_server" not in self.record.files:
            self._scan_server(ledger)
        self._look_through_client(ledger)
        self.members.heal()

    def _end_lockd_grace(self) -> None:
        """Let clients take locks at once: there is no NFSv3 client that has any to reclaim."""
        if self.spec.stack.mount.vers != "3":
            self.stack.export.end_lockd_grace()

    def _calls(self) -> dict[str, Counter[str]]:
        """Return how often each client that had no power cut has sent each call on its mount."""
        clients = [client for client in self.lab.clients if client.name not in self.record.lost_power]
        return {client.name: calls(client, self.stack.mounts[client.name].directory) for client in clients}

    def _allow_errors(self) -> tuple[int, ...]:
        """Note the errors of which clients may be told, and return those at which the ledger goes on."""
        allowed = [sorted(allowed_by(one, self.context)) for one in self.spec.during]
        self.record.allowed_errors = sorted({number for numbers in allowed for number in numbers})
        self.record.allowed_by_fault = sorted(allowed_by(self.fault, self.context)) if self.fault else []
        return tuple(sorted({*self.record.allowed_errors, *self.record.allowed_by_fault}))

    @contextmanager
    def _captured(self) -> Iterator[None]:
        """Capture what goes over the wire meanwhile, if that is asked."""
        if not self.spec.capture:
            yield
            return
        with capturing(self.lab, self.files.path("capture", "nfs.pcapng")) as capture:
            yield
        self.files.write("wire", "wire.json", write_exchanges(capture.exchanges()))

    def _enter_replies(self) -> None:
        """Note when the server acknowledged the ledger's operations, as far as it was seen on the wire."""
        if self.replies is not None:
            self.replies.finish()
            self.record.checks["replies"] = self.replies.seen
            if self.replies.found is not None:
                self.files.path("replies", self.replies.found.name)

    def _break(self, fault: Fault) -> None:
        self._say(fault.name)
        self.record.fault_begun_ns = now_ns()
        injected = fault.inject(self.context)
        self.record.fault_at_ns = injected.at_ns
        self.record.fault_proof = injected.proof
        self.record.disks = {fate.serial: asdict(fate) for fate in injected.fates}
        if self.victim in self.lab.clients:
            self.record.lost_power = [injected.target]
        self._end_recording()
        if self.spec.cache_mode is CacheMode.NONE:
            # While nothing is connected: a guest that once saw a disk without a cache would never flush it again.
            self.lab.disks.set_mode(CacheMode.VOLATILE)

    def _end_recording(self) -> None:
        if (closed := self.lab.disks.log_stop()) is not None:
            self.record.checks["write log"] = asdict(closed)
        for serial, counters in self.lab.disks.counters().items():
            self.record.disks[serial] = asdict(counters) | self.record.disks.get(serial, {})

    def _bring_back(self, fault: Fault, ledger: Ledger) -> None:
        self._say("coming back")
        recovery = self.record.recovery
        if self.victim is None:
            resumed_ns = self.record.resumed_ns = now_ns()
            fault.heal(self.context)
            self._end_lockd_grace()
        elif self.victim is self.lab.server:
            recovery.boot_s = timed(partial(fault.heal, self.context))
            self.members.before_assembly()
            # Assemble and mount what is there. Nothing is created, nothing forced.
            assemble, mount, export = (one.run for one in self.stack.server_steps())
            try:
                recovery.assemble_s = timed(assemble)
                self.members.after_assembly()
                recovery.mount_s = timed(mount)
            except CommandFailed as error:
                raise NotRecovered(f"after the {fault.name} the storage does not come back: {error}") from error
            except DeadlineExceeded as error:
                stuck = stuck_tasks(self.lab.server, self._disk_counters)
                if stuck is None:
                    raise
                raise NotRecovered(f"after the {fault.name} the server hangs: {stuck}; {error}") from error
            # Before any client can write again: from here on its resent writes would fill what the cut had torn.
            self._scan_server(ledger)
            resumed_ns = self.record.resumed_ns = now_ns()
            export()
            self._end_lockd_grace()
            self._rouse_clients()
        else:
            recovery.boot_s = timed(partial(fault.heal, self.context))
            recovery.mount_s = timed(partial(self.stack.activate_client, self.victim.name))
            resumed_ns = self.record.resumed_ns = now_ns()
        deadline = Deadline.after(protocol_s(self.record.effective) + RESUME_DEADLINE_S)
        wait_until(lambda: ledger.heard_since(resumed_ns), deadline, "a client to go on")

    def _disk_counters(self) -> dict[str, dict[str, Any]]:
        """Return the engine's counters of each member disk, by its serial."""
        return {serial: asdict(counted) for serial, counted in self.lab.disks.counters().items()}

    def _rouse_clients(self) -> None:
        """Let every client ask for something new.

        One whose requests had all reached the server before it died sends nothing again (NFSv4 repeats a request only
        on a new connection), so it learns that the connection is dead with its next lease renewal: after 60 of 90 s.
        NFSv3 learns it after as long, when its request times out (timeo, nfs(5)).
        """
        connections = self.spec.stack.mount.nconnect or 1
        # Side by side: a client that reconnects first retries at growing intervals until all others have reclaimed.
        on_all(
            self.lab.clients,
            lambda client: client.start_command(
                rousing_command(self.stack.mounts[client.name].directory, connections)
            ),
        )

    def _scan_server(self, ledger: Ledger) -> None:
        self._say("reading back on the server")
        self.lab.server.put("3\n", DROP_CACHES)
        found = ledger.scan(self.lab.server, f"{self.stack.filesystem.directory}/{LEDGER_DIRECTORY}")
        self.files.write("on_server", "on-server.json", json.dumps(found))

    def _look_through_client(self, ledger: Ledger) -> None:
        """Read everything through the last client, whose cache a new mount has emptied."""
        self._say("reading back through a client")
        client = self.lab.clients[-1]
        mount = self.stack.mounts[client.name]
        mount.deactivate()
        mount.activate()
        on_all([self.lab.server, client], lambda machine: machine.put("3\n", DROP_CACHES))
        before = fetched(client, mount.directory)
        found = ledger.scan(client, ledger.root)
        counted = fetched(client, mount.directory).since(before)
        self.record.checks["read back"] = {"client": client.name, **counted._asdict()}
        self.files.write("on_client", "on-client.json", json.dumps(found))

    def _check(self) -> None:
        self._say("checking file system and array")
        self.stack.deactivate_clients()
        self.stack.export.deactivate()
        self.stack.filesystem.deactivate()
        self.record.checks["filesystem"] = self.stack.filesystem.check().model_dump(mode="json")
        self.record.checks["array"] = self.stack.array.scrub().model_dump(mode="json")
        self.members.end()
        # The machine stays up: the next cycle must not find this one's knobs.
        self.stack.tuning.deactivate()
        self.stack.array.deactivate()
        if self.record.fault_at_ns is not None:
            self.record.verified_s = (now_ns() - self.record.fault_at_ns) / 1e9


def rousing_command(directory: str, connections: int) -> list[str]:
    """Ask something new of a mount, on each of its connections.

    With several, the kernel gives a request to one on which no more than the average are waiting: a dead one only gets
    it while others are busy. This sends as many requests at once as the mount has connections.
    """
    if connections == 1:
        return ["stat", "--file-system", directory]
    return ["python3", "-c", _AT_ONCE, directory, str(8 * connections)]


def protocol_s(effective: Mapping[str, Any]) -> float:
    """Return for how long NFSv4 may keep a client waiting after its server has restarted.

    The client notices with the next renewal of its lease, at the latest; what it opens then may wait for the end of
    the grace period, which NFSv4.0 clients cannot shorten.
    """
    return float(effective["export"]["lease_s"] + effective["export"]["grace_s"])


def timed(action: Callable[[], object]) -> float:
    """Do something and return how many seconds it took."""
    begun = now_ns()
    action()
    return (now_ns() - begun) / 1e9
