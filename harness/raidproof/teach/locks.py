"""Locks of two clients while the server restarts or the holder is disconnected: the replies to each, and when."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from raidproof.core.errors import RigError
from raidproof.core.log import step
from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.fault import ClientNetworkCut, FaultContext, MissedGrace, NfsdRestart
from raidproof.lab.lab import Lab
from raidproof.machine.agent import RemoteCommand
from raidproof.storage.stack import Stack, StackSpec, on_disks
from raidproof.workload.lock import Answer, LockHolder, lock_holder

FILE = "locked"
AGAIN = "EAGAIN"
"""Error of a lock request while another process holds the lock (fcntl(2))."""
MOST_LEASES = 4
"""Greatest number of lease times until the server releases the lock of a disconnected client."""
CLOSE_DEADLINE_S = 60.0


@dataclass
class LocksSeen:
    """The observations of one event."""

    values: dict[str, float] = field(default_factory=dict)
    sentences: list[str] = field(default_factory=list)


def observe_locks(lab: Lab, spec: StackSpec, event: str) -> LocksSeen:
    """Build a stack, lock a file on the last client, cause the event, and return what both clients observed.

    Raises:
        RigError: the rig failed; the lab is unusable.
        RequirementMissing: the harness does not control this lab's network.
    """
    step("building array and file system")
    lab.disks.reset()
    stack = Stack(on_disks(spec, zeroed=lab.disks.zeroed), lab.server, lab.clients)
    stack.create()
    effective = stack.activate()
    with lock_holder(lab.clients[0], lab) as other, lock_holder(lab.clients[-1], lab) as holder:
        watch = _Watch(FaultContext(lab, stack), holder, other)
        watch.seen.values |= {
            "grace_seconds": float(effective.export.grace_s),
            "lease_seconds": float(effective.export.lease_s),
        }
        watch.take()
        {"restart": watch.restart, "missed-grace": watch.missed_grace, "lease-expiry": watch.lease_expiry}[event]()
        watch.close()
    stack.deactivate()
    return watch.seen


class _Watch:
    """Two processes on two clients: the holder of a lock, and another process that wants the lock."""

    def __init__(self, context: FaultContext, holder: LockHolder, other: LockHolder) -> None:
        self.context = context
        self.holder = holder
        self.other = other
        self.seen = LocksSeen()
        self._roused: list[RemoteCommand] = []
        path = f"{context.stack.mounts[holder.client.name].directory}/{FILE}"
        # End the grace period of the first start: no client has anything to reclaim.
        context.stack.export.end_grace()
        context.stack.export.end_lockd_grace()
        self.held, self.wanted = holder.open(path), other.open(path)

    def take(self) -> None:
        """Lock the file, and verify that the server refuses the second lock."""
        self.holder.do("lock", self.held, "write").require("lock")
        # Without this sync, the server's record of the newest client may be missing after a power cut.
        self.context.lab.server.succeed(["sync", "--file-system", self.context.stack.export.client_records])
        refused = self.other.do("lock", self.wanted, "write")
        self.seen.values["refused_before"] = float(refused.error == AGAIN)
        self._say(f"{self._other} requests the lock: {_words(refused)}")

    def restart(self) -> None:
        """Restart nfsd; the holder reclaims its lock in the grace period."""
        step("nfsd restarts")
        fault = NfsdRestart()

        def restarted() -> None:
            fault.inject(self.context)
            fault.heal(self.context)

        self._timed(restarted)
        self._rouse()
        begun = now_ns()
        step("the other client requests the lock, and waits for the end of the grace period")
        self.other.begin("lock", self.wanted, "write")
        self._holder_writes()
        self._answered(self._ended(), begun)

    def missed_grace(self) -> None:
        """Disconnect the holder while nfsd restarts, until the grace period has ended; then connect it again."""
        step("the holder is disconnected, nfsd restarts, and the grace period passes")
        fault = MissedGrace()
        self._timed(lambda: fault.inject(self.context))
        begun = now_ns()
        answered = self.other.do("lock", self.wanted, "write")
        self._answered(answered, begun)
        self._back(lambda: fault.heal(self.context))

    def lease_expiry(self) -> None:
        """Disconnect the holder until the server gives the lock to the other client; then connect the holder again."""
        fault = ClientNetworkCut(held_s=0)
        fault.inject(self.context)
        begun = now_ns()
        step("the holder is disconnected; the other client requests the lock again and again")
        limit = MOST_LEASES * self.seen.values["lease_seconds"]
        answers: list[Answer] = []

        def granted() -> bool:
            answers.append(self.other.do("lock", self.wanted, "write"))
            return answers[-1].ok

        with suppress(RigError):  # the lock was not given within the limit: the last answer says so
            wait_until(granted, Deadline.after(limit), "the server to release the lock of the holder", 0.5)
        self.seen.values["event_seconds"] = (now_ns() - begun) / 1e9
        self._answered(answers[-1], begun)
        self._back(lambda: fault.heal(self.context))

    def _back(self, heal: Callable[[], object]) -> None:
        heal()
        self._rouse()
        self._holder_writes()

    def _timed(self, action: Callable[[], object]) -> None:
        begun = now_ns()
        action()
        self.seen.values["event_seconds"] = (now_ns() - begun) / 1e9

    def _rouse(self) -> None:
        """Send a request from each client, so that it notices the restart or the end of its lease at once."""
        for client in self.context.lab.clients:
            directory = self.context.stack.mounts[client.name].directory
            self._roused.append(client.start_command(["stat", "--file-system", directory]))

    def close(self) -> None:
        """Close the file on both clients: a client with an open file cannot unmount the export."""
        for command in self._roused:
            command.wait(Deadline.after(CLOSE_DEADLINE_S))
        self.holder.do("close", self.held)
        self.other.do("close", self.wanted)

    def _ended(self) -> Answer:
        return self.other.ended(self.seen.values["grace_seconds"] + 60.0)

    def _answered(self, answer: Answer, begun_ns: int) -> None:
        waited = (now_ns() - begun_ns) / 1e9
        self.seen.values |= {
            "wait_seconds": waited,
            "kept": float(answer.error == AGAIN),
            "taken": float(answer.ok),
        }
        self._say(f"{self._other} requests the lock after the event: {_words(answer)}, after {waited:.1f} s")

    def _holder_writes(self) -> None:
        step("the holder writes to its locked file")
        begun = now_ns()
        answers = {
            "write": self.holder.do("write", self.held, "mine"),
            "fsync": self.holder.do("fsync", self.held),
        }
        self.seen.values["write_seconds"] = (now_ns() - begun) / 1e9
        self.seen.values["holder_errors"] = float(sum(not one.ok for one in answers.values()))
        for call, one in answers.items():
            self._say(f"{self.holder.client.name}, which held the lock, calls {call}: {_words(one)}")

    @property
    def _other(self) -> str:
        return self.other.client.name

    def _say(self, sentence: str) -> None:
        self.seen.sentences.append(sentence)


def _words(answer: Answer) -> str:
    return "it succeeds" if answer.ok else f"it fails with {answer.error}"
