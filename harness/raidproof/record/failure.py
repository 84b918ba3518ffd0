"""The record schema of a failure of an exploration: the smallest states that show it, and what makes a state fail."""

from enum import StrEnum

from pydantic import Field

from raidproof.core.blame import Blame
from raidproof.record.cell import Strict
from raidproof.record.recovery import Phase
from raidproof.storage.array.state import Area


class WriteRecord(Strict):
    """An unflushed write request, or a part of one, that survived the cut or was lost in a crash state."""

    request: int
    """Index of the request in the write log, as in the names of crash states."""
    kind: str
    """Kind of the request: ``write``, ``zero`` or ``discard``."""
    member: str
    """Serial of the member disk."""
    lba: int
    """First sector on the member, in units of 512 bytes."""
    sectors: int
    """Length in sectors of 512 bytes."""
    stripe: int | None = None
    """Number of the array's stripe; None outside the data area, as in a superblock."""
    owner: str | None = None
    """The file or the metadata structure whose content the request writes; None if not known."""
    role: int | None = None
    """The member's slot in the array; None for a spare or a journal, and if not known."""
    area: Area | None = None
    """What md stores at the first byte of the request; None if the disk is no member of the array, or not known."""
    chunk: int | None = None
    """Number of the chunk in the array at the first byte; None for parity and metadata."""
    structure: str | None = None
    """The structure of the file system that the request's data begins with, by its magic number; None without one."""
    fua: bool = False
    """Whether the request had the flag FUA (force unit access)."""
    torn: bool = False
    """Whether the record describes only a part of the request."""


class MissingRecord(Strict):
    """An acknowledged operation that is missing in a crash state."""

    client: str
    kind: str
    path: str
    """Path of the worker's files, relative to the ledger's directory."""
    place: int
    """Number of the block in the file, or number of the directory."""
    generation: int
    """How often the client had written the block, this operation included; in a directory: number of the change."""
    acknowledged_before_s: float
    """Seconds from the acknowledgement to the cut."""
    instead: str
    """What the scan found instead, as a clause."""


class Gap(StrEnum):
    """Why a request was volatile at an instant: that of the broken acknowledgement, or else that of the cut."""

    NOT_FLUSHED = "not-flushed"
    """The request had completed, and no flush of its member began after that and completed before the instant."""
    FLUSH_LIED = "flush-lied"
    """The member acknowledged such a flush, or the request itself with FUA, without making the request durable."""
    IN_FLIGHT = "in-flight"
    """The request had not completed."""
    LATER = "later"
    """The request was issued after the acknowledgement: the acknowledgement did not depend on this request alone."""


class DifferingRequest(Strict):
    """A request in which a failing state and a state without the failure differ."""

    write: WriteRecord
    torn: bool = False
    """Whether only a part of the request survives in the failing state."""
    good_state: str | None = None
    """Name of the state without any failure that differs from the failing state in this request; None if the state
    was not checked, or shows another failure."""
    good_dump: str | None = None
    """The complete state ``good_state`` as text."""
    issued_before_cut_s: float
    """Seconds from the issue of the request to the cut."""
    completed_before_cut_s: float | None = None
    """Seconds from the completion of the request to the cut; None if the request was in flight at the cut."""
    before_acknowledgement_s: float | None = None
    """Seconds from the completion of the request, or from its issue for `Gap.LATER`, to the broken acknowledgement.

    Negative if the acknowledgement came first; None without a broken acknowledgement, or in flight at the cut."""
    lying_flushes: int = 0
    """Flushes that the member acknowledged without execution, after the request and before the instant of ``gap``."""
    gap: Gap


class DifferenceRecord(Strict):
    """What differs between a failing state and its nearest states without the failure.

    Such a state differs from the failing state in one of ``requests``. Without requests, the failure does not depend
    on the volatile requests: it shows if all of them survive, and if none of them survives.
    """

    state: str
    """Name of the failing state."""
    dump: str
    """The complete failing state as text; `CrashState.load` reads it."""
    lost: bool
    """Whether the failing state lacks the requests; False: it has requests that the good states lack."""
    requests: list[DifferingRequest] = Field(default_factory=list)
    broken: MissingRecord | None = None
    """The broken acknowledgement: that of an operation that is missing in the failing state; None without one."""


class OrderRecord(Strict):
    """A barrier write that survived in a crash state, and an earlier write that did not.

    A barrier write is one that a file system submits with PREFLUSH: all earlier writes must become durable first.
    """

    barrier: WriteRecord
    lost: WriteRecord
    """A write that had completed before the barrier write reached its member."""


class ShrunkRecord(Strict):
    """The smallest crash state that shows a failure, as found by shrinking within a time budget."""

    state: str
    """Name of the state in which the fewest unflushed requests survive."""
    dump: str
    """The complete state as text; `CrashState.load` reads it."""
    survivors: list[WriteRecord] = Field(default_factory=list)
    """The unflushed requests that survive in this state."""
    not_there: int
    """Number of requests that were unflushed at the cut and are lost in the state."""
    tried: int
    """Number of states that shrinking checked."""
    whole: bool = True
    """Whether shrinking finished within its time budget."""
    lost: list[WriteRecord] = Field(default_factory=list)
    """The fewest requests whose loss shows the failure while all other requests survive."""
    lost_state: str | None = None
    """Name of the state in which only the requests in ``lost`` are lost; None if it was not searched for."""
    lost_dump: str | None = None
    """The complete state of ``lost_state`` as text."""


class ShortestRecord(Strict):
    """The earliest cut found that shows a failure, and its crash state; a time limit may have ended the search."""

    state: str
    """Name of the crash state."""
    dump: str
    """The complete state as text; `CrashState.load` reads it."""
    cut: int
    """Number of completed requests of the log at the cut."""
    of: int
    """Number of requests in the log."""
    at_s: float
    """Time of the cut, in seconds since the beginning of the write log."""
    earlier: int
    """Number of requests from this cut to the cut of the smallest state; 0: no earlier cut was found."""
    earlier_s: float
    """Time in seconds from this cut to the cut of the smallest state."""
    after_word_s: float | None = None
    """Time in seconds from the acknowledgement of the earliest missing operation to the cut; None without one."""
    acknowledged: int
    """Number of operations that were acknowledged before the cut."""
    of_acknowledged: int
    """Number of acknowledged operations in the whole recording."""
    not_at: int | None = None
    """The last earlier cut that was checked and does not show the failure; None if no earlier cut could show it."""
    tried: int
    """Number of states that the search checked."""


class FailureRecord(Strict):
    """A distinct failure, and the crash state with the earliest cut that shows it."""

    promise: str
    """Name of the broken promise, or of the check that failed."""
    damage: str
    """The kind of damage, as a clause."""
    end: str
    """How the check of the state ended, a value of `End`."""
    states: int
    """Number of judged states that show the failure."""
    examples: list[str] = Field(default_factory=list)
    """Names of the states with the earliest cuts that show the failure."""
    state: str
    """Name of the state that the following fields describe."""
    dump: str
    """The complete state as text; `CrashState.load` reads it."""
    policy: str
    """The policy that chose which unflushed requests survive in this state."""
    cut: int
    """Number of completed requests of the log at the cut."""
    at_s: float
    """Time of the cut, in seconds since the beginning of the write log."""
    reason: str
    """The reason of the verdict on the state."""
    blame: Blame | None = None
    said: list[str] = Field(default_factory=list)
    """Descriptions of the first missing operations and other findings that show the failure."""
    kernel: list[str] = Field(default_factory=list)
    """The first suspicious kernel messages of the state, each preceded by the name of its sign."""
    order: OrderRecord | None = None
    """The barrier write that survives without an earlier write, in the state with the fewest lost requests or, if the
    failure was not shrunk, in ``state``. None without one, if disks lied, and if the search was not made."""
    finding: str | None = None
    """The finding with whose crash states the failure agrees (`raidproof findings`); None without one."""
    repeated: int = 0
    """Number of repeated checks of the state."""
    confirmed: int = 0
    """Number of repeated checks that showed the failure again."""
    shrunk: ShrunkRecord | None = None
    """The smallest state that shows the failure; None if shrinking was not possible."""
    difference: DifferenceRecord | None = None
    """What makes the state fail; None if the failure was not shrunk."""
    shortest: ShortestRecord | None = None
    """The earliest cut at which the same losses show the failure; None if it was not searched for."""
    missing: MissingRecord | None = None
    """The earliest acknowledged operation that is missing, in the smallest state if there is one."""
    missing_total: int = 0
    """Number of missing acknowledged operations in the same state as ``missing``."""
    acknowledged: int = 0
    """Number of operations acknowledged before the cut of ``state``."""
    replay: list[str] = Field(default_factory=list)
    """The command that shows the failure in a kept lab, in the smallest state with the earliest cut."""
    recovery: str | None = None
    """Name of the crash state in whose recovery the failure shows; None: the failure shows without a second cut.

    Then ``cut`` and ``at_s`` count from the beginning of the write log of this recovery.
    """
    phase: Phase | None = None
    """Phase of the recovery at the second power cut; None: no second cut, and with ``recovery``: after all of it."""
