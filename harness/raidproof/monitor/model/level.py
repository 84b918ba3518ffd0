"""What a request to an array makes of requests to its members."""

from dataclasses import dataclass
from math import ceil

from raidproof.storage.array import ArraySpec, Level
from raidproof.storage.array.spec import PARITY_LEVELS, default_layout

SMALL_WRITE_SOURCE = (
    "RAID write costs: Patterson, Gibson, Katz, SIGMOD 1988; Chen et al., ACM Computing Surveys 26(2), 1994"
)


@dataclass(frozen=True)
class Work:
    """What the members do for one request."""

    commands: float
    """Requests to members, all together."""
    width: int
    """Members that work at the same time for it."""
    size: int
    """Bytes of one of them."""
    modifies: bool = False
    """Whether old data or parity must be read before anything can be written."""

    def traffic(self, request: int) -> float:
        """Bytes at the members for a byte of the application."""
        return self.commands * self.size / request


def copies(spec: ArraySpec) -> int:
    """How many members hold each byte, parity not counted."""
    match spec.level:
        case Level.RAID1:
            return len(spec.members)
        case Level.RAID10:
            return int((spec.layout or default_layout(Level.RAID10) or "n2")[1:])
        case Level.STRIPED_MIRRORS:
            return len(spec.members) // spec.leg_count
        case Level.MIRRORED_STRIPES:
            return spec.leg_count
        case _:
            return 1


def parity(level: Level) -> int:
    """How many units of a stripe are parity."""
    return 2 if level is Level.RAID6 else 1 if level in PARITY_LEVELS else 0


def data_width(spec: ArraySpec) -> int:
    """How many different stripe units can be read or written at once, if each byte counts once."""
    members = len(spec.members)
    return members - parity(spec.level) if parity(spec.level) else max(1, members // copies(spec))


def stripe(spec: ArraySpec) -> int | None:
    """Bytes of data in a whole stripe; None for a mirror."""
    return None if spec.chunk_size is None else spec.chunk_size * data_width(spec)


def read_work(spec: ArraySpec, request: int) -> Work:
    """Return what a read of so many bytes costs: each chunk is read once, from one of its copies."""
    chunk = spec.chunk_size or request
    readers = len(spec.members) if spec.level is Level.RAID10 else data_width(spec)
    width = min(ceil(request / chunk), readers)
    return Work(commands=width, width=width, size=ceil(request / width))


def write_work(spec: ArraySpec, request: int) -> Work:
    """Return what a write of so many bytes costs, if it begins at a chunk (a large one: at a stripe).

    A mirror writes each copy. Parity: whole stripes are written with their parity, n/(n-1) for RAID5. Of a part of
    k chunks, either the old data and parity are read (k + p reads), or the rest of the stripe (d - k); md takes what
    needs fewer, and then writes k + p. So a small write costs 4 requests on RAID5, 6 on RAID6, 2 on a pair.
    """
    protection, width = parity(spec.level), data_width(spec)
    chunk = spec.chunk_size or request
    if not protection:
        parts = min(ceil(request / chunk), width)
        return Work(commands=parts * copies(spec), width=parts * copies(spec), size=ceil(request / parts))
    whole, rest = divmod(request, chunk * width)
    members = width + protection
    if not rest:
        return Work(commands=members, width=members, size=whole * chunk)
    touched = ceil(rest / chunk)
    reads = min(touched + protection, width - touched)
    partial = touched + protection + reads
    unit = min(rest, chunk)
    if not whole:
        return Work(commands=partial, width=touched + protection, size=unit, modifies=reads > 0)
    # Whole stripes and a part: one size for all, so that the bytes are right.
    total = whole * chunk * members + partial * unit
    commands = members + partial
    return Work(commands=commands, width=members, size=ceil(total / commands), modifies=reads > 0)
