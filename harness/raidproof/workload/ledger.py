"""The ledger: the workload whose operations and acknowledgements raidproof records on the host while clients work."""

import json
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from raidproof.core.command import Completed
from raidproof.core.errors import DeadlineExceeded, RequestError, RigError, nearest
from raidproof.core.log import logger
from raidproof.core.waiting import Deadline, pause, wait_until
from raidproof.guest import ledger_format, ledger_reader, ledger_writer
from raidproof.guest.ledger_format import APPLICATION, FIRST_UID, HOLDERS, LOCKS, USERS
from raidproof.machine.agent import RemoteCommand
from raidproof.machine.machine import Machine
from raidproof.storage.filesystem import FILESYSTEMS
from raidproof.storage.server import SERVERS
from raidproof.workload.application import ApplicationError, ApplicationSpec
from raidproof.workload.history import History, Recorder, WorkerSpec
from raidproof.workload.ledger_programs import CONFIG, command_of, install
from raidproof.workload.ledger_receiver import Receiver
from raidproof.workload.ledger_sizes import MOST_ROUNDS, PIECES, pieces_from
from raidproof.workload.solo import SoloOperations

LEDGER_DIRECTORY = "ledger"
"""Name of the ledger's directory in the exported file system."""
START_DEADLINE_S = 60.0
"""Seconds within which all workers must have connected to the host."""
OUTPUT_S = 10.0
"""Seconds within which the writer of a failed application must end, so that its message is known."""
ENOUGH_DEADLINE_S = 90.0
"""Seconds beyond the requested time that clients may work until `LEAST` operations of each kind have ended.

They take 2 to 10 s on two cores with other load; a host that is much slower must not make a crash test INCONCLUSIVE.
"""
SCAN_DEADLINE_S = 120.0
"""Time limit in seconds for reading back all files of the ledger on one machine."""
LEAST = 4
"""Number of operations of each kind, and of each client's kind of worker, that must end before a cut: 3 are needed."""
LEAST_SIZES = 12
"""Number of operations of workers that write data of many sizes that must end before a cut: they have all classes."""

Found = dict[str, dict[str, object]]
"""Result of a scan: by `WorkerSpec.key`, the generations of the blocks and the names of the files."""

KINDS = (
    "fsync", "fdatasync", "o_sync", "o_dsync", "o_direct", "msync", "close", "pages", "unaligned",
    "metadata", "metadata", "metadata", "extents", "extents", "extents", "shared", "o_append", "sizes", "locks",
    "names", "names", "names", "removed", "listing",
)  # fmt: skip
"""The kinds of worker on each client by default, one worker per entry.

A kind of worker with many kinds of operation occurs several times, so that `LEAST` operations of each kind end soon.
"""

# Settings of the kinds of worker that write several blocks per operation. For pages that are not adjacent the client
# sends several UNSTABLE WRITEs and a COMMIT; it sends data that fits into one WRITE as FILE_SYNC (nfs_generic_flush in
# fs/nfs).
LAYOUTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "close": {"files": True},
        # Not a default: the Linux client does not resend all data that a restarted server lost (docs/findings.md).
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
            ("mkdir", "create", "pages", "shrink", "grow"),
            ("mkdir", "create", "fragments", "punch", "zero_range"),
            ("mkdir", "create", "fragments", "shrink", "grow"),
        ),
        "names": (
            ("mkdir", "create", "symlink", "subdirectory", "rename_into", "rename_directory"),
            ("mkdir", "create", "append", "subdirectory", "link_into", "symlink", "rename_symlink", "mknod"),
            ("mkdir", "create", "append", "unlink", "recreate", "chown", "utimes", "long_name"),
        ),
    }
)
"""The rounds (lists of operations) of each kind of worker that changes directories: one round for each new directory.

Each operation is the last of its kind in some round, because a later change of the same file may hide a loss.
"""
SIZES = "sizes"
"""The kind of worker that writes data of many sizes, see `ledger_sizes`."""
WORKER_KINDS = (
    "fsync",
    "fdatasync",
    "o_sync",
    "o_dsync",
    "o_direct",
    "msync",
    "shared",
    "o_append",
    "sizes",
    *HOLDERS,
    *LAYOUTS,
    *ROUNDS,
    APPLICATION,
)
"""All kinds of ledger worker."""
SINCE_4_2 = ("setxattr", "extents")
"""Kinds of operation and of worker that need NFSv4.2.

RFC 7862 has ALLOCATE, DEALLOCATE, COPY and CLONE, RFC 8276 extended attributes.
"""


class LedgerSpec(BaseModel):
    """The settings of a ledger: the kinds of worker on each client, and the number of files and blocks."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kinds: tuple[str, ...] = KINDS
    """The kinds of worker on each client, one worker per entry.

    A worker of kind ``shared`` writes its client's region of one file that all clients share, with fsync.
    """
    omit: tuple[str, ...] = ("setxattr",)
    """Kinds of operation and of worker that are left out.

    The default is ``setxattr``: Linux nfsd acknowledges SETXATTR before the attribute is durable (docs/findings.md),
    and a cut shows this loss only by chance.
    """
    blocks: int = 16
    """Blocks of the file of a worker that writes one file; each round overwrites every block."""
    files: int = 16
    """Files of a worker that writes several files."""
    seed: int = 1
    """Number in every block, which distinguishes the blocks of this run from those of other runs."""
    tolerated_errnos: tuple[int, ...] = Field(default=(), validation_alias=AliasChoices("tolerated_errnos", "endured"))
    """Errors (errno) after which a worker continues with the next operation; any other error ends the worker.

    Older records have the name ``endured`` for this field.
    """
    application: ApplicationSpec | None = None
    """The user's own application, for workers of kind ``application``; None: no such worker."""
    quiet_s: float = 0.0
    """Pause in seconds after each operation; if not 0, only the first client works, one operation at a time."""
    users: int | None = Field(default=None, ge=0, le=1000)
    """Number of ordinary users as whom the workers of a client work, in turn; 0: all work as root.

    None: `USERS` if the export maps root to another user (``root_squash``), else 0. An application works as root."""
    operations: int | None = Field(default=None, ge=1)
    """Number of operations after which each worker ends, those that fail included; None: no limit."""

    @model_validator(mode="after")
    def _application_belongs_to_its_worker(self) -> Self:
        if (self.application is not None) != (APPLICATION in self.kinds):
            raise RequestError("a ledger has an application, or a worker of kind 'application', but not both")
        alone = self.application is None or self.application.on != "server" or len(self.kinds) == 1
        if not alone or (self.application is not None and self.quiet_s):
            remedy = f"set kinds to ({APPLICATION!r},), and quiet_s to 0"
            raise RequestError("this application cannot run together with other workers", remedy=remedy)
        return self

    @classmethod
    def of(cls, application: ApplicationSpec, seed: int = 1) -> "LedgerSpec":
        """Return the settings of a ledger whose only worker on a machine is an application."""
        return cls(kinds=(APPLICATION,), application=application, seed=seed)

    def fitting(
        self,
        vers: str,
        filesystem: str,
        server: str,
        *,
        no_locks: str | None = None,
        no_zero_range: str | None = None,
        root_squash: bool = False,
        shows_old_data: bool = False,
        shares_blocks: bool = True,
    ) -> tuple["LedgerSpec", dict[str, str]]:
        """Return the settings without the kinds that NFS version, file system or server lack; and, by kind, why.

        ``no_locks``: why clients may lose locks, or wait for them for too long; None if neither.
        ``no_zero_range``: why clients cannot zero a range of a file (FALLOC_FL_ZERO_RANGE); None if they can.
        ``root_squash``: whether the server maps root to an anonymous user (exports(5)).
        ``shows_old_data``: whether the file system may show old data after a crash, also behind a truncated end.
        ``shares_blocks``: whether files may share blocks with the settings of the file system.
        """
        reasons: dict[str, str] = {}
        if vers != "4.2":
            reasons |= dict.fromkeys(SINCE_4_2, f"the operation needs NFSv4.2, and the mount is NFSv{vers}")
        if no_locks is not None:
            reasons |= {"o_append": no_locks, LOCKS: no_locks}
        if no_zero_range is not None:
            reasons["zero_range"] = no_zero_range
        if shows_old_data:
            why = "with its settings the file system may show old data in the rest of a truncated block"
            reasons |= {"shrink": why, "grow": why}
        users = self.users if self.users is not None else USERS if root_squash else 0
        if root_squash:
            reasons["chown"] = "the export maps root to a user who may not change owners (root_squash)"
        elif users:
            reasons["chown"] = "the workers work as users who may not change owners"
        if not shares_blocks:
            reasons["clone"] = f"this {filesystem} does not share blocks between files, by its settings"
        if "clone" not in FILESYSTEMS[filesystem].operations:
            reasons["clone"] = f"{filesystem} does not share blocks between files"
        if "clone" not in SERVERS[server].operations:
            reasons["clone"] = f"the NFS server {server} does not support CLONE"
        reasons = {kind: why for kind, why in reasons.items() if kind in self.doing()}
        return self.model_copy(update={"omit": (*self.omit, *reasons), "users": users}), reasons

    def doing(self) -> set[str]:
        """Return the kinds of worker and of operation that the settings contain, without those in ``omit``."""
        rounds = (kind for worker in self.kinds for steps in ROUNDS.get(worker, ()) for kind in steps)
        pieces = (piece.kind for piece in PIECES if SIZES in self.kinds)
        return {*self.kinds, *rounds, *pieces} - {*self.omit}

    def workers(
        self, clients: Sequence[str], server: str = "server", owner_of: Callable[[int], int] = int
    ) -> list[WorkerSpec]:
        """Return the workers of all machines, with numbers, paths and rounds; ``server``: name of the server.

        ``owner_of``: returns the owner of the files that a user of a client creates (`ServerSpec.owner_of`).

        Raises:
            RequestError: ``kinds`` or ``omit`` contains an unknown kind.
        """
        for kind in self.kinds:
            if kind not in WORKER_KINDS:
                raise RequestError(f"unknown kind of ledger worker: {kind!r}", remedy=nearest(kind, WORKER_KINDS))
        for kind in self.omit:
            if kind not in (known := (*WORKER_KINDS, *ledger_format.KINDS)):
                raise RequestError(
                    f"the ledger cannot omit {kind!r}, which is no kind of worker or operation",
                    remedy=nearest(kind, known),
                )
        workers: list[WorkerSpec] = []
        if self.application is not None and self.application.on == "server":
            return [WorkerSpec(number=0, client=server, kind=APPLICATION, path=APPLICATION, file=0, local=True)]
        for place, client in enumerate(clients[:1] if self.quiet_s else clients):
            for turn, kind in enumerate(self.kinds):
                if kind not in self.omit and (kind != APPLICATION or not place or self._on_all):
                    one = self._worker(len(workers), client, place, turn, kind)
                    workers.append(one.model_copy(update={"owner": owner_of(one.uid)}))
        ranges = {"blocks": max(2, len(clients))}
        return [one.model_copy(update=ranges) if one.kind == LOCKS else one for one in workers]

    @property
    def _on_all(self) -> bool:
        """Whether each client runs the application."""
        return self.application is not None and self.application.all_machines

    def _worker(self, number: int, client: str, place: int, turn: int, kind: str) -> WorkerSpec:
        worker = WorkerSpec(number=number, client=client, kind=kind, path=f"{client}-{turn}-{kind}", file=number)
        more: dict[str, Any] = {"blocks": self.blocks, "operations": self.operations}
        if self.users and kind != APPLICATION:
            # The workers of all clients that share a file have the same user.
            more |= {"uid": FIRST_UID + turn % self.users}
        if kind == "shared":
            more |= {"kind": "fsync", "path": kind, "file": SHARED_FILE, "first": place * self.blocks}
        elif kind == "o_append":
            more |= {"path": kind}
        elif kind == LOCKS:
            more |= {"path": kind, "first": place}
        elif kind == SIZES:
            # The workers begin at different pieces, so that together they write all of them soon.
            pieces = pieces_from(place * len(PIECES) // 2, self.omit)
            most = min(self.operations or MOST_ROUNDS * len(pieces), MOST_ROUNDS * len(pieces))
            more |= {"files": True, "pieces": pieces, "blocks": len(pieces), "operations": most}
        elif kind in LAYOUTS:
            more |= {"blocks": self.files, **LAYOUTS[kind]}
        elif kind in ROUNDS:
            rounds = [tuple(one for one in steps if one not in self.omit) for steps in ROUNDS[kind]]
            # Workers of one kind begin with different rounds, so that every kind of operation is done soon.
            share = self.kinds[:turn].count(kind) * len(rounds) // self.kinds.count(kind)
            first = (share + place) % len(rounds)
            more |= {"rounds": (*rounds[first:], *rounds[:first])}
        return worker.model_copy(update=more | ({"variant": kind} if "kind" in more else {}))


SHARED_FILE = 1 << 16
"""`WorkerSpec.file` of the file that the workers of kind ``shared`` of all clients write."""


class AckListener(Protocol):
    """Accepts connections from the machines of a lab; over these connections the clients report to the host."""

    def listen(self) -> socket.socket:
        """Return a listening socket to which the machines can connect."""

    def callback_address(self, listener: socket.socket, client: Machine) -> tuple[str, int]:
        """Return the host and port with which a client reaches the listening socket."""


class ServerPlace(NamedTuple):
    """The server as the place of workers that use its file system directly."""

    machine: Machine
    root: str
    """Directory of the ledger on the server's file system."""


class Ledger:
    """One run of the ledger on the clients of a lab.

    ``root``: directory of all workers' files on the mounts. ``path``: the history file on the host. ``server``: the
    place of an application that runs on the server; None if no worker runs there. ``owner_of``: see
    `LedgerSpec.workers`.
    """

    def __init__(
        self,
        spec: LedgerSpec,
        clients: Sequence[Machine],
        ack_listener: AckListener,
        root: str,
        path: Path,
        server: ServerPlace | None = None,
        owner_of: Callable[[int], int] = int,
    ) -> None:
        self.spec = spec
        where = server.machine.name if server else "server"
        self.workers = spec.workers([client.name for client in clients], where, owner_of)
        named = {client.name: client for client in (*clients, *([server.machine] if server else ()))}
        working = {worker.client for worker in self.workers}
        # The clients without a worker belong to a run of the ledger, too; the server only with a worker.
        self.clients = {name: one for name, one in named.items() if one in clients or name in working}
        self.root = root
        self.path = path
        self.application = spec.application.content() if spec.application is not None else {}
        """The files of the application, in base64, by name."""
        self.filled: int | None = None
        """Number of the worker that lists the directory of many names (`fill`); None: there is no such directory."""
        self._server = server
        self._ack_listener = ack_listener
        self._commands: dict[str, RemoteCommand] = {}
        self._results: dict[str, Completed] = {}
        self._boots: dict[str, str | None] = {}
        self._receiver: Receiver | None = None

    def config(self, client: str | None, callback_address: tuple[str, int] = ("", 0)) -> str:
        """Return the configuration (JSON) of the writer on one machine, or, for ``client`` None, of the reader."""
        mine = [worker for worker in self.workers if client in (None, worker.client)]
        local = client is not None and self._server is not None and any(worker.local for worker in mine)
        config = {
            "root": self._server.root if local and self._server is not None else self.root,
            "seed": self.spec.seed,
            "tolerated_errnos": self.spec.tolerated_errnos,
            "quiet_s": self.spec.quiet_s,
            "filled": self.filled,
            "host": callback_address[0],
            "port": callback_address[1],
            "workers": [worker.model_dump() for worker in mine],
            **application_config(self.spec.application, self.application),
        }
        return json.dumps(config)

    @contextmanager
    def running(self) -> Iterator["Ledger"]:
        """Start the workers on all clients; record their reports until the ``with`` body ends; the body calls `stop`.

        Raises:
            DeadlineExceeded: not all workers connect in time.
            RigError: the ledger's writer on a client ended too early.
        """
        with self._ack_listener.listen() as listener:
            self._receiver = receiver = Receiver(listener, Recorder(self.path))
            receiver.start()
            try:
                working = {worker.client for worker in self.workers}
                machines = {name: one for name, one in self.clients.items() if name in working}
                for client in machines.values():
                    address = self._ack_listener.callback_address(listener, client)
                    install(client, self.config(client.name, address))
                for name, client in machines.items():
                    self._boots[name] = client.boot_id
                    self._commands[name] = client.start_command(command_of(ledger_writer, CONFIG))
                wait_until(
                    lambda: self._all_alive() and receiver.connections >= len(self.workers),
                    Deadline.after(
                        START_DEADLINE_S + (self.spec.application.prepare_s if self.spec.application else 0)
                    ),
                    "the ledger's workers to connect to the host",
                )
                yield self
            finally:
                receiver.stop()

    def require_recorded(self) -> None:
        """Check that all reports of the clients were understood and written to the history file.

        Raises:
            RigError: a write failed, for example because the file system is full.
            ApplicationError: an application sent a line that is no report.
        """
        if self._receiver is not None and self._receiver.refused is not None:
            raise self._receiver.refused
        if self._receiver is not None and self._receiver.failure is not None:
            raise RigError(
                f"the history of the ledger cannot be written to {self.path}: {self._receiver.failure.strerror}",
                remedy="free space on that file system, or set --results to another folder",
            )

    def work(self, seconds: float) -> None:
        """Let clients work for a time, and then until `LEAST` operations of each kind have ended.

        As many operations must have ended of each kind of operation, and of each kind of worker on each client. The
        second wait ends after `ENOUGH_DEADLINE_S`, because a fault may prevent operations. Too few operations make the
        crash test INCONCLUSIVE.

        Raises:
            RigError: the clients' reports could not be recorded.
            ApplicationError: the run command of an application failed.
        """
        pause(seconds)
        receiver = self._receiver
        if receiver is not None:
            with suppress(DeadlineExceeded):
                wait_until(
                    lambda: self._enough(receiver),
                    Deadline.after(ENOUGH_DEADLINE_S),
                    f"{LEAST} operations of each kind to end",
                )
        self.require_recorded()
        self._require_applications()

    @contextmanager
    def solo(self, seconds: float, requests: Callable[[], int], extra_s: float = 0.0) -> Iterator[Sequence[str]]:
        """Let the workers carry out solo operations for a time; then they pause until the end of the ``with`` body.

        Yields what had too few solo operations (`SoloOperations.lacking`). ``requests``: see `SoloOperations`;
        ``extra_s``: see `SoloOperations.run`.
        """
        if self._receiver is None:
            yield ()
            return
        solo = SoloOperations(self._receiver, self.workers, requests)
        try:
            solo.run(seconds, extra_s)
            yield solo.lacking
        finally:
            solo.end()

    def _require_applications(self) -> None:
        """Check that no application has failed."""
        statuses = self._receiver.statuses if self._receiver is not None else {}
        for worker in self.workers:
            if worker.kind == APPLICATION and (status := statuses.get(worker.number)):
                said = f"the application's run command ended with status {status}"
                with suppress(DeadlineExceeded):
                    # The writer goes on if it has other workers.
                    said = self._wait(worker.client, Deadline.after(OUTPUT_S)).stderr.strip() or said
                raise ApplicationError(f"{worker.client}: {said}")

    def is_idle(self) -> bool:
        """Return whether no worker can continue: each has ended, or its machine has rebooted since it began."""
        done = self._receiver.done if self._receiver is not None else set[int]()
        return all(
            worker.number in done or self.clients[worker.client].boot_id != self._boots.get(worker.client)
            for worker in self.workers
        )

    def _enough(self, receiver: "Receiver") -> bool:
        """Return whether `LEAST` operations have ended of each kind that a working worker carries out; see `work`."""
        working = [one for one in self.workers if one.number not in receiver.done]
        ended, of_group = receiver.ended, Counter[tuple[str, str]]()
        for worker in self.workers:
            of_group[worker.group] += receiver.ended_of[worker.number]
        return receiver.failure is not None or all(
            of_group[one.group] >= (LEAST_SIZES if one.pieces else LEAST)
            and all(ended[kind] >= LEAST for kind in one.kinds)
            for one in working
        )

    def reported(self) -> int:
        """Return the number of operations that were reported to have ended."""
        return sum(self._receiver.ended.values()) if self._receiver is not None else 0

    def heard_since(self, instant_ns: int) -> int | None:
        """Return the arrival of the last report of any client in ns; None if it arrived before ``instant_ns``."""
        last = self._receiver.last_ns if self._receiver else 0
        return last if last > instant_ns else None

    def all_began_since(self, instant_ns: int) -> bool:
        """Return whether each client has begun an operation after an instant; ignore clients whose workers ended."""
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
            # A program of which all workers have ended, each after an error, ends well: the judge sees their errors.
            if command.ended and not (ended := self._wait(name, Deadline.after(2))).ok:
                raise RigError(f"{name}: the ledger writer ended too early: {ended.stderr}")
        return True

    def _wait(self, client: str, deadline: Deadline) -> Completed:
        """Return the result of the writer on a client, whose output can be read only once."""
        if client not in self._results:
            self._results[client] = self._commands[client].wait(deadline)
        return self._results[client]

    def stop(self, deadline: Deadline) -> None:
        """Stop the workers after their current operation; skip clients that are down or have rebooted meanwhile.

        Raises:
            DeadlineExceeded: an operation did not return in time.
            RigError: the writer on a client failed, or the clients' reports could not be recorded.
        """
        running = {
            name: one for name, one in self._commands.items() if self.clients[name].boot_id == self._boots[name]
        }
        for command in running.values():
            command.close_input()
        self.require_recorded()
        for name in running:
            ended = self._wait(name, deadline)
            if not ended.ok:
                raise RigError(f"{name}: the ledger writer failed with status {ended.status}: {ended.stderr}")
            if ended.stderr:
                logger.warning("%s: %s", name, ended.stderr.strip())
        self._receive_rest({*running}, deadline)

    def _receive_rest(self, clients: set[str], deadline: Deadline) -> None:
        """Wait for the last reports of the clients: after a network fault, TCP retransmits them late."""
        receiver = self._receiver
        if receiver is not None:
            lost = sum(worker.client not in clients for worker in self.workers)
            wait_until(lambda: receiver.open_connections <= lost, deadline, "the clients' last reports")

    def history(self) -> History:
        """Return the recorded operations, read from the history file."""
        return History.read(self.path)

    def scan(self, machine: Machine, root: str) -> Found:
        """Return the content of all workers' files, read on a machine where they are below the directory ``root``."""
        config = json.loads(self.config(None)) | {"root": root}
        install(machine, json.dumps(config))
        checks = [] if self.spec.application is None else [2 * self.spec.application.check_s] * len(self.workers)
        deadline_s = SCAN_DEADLINE_S + sum(checks)
        found: Found = json.loads(machine.succeed(command_of(ledger_reader, CONFIG), deadline_s=deadline_s))
        return found


def application_config(spec: ApplicationSpec | None, content: Mapping[str, str]) -> dict[str, Any]:
    """Return the part of the configuration of writer and reader about an application; empty without an application.

    ``content``: the application's files, as `ApplicationSpec.content` returns them.
    """
    return {} if spec is None else {"application": spec.config(dict(content))}
