"""The write-intent bitmap as it is on the members: which regions md would resync after a crash."""

import re
from collections.abc import Iterable

from harness.layer import State, found_in
from harness.units import parse_size


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
