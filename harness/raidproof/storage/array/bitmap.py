"""The write-intent bitmap: how fine it may be, and as it is on the members: which regions md would resync."""

import re
from collections.abc import Iterable

from raidproof.core.layer import State, found_in
from raidproof.core.units import GIB, KIB, MIB, parse_size

LEAST_CHUNK = 4 * KIB
"""Bytes that one bit stands for, at least, as mdadm has it (``add_internal_bitmap1`` in its super1.c); md itself would
take 512, and as mdadm only powers of two (``md_bitmap_read_sb`` in drivers/md/md-bitmap.c)."""
LARGEST_CHUNK = GIB
"""mdadm keeps it as an int (``struct shape`` in mdadm.h), in bytes."""
HEADER = 256
"""Bytes of ``bitmap_super_s`` in the kernel's drivers/md/md-bitmap.h; the bits follow."""
_LEAST_OFFSET = MIB
"""Bytes before a member's data, at least: so many are never synced."""


def least_chunk(synced: int, member: int) -> int:
    """Return the smallest chunk, in bytes, whose bits fit into the room that mdadm leaves for them.

    ``synced`` is what the bitmap covers: of each member, of a RAID10 of the array. The room depends on the size of a
    ``member``: a page up to 8 GiB, 64 KiB up to 200 GiB, else 128 KiB (``choose_bm_space`` in mdadm's super1.c).
    In memory md counts 2,048 chunks a page, each when it is written (``PAGE_COUNTER_RATIO`` in md-bitmap.c).
    """
    room = 4 * KIB if member <= 8 * GIB else 64 * KIB if member <= 200 * GIB else 128 * KIB
    bits, chunk = (room - HEADER) * 8, LEAST_CHUNK
    while max(0, synced - _LEAST_OFFSET) // chunk + 1 > bits:
        chunk *= 2
    return chunk


class Bitmap(State):
    """The bitmap on one member."""

    regions: int
    dirty: int
    """Regions that are marked, so that they would be resynced."""
    region_size: int
    """Bytes of each member that a bit stands for."""
    events: int
    events_cleared: int
    """The array's events when a bit was last cleared: a member older than that cannot be re-added."""


def examine_bitmap_command(paths: Iterable[str]) -> list[str]:
    """Read the bitmaps on members; the array may be offline."""
    return ["mdadm", "--examine-bitmap", *paths]


def parse_bitmaps(text: str) -> dict[str, Bitmap]:
    """Read ``mdadm --examine-bitmap`` of several devices, by their paths.

    Raises:
        RigError: a line is missing, or the output was cut off.
    """
    parts = re.split(r"^ *Filename : (\S+)\n", text, flags=re.MULTILINE)[1:]
    return {path: _bitmap(part, path) for path, part in zip(parts[::2], parts[1::2], strict=True)}


def _bitmap(text: str, path: str) -> Bitmap:
    def number(pattern: str, what: str) -> int:
        return int(found_in(pattern, text, f"{what} of the bitmap on {path}"))

    size = found_in(r"^ *Chunksize : (\d+ [KMG]?B)", text, f"chunk size of the bitmap on {path}")
    return Bitmap(
        regions=number(r"^ *Bitmap : (\d+) bits", "bits"),
        dirty=number(r"^ *Bitmap : .* (\d+) dirty", "dirty bits"),
        region_size=parse_size(re.sub(r" ([KMG])B$", r"\1iB", size)),
        events=number(r"^ *Events : (\d+)", "events"),
        events_cleared=number(r"^ *Events Cleared : (\d+)", "events cleared"),
    )
