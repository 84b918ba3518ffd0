"""The record schema of a self-test: for each planted defect of a disk, whether the harness found it."""

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from raidproof.core.blame import Blame
from raidproof.record.cell import Strict
from raidproof.record.outcome import Outcome

SELFTEST_SCHEMA = 1
SELFTEST = "selftest.json"
"""Name of the file with the record of a self-test, in the directory of its run."""


class SelftestAnswer(StrEnum):
    """What the harness said about a crash test whose result is known."""

    FOUND = "found"
    """The crash test with a defect failed, and the disks are blamed."""
    MISSED = "missed"
    """The crash test with a defect did not fail."""
    WRONG_BLAME = "wrong blame"
    """The crash test with a defect failed, and the disks are not blamed."""
    PASSED = "passed"
    """The crash test without a defect passed."""
    FALSE_ALARM = "false alarm"
    """The crash test without a defect failed."""
    UNDECIDED = "undecided"
    """The rig failed, or the crash test without a defect was inconclusive."""


class SelftestRow(Strict):
    """One crash test of a self-test."""

    defect: str | None
    """Name of the planted defect; None: no defect."""
    says: str
    """What the disks do, as a clause."""
    cycle: str
    """Name of the crash test in the run."""
    outcome: Outcome
    """Outcome of the crash test with its crash states."""
    reason: str
    blamed: list[Blame] = Field(default_factory=list)
    """The blames of its failures, each once."""
    states: int = 0
    """Number of checked crash states."""
    seconds: float
    answer: SelftestAnswer


class SelftestRecord(Strict):
    """A self-test: crash tests with one planted defect each, and one without a defect."""

    schema_version: int = SELFTEST_SCHEMA
    run: str
    """Name of the run with the crash tests."""
    started: datetime
    ended: datetime | None = None
    command: list[str]
    rows: list[SelftestRow] = Field(default_factory=list)
    outcome: Outcome = Outcome.INCONCLUSIVE
    """FAIL if the harness missed a defect, or raised a false alarm."""
    reason: str = "the self-test has not ended"
