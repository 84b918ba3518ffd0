"""The verdicts on what a machine observed of a crash state beside the ledger."""

from raidproof.record.exploration import ThroughNfsd
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.check import Check
from raidproof.verdict.conditions import Conditions, fault_of
from raidproof.verdict.damage import Wrong, wrong
from raidproof.verdict.evidence import CrashStateEvidence, Stage

DEGRADED, FILESYSTEM = "members", "file system"
REDUNDANCY, NFSD = "redundancy", "content through nfsd"
"""Names of the checks in reports."""


class OfState(Check[CrashStateEvidence]):
    """A check whose failure is one kind of damage."""

    stages = frozenset({Stage.STATE})
    promise: str
    """Name of the check in reports."""

    def seen(self, evidence: CrashStateEvidence) -> tuple[str, str] | None:
        """Return the damage as text without and with numbers of single states; None without damage."""
        raise NotImplementedError

    def judge(self, evidence: CrashStateEvidence, conditions: Conditions) -> list[Verdict]:
        """Return a verdict if there is damage."""
        if (seen := self.seen(evidence)) is None:
            return []
        _, said = seen
        return [Verdict(checker=self.promise, outcome=Outcome.FAIL, reason=said, blame=fault_of(conditions))]

    def wrong(self, evidence: CrashStateEvidence, conditions: Conditions) -> list[Wrong]:
        """Return the damage."""
        seen = self.seen(evidence)
        return [] if seen is None else [wrong(self.promise, *seen, evidence.observation.end)]


class Degraded(OfState):
    """md assembles the array with all members, if none was lost before the cut."""

    name = "members of a crash state"
    rank = 90
    promise = DEGRADED

    def seen(self, evidence: CrashStateEvidence) -> tuple[str, str] | None:
        """Return the missing members."""
        degraded = evidence.observation.degraded
        if not degraded or not evidence.whole:
            return None
        what = "md assembled a degraded array"
        counted = sorted(degraded.items())
        said = ", ".join(f"{device} lacks {count} member{'' if count == 1 else 's'}" for device, count in counted)
        return what, f"{what}: {said}"


class FilesystemOfState(OfState):
    """The file system's checker finds no damage, if it ran."""

    name = "file system of a crash state"
    rank = 100
    promise = FILESYSTEM

    def seen(self, evidence: CrashStateEvidence) -> tuple[str, str] | None:
        """Return the damage."""
        checked = evidence.observation.filesystem
        if checked is None or checked.outcome == "clean":
            return None
        what = f"the file system's checker (fsck) reports {checked.outcome}"
        return what, f"{what}: {'; '.join(checked.reasons[:3])}"


class Redundancy(OfState):
    """md resyncs each row whose copies or parity are inconsistent."""

    name = REDUNDANCY
    rank = 180
    promise = REDUNDANCY

    def seen(self, evidence: CrashStateEvidence) -> tuple[str, str] | None:
        """Return the rows that md would not resync."""
        rows = evidence.observation.rows
        if rows is None or not (rows.settled or rows.unmarked):
            return None
        what = "copies or parity are inconsistent, and md would not resync them"
        if rows.settled:
            what = "copies or parity were not written: rows are inconsistent although no write was in progress"
        number = rows.settled or rows.unmarked
        return what, f"{what}: {number:,} of {rows.differ:,} inconsistent rows, the first is {rows.first}"


class ThroughServer(OfState):
    """The NFS server serves the content of the mounted file system."""

    name = NFSD
    rank = 190
    promise = NFSD

    def seen(self, evidence: CrashStateEvidence) -> tuple[str, str] | None:
        """Return the difference."""
        if evidence.observation.through_nfsd is not ThroughNfsd.DIFFERENT:
            return None
        what = "the NFS server serves content that differs from the mounted file system"
        return what, f"{what}: {evidence.observation.said}"
