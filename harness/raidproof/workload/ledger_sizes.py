"""The pieces that a worker of kind ``sizes`` writes: data of many sizes at many positions, in every way."""

from collections.abc import Collection, Iterable
from operator import itemgetter

from raidproof.core.units import KIB, MIB
from raidproof.guest.ledger_pieces import MARKS
from raidproof.workload.history import PieceSpec

WAYS = ("fsync", "o_sync", "msync", "o_dsync", "close", "o_direct", "fdatasync", "o_direct_sync")
"""The ways of writing: kinds of operation that write data of any size."""
BYTES = 64
"""Slots of a piece of one byte: operations overwrite one byte after another of a page."""
MOST_ROUNDS = MARKS * BYTES
"""Number of rounds after which the marks of pieces of one byte repeat, so that a worker must end."""


SIZE_CLASSES = (1, 4 * KIB, 64 * KIB)
"""The least size in bytes of each class of sizes: parts of a page, some pages, many pages."""


def class_of(size: int) -> int:
    """Return the class of a size in bytes."""
    return max(least for least in SIZE_CLASSES if least <= size)


def _by(ways: Iterable[str], size: int, position: int = 0, slots: int = 1) -> list[PieceSpec]:
    """Return a piece for each of some ways of writing."""
    return [PieceSpec(kind=way, size=size, position=position, slots=slots) for way in ways]


def _from(first: int) -> tuple[str, ...]:
    """Return all ways of writing, from way number ``first`` on."""
    return (*WAYS[first:], *WAYS[:first])


LISTS = (
    # Parts of a page, and of two pages; data of 16 pages.
    _by(_from(6), 1, slots=BYTES),
    _by(_from(7), 1_000, position=3_000, slots=8),
    _by(_from(3), 64 * KIB),
    # Not every way: each crash state reads all pieces. Not aligned, in one WRITE of the default wsize (1 MiB):
    _by(("o_dsync", "close", "o_sync", "fdatasync"), 20_000, position=100),
    _by(("o_sync", "fsync", "o_direct_sync", "msync"), 300_000, position=5_000),
    # Several WRITEs.
    _by(("fsync", "o_sync"), MIB + 100),
    # Across the offsets at which 31 and 32 bits end, and far behind them.
    [
        *_by(("o_sync",), 4_000, position=2**31 - 2_000),
        *_by(("fsync",), 70_000, position=2**32 - 35_000),
        *_by(("o_dsync",), 1_000, position=2**40 - 500),
    ],
)
_PLACED = [((number + 0.5) / len(each), piece) for each in LISTS for number, piece in enumerate(each)]
PIECES = tuple(piece for _, piece in sorted(_PLACED, key=itemgetter(0)))
"""All pieces in the order in which a worker writes them: the pieces of each list are spread evenly."""


def pieces_from(first: int, omit: Collection[str]) -> tuple[PieceSpec, ...]:
    """Return the pieces without the kinds of operation in ``omit``, beginning with number ``first``."""
    kept = [piece for piece in PIECES if piece.kind not in omit]
    start = first % len(kept) if kept else 0
    return (*kept[start:], *kept[:start])
