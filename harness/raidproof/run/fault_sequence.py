"""The faults of a crash test, one after the other: each is injected in its time, and the lab recovers from it."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any

from raidproof.core.command import CommandFailed
from raidproof.core.errors import DeadlineExceeded, NotRecovered
from raidproof.core.log import step
from raidproof.core.waiting import Deadline, now_ns, pause, wait_until
from raidproof.disk.cache import CacheMode
from raidproof.fault import Fault, FaultContext
from raidproof.fault.schedule import (
    AfterRecovery,
    AfterReplies,
    AfterWork,
    At,
    InRecovery,
    RecoveryStage,
    Schedule,
    ScheduledFault,
    Strike,
    WhenServed,
)
from raidproof.machine.kernel_log import stuck_tasks
from raidproof.machine.machine import Machine
from raidproof.record.run import CrashTestRecord, FaultRecord, Recovery
from raidproof.run.crash_test_files import CrashTestFiles
from raidproof.run.member_watch import MemberWatch, injected
from raidproof.workload.ledger import LEDGER_DIRECTORY, Ledger
from raidproof.workload.workload import on_all

RESUME_DEADLINE_S = 30.0
"""Seconds, in addition to `protocol_s`, until a client must have continued its work after a fault."""
REPLIES_DEADLINE_S = 60.0
"""Seconds until the clients must have reported the operations after which a fault is scheduled."""
DROP_CACHES = "/proc/sys/vm/drop_caches"
_AT_ONCE = """
import os, sys, threading
for _ in range(int(sys.argv[2])):
    threading.Thread(target=os.statvfs, args=sys.argv[1:2]).start()
"""


class FaultSequence:
    """Injects the faults of a crash test while clients work, and lets the lab recover from each.

    `earlier`, `inject_main`, `recover_main` and `later` are called in this order.
    """

    def __init__(
        self,
        schedule: Schedule,
        context: FaultContext,
        record: CrashTestRecord,
        files: CrashTestFiles,
        members: MemberWatch,
        cache_mode: CacheMode,
    ) -> None:
        self.schedule = schedule
        self.context = context
        self.record = record
        self.files = files
        self.members = members
        self.cache_mode = cache_mode
        self._server_faults = sum(fault.target(context) is context.lab.server for fault in schedule.faults)
        """Number of faults that take the server down and are not injected yet."""
        self._recovered_ns = 0
        """The instant at which a client could continue after the last fault that ended."""
        self._reported_before = 0
        """Number of operations that the clients had reported when the fault before began or had ended."""
        self._worked = False
        """Whether enough operations of each kind were acknowledged before the first fault that ends."""
        self._roused = True
        """Whether the clients were made to reconnect after the last fault that took the server down."""
        self._main: FaultRecord | None = None

    def earlier(self, ledger: Ledger) -> None:
        """Carry out the faults before the main fault, and wait for the moment of the main fault."""
        for strike in self.schedule.earlier:
            self._carry_out(strike, ledger)
        if self.schedule.main is not None:
            self._wait_for(self.schedule.main.scheduled, ledger)
            self._work_enough(ledger)

    def inject_main(self, fault: Fault) -> None:
        """Inject the main fault, and end the recording of the write log."""
        entry, record = self._inject(fault), self.record
        self._main, entry.recovery = entry, record.recovery
        record.fault_begun_ns, record.fault_at_ns, record.fault_ended_ns = entry.begun_ns, entry.at_ns, entry.ended_ns
        record.fault_proof, record.fault_target, record.disks = entry.proof, entry.target, entry.disks
        self.end_recording()

    def recover_main(self, main: Strike, ledger: Ledger) -> None:
        """Let the lab recover from the main fault. Raises as `_recover`."""
        entry = self._main
        if entry is None:
            raise ValueError("the main fault was not injected")
        try:
            self._recover(main, entry, ledger)
        finally:
            self.record.resumed_ns = entry.resumed_ns
            self.record.files.on_server = entry.on_server_file

    def later(self, ledger: Ledger) -> None:
        """Carry out the faults after the main fault; then wait until each fault with a duration was healed."""
        for strike in self.schedule.later:
            self._carry_out(strike, ledger)
        while (due := self.members.next_due) is not None:
            self._heal_at(due)

    def end_recording(self) -> None:
        """End the write log, and record the disk engine's counters."""
        lab, record = self.context.lab, self.record
        if (closed := lab.disks.log_stop()) is not None:
            record.observed.write_log = closed
        for serial, counters in lab.disks.counters().items():
            record.disks[serial] = asdict(counters) | record.disks.get(serial, {})

    def scan_server(self, ledger: Ledger, name: str = "on-server.json") -> str:
        """Read the ledger back on the server; return the file with what was found, relative to the run's directory."""
        self._say("reading back on the server")
        stack, server = self.context.stack, self.context.lab.server
        server.put("3\n", DROP_CACHES)
        found = ledger.scan(server, f"{stack.filesystem.directory}/{LEDGER_DIRECTORY}")
        return self.files.write(name, json.dumps(found))

    def end_lockd_grace(self) -> None:
        """End lockd's grace period, unless the clients use NFSv3 and may have locks to reclaim."""
        if self.context.stack.spec.mount.vers != "3":
            self.context.stack.export.end_lockd_grace()

    def keep_client_records(self) -> None:
        """Make the server's records of its clients durable.

        Without this sync, a power cut within seconds would lose the record of the newest client, and with it the
        client's locks (docs/findings.md). The array's members are not on this file system.
        """
        self.context.lab.server.succeed(["sync", "--file-system", self.context.stack.export.client_records])

    def _say(self, what: str) -> None:
        step(f"{self.record.title}: {what}")

    def _carry_out(self, strike: Strike, ledger: Ledger) -> None:
        """Carry out a fault beside the main fault: one that stays in effect only begins."""
        scheduled = strike.scheduled
        self._wait_for(scheduled, ledger)
        if scheduled.stays:
            if scheduled.fault.may_last:
                # While it lasts, kinds of operation that need space are not acknowledged.
                self._work_enough(ledger)
            self._say(scheduled.fault.name)
            self.members.begin(scheduled.fault, scheduled.lasts_s)
            self._reported_before = ledger.reported()
            return
        self._work_enough(ledger)
        entry = self._inject(scheduled.fault)
        self.record.during.append(entry)
        self._recover(strike, entry, ledger)

    def _work_enough(self, ledger: Ledger) -> None:
        """Before the first fault that ends or leaves no space, wait for enough work, as `Ledger.work` does."""
        if not self._worked:
            ledger.work(0.0)
            self._worked = True

    def _wait_for(self, scheduled: ScheduledFault, ledger: Ledger) -> None:
        """Wait for the moment of a fault; meanwhile heal the faults whose duration ends."""
        match scheduled.moment:
            case At(seconds):
                self._pause_until((self.record.ledger_begun_ns or 0) + int(seconds * 1e9))
            case AfterRecovery(seconds):
                self._pause_until(self._recovered_ns + int(seconds * 1e9))
            case AfterReplies(count):
                what = f"{count:,} acknowledged operations, after which {scheduled.fault.name} follows"
                wait_until(lambda: self._reported(ledger) >= count, Deadline.after(REPLIES_DEADLINE_S), what)
            case AfterWork() | InRecovery() | WhenServed():
                pass

    def _pause_until(self, instant_ns: int) -> None:
        while (due := self.members.next_due) is not None and due.at_ns < instant_ns:
            self._heal_at(due)
        pause(Deadline(instant_ns).remaining_s)

    def _reported(self, ledger: Ledger) -> int:
        """Return the number of operations reported since the fault before; heal the faults whose duration ends."""
        if (due := self.members.next_due) is not None and due.passed:
            self._heal_at(due)
        return ledger.reported() - self._reported_before

    def _heal_at(self, due: Deadline) -> None:
        pause(due.remaining_s)
        self._say("healing a fault whose duration has ended")
        self.members.heal_due()

    def _inject(self, fault: Fault, after_stage: RecoveryStage | None = None) -> FaultRecord:
        """Inject a fault; return its record."""
        self._say(fault.name)
        entry = injected(fault, self.context)
        self._server_faults -= fault.target(self.context) is self.context.lab.server
        if self.cache_mode is CacheMode.NONE and self._server_faults <= 0:
            # Set the mode while no guest is connected: a guest that has seen a disk without a cache never flushes it.
            self.context.lab.disks.set_mode(CacheMode.VOLATILE)
        entry.after_stage = after_stage
        return entry

    def _recover(self, strike: Strike, entry: FaultRecord, ledger: Ledger) -> None:
        """Heal a fault, bring the services online again, and wait until a client continues.

        Raises:
            NotRecovered: the array does not assemble, or the file system does not mount.
            DeadlineExceeded: no client continues.
        """
        fault, lab = strike.scheduled.fault, self.context.lab
        pause(strike.scheduled.lasts_s or 0.0)
        self._say("recovering")
        target = fault.target(self.context)
        # After a takeover, the server is another machine.
        takes_server_down = target is lab.server
        if target is None:
            entry.resumed_ns = now_ns()
            fault.heal(self.context)
            self.end_lockd_grace()
        elif takes_server_down:
            self._recover_server(strike, entry, ledger)
        else:
            entry.recovery.boot_s = timed(partial(fault.heal, self.context))
            entry.recovery.mount_s = timed(partial(self.context.stack.activate_client, target.name))
            entry.resumed_ns = now_ns()
        if strike.followed_at_once:
            self._roused = False
            return
        if takes_server_down or not self._roused:
            self._rouse_clients(wait=ledger.is_idle())
            self._roused = True
        resumed_ns = entry.resumed_ns or 0
        deadline = Deadline.after(protocol_s(self.record.effective) + RESUME_DEADLINE_S)
        wait_until(lambda: ledger.heard_since(resumed_ns) or ledger.is_idle(), deadline, "a client to continue")
        if target is None or self._server_faults > 0:
            # A disconnected client may need longer. If a client never continues, its operations in the ledger show it.
            with suppress(DeadlineExceeded):
                wait_until(lambda: ledger.all_began_since(resumed_ns), deadline, "every client to continue")
        if self._server_faults > 0:
            self.keep_client_records()
        self._recovered_ns, self._reported_before = now_ns(), ledger.reported()

    def _recover_server(self, strike: Strike, entry: FaultRecord, ledger: Ledger) -> None:
        interrupting = self._bring_up(strike, entry)
        # Read back before any client can write again: a resent write would replace a torn block.
        name = "on-server.json" if entry is self._main else f"on-server-after-{len(self.record.during)}.json"
        entry.on_server_file = self.scan_server(ledger, name)
        _, _, export = self.context.stack.server_steps()
        for one in (entry, *interrupting):
            one.resumed_ns = now_ns()
        export.run()
        self.end_lockd_grace()

    def _bring_up(self, strike: Strike, entry: FaultRecord) -> list[FaultRecord]:
        """Bring the server up to the mounted file system; return the power cuts that interrupted this."""
        fault, interrupting = strike.scheduled.fault, list[FaultRecord]()
        for cut in strike.interruptions:
            if isinstance(cut.moment, InRecovery):
                self._bring_up_to(cut.moment.stage, fault, entry.recovery)
                fault = cut.fault
                interrupting.append(self._inject(fault, cut.moment.stage))
                self.record.during.append(interrupting[-1])
        self._bring_up_to(RecoveryStage.MOUNT, fault, entry.recovery)
        return interrupting

    def _bring_up_to(self, last: RecoveryStage, fault: Fault, recovery: Recovery) -> None:
        """Heal a fault that took the server down, and carry out the stages of the recovery up to ``last``.

        Raises:
            NotRecovered: the array does not assemble, or the file system does not mount.
        """
        recovery.boot_s = timed(partial(fault.heal, self.context))
        if last is RecoveryStage.BOOT:
            return
        self.members.before_assembly()
        # Assemble the existing array and mount its file system; create nothing, force nothing.
        assemble, mount, _ = self.context.stack.server_steps()
        try:
            recovery.assemble_s = timed(assemble.run)
            self.members.after_assembly()
            if last is RecoveryStage.MOUNT:
                recovery.mount_s = timed(mount.run)
        except CommandFailed as error:
            raise NotRecovered(f"the storage does not recover after the fault {fault.name}: {error}") from error
        except DeadlineExceeded as error:
            stuck = stuck_tasks(self.context.lab.server, self._disk_counters)
            if stuck is None:
                raise
            raise NotRecovered(f"the server hangs after the fault {fault.name}: {stuck}; {error}") from error

    def _disk_counters(self) -> dict[str, dict[str, Any]]:
        """Return the disk engine's counters of each member, by serial."""
        return {serial: asdict(counted) for serial, counted in self.context.lab.disks.counters().items()}

    def _rouse_clients(self, *, wait: bool) -> None:
        """Make every client send a new request, so that it detects the dead connection at once.

        ``wait``: wait for the replies, because no worker of a client continues and shows that the client is served.

        Without a new request, an NFSv4 client whose requests had all reached the server before the fault detects the
        dead connection only at its next lease renewal, 60 s into a lease of 90 s: it retransmits a request only on a
        new connection. An NFSv3 client detects it as late, when a request times out (timeo, nfs(5)).
        """
        stack = self.context.stack
        connections = stack.spec.mount.nconnect or 1
        # All clients at the same time: a client that reconnects first retries at growing intervals until all others
        # have reclaimed their state.
        deadline_s = protocol_s(self.record.effective) + RESUME_DEADLINE_S

        def rouse(client: Machine) -> None:
            command = rousing_command(stack.mounts[client.name].directory, connections)
            if wait:
                client.succeed(command, deadline_s=deadline_s)
            else:
                client.start_command(command)

        on_all(self.context.lab.clients, rouse)


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
