"""The data of the crash page: a part of a write log, the rows that it touches, and the checked crash states in it.

A *unit* is a block of 4 KiB of a member, or a sector of a block that a request covers only in part. The page decides
consistency by linear hashes of the units' contents (`raidproof.crash.page.hash`).
"""

from enum import StrEnum

from pydantic import Field

from raidproof.record.cell import Strict
from raidproof.record.outcome import Outcome

SCHEMA = 1


class Area(StrEnum):
    """The part of a member to which a request belongs."""

    SUPERBLOCK = "superblock"
    """md's superblock."""
    METADATA = "metadata"
    """Other metadata of md before the data: bitmap, partial parity log, list of bad blocks."""
    DATA = "data"
    """Data and parity of the array."""
    UNKNOWN = "unknown"
    """No place in an array that could be assembled."""


class HeldBlock(Strict):
    """A block of the ledger in the data of a request."""

    file: int | None
    """Index in `CrashPage.files`; None if the block belongs to none of them."""
    offset: int
    """Offset of the block in its file, in bytes."""
    generation: int


class PageRequest(Strict):
    """A write, discard or write-zeroes request that can be volatile in the page's part of the log.

    At a cut the request is *open* from ``opens`` until ``sure``: it may survive or be lost. From ``sure`` on it
    survives every power cut.
    """

    number: int
    """Index of the request in the write log, as in the names of crash states."""
    kind: str
    """``write``, ``zero`` or ``discard``."""
    member: int
    """Index in `CrashPage.members`."""
    lba: int
    """First sector on the member, in units of 512 bytes."""
    sectors: int
    forced: bool = False
    """Whether the request had the flag FUA."""
    issued_s: float
    completed_s: float | None
    """Times in seconds since the beginning of the write log; None: the request was in flight at the run's own cut."""
    opens: int
    """The first cut at which the request is open."""
    sure: int | None = None
    """The first cut at which the request survives every power cut; None if there is none in the log."""
    area: Area
    stripe: int | None = None
    """Number of the stripe; None outside the data."""
    part: str | None = None
    """What the first byte of the request is in the stripe: ``data``, ``parity`` or ``Q``; None outside the data."""
    chunk: int | None = None
    """Number of the data chunk in the array; None for parity and outside the data."""
    holds: list[HeldBlock] = Field(default_factory=list)
    """The first blocks of the ledger in the data."""
    held: int = 0
    """Number of blocks of the ledger in the data."""
    owner: str | None = None
    """The file or metadata structure of the file system to which the request belongs; None if not looked up."""
    units: list[int] = Field(default_factory=list)
    """The units that the request changes."""
    hashes: int | None = None
    """Index of the hashes of the first unit's new content; None: the request makes the units blank."""


class PageEvent(Strict):
    """A flush, or a change of the cache mode, in the page's part of the log."""

    number: int
    """Index in the write log."""
    kind: str
    """``flush`` or ``mode``."""
    member: int | None
    """Index of the member; None: all members."""
    lied: bool = False
    """Whether the disk acknowledged the flush without making all data durable."""


class PageBlock(Strict):
    """A block of 4 KiB of a member whose content the page follows."""

    member: int
    number: int
    """Offset on the member in blocks of 4 KiB."""
    unit: int
    """Index of the block's first unit."""
    units: int
    """1, or 8 if the sectors of the block are followed one by one."""


class PageStripe(Strict):
    """A stripe of the array."""

    number: int
    parts: list[str]
    """For each slot of the array: ``data``, ``parity``, ``Q`` or ``unused``."""
    chunks: list[int | None]
    """For each slot the number of the data chunk in the array; None for parity."""


class Copies(Strict):
    """The places of one page of an array with copies; all must be equal."""

    offset: int
    """Offset of the page in the array, in bytes."""
    places: list[tuple[int, int]]
    """Slot of the array, and index in `CrashPage.blocks`."""


class PageRow(Strict):
    """A row: the blocks of 4 KiB at one offset of all members."""

    number: int
    stripe: int
    """Index in `CrashPage.stripes`."""
    offset: int
    """Offset in the array of the first data byte of the row."""
    blocks: list[int | None]
    """For each slot of the array the index in `CrashPage.blocks`; None if the slot has no member."""
    copies: list[Copies] = Field(default_factory=list)
    """For arrays with copies: the pages whose copies this row has."""


class PageAssembly(Strict):
    """What md makes of the members' superblocks."""

    unchecked: str | None = None
    """Why the exploration does not judge the redundancy; None if it does."""
    compared: bool = True
    """Whether copies or parity are compared."""
    present: list[int] = Field(default_factory=list)
    """Slots of the array that md would fill."""


class PageFile(Strict):
    """A file or directory of the ledger: the operations of one worker of a client."""

    client: str
    path: str
    kind: str
    """Kind of the worker's operations."""


class PageOperation(Strict):
    """An acknowledged operation of a client."""

    file: int
    """Index in `CrashPage.files`."""
    kind: str
    target: str
    """What the operation changed: a block, a file or a directory."""
    generation: int
    at_s: float
    """Time of the acknowledgement in seconds since the beginning of the write log."""
    since: int
    """The first cut at which the operation counts as acknowledged."""


class FileResult(Strict):
    """The missing acknowledged operations of one file in a checked state."""

    file: int
    """Index in `CrashPage.files`."""
    missing: int
    """Number of missing acknowledged operations."""
    last_missing: bool
    """Whether the operation that was acknowledged last is missing."""
    example: str
    """Description of the first missing operation, and of what was found instead."""


class PageState(Strict):
    """A judged crash state, and what a machine found in it."""

    name: str
    policy: str
    """The policy that chose the surviving requests; empty for a state found by shrinking."""
    cut: int
    survivors: list[int]
    """Numbers of the open requests that survived, whole or in part."""
    torn: dict[int, list[int]] = Field(default_factory=dict)
    """For each request that survived in part, by number: the units that survived."""
    outcome: Outcome
    reason: str
    """Reason of the verdict; empty for a state found by shrinking, of which only ``shows`` is stored."""
    blame: str | None = None
    end: str
    """How the check ended, a value of `raidproof.record.exploration.End`."""
    said: str = ""
    """The message of the program that failed; empty without failure."""
    acknowledged: int = 0
    """Number of operations acknowledged before the cut."""
    missing: int = 0
    """Number of missing acknowledged operations."""
    fsck: str | None = None
    """Result of the file system's checker; None if it did not run."""
    nfsd: str = ""
    """Whether nfsd served the same content: a value of `raidproof.record.exploration.ThroughNfsd`; empty: unknown."""
    differ: int | None = None
    """Number of rows whose copies or parity differ, as the exploration computed it; None if it is not stored."""
    unmarked: int = 0
    """Number of differing rows that md would not resync."""
    unchecked: str | None = None
    """Why the exploration did not judge the redundancy; None if it did."""
    files: list[FileResult] | None = None
    """The files with missing operations; None if the result by file is not stored."""
    smallest_of: int | None = None
    """Number of the failure, from 1, whose smallest state this is."""
    shows: str = ""
    """For a state found by shrinking: the failure that it shows."""


class CrashPage(Strict):
    """All data of one crash page."""

    schema_version: int = SCHEMA
    run: str
    cycle: str
    title: str
    exploration: str
    """Stem of the names of the exploration's files."""
    array: str | None
    """Description of the array: level, members, chunk; None if no array could be assembled."""
    no_array: str | None = None
    """Why the page shows no stripes; None if it does."""
    filesystem: str
    export: str
    """``sync`` or ``async``."""
    members: list[str]
    """Serials of the member disks."""
    slots: list[int | None] = Field(default_factory=list)
    """For each slot of the array the index in ``members``; None if the slot has no member."""
    parities: int = 0
    """Number of parities of a stripe."""
    equations: int = 1
    """Number of hashes of each unit: one for each parity, or 1."""
    chunk: int = 0
    """Bytes of a chunk."""
    first: int
    last: int
    """The cuts of the page's part of the log."""
    of: int
    """Number of requests in the whole log."""
    left_out: int = 0
    """Number of judged states whose cuts are outside of the page's part of the log."""
    instants_s: list[float]
    """The latest instant of each cut from ``first`` to ``last``, in seconds since the beginning of the write log."""
    requests: list[PageRequest]
    events: list[PageEvent]
    blocks: list[PageBlock]
    units: int
    """Number of units; the hashes of their contents at the cut ``first`` come first in ``hashes``."""
    stripes: list[PageStripe]
    rows: list[PageRow]
    superblocks: list[int]
    """For each member the index in ``blocks`` of its superblock."""
    assemblies: list[PageAssembly]
    assembled: dict[str, int]
    """Index in ``assemblies`` by the hashes of the members' superblocks, each as 16 hexadecimal digits."""
    files: list[PageFile]
    operations: list[PageOperation]
    states: list[PageState]
    hashes: str
    """All hashes in base64, 8 bytes each, the most significant byte first."""
