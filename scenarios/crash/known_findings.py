"""The findings that crash states of the default kernel show in some of a thousand states.

A scenario about another subject allows the failures that agree with them: else it would fail by chance.
"""

from raidproof.record.exploration import ExplorationRecord
from raidproof.record.failure import FailureRecord

KNOWN = frozenset({"md-early-commit-block", "xfs-torn-recovery"})
"""Names of findings, as in `raidproof findings`."""


def others(record: ExplorationRecord) -> list[FailureRecord]:
    """Return the failures of an exploration that these findings do not explain."""
    return record.failures_beyond(KNOWN)
