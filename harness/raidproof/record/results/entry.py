"""The entries of the index of runs: a summary of each run, and of its cells, crash tests and explorations."""

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from raidproof.record.outcome import Outcome

SCHEMA = 1
"""Version of the output of `raidproof ls --json`."""


class Kind(StrEnum):
    """What a directory of ``results/`` contains."""

    RUN = "run"
    COMPARISON = "comparison"
    """The comparison of two runs, which have directories of their own."""


class State(StrEnum):
    """The state of a run."""

    ENDED = "ended"
    """The record is complete; the run may have ended early, as its reason says."""
    RUNNING = "running"
    """A process is executing the run."""
    UNFINISHED = "unfinished"
    """The run did not end, and no process executes it: its process was killed."""
    UNREADABLE = "unreadable"
    """The record cannot be read, as its reason says."""


class Entry(BaseModel):
    """Base class of all entries."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str
    """Name of the run's directory in the results directory."""


class RunEntry(Entry):
    """The summary of one run or comparison."""

    path: str
    """Path of the run's directory."""
    kind: Kind
    state: State
    plan: str | None = None
    """Name of the plan; None if the run has none."""
    started: datetime | None = None
    ended: datetime | None = None
    provider: str | None = None
    kernel_requested: str | None = None
    """The requested kernel of the server; None: the provider's default."""
    kernel_effective: str | None = None
    """The release of the server's kernel; None if no server booted."""
    outcome: Outcome | None = None
    """None unless the state is `State.ENDED`."""
    reason: str = ""
    """Reason of the outcome, or why the record cannot be read."""
    explored: Outcome | None = None
    """The worst outcome of the explorations of the run's crash tests; None if none was explored."""
    cells: int = 0
    """Number of cells."""
    crash_tests: int = 0
    """Number of crash tests."""


class CellEntry(Entry):
    """The summary of one cell of a run."""

    name: str
    compared_with: str
    """Key of the cell's workload; only cells with the same key can be compared."""
    settings: dict[str, str]
    """The cell's value on each axis of the plan."""
    unit: str
    """Name of the values, which ends with their unit: ``write_mb_s``."""
    values: list[float]
    """The value of each repetition that has one, in the order of the repetitions."""
    outcome: Outcome
    rank: int | None
    """Rank among the cells of the same workload, from 1, the fastest; None without a rank."""


class CrashTestEntry(Entry):
    """The summary of one crash test of a run."""

    name: str
    outcome: Outcome
    """The outcome without explorations, each of which has an entry of its own."""
    acknowledged: int | None
    """Number of acknowledged operations; None if the ledger was not read on the server."""
    lost: int | None
    """Number of lost acknowledged operations; None if the ledger was not read on the server."""


class ExplorationEntry(Entry):
    """The summary of one exploration of a crash test."""

    file: str
    """Name of the exploration's record in the run's directory."""
    cycle: str
    """Name of the crash test; empty if the record cannot be read."""
    judged: int
    """Number of judged crash states."""
    broken: int
    """Number of judged crash states in which a promise is broken."""
    outcome: Outcome | None
    """None if the record cannot be read."""
    counts: bool = True
    """Whether the result counts for the run; False if a member was lost with the power cut, or was missing."""


class RunFilter(BaseModel):
    """Conditions that a listed run meets; None: no condition."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str | None = None
    plan: str | None = None
    kernel: str | None = None
    """Part of the requested or of the effective kernel of the server."""
    provider: str | None = None
    cell: str | None = None
    """Part of the name of a cell."""
    outcome: Outcome | None = None
    since: datetime | None = None
    """Earliest begin."""
