"""A stored cycle as a source of crash states: its write log, its history, and the stack that checkers rebuild."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

from raidproof.core.errors import RequestError, RigError, nearest
from raidproof.core.topology import Topology
from raidproof.crash.checker.checker import Checker
from raidproof.crash.checker.provider import require_shown
from raidproof.crash.checker.worker import Factory
from raidproof.crash.judge import Oracle
from raidproof.crash.recording import Recording
from raidproof.disk.writelog import LogError, WriteLog
from raidproof.record.run import CycleRecord, RunRecord
from raidproof.record import RunStore
from raidproof.run.crash_test import LEDGER_DIRECTORY
from raidproof.storage.filesystem import DIRECTORY
from raidproof.storage.stack import StackSpec

LOG, HISTORY = "write log", "history"
RECORD_ANEW = "record the run anew"
ANOTHER = "explore a cycle that came to its fault on provider uml or qemu, or record one"


@dataclass(frozen=True)
class Source:
    """One cycle of a stored run."""

    store: RunStore
    run: RunRecord
    cycle: CycleRecord
    recording: Recording
    oracle: Oracle
    topology: Topology
    stack: StackSpec
    starts_dirty: bool = False
    """Whether checkers let md start an array that is dirty and degraded, which it refuses by itself."""

    @property
    def log(self) -> Path:
        """The write log."""
        return self.store.path / self.cycle.files[LOG]

    @property
    def first(self) -> int:
        """The first cut that is looked at: when array and file system were there, and clients began."""
        return self.recording.place(self.oracle.created_ns)

    @property
    def orders(self) -> dict[str, Any]:
        """What the ledger's scan takes."""
        return scan_orders(self.cycle)

    def checker(self, number: int, *, logs: Path) -> AbstractContextManager[Checker]:
        """Return a checker, not booted yet; its console logs go to a folder of its own."""
        folder = logs / f"checker{number}"
        folder.mkdir(parents=True, exist_ok=True)
        return Checker(self.topology, self.stack, self.orders, folder, starts_dirty=self.starts_dirty)

    def boots(self, logs: Path) -> Factory:
        """Return what boots checkers."""
        return partial(self.checker, logs=logs)


def scan_orders(cycle: CycleRecord) -> dict[str, Any]:
    """Return what the ledger's agent takes to read everything back on the server."""
    # As `raidproof.run.crash_test` seeds it: a block of an earlier cycle must not pass for one of this.
    seed = int(cycle.workload["ledger"]["seed"]) + crc32(cycle.name.encode())
    return {"root": f"{DIRECTORY}/{LEDGER_DIRECTORY}", "seed": seed, "workers": cycle.workers}


def source_of(store: RunStore, name: str | None = None, *, starts_dirty: bool = False) -> Source:
    """Return a cycle of a stored run, the only one that can be explored where none is named.

    Raises:
        RequestError: there is no such cycle, or it cannot be explored; with the reason.
    """
    run = store.load()
    topology = Topology.model_validate(run.topology)
    require_shown(topology.provider)
    cycle = choose_cycle(run, store.path, name)
    try:
        log = WriteLog(store.path / cycle.files[LOG])
        recording = Recording(log)
        oracle = Oracle.of(cycle, store.path, recording.spoilt_ns)
    except (LogError, OSError) as error:
        raise RequestError(f"{cycle.name} cannot be explored: {error}", remedy=RECORD_ANEW) from error
    except RigError as error:
        raise RequestError(
            f"{cycle.name} cannot be explored, its history cannot be read: {error}", remedy=RECORD_ANEW
        ) from error
    if log.ending is not None and not log.ending.complete:
        raise RequestError(
            f"{cycle.name} cannot be explored: its write log is cut off after {log.ending.records:,} records",
            remedy=f"the run was killed while it was written; {RECORD_ANEW}",
        )
    serials = [disk.serial for disk in topology.disks]
    if serials != [member.serial for member in recording.members]:
        raise RequestError(
            f"{cycle.name} cannot be explored: its write log is of other disks than {', '.join(serials)}",
            remedy=f"files of different runs were mixed; {RECORD_ANEW}",
        )
    stack = StackSpec.model_validate(cycle.asked)
    return Source(store, run, cycle, recording, oracle, topology, stack, starts_dirty)


def choose_cycle(run: RunRecord, path: Path, name: str | None) -> CycleRecord:
    """Return the cycle of this name, or the only one that can be explored.

    Raises:
        RequestError: there is none, or more than one, or it cannot be explored.
    """
    known = {cycle.name: cycle for cycle in run.cycles}
    reasons = {cycle.name: why_not(cycle, path) for cycle in run.cycles}
    if name is not None:
        if name not in known:
            raise RequestError(f"{run.run} has no cycle {name!r}", remedy=nearest(name, known))
        if reason := reasons[name]:
            raise RequestError(f"{name} cannot be explored: {reason}", remedy=ANOTHER)
        return known[name]
    possible = [cycle for cycle in run.cycles if reasons[cycle.name] is None]
    if len(possible) == 1:
        return possible[0]
    if possible:
        names = ", ".join(cycle.name for cycle in possible)
        raise RequestError(f"{run.run} has several cycles", remedy=f"name one with --cycle: {names}")
    raise RequestError(f"{run.run} has no cycle that can be explored{said(reasons)}", remedy=ANOTHER)


def said(reasons: Mapping[str, str | None]) -> str:
    """Return the reasons in words; empty without any."""
    return "".join(f"; {name}: {reason}" for name, reason in reasons.items())


def why_not(cycle: CycleRecord, run: Path) -> str | None:
    """Return why a cycle cannot be explored, as far as its record tells; None if it can."""
    if reason := cycle.requirement_missing or cycle.not_effective:
        return f"it did not take place: {reason}"
    for what in (LOG, HISTORY):
        if what not in cycle.files:
            return f"it has no {what}"
        if not (run / cycle.files[what]).is_file():
            return f"its {what} is gone: {cycle.files[what]}"
    if not cycle.workers or cycle.ledger_begun_ns is None:
        return "its clients did not begin"
    return None
