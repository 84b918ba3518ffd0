"""The record schema of a storm: crash tests with random schedules of faults, one for each seed."""

from datetime import datetime
from typing import Any

from pydantic import Field

from raidproof.core.blame import Blame
from raidproof.record.cell import Strict
from raidproof.record.outcome import Outcome

STORM_SCHEMA = 1
STORM = "storm.json"
"""Name of the file with the record of a storm, in the directory of its run."""
STORM_PAGE = "storm.html"


class DrawnCase(Strict):
    """A crash test that a seed draws, or a smaller one."""

    array: str
    """The array and the file system in words."""
    members: int
    cache_mode: str
    """The cache mode of the disks."""
    kinds: list[str]
    """The kinds of worker on each client."""
    faults: list[str]
    """The faults in their order, in words."""
    names: list[str]
    """The names of these faults."""
    phases: list[str]
    """The phase of each fault: ``work``, ``recovery`` (after one), ``grace``, or a stage of the server's recovery."""
    tables: list[dict[str, Any]]
    """The faults as tables ``[[fault]]`` of a plan."""


class ShrunkCase(Strict):
    """The smallest case found that fails as the drawn one does."""

    case: DrawnCase
    cycle: str
    """Name of the last crash test that showed its failure."""
    tried: int
    """Number of smaller cases that were run."""
    scenario: str
    """Name of the file with the scenario that shows the failure."""
    text: str
    """The content of this file."""


class StormRow(Strict):
    """One seed."""

    seed: int
    drawn: DrawnCase
    cycles: list[str]
    """Names of the crash tests with the drawn schedule: the first, and its repetitions."""
    outcome: Outcome
    """Outcome of the first crash test, or of its repetition after an error of the rig."""
    reason: str
    blamed: list[Blame] = Field(default_factory=list)
    repeated: bool | None = None
    """Whether a failure occurred again when the crash test was repeated; None without a failure."""
    shrunk: ShrunkCase | None = None
    """None without a failure that occurred again."""
    seconds: float


class StormRecord(Strict):
    """A storm, complete or not; ``--resume`` continues it."""

    schema_version: int = STORM_SCHEMA
    run: str
    """Name of the run with the crash tests."""
    plan: str
    """Name of the plan."""
    started: datetime
    ended: datetime | None = None
    """None as long as seeds remain, and after an interruption."""
    command: list[str]
    digest: str
    """Digest of the plan and of all options that change what a seed draws; only the same request continues a storm."""
    first: int
    last: int
    """The first and the last requested seed."""
    kinds: list[str]
    """The kinds of fault from which seeds draw."""
    beyond: bool = False
    """Whether more members may be lost than the level survives."""
    rows: list[StormRow] = Field(default_factory=list)
    outcome: Outcome = Outcome.INCONCLUSIVE
    reason: str = "no seed was run"
