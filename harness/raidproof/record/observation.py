"""What a crash test has observed, unjudged: one model for each thing, and the files with the rest.

What nobody looked at, and what an older record does not say, is None.
"""

from collections.abc import Iterator

from pydantic import Field

from raidproof.disk.messages import Counters, LogClosed
from raidproof.record.cell import Strict
from raidproof.storage.array import Identity
from raidproof.storage.array.superblock import Bitmap
from raidproof.storage.filesystem.state import FilesystemCheck, WriteBackState

Identities = dict[str, Identity]
"""What each disk said of the array that it belongs to, by its serial."""


class MembersSeen(Strict):
    """Which disk belonged where, before the fault and after it. Disks are named by their serials."""

    start: Identities | None = None
    """Before the fault."""
    before: Identities | None = None
    """After the fault, before the array was assembled again."""
    bitmaps: dict[str, Bitmap] | None = None
    """The write-intent bitmap on each disk, then."""
    absent: list[str] | None = None
    """Those that might be missing when it was assembled."""
    active: list[str] | None = None
    """Those with which md worked then, before anything could be rebuilt."""
    end: Identities | None = None
    renewed: list[str] | None = None
    """Those whose metadata was written anew on purpose between start and end."""


class ReadBack(Strict):
    """What a client fetched while it read everything back."""

    client: str
    bytes: int
    calls: int
    """READs."""


class ReportDelay(Strict):
    """By how many milliseconds the clients' reports arrived later than the server's replies were on the wire."""

    least: float
    median: float
    most: float


class RepliesSeen(Strict):
    """How many operations the server's replies on the wire date."""

    why_not: str | None = None
    """Why there is nothing else."""
    dated: int | None = None
    of: int | None = None
    reported_later_ms: ReportDelay | None = None
    writes: dict[str, int] = Field(default_factory=dict)
    """WRITEs, by the stability that the clients asked for."""


class ArraySeen(Strict):
    """What a scrub found, and md's own account of the array at the end; by md device."""

    mismatch_cnt: dict[str, int]
    """512-byte sectors that differ."""
    unchecked: dict[str, str] = Field(default_factory=dict)
    """Why a device could not be checked."""
    resynced: dict[str, int] = Field(default_factory=dict)
    """Sectors that a resync before it has put right."""
    repaired: dict[str, int] = Field(default_factory=dict)
    """Where something differed: what a second check still found after a repair."""
    degraded: dict[str, int] = Field(default_factory=dict)
    """How many members are missing, where any are."""
    bad_blocks: dict[str, str] = Field(default_factory=dict)
    """Blocks that md knows it cannot read, by the member's serial: first sector and count."""


class Observations(Strict):
    """What was seen of one crash test."""

    old_data: list[str] | None = None
    """Serials of the disks that held old data where nothing was written."""
    members: MembersSeen | None = None
    write_back: WriteBackState | None = None
    """For how long the server may keep in its memory what is not synced."""
    disks: dict[str, Counters] | None = None
    """The engine's counters when the clients began, by serial."""
    export: list[str] | None = None
    """The options that the server applied just before the fault."""
    write_log: LogClosed | None = None
    calls: dict[str, dict[str, int]] | None = None
    """How often each client has sent each NFS call while the ledger ran."""
    read_back: ReadBack | None = None
    filesystem: FilesystemCheck | None = None
    array: ArraySeen | None = None
    replies: RepliesSeen | None = None


class Files(Strict):
    """Files of one crash test, by paths relative to the directory of its run; consoles and the like by machine."""

    fio: list[str] = Field(default_factory=list)
    """Each measurement of the sequential write."""
    write_log: str | None = None
    history: str | None = None
    """What the ledger's workers reported."""
    capture: str | None = None
    """Packets of NFS."""
    on_server: str | None = None
    """What the server had of the ledger after the fault."""
    away: dict[str, str] = Field(default_factory=dict)
    """What each client's kernel said from before the fault until all were served again."""
    wire: str | None = None
    """Requests and replies, out of ``capture``."""
    on_client: str | None = None
    """What a client had of the ledger in the end."""
    replies: str | None = None
    """When the server's last reply to each operation was on the wire."""
    consoles: dict[str, str] = Field(default_factory=dict)
    """What each machine's kernel said."""

    def by_title(self) -> Iterator[tuple[str, str]]:
        """Yield what each file is called on a page, and its path."""
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
