"""The ledger: clients write blocks and names; each acknowledgement is recorded outside of what may crash."""

import json
import selectors
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from raidproof.core.command import Completed
from raidproof.core.errors import DeadlineExceeded, RequestError, RigError, nearest
from raidproof.core.waiting import Deadline, now_ns, pause, realtime_ahead_ns, wait_until
from raidproof.guest import ledger_reader, ledger_writer
from raidproof.machine.agent import RemoteCommand
from raidproof.machine.machine import Machine
from raidproof.storage.filesystem import FILESYSTEMS
from raidproof.workload.history import History, Recorder, WorkerSpec

WRITER = "/run/raidproof/ledger_writer.py"
READER = "/run/raidproof/ledger_reader.py"
START_DEADLINE_S = 60.0
ENOUGH_DEADLINE_S = 30.0
"""Seconds that clients may continue until each kind of operation was done often enough to be judged."""
SCAN_DEADLINE_S = 120.0
LEAST = 4
"""Operations of each kind for which a cut waits; below three that could show a loss, the promise is not judged."""
SO_TIMESTAMPNS = 35
"""Lets the kernel stamp received data, also on TCP sockets (asm-generic/socket.h; not in Python's socket)."""
_TIMESPEC = struct.Struct("@qq")

Found = dict[str, dict[str, object]]
"""Result of a scan: for each worker's files, block generations and names."""

KINDS = (
    "fsync", "fdatasync", "o_sync", "o_dsync", "o_direct", "msync", "close", "pages", "unaligned",
    "metadata", "metadata", "metadata", "extents", "extents", "shared", "o_append",
)  # fmt: skip
"""The default workers of each client, one per entry.

Kinds with many operations have several workers, because a cut waits until each operation was done often enough.
"""

# How the blocks of each kind of worker lie: pages that are not adjacent need several WRITEs, which the client sends as
# UNSTABLE, plus a COMMIT; it sends data that fits into one WRITE as FILE_SYNC (nfs_generic_flush in fs/nfs).
LAYOUTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "close": {"files": True},
        # Not a default: Linux' client does not resend what a restarted server lost of it (docs/findings.md).
        "close_pages": {"files": True, "span": 2, "step": 2, "kind": "close"},
        "pages": {"files": True, "span": 8, "step": 2},
        "unaligned": {"files": True, "span": 4, "step": 2, "shift": 1000},
    }
)
ROUNDS: Mapping[str, tuple[tuple[str, ...], ...]] = MappingProxyType(
    {
        "metadata": (
            ("mkdir", "create", "append", "setattr", "setxattr", "link", "symlink"),
            ("mkdir", "create", "append", "create", "replace"),
            ("mkdir", "create", "append", "link", "remove", "rename", "truncate"),
            ("mkdir", "create", "append", "unlink"),
            ("mkdir", "rmdir"),
        ),
        "extents": (
            ("mkdir", "create", "pages", "allocate", "punch"),
            ("mkdir", "create", "pages", "clone"),
            ("mkdir", "create", "pages", "copy", "unlink"),
        ),
    }
)
"""The rounds of each worker that changes directories, in turn: a loss can be seen in what changes last."""
WORKER_KINDS = (
    "fsync",
    "fdatasync",
    "o_sync",
    "o_dsync",
    "o_direct",
    "msync",
    "shared",
    "o_append",
    *LAYOUTS,
    *ROUNDS,
)
SINCE_4_2 = ("setxattr", "extents")
"""RFC 7862 has ALLOCATE, DEALLOCATE, COPY and CLONE, RFC 8276 extended attributes: both extend NFSv4.2."""


class LedgerSpec(BaseModel):
    """Which operations each client carries out, and how many."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kinds: tuple[str, ...] = KINDS
    """One worker each. ``shared`` writes and fsyncs this client's region of one file that all clients share."""
    omit: tuple[str, ...] = ("setxattr",)
    """Kinds of operations and of workers that are left out.

    Linux' nfsd acknowledges SETXATTR before it is durable (docs/findings.md): a cut shows this only by chance.
    """
    blocks: int = 16
    """Blocks of each file that is written block by block, round after round; each is overwritten again and again."""
    files: int = 16
    """Files of each worker that writes several."""
    seed: int = 1
    tolerated_errnos: tuple[int, ...] = Field(default=(), validation_alias=AliasChoices("tolerated_errnos", "endured"))
    """Errors (errno) after which a worker continues with the next operation; after any other error it ends.

    Older records call it ``endured``.
    """
    quiet_s: float = 0.0
    """If not 0: only the first client works, one operation at a time, with a pause of this many seconds after each."""

    def fitting(self, vers: str, filesystem: str) -> tuple["LedgerSpec", dict[str, str]]:
        """Return the spec without what NFS version and file system do not support, and the reason for each."""
        reasons: dict[str, str] = {}
        if vers != "4.2":
            reasons |= dict.fromkeys(SINCE_4_2, f"NFSv{vers} has no such operation, NFSv4.2 has")
        if vers == "3":
            reasons["o_append"] = "it needs a lock that outlives the server's restart: NFSv3 leaves that to statd"
        if "clone" not in FILESYSTEMS[filesystem].operations:
            reasons["clone"] = f"{filesystem} does not share blocks between files"
        reasons = {kind: why for kind, why in reasons.items() if kind in self.doing()}
        return self.model_copy(update={"omit": (*self.omit, *reasons)}), reasons

    def doing(self) -> set[str]:
        """Return the kinds of workers and operations that are carried out."""
        rounds = (kind for worker in self.kinds for steps in ROUNDS.get(worker, ()) for kind in steps)
        return {*self.kinds, *rounds} - {*self.omit}

    def workers(self, clients: Sequence[str]) -> list[WorkerSpec]:
        """Distribute the workers over the clients.

        Raises:
            RequestError: there is no such kind of worker or operation.
        """
        for kind in self.kinds:
            if kind not in WORKER_KINDS:
                raise RequestError(f"no such ledger worker: {kind!r}", remedy=nearest(kind, WORKER_KINDS))
        for kind in self.omit:
            if kind not in (known := (*WORKER_KINDS, *ledger_writer.KINDS)):
                raise RequestError(f"the ledger has no {kind!r} to leave out", remedy=nearest(kind, known))
        workers: list[WorkerSpec] = []
        for place, client in enumerate(clients[:1] if self.quiet_s else clients):
            for turn, kind in enumerate(self.kinds):
                if kind not in self.omit:
                    workers.append(self._worker(len(workers), client, place, turn, kind))
        return workers

    def _worker(self, number: int, client: str, place: int, turn: int, kind: str) -> WorkerSpec:
        worker = WorkerSpec(number=number, client=client, kind=kind, path=f"{client}-{turn}-{kind}", file=number)
        more: dict[str, Any] = {"blocks": self.blocks}
        if kind == "shared":
            more |= {"kind": "fsync", "path": kind, "file": SHARED_FILE, "first": place * self.blocks}
        elif kind == "o_append":
            more |= {"path": kind}
        elif kind in LAYOUTS:
            more |= {"blocks": self.files, **LAYOUTS[kind]}
        elif kind in ROUNDS:
            rounds = [tuple(one for one in steps if one not in self.omit) for steps in ROUNDS[kind]]
            # Workers of one kind begin with different rounds, so that each operation soon was done by some worker.
            first = 2 * number % len(rounds)
            more |= {"rounds": (*rounds[first:], *rounds[:first])}
        return worker.model_copy(update=more)


SHARED_FILE = 1 << 16
"""Identity of the file that the workers of kind ``shared`` of all clients write."""


class AckListener(Protocol):
    """Where the harness receives the reports of the clients."""

    def listen(self) -> socket.socket:
        """Return a listening socket that receives the reports of the clients."""

    def callback_address(self, listener: socket.socket, client: Machine) -> tuple[str, int]:
        """Return the host and port to which a client connects to reach the listener."""


class Ledger:
    """One run of the ledger on the clients of a lab."""

    def __init__(self, spec: LedgerSpec, clients: Sequence[Machine], ear: AckListener, root: str, path: Path) -> None:
        self.spec = spec
        self.clients = {client.name: client for client in clients}
        self.workers = spec.workers([client.name for client in clients])
        self.root = root
        self.path = path
        self._ear = ear
        self._commands: dict[str, RemoteCommand] = {}
        self._boots: dict[str, str | None] = {}
        self._receiver: Receiver | None = None

    def config(self, client: str | None, callback_address: tuple[str, int] = ("", 0)) -> str:
        """Return the agent's orders: for one client, with the address for its reports, or for a scan of everything."""
        workers = [worker.model_dump() for worker in self.workers if client in (None, worker.client)]
        orders = {
            "root": self.root,
            "seed": self.spec.seed,
            "tolerated_errnos": self.spec.tolerated_errnos,
            "quiet_s": self.spec.quiet_s,
            "host": callback_address[0],
            "port": callback_address[1],
            "workers": workers,
        }
        return json.dumps(orders)

    @contextmanager
    def running(self) -> Iterator["Ledger"]:
        """Run the workers on all clients while the body runs; then each client has stopped or is known to be dead."""
        with self._ear.listen() as listener:
            self._receiver = receiver = Receiver(listener, Recorder(self.path))
            receiver.start()
            try:
                for client in self.clients.values():
                    install(client, self.config(client.name, self._ear.callback_address(listener, client)))
                for name, client in self.clients.items():
                    self._boots[name] = client.boot_id
                    self._commands[name] = client.start_command(["python3", WRITER, f"{WRITER}.json"])
                wait_until(
                    lambda: self._all_alive() and receiver.connections >= len(self.workers),
                    Deadline.after(START_DEADLINE_S),
                    "the ledger's workers to report",
                )
                yield self
            finally:
                receiver.stop()

    def require_recorded(self) -> None:
        """Raise RigError if the clients' reports could not be recorded."""
        if self._receiver is not None and self._receiver.failure is not None:
            raise RigError(
                f"the ledger cannot be recorded: {self.path}: {self._receiver.failure.strerror}",
                remedy="free some space, or give --results another place",
            )

    def work(self, seconds: float) -> None:
        """Let clients work for so long, and on a slow machine until each kind of operation was done often enough.

        If faults prevent this, clients have `ENOUGH_DEADLINE_S` for it: kinds that are then missing are not judged.
        """
        pause(seconds)
        receiver = self._receiver
        if receiver is not None:
            with suppress(DeadlineExceeded):
                wait_until(
                    lambda: self._enough(receiver),
                    Deadline.after(ENOUGH_DEADLINE_S),
                    f"{LEAST} operations of each kind",
                )
        self.require_recorded()

    def _enough(self, receiver: "Receiver") -> bool:
        """Whether each kind of operation was reported often enough, if a worker that is not done carries it out."""
        working = [one for one in self.workers if one.number not in receiver.done]
        ended = receiver.ended
        return receiver.failure is not None or all(ended[kind] >= LEAST for one in working for kind in one.kinds)

    def heard_since(self, instant_ns: int) -> int | None:
        """Return when the last report of a client arrived, if that was after an instant."""
        last = self._receiver.last_ns if self._receiver else 0
        return last if last > instant_ns else None

    def all_began_since(self, instant_ns: int) -> bool:
        """Return whether every client began an operation after an instant, except clients whose workers have ended."""
        receiver = self._receiver
        if receiver is None:
            return False
        latest: dict[str, int] = {}
        for worker in self.workers:
            if worker.number not in receiver.done:
                begun_ns = receiver.begun_ns.get(worker.number, 0)
                latest[worker.client] = max(begun_ns, latest.get(worker.client, 0))
        return all(begun_ns > instant_ns for begun_ns in latest.values())

    def _all_alive(self) -> bool:
        for name, command in self._commands.items():
            if command.ended:
                raise RigError(f"{name}: the ledger's agent ended: {command.wait(Deadline.after(2)).stderr}")
        return True

    def stop(self, deadline: Deadline) -> None:
        """Let every worker finish its operation, and wait for it. Skip clients without power.

        Raises:
            DeadlineExceeded: a worker hangs in an operation.
            RigError: an agent failed.
        """
        running = {
            name: one for name, one in self._commands.items() if self.clients[name].boot_id == self._boots[name]
        }
        for command in running.values():
            command.close_input()
        self.require_recorded()
        for name, command in running.items():
            ended: Completed = command.wait(deadline)
            if not ended.ok:
                raise RigError(f"{name}: the ledger's agent failed: {ended.stderr}")
        self._hear_out({*running}, deadline)

    def _hear_out(self, clients: set[str], deadline: Deadline) -> None:
        """Wait for the last reports of clients that have ended: TCP retransmits slowly after a network fault."""
        receiver = self._receiver
        if receiver is not None:
            lost = sum(worker.client not in clients for worker in self.workers)
            wait_until(lambda: receiver.open_connections <= lost, deadline, "the clients' last words")

    def history(self) -> History:
        """Return all recorded operations, from the file on disk."""
        return History.read(self.path)

    def scan(self, machine: Machine, root: str) -> Found:
        """Read everything back on a machine that has the file system mounted at ``root``."""
        orders = json.loads(self.config(None)) | {"root": root}
        install(machine, json.dumps(orders))
        machine.put(Path(ledger_reader.__file__).read_bytes(), READER)
        found: Found = json.loads(machine.succeed(["python3", READER, f"{WRITER}.json"], deadline_s=SCAN_DEADLINE_S))
        return found


def install(machine: Machine, config: str) -> None:
    """Put the agent and its orders into a machine's memory."""
    machine.put(Path(ledger_writer.__file__).read_bytes(), WRITER)
    machine.put(config, f"{WRITER}.json")


class Receiver(threading.Thread):
    """Records the agents' reports, stamped by the kernel at their arrival: this thread may be scheduled much later."""

    def __init__(self, listener: socket.socket, recorder: Recorder) -> None:
        super().__init__(name="ledger-receiver", daemon=True)
        self.connections = 0
        self.open_connections = 0
        self.ended: Counter[str] = Counter()
        """Operations that were reported to have ended, by kind."""
        self.begun_ns: dict[int, int] = {}
        """The arrival of the last report that an operation begins, by worker."""
        self.done: set[int] = set()
        """Workers that have reported their end."""
        self.last_ns = 0
        self.failure: OSError | None = None
        """The error that prevented the recording, after which nothing can be judged."""
        self._listener = listener
        # Accepted connections inherit the option.
        listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._recorder = recorder
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()

    def run(self) -> None:
        """Receive until stopped."""
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                source = key.fileobj
                if source is self._wake_read:
                    return
                if source is self._listener:
                    connection, _ = self._listener.accept()
                    self._selector.register(connection, selectors.EVENT_READ)
                    self.connections += 1
                    self.open_connections += 1
                else:
                    self._receive(source)  # type: ignore[arg-type]

    def _receive(self, source: socket.socket) -> None:
        try:
            data, ancillary, _, _ = source.recvmsg(1 << 16, socket.CMSG_SPACE(_TIMESPEC.size))
        except OSError:
            data, ancillary = b"", []
        if data:
            arrived_ns = arrival_ns(ancillary)
            self.last_ns = max(self.last_ns, arrived_ns)
            try:
                self._count(self._recorder.add(source.fileno(), arrived_ns, data), arrived_ns)
            except OSError as error:
                self.failure = self.failure or error
        else:
            self._recorder.forget(source.fileno())
            self._selector.unregister(source)
            source.close()
            self.open_connections -= 1

    def _count(self, data: bytes, arrived_ns: int) -> None:
        for what, code, worker, *_ in ledger_writer.FRAME.iter_unpack(data):
            if what == ledger_writer.ACKNOWLEDGE:
                self.ended[ledger_writer.KINDS[code]] += 1
            elif what == ledger_writer.ISSUE:
                self.begun_ns[worker] = arrived_ns
            elif what == ledger_writer.END:
                self.done.add(worker)

    def stop(self) -> None:
        """End the thread and close the file."""
        self._wake_write.send(b"!")
        self.join()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket) and key.fileobj is not self._listener:
                key.fileobj.close()
        self._wake_write.close()
        self._selector.close()
        self._recorder.close()


def arrival_ns(ancillary: Sequence[tuple[int, int, bytes]]) -> int:
    """Return when the last segment of received data arrived (CLOCK_MONOTONIC, ns); now if the kernel gave no stamp."""
    now, ahead_ns = now_ns(), realtime_ahead_ns()
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS) and len(data) >= _TIMESPEC.size:
            seconds, ns = _TIMESPEC.unpack_from(data)
            stamp: int = seconds * 1_000_000_000 + ns - ahead_ns
            # A real-time clock that was set meanwhile must not yield a stamp in the future.
            return min(now, stamp)
    return now
