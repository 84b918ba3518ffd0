"""Raw observations of a crash test: models, and the paths of files.

A value is None if it was not observed, or if an older record lacks it.
"""

from collections.abc import Iterator

from pydantic import Field

from raidproof.disk.messages import Counters, LogClosed
from raidproof.record.cell import Strict
from raidproof.storage.array import Identity
from raidproof.storage.array.superblock import Bitmap
from raidproof.storage.filesystem.state import FilesystemCheck, WriteBackState

Identities = dict[str, Identity]
"""The array metadata (md superblock) of each disk, by serial."""


class MembersSeen(Strict):
    """Members' metadata before and after the fault; disks are identified by serial."""

    start: Identities | None = None
    """Before the fault."""
    before: Identities | None = None
    """After the fault, before assembly."""
    bitmaps: dict[str, Bitmap] | None = None
    """The write-intent bitmap on each disk after the fault, before assembly."""
    absent: list[str] | None = None
    """Disks that were allowed to be missing at assembly."""
    active: list[str] | None = None
    """Disks that md used after assembly, before any rebuild."""
    end: Identities | None = None
    renewed: list[str] | None = None
    """Disks whose metadata was rewritten on purpose between start and end."""


class ReadBack(Strict):
    """What a client fetched from the server while it read everything back."""

    client: str
    bytes: int
    calls: int
    """Number of READ calls."""


class ReportDelay(Strict):
    """Delay in milliseconds from the server's reply on the wire to the arrival of the client's report."""

    least: float
    median: float
    most: float


class RepliesSeen(Strict):
    """Number of operations whose acknowledgement time comes from the server's replies on the wire."""

    why_not: str | None = None
    """Why no replies were captured; then the other fields are empty."""
    dated: int | None = None
    of: int | None = None
    reported_later_ms: ReportDelay | None = None
    writes: dict[str, int] = Field(default_factory=dict)
    """Number of WRITEs by requested stability."""


class ArraySeen(Strict):
    """Results of a scrub, and md's state of the array at the end, by md device."""

    mismatch_cnt: dict[str, int]
    """Number of differing 512-byte sectors (md(4))."""
    unchecked: dict[str, str] = Field(default_factory=dict)
    """Why a device could not be checked."""
    resynced: dict[str, int] = Field(default_factory=dict)
    """Number of sectors that a preceding resync corrected."""
    repaired: dict[str, int] = Field(default_factory=dict)
    """Differing sectors in a second check after a repair, for devices that had any."""
    degraded: dict[str, int] = Field(default_factory=dict)
    """Number of missing members, for devices that lack any."""
    bad_blocks: dict[str, str] = Field(default_factory=dict)
    """md's bad blocks by the member's serial: first sector and count."""


class Observations(Strict):
    """The observations of one crash test."""

    old_data: list[str] | None = None
    """Serials of the disks that held old data in unwritten places."""
    members: MembersSeen | None = None
    write_back: WriteBackState | None = None
    """How long the server may keep unsynced data in memory."""
    disks: dict[str, Counters] | None = None
    """The disk engine's counters when the clients began, by serial."""
    export: list[str] | None = None
    """The export options in effect just before the fault."""
    write_log: LogClosed | None = None
    calls: dict[str, dict[str, int]] | None = None
    """Number of NFS calls by client and call while the ledger ran."""
    read_back: ReadBack | None = None
    filesystem: FilesystemCheck | None = None
    array: ArraySeen | None = None
    replies: RepliesSeen | None = None


class Files(Strict):
    """Paths of one crash test's files, relative to the run's directory; console logs by machine."""

    fio: list[str] = Field(default_factory=list)
    """Each measurement of the sequential write."""
    write_log: str | None = None
    history: str | None = None
    """The reports of the ledger's workers."""
    capture: str | None = None
    """Captured NFS packets."""
    on_server: str | None = None
    """Scan of the ledger on the server after the fault."""
    away: dict[str, str] = Field(default_factory=dict)
    """Kernel log of each client from before the fault until service resumed for all."""
    wire: str | None = None
    """Requests and replies extracted from ``capture``."""
    on_client: str | None = None
    """Scan of the ledger through a client at the end."""
    replies: str | None = None
    """Time of the server's last reply on the wire to each operation."""
    consoles: dict[str, str] = Field(default_factory=dict)
    """Console log of each machine."""

    def by_title(self) -> Iterator[tuple[str, str]]:
        """Yield the title of each file on the page, and its path."""
        yield from ((f"fio {number}", path) for number, path in enumerate(self.fio, start=1))
        for title in ("write log", "history", "capture", "on_server"):
            yield from self._one(title)
        yield from ((f"server away {client}", path) for client, path in self.away.items())
        for title in ("wire", "on_client", "replies"):
            yield from self._one(title)
        yield from ((f"console {machine}", path) for machine, path in self.consoles.items())

    def _one(self, title: str) -> Iterator[tuple[str, str]]:
        path: str | None = getattr(self, title.replace(" ", "_"))
        if path is not None:
            yield title, path
