"""A recorded crash test, whose states clusters check."""

import json
from pathlib import Path

from raidproof.core.errors import Status
from raidproof.crash.verdicts import VERDICTS
from raidproof.record.exploration import ExplorationRecord
from raidproof.run.source import STEM

STATES = 60
"""Number of states whose verdicts are known."""
ENDED: frozenset[int] = frozenset({Status.PASS, Status.FAIL})
"""Exit statuses of an exploration that judged its states: some recordings with XFS show that md writes
a record of the log early (docs/findings.md)."""


class Recorded:
    """A crash test whose states the tests explore, and the verdicts that this host finds without a cluster."""

    def __init__(self, run: Path, cycle: str) -> None:
        self.run = run
        self.cycle = cycle
        self.expected = self.table(f"{STEM}{cycle}")

    def table(self, stem: str) -> bytes:
        return (self.run / stem / VERDICTS).read_bytes()

    def newest(self) -> tuple[ExplorationRecord, bytes]:
        """Return the record and the verdicts of the exploration that has just ended."""
        path = max(self.run.glob(f"{STEM}{self.cycle}-*.json"), key=lambda one: one.stat().st_mtime_ns)
        stem = path.stem
        return ExplorationRecord.model_validate(json.loads((self.run / f"{stem}.json").read_text())), self.table(stem)
