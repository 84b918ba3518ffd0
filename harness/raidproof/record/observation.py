"""The record schema of the raw observations of a crash test, and of the paths of its files.

A field is None if the value was not observed, or if an older record lacks the field.
"""

from collections.abc import Iterator

from pydantic import Field

from raidproof.disk.messages import Counters, LogClosed
from raidproof.record.cell import Strict
from raidproof.storage.array import Identity
from raidproof.storage.array.superblock import Bitmap
from raidproof.storage.filesystem.state import FilesystemCheck, WriteBackState
from raidproof.storage.intruder import Intruder, Occasion

Identities = dict[str, Identity]
"""The array metadata (md superblock) of each disk, by serial."""


class AssemblySeen(Strict):
    """The md metadata of the members at one assembly after a fault; all disks are identified by serial."""

    before: Identities | None = None
    """Metadata after the fault, before assembly."""
    bitmaps: dict[str, Bitmap] | None = None
    """The write-intent bitmap on each disk after the fault, before assembly."""
    absent: list[str] | None = None
    """Disks that the fault removed, so that they may be missing at assembly."""
    replaced: list[str] = Field(default_factory=list)
    """Disks whose metadata the harness caused md to rewrite between `MembersSeen.start` and this assembly."""
    active: list[str] | None = None
    """Disks that md used after assembly, before any rebuild."""


class MembersSeen(AssemblySeen):
    """The md metadata of the members before and after the fault, at the last assembly and at the end."""

    start: Identities | None = None
    """Metadata before the fault."""
    earlier: list[AssemblySeen] = Field(default_factory=list)
    """The observations at the assemblies before the last one, if the server went down several times."""
    end: Identities | None = None
    """Metadata at the end of the crash test."""
    renewed: list[str] | None = None
    """Disks whose metadata the harness caused md to rewrite between ``start`` and ``end``, as in a replacement."""


class ReadBack(Strict):
    """The amount of data that a client fetched from the server while it read the ledger back."""

    client: str
    """Name of the client."""
    bytes: int
    calls: int
    """Number of READ calls."""


class ReportDelay(Strict):
    """The delay between the server's reply on the wire and the arrival of the client's report, in milliseconds."""

    least: float
    median: float
    most: float


class RepliesSeen(Strict):
    """The result of the capture of the server's replies, which give the times of the acknowledgements."""

    why_not: str | None = None
    """Why no replies were captured; then the other fields are empty."""
    dated: int | None = None
    """Number of operations whose time of acknowledgement is that of the server's last reply."""
    of: int | None = None
    """Number of operations that the clients reported as successful."""
    reported_later_ms: ReportDelay | None = None
    """Delay of the clients' reports after the server's replies."""
    writes: dict[str, int] = Field(default_factory=dict)
    """Number of WRITE calls by requested stability."""
    stable_writes: dict[int, int] | None = None
    """Number of WRITE calls with FILE_SYNC or DATA_SYNC by class of size: the least size in bytes of each class."""

    @property
    def none_dated(self) -> bool:
        """Whether the capture dated none of the operations, although there were some."""
        return self.dated == 0 and bool(self.of)


class ArraySeen(Strict):
    """The result of a scrub, and md's state of the array at the end of the crash test, by md device."""

    mismatch_cnt: dict[str, int]
    """Number of inconsistent 512-byte sectors that the check counted (md(4))."""
    unchecked: dict[str, str] = Field(default_factory=dict)
    """Why an md device could not be scrubbed."""
    resynced: dict[str, int] = Field(default_factory=dict)
    """Number of sectors that a resync before the check corrected."""
    repaired: dict[str, int] = Field(default_factory=dict)
    """Number of inconsistent sectors in a second check, after a repair; only for devices that needed a repair."""
    never_written: list[str] = Field(default_factory=list)
    """Rows of which a copy or the parity was never written, by the write log; empty if ``mismatch_cnt`` is 0."""
    degraded: dict[str, int] = Field(default_factory=dict)
    """Number of missing members; only for degraded devices."""
    bad_blocks: dict[str, str] = Field(default_factory=dict)
    """md's list of bad blocks, by serial of the member: first sector and number of sectors."""


class KernelSeen(Strict):
    """What a machine's kernel reported during a crash test: before the fault, and at the end."""

    errors: list[str] = Field(default_factory=list)
    """Messages of level err or worse, each with its level in angle brackets and its time stamp."""
    tainted: list[str] = Field(default_factory=list)
    """Flags of /proc/sys/kernel/tainted that show a failure of the kernel or the hardware, as text."""


class SoloSeen(Strict):
    """The time in which the clients carried out solo operations (host's CLOCK_MONOTONIC, ns)."""

    begun_ns: int
    ended_ns: int | None = None
    struck: bool = False
    """Whether the fault struck right after the reply to the last of them, while all workers paused."""
    lacking: list[str] = Field(default_factory=list)
    """Kinds of operation and classes of sizes, each with the client, that had fewer than three solo operations."""


class IntruderSeen(Strict):
    """An access that an export with TLS or Kerberos must refuse, and that a client attempted."""

    kind: Intruder
    when: Occasion
    let_in: bool
    """Whether the access succeeded."""
    said: str
    """The message of the command, mount(8) or ls(1), if it failed."""


class Observations(Strict):
    """The observations of one crash test, from which the verdicts are computed."""

    old_data: list[str] | None = None
    """Serials of the members whose unwritten sectors held old data."""
    members: MembersSeen | None = None
    write_back: WriteBackState | None = None
    """The server's settings that limit how long unsynced data may stay in its memory."""
    disks: dict[str, Counters] | None = None
    """The disk engine's counters when the clients began, by serial."""
    export: list[str] | None = None
    """The export options in effect just before the fault."""
    solo: SoloSeen | None = None
    write_log: LogClosed | None = None
    """The size of the write log; None if the crash test was not recorded."""
    calls: dict[str, dict[str, int]] | None = None
    """Number of NFS calls while the ledger ran, by client and name of the call."""
    read_back: ReadBack | None = None
    filesystem: FilesystemCheck | None = None
    array: ArraySeen | None = None
    replies: RepliesSeen | None = None
    intruders: list[IntruderSeen] = Field(default_factory=list)
    """The mounts that the export must refuse."""
    kernels: dict[str, KernelSeen] | None = None
    """What the kernel of each machine reported by level and by flags, by name of the machine."""


class Files(Strict):
    """Paths of one crash test's files, relative to the run's directory; console logs by machine."""

    fio: list[str] = Field(default_factory=list)
    """Output of fio for each measurement of the sequential write."""
    write_log: str | None = None
    """Every request of the member disks."""
    history: str | None = None
    """The reports of the ledger's workers, with the host's time stamps."""
    application: str | None = None
    """The files of the user's own application (JSON): content in base64 by name."""
    capture: str | None = None
    """Captured NFS packets."""
    on_server: str | None = None
    """Scan of the ledger on the server after the fault."""
    away: dict[str, str] = Field(default_factory=dict)
    """Kernel log of each client, from before the fault until every client was served again."""
    wire: str | None = None
    """Requests and replies extracted from ``capture``."""
    on_client: str | None = None
    """Scan of the ledger through a client at the end."""
    by_libnfs: str | None = None
    """Scan of the ledger's copy that libnfs made on this client after ``on_client``; None: libnfs did not read."""
    on_server_again: str | None = None
    """Scan on the server after ``by_libnfs``, if it differs from ``on_client``."""
    replies: str | None = None
    """Time of the server's last reply on the wire to each operation."""
    consoles: dict[str, str] = Field(default_factory=dict)
    """Console log of each machine."""

    def by_title(self) -> Iterator[tuple[str, str]]:
        """Yield the title in the HTML report and the path of each file."""
        yield from ((f"fio {number}", path) for number, path in enumerate(self.fio, start=1))
        for title in ("write log", "history", "application", "capture", "on_server"):
            yield from self._one(title)
        yield from ((f"server away {client}", path) for client, path in self.away.items())
        for title in ("wire", "on_client", "by_libnfs", "on_server_again", "replies"):
            yield from self._one(title)
        yield from ((f"console {machine}", path) for machine, path in self.consoles.items())

    def _one(self, title: str) -> Iterator[tuple[str, str]]:
        path: str | None = getattr(self, title.replace(" ", "_"))
        if path is not None:
            yield title, path
