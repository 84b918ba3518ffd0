"""The ledger: clients write blocks and names, and every promise that they are given is noted outside the crash."""

import json
import selectors
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from harness.command import Completed
from harness.errors import DeadlineExceeded, RequestError, RigError, nearest
from harness.machine.machine import Machine
from harness.machine.transport import RemoteCommand
from harness.waiting import Deadline, now_ns, pause, realtime_ahead_ns, wait_until
from harness.workload import agent
from harness.workload.history import History, Recorder, WorkerSpec

AGENT = "/run/raidproof/agent.py"
START_DEADLINE_S = 60.0
FIRST_DEADLINE_S = 20.0
_TOLD = 2 * agent.FRAME.size
"""Bytes by which a worker has told of an operation from its beginning to its end."""
SCAN_DEADLINE_S = 120.0
SO_TIMESTAMPNS = 35
"""The kernel stamps what arrives, also on TCP sockets (asm-generic/socket.h; Python's socket module has no name)."""
_TIMESPEC = struct.Struct("@qq")
WORKER_KINDS = ("fsync", "o_sync", "close", "metadata", "shared")

Found = dict[str, dict[str, object]]
"""What a scan found: for each worker's files, block generations and names."""


class LedgerSpec(BaseModel):
    """How much of what each client does."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kinds: tuple[str, ...] = ("fsync", "fsync", "o_sync", "close", "metadata", "shared")
    """A worker each. ``shared`` writes and fsyncs this client's region of one file that all clients share."""
    blocks: int = 256
    """Blocks of each file that is written block by block."""
    files: int = 64
    """Files of each worker that writes and closes small files."""
    seed: int = 1
    endured: tuple[int, ...] = ()
    """Errors (errno) after which a worker goes on with something else; after any other one it is done."""

    def workers(self, clients: Sequence[str]) -> list[WorkerSpec]:
        """Lay the workers out over the clients.

        Raises:
            RequestError: there is no such kind of worker.
        """
        workers: list[WorkerSpec] = []
        for place, client in enumerate(clients):
            for turn, kind in enumerate(self.kinds):
                if kind not in WORKER_KINDS:
                    raise RequestError(f"no such ledger worker: {kind!r}", remedy=nearest(kind, WORKER_KINDS))
                number = len(workers)
                count = self.files if kind == "close" else self.blocks
                common = {"number": number, "client": client, "blocks": count}
                if kind == "shared":
                    shared = {"kind": "fsync", "path": "shared", "file": 1 << 16, "first": place * self.blocks}
                    workers.append(WorkerSpec.model_validate(common | shared))
                else:
                    own = {"kind": kind, "path": f"{client}-{turn}-{kind}", "file": number}
                    workers.append(WorkerSpec.model_validate(common | own))
        return workers


class Ear(Protocol):
    """Where the harness hears what the clients tell."""

    def listen(self) -> socket.socket:
        """Return a listening socket to which what the clients tell will come."""

    def heard_at(self, listener: socket.socket, client: Machine) -> tuple[str, int]:
        """Return the host and port to which a client connects so that it is heard there."""


class Ledger:
    """One run of the ledger on the clients of a lab."""

    def __init__(self, spec: LedgerSpec, clients: Sequence[Machine], ear: Ear, root: str, path: Path) -> None:
        self.spec = spec
        self.clients = {client.name: client for client in clients}
        self.workers = spec.workers([client.name for client in clients])
        self.root = root
        self.path = path
        self._ear = ear
        self._commands: dict[str, RemoteCommand] = {}
        self._boots: dict[str, str | None] = {}
        self._receiver: Receiver | None = None

    def config(self, client: str | None, heard_at: tuple[str, int] = ("", 0)) -> str:
        """Return the agent's orders: for one client, which is heard there, or for a scan of everything."""
        workers = [worker.model_dump() for worker in self.workers if client in (None, worker.client)]
        orders = {
            "root": self.root,
            "seed": self.spec.seed,
            "endured": self.spec.endured,
            "host": heard_at[0],
            "port": heard_at[1],
            "workers": workers,
        }
        return json.dumps(orders)

    @contextmanager
    def running(self) -> Iterator["Ledger"]:
        """Work on every client while the body runs; after it every client has stopped, or is known to be dead."""
        with self._ear.listen() as listener:
            self._receiver = receiver = Receiver(listener, Recorder(self.path))
            receiver.start()
            try:
                for client in self.clients.values():
                    install(client, self.config(client.name, self._ear.heard_at(listener, client)))
                for name, client in self.clients.items():
                    self._boots[name] = client.boot_id
                    self._commands[name] = client.start_command(["python3", AGENT, "write", f"{AGENT}.json"])
                wait_until(
                    lambda: self._all_alive() and receiver.connections >= len(self.workers),
                    Deadline.after(START_DEADLINE_S),
                    "the ledger's workers to report",
                )
                yield self
            finally:
                receiver.stop()

    def require_recorded(self) -> None:
        """Raise RigError if what the clients told could not be written down."""
        if self._receiver is not None and self._receiver.failure is not None:
            raise RigError(
                f"the ledger cannot be recorded: {self.path}: {self._receiver.failure.strerror}",
                remedy="free some space, or give --results another place",
            )

    def work(self, seconds: float) -> None:
        """Let clients work so long, and on a slow machine until each worker was told of an operation, if ever."""
        pause(seconds)
        receiver = self._receiver
        if receiver is not None:
            with suppress(DeadlineExceeded):
                wait_until(
                    lambda: receiver.told >= len(self.workers), Deadline.after(FIRST_DEADLINE_S), "each worker's word"
                )
        self.require_recorded()

    def heard_since(self, instant_ns: int) -> int | None:
        """Return when the last word of a client arrived, if that was after an instant."""
        last = self._receiver.last_ns if self._receiver else 0
        return last if last > instant_ns else None

    def _all_alive(self) -> bool:
        for name, command in self._commands.items():
            if command.ended:
                raise RigError(f"{name}: the ledger's agent ended: {command.wait(Deadline.after(2)).stderr}")
        return True

    def stop(self, deadline: Deadline) -> None:
        """Let every worker finish what it is doing, and wait for it. A client that has lost its power is passed over.

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
        """Wait for the last words of clients that have ended: after a cut of its network TCP is slow to go on."""
        receiver = self._receiver
        if receiver is not None:
            lost = sum(worker.client not in clients for worker in self.workers)
            wait_until(lambda: receiver.open_connections <= lost, deadline, "the clients' last words")

    def history(self) -> History:
        """Return what was done and told, from the file on disk."""
        return History.read(self.path)

    def scan(self, machine: Machine, root: str) -> Found:
        """Read everything back on a machine that has the file system mounted at ``root``."""
        orders = json.loads(self.config(None)) | {"root": root}
        install(machine, json.dumps(orders))
        found: Found = json.loads(
            machine.succeed(["python3", AGENT, "scan", f"{AGENT}.json"], deadline_s=SCAN_DEADLINE_S)
        )
        return found


def install(machine: Machine, config: str) -> None:
    """Put the agent and its orders into a machine's memory."""
    machine.put(Path(agent.__file__).read_bytes(), AGENT)
    machine.put(config, f"{AGENT}.json")


class Receiver(threading.Thread):
    """Records what the agents report, stamped by the kernel at its arrival: this thread may wake long after."""

    def __init__(self, listener: socket.socket, recorder: Recorder) -> None:
        super().__init__(name="ledger-receiver", daemon=True)
        self.connections = 0
        self.open_connections = 0
        self.told = 0
        """Connections over which an operation was told of to its end, and those that have ended before."""
        self.last_ns = 0
        self.failure: OSError | None = None
        """Why what was told could not be recorded: without it nothing that follows means anything."""
        self._listener = listener
        # Connections inherit it.
        listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._recorder = recorder
        self._heard: dict[socket.socket, int] = {}
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
            self._count(source, len(data))
            try:
                self._recorder.add(source.fileno(), arrived_ns, data)
            except OSError as error:
                self.failure = self.failure or error
        else:
            self._count(source, _TOLD)
            del self._heard[source]
            self._recorder.forget(source.fileno())
            self._selector.unregister(source)
            source.close()
            self.open_connections -= 1

    def _count(self, source: socket.socket, length: int) -> None:
        before = self._heard.get(source, 0)
        self._heard[source] = before + length
        self.told += before < _TOLD <= before + length

    def stop(self) -> None:
        """End the thread and finish the file."""
        self._wake_write.send(b"!")
        self.join()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket) and key.fileobj is not self._listener:
                key.fileobj.close()
        self._wake_write.close()
        self._selector.close()
        self._recorder.close()


def arrival_ns(ancillary: Sequence[tuple[int, int, bytes]]) -> int:
    """Return when received data arrived (CLOCK_MONOTONIC): its last segment, or now where the kernel does not say."""
    now, ahead_ns = now_ns(), realtime_ahead_ns()
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS) and len(data) >= _TIMESPEC.size:
            seconds, ns = _TIMESPEC.unpack_from(data)
            stamp: int = seconds * 1_000_000_000 + ns - ahead_ns
            # A real-time clock that was set meanwhile must not date anything into the future.
            return min(now, stamp)
    return now
