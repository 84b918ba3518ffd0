"""The record schema of the recorded recoveries of crash states, which second power cuts interrupt."""

from enum import StrEnum

from raidproof.record.cell import Strict


class Phase(StrEnum):
    """The phase of a recovery at a second power cut. md's resync may go on in the later phases."""

    ASSEMBLY = "assembly"
    """mdadm assembles the arrays; or the machine has not begun to."""
    RESYNC = "resync"
    """The arrays are assembled, md resyncs, and the file system is not mounted yet."""
    LOG_RECOVERY = "log recovery"
    """The file system is being mounted, and replays its log."""
    MOUNTED = "after mount"
    """The file system is mounted; md's resync goes on until its end."""


class PhaseCount(Strict):
    """The states of second power cuts in one phase of the recoveries."""

    phase: Phase
    judged: int = 0
    """Number of judged states."""
    broken: int = 0
    """Number of judged states in which a promise is broken."""


class RecoveryRecord(Strict):
    """The recorded recovery of one crash state, and the states of second power cuts during the recovery."""

    state: str
    """Name of the crash state that was recovered."""
    log: str
    """Path of the recovery's write log, relative to the run's directory."""
    log_digest: str
    """Digest of the log's content."""
    requests: int
    """Number of requests in the log: writes, discards, flushes."""
    seconds: float
    """Time from the begin of the assembly to the end of the log."""
    resync_first_s: float
    """Greatest time in seconds that md's resync had before the mount."""
    settled: bool
    """Whether md ended its resync, and marked all arrays clean, before the log ended."""
    broken: bool = False
    """Whether a promise is broken after the recovery, without a second power cut; then no second cut is tried."""
    judged: int = 0
    """Number of judged states of a second cut."""
    distinct: int = 0
    """Number of judged states of a second cut with different disk contents."""
    states_broken: int = 0
    """Number of judged states of a second cut in which a promise is broken."""
