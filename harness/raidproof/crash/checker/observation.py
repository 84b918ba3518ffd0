"""What came of one crash state on a checker."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from raidproof.guest import check_agent
from raidproof.storage.filesystem.state import FilesystemCheck
from raidproof.workload.ledger import Found


class End(StrEnum):
    """How far a checker got."""

    READ = check_agent.READ
    NOT_ASSEMBLED = check_agent.NOT_ASSEMBLED
    NOT_MOUNTED = check_agent.NOT_MOUNTED
    WEDGED = "wedged"
    """Its kernel died, complained of a bug of its own, or did not come to an end in time."""


class ThroughNfsd(StrEnum):
    """Whether nfsd gives what a scan of the mounted file system gives."""

    SAME = check_agent.SAME
    DIFFERENT = check_agent.DIFFERENT
    """Or it gives nothing at all: `Observation.said` tells."""
    NOT_TRIED = "not tried"


class Rows(BaseModel):
    """What the members' contents say of the array's redundancy in one state. Numbers are rows of 4 KiB a member."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    differ: int = 0
    """Whose copies or parity do not agree."""
    unmarked: int = 0
    """Of these, what md would leave so: no bitmap has it marked, or the superblock says that all is in sync."""
    uneven: int = 0
    """Of these, what is marked on some members only: resynced or not, as the member goes whose bitmap md reads."""
    changed: int = 0
    """Copies that differ where md wrote what a page held at two moments: it changed under write-back, as md allows."""
    all_marked: bool = False
    """Every region of the bitmap was marked, as on a new array: nothing could be unmarked."""
    first: str = ""
    """The first of those that md would leave so."""
    unchecked: str | None = None
    """Why nothing is said of it."""


class Observation(BaseModel):
    """What was seen of one crash state. Seen twice, it is the same in all but ``ms``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    end: End
    said: str = ""
    """What failed, in the words of the tool; of a wedged checker, in which stage."""
    found: Found | None = None
    """What the scan of the ledger found; None if it came to none."""
    console: tuple[str, ...] = ()
    """Alarming lines of the kernel, each with what it is a sign of, without the kernel's time stamps."""
    silent: bool = False
    """Wedged, and nothing tells why: the time was up, or something stayed, and the kernel complained of nothing."""
    hung: str = ""
    """What an earlier look at the same state said, which was silent: this one was taken in its place."""
    degraded: dict[str, int] = Field(default_factory=dict)
    """How many members each array went on without; arrays that are whole are left out."""
    through_nfsd: ThroughNfsd = ThroughNfsd.NOT_TRIED
    filesystem: FilesystemCheck | None = None
    """What the file system's own checker said once it was unmounted; None where it was not run."""
    rows: Rows | None = None
    """Computed from what the members hold, not seen by the machine; None where nobody has."""
    ms: dict[str, float] = Field(default_factory=dict)
    """How long each stage took: switch, assemble, mount, verify; where it was asked nfsd (mount), look (read
    there), leave (unmount) and forget (nfsd lets go); unmount, stop."""

    def same_as(self, other: "Observation") -> bool:
        """Return whether two checks have seen the same; what only one of them tried is no difference.

        What a tool says is none either: it may name the device, which each way of serving the disks calls otherwise.
        """
        tried = {self.through_nfsd, other.through_nfsd} - {ThroughNfsd.NOT_TRIED}
        checked = {one.filesystem.outcome for one in (self, other) if one.filesystem is not None}
        seen = [(one.end, one.found, one.console, one.degraded) for one in (self, other)]
        return seen[0] == seen[1] and len(tried) < 2 and len(checked) < 2
