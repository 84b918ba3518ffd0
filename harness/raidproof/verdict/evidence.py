"""The evidence on which checks judge: what was observed of a crash test, or of one of its crash states.

All instants are in nanoseconds of the host's CLOCK_MONOTONIC.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

from pydantic import TypeAdapter, ValidationError

from raidproof.core.errors import RequestError, RigError
from raidproof.disk.cache import CutPolicy
from raidproof.disk.writelog import WriteLog
from raidproof.guest.ledger_format import BLOCK
from raidproof.monitor.capture import Exchange, read_exchanges
from raidproof.record.exploration import Observation
from raidproof.record.run import CrashTestRecord, FaultRecord, ScanResult
from raidproof.storage.filesystem import FILESYSTEMS, AnyFilesystem, FilesystemSpec
from raidproof.storage.mount import MountSpec
from raidproof.storage.server import AnyServer, ServerSpec
from raidproof.verdict.balance import Balance
from raidproof.verdict.durability import Needed, Requests, needed_of, requests_of
from raidproof.verdict.ledger import Found, balance_of, scan_of
from raidproof.verdict.window import Window, combined_by, windows_of
from raidproof.workload.history import History, Operation, WorkerSpec, read_replies

SERVER = "server"
"""Name of the server in a record."""
ON_SERVER, ON_CLIENT = "on the server", "on the client"
"""The places at which the ledger is read."""
_SERVER: TypeAdapter[ServerSpec] = TypeAdapter(AnyServer)
_FILESYSTEM: TypeAdapter[FilesystemSpec] = TypeAdapter(AnyFilesystem)


class Stage(StrEnum):
    """What the evidence is of: a crash test that came this far, or a crash state."""

    COMPLETE = "complete"
    NOT_RECOVERED = "not recovered"
    """The array or the file system did not recover after the fault."""
    BROKEN_OFF = "broken off"
    """The rig failed after the ledger had been read on the server."""
    UNREAD = "unread"
    """The rig failed before, or in a control, which proves nothing if it is not complete."""
    STATE = "crash state"


class Scan(NamedTuple):
    """A scan of the ledger and its comparison with the history."""

    place: str
    """`ON_SERVER` or `ON_CLIENT`."""
    found: Found
    balance: Balance
    result: ScanResult
    cut_ns: int | None = None
    """The instant of the fault before a scan on the server; None of other scans."""
    memory_lost: bool = True
    """Whether the server had lost its memory before the scan: only then an async export excuses a loss."""
    fault: FaultRecord | None = None
    """The last fault before a scan on the server; None of other scans."""


class WrittenData(NamedTuple):
    """The data of the ledger in a write log, up to the first power cut."""

    requests: Requests
    needed: Mapping[Operation, Sequence[Needed]]
    """The blocks that each acknowledged operation wrote."""

    @property
    def blocks(self) -> list[Needed]:
        """The blocks of all operations."""
        return [block for blocks in self.needed.values() for block in blocks]


class Evidence(Protocol):
    """What the evidence of a crash test and of a crash state have in common."""

    @property
    def stage(self) -> Stage:
        """What the evidence is of."""

    @property
    def workers(self) -> Sequence[WorkerSpec]:
        """The workers of the ledger."""

    @property
    def history(self) -> History:
        """The operations of the workers."""

    @property
    def fault_at_ns(self) -> int | None:
        """The instant of the fault; None if there was none."""

    @property
    def scans(self) -> Sequence[Scan]:
        """The scans of the ledger, that on the server first."""


@dataclass(frozen=True)
class CrashTestEvidence:
    """A crash test's record and files; each file is read when it is first needed, and once."""

    record: CrashTestRecord
    run: Path
    """The run's directory."""

    @property
    def stage(self) -> Stage:
        """How far the crash test came."""
        if self.record.rig_error is not None:
            files = self.record.files
            both = all(path is not None and (self.run / path).is_file() for path in (files.history, files.on_server))
            return Stage.BROKEN_OFF if both and self.record.control is None else Stage.UNREAD
        return Stage.COMPLETE if self.record.not_recovered is None else Stage.NOT_RECOVERED

    @cached_property
    def workers(self) -> tuple[WorkerSpec, ...]:
        """The workers of the ledger."""
        return tuple(WorkerSpec.model_validate(worker) for worker in self.record.workers)

    @cached_property
    def history(self) -> History:
        """The operations of the workers, with the instants of the server's replies if they were captured.

        Raises:
            RigError: a file is malformed, or the crash test ended before the clients began their work.
        """
        files = self.record.files
        if files.history is None:
            raise RigError(
                f"{self.record.name}: no history of operations: the crash test ended before the clients began"
            )
        history = History.read(self.run / files.history)
        return history if files.replies is None else history.with_replies(read_replies(self.run / files.replies))

    @property
    def fault_at_ns(self) -> int | None:
        """The instant of the main fault."""
        return self.record.fault_at_ns

    @cached_property
    def scans(self) -> tuple[Scan, ...]:
        """The scans of the ledger on the server and through a client, as far as they were made."""
        record, main = self.record, self.record.main
        on_server = [(ON_SERVER, main)]
        on_server += [(f"{ON_SERVER} after {one.fault}, fault {number}", one) for number, one in self.other_scans]
        scans = [
            self._scan(place, self.run / fault.on_server_file, fault)
            for place, fault in on_server
            if fault.on_server_file is not None
        ]
        # The client's scan is later than the server's: it also shows the operations acknowledged after the fault.
        if record.files.on_client is not None:
            scans.append(self._scan(ON_CLIENT, self.run / record.files.on_client, None))
        return tuple(scans)

    @property
    def other_scans(self) -> list[tuple[int, FaultRecord]]:
        """The faults beside the main fault after which the server was scanned, by their number in the crash test."""
        others = {id(one) for one in self.record.during if one.on_server_file is not None}
        return [(number, one) for number, one in enumerate(self.record.injected, 1) if id(one) in others]

    def _scan(self, place: str, path: Path, fault: FaultRecord | None) -> Scan:
        """Compare a scan with the history; ``fault``: the last one before the scan, None: all operations bind."""
        record, found = self.record, scan_of(self.record, path)
        cut_ns, seen_ns = (None, None) if fault is None else (fault.at_ns, fault.seen_ns)
        balance = balance_of(
            self.workers,
            self.history,
            found,
            before_ns=cut_ns,
            seen_ns=seen_ns,
            resumed_ns=record.last_resumed_ns,
            restarts_ns=[
                one.resumed_ns for one in record.injected if one.effects.nfsd_restarted and one.resumed_ns is not None
            ],
            torn=self.torn,
            disconnected_clients={*record.lost_power, *silent_clients(self.workers, self.history)},
            indeterminate_errnos=combined_by(self._windows, None).errors,
            shows_old_data=self.shows_old_data,
        )
        memory_lost = combined_by(self._windows, seen_ns).server_memory_lost
        return Scan(place, found, balance, balance.result(), cut_ns, memory_lost, fault)

    @property
    def server_scans(self) -> list[Scan]:
        """The scans on the server, in the order of their faults."""
        return [one for one in self.scans if one.place != ON_CLIENT]

    @property
    def cut_again(self) -> bool:
        """Whether the server lost power again after the main fault, with which the write log ends."""
        begun_ns = self.record.fault_begun_ns or 0
        return any(one.effects.caches is not None and (one.begun_ns or 0) > begun_ns for one in self.record.during)

    @cached_property
    def _windows(self) -> tuple[Window, ...]:
        return windows_of(self.record)

    def scan_at(self, place: str) -> Scan | None:
        """Return the scan at a place; None if the ledger was not read there."""
        return next((one for one in self.scans if one.place == place), None)

    @cached_property
    def write_log(self) -> WriteLog | None:
        """The requests of the member disks; None if they were not stored."""
        path = self.record.files.write_log
        return WriteLog(self.run / path) if path is not None and (self.run / path).is_file() else None

    @cached_property
    def data(self) -> WrittenData | None:
        """The data of the ledger in the write log; None without a write log that has the written data.

        Raises:
            LogError: the log is damaged.
        """
        log = self.write_log
        if log is None or not log.with_data:
            return None
        requests = requests_of(log)
        return WrittenData(requests, needed_of(requests, self.history, self.workers))

    @cached_property
    def consoles(self) -> Mapping[str, str]:
        """The kernel logs, by name of the machine; those whose file is missing are left out."""
        paths = {name: self.run / path for name, path in self.record.files.consoles.items()}
        return {name: path.read_text(errors="replace") for name, path in paths.items() if path.is_file()}

    @cached_property
    def away(self) -> Sequence[str]:
        """The kernel logs of the clients from before the fault until every client was served again."""
        return [(self.run / path).read_text(errors="replace") for path in self.record.files.away.values()]

    @cached_property
    def exchanges(self) -> Sequence[Exchange] | None:
        """The captured NFS calls with their replies; None if they were not stored."""
        path = self.record.files.wire
        return None if path is None else read_exchanges((self.run / path).read_text())

    @cached_property
    def server(self) -> ServerSpec:
        """The requested NFS server and export."""
        return _SERVER.validate_python(self.record.asked["export"])

    @cached_property
    def mount(self) -> MountSpec:
        """The requested mount; with default options if another version of the harness stored the record."""
        try:
            return MountSpec.model_validate(self.record.asked.get("mount", {}))
        except RequestError:
            return MountSpec()

    @cached_property
    def filesystem(self) -> FilesystemSpec | None:
        """The requested file system; None if another version of the harness stored the record."""
        try:
            return _FILESYSTEM.validate_python(self.record.asked.get("filesystem"))
        except (ValidationError, RequestError):
            return None

    @property
    def torn(self) -> bool:
        """Whether the cut may have torn a block that was being overwritten."""
        return combined_by(self._windows, None).caches is CutPolicy.TORN or self.tears_writes

    @property
    def tears_writes(self) -> bool:
        """Whether the file system may leave a part of a write that the cut interrupted.

        Blocks of a file system that are smaller than the ledger's are written by several requests, or lie in several
        pages of a RAID: a cut between them leaves a part of the new content, and a part of the old one.
        """
        asked = self.record.asked.get("filesystem", {})
        kinds, name = dict(FILESYSTEMS.items()), asked.get("type")
        small = isinstance(size := asked.get("block_size"), int) and size < BLOCK
        return small or (name in kinds and kinds[name].tears_writes)

    @property
    def shows_old_data(self) -> bool:
        """Whether the file system may show old data of the disk in a block that was never acknowledged."""
        return self.filesystem is None or self.filesystem.shows_old_data

    @property
    def kernel_messages(self) -> list[str]:
        """The regular expressions of the kernel messages that the faults cause."""
        return list(combined_by(self._windows, None).kernel_messages)


@dataclass(frozen=True)
class CrashStateEvidence:
    """What a machine observed of one crash state whose ledger it read."""

    workers: Sequence[WorkerSpec]
    history: History
    fault_at_ns: int
    """The instant of the cut."""
    scans: Sequence[Scan]
    """The scan on the machine."""
    observation: Observation
    whole: bool = True
    """Whether no array had lost a member before the cut."""

    @property
    def stage(self) -> Stage:
        """A crash state."""
        return Stage.STATE


def silent_clients(workers: Iterable[WorkerSpec], history: History) -> dict[str, list[WorkerSpec]]:
    """Return the workers that did not report their ends, by client: these clients may have done more than reported."""
    silent: dict[str, list[WorkerSpec]] = {}
    for worker in workers:
        if worker.number not in history.ends:
            silent.setdefault(worker.client, []).append(worker)
    return silent
