"""The interface of a lab's member disks."""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from raidproof.disk.cache import CacheMode, CutPolicy
from raidproof.disk.disk_fault import DiskFault
from raidproof.disk.messages import Counters, Description, LogClosed, Use


class Disks(Protocol):
    """The member disks of a lab: those of the disk engine, or real ones.

    Real disks raise RequirementMissing for what they do not support.
    """

    @property
    def zeroed(self) -> bool:
        """Whether `reset` leaves zeroes everywhere: then the members of an array agree before their first resync."""

    def require(self, mode: CacheMode, policy: CutPolicy) -> None:
        """Check, before anything is built, that these disks support a cache mode and a cut policy.

        Raises:
            RequirementMissing: they have no such cache, or cannot lose it in this way.
        """

    def reset(self, old: Iterable[str] = ()) -> None:
        """Make all members blank, with their initial modes and counters.

        ``old``: serials of members whose unwritten parts shall read as old data. Real disks keep the data they have.
        """

    def set_mode(self, mode: CacheMode, serials: Iterable[str] | None = None) -> None:
        """Change the cache mode of some members, or of all."""

    def set_timing(self, on: bool) -> None:
        """Simulate the disks' service times, or answer requests at once."""

    def use(self) -> Use:
        """Return the utilization counters of disks and controllers."""

    def counters(self) -> dict[str, Counters]:
        """Return the request counters of each member, by serial."""

    def describe(self) -> Description:
        """Return what is served, and the state."""

    def log_start(self, path: Path, *, data: bool = True) -> None:
        """Begin a write log."""

    def log_stop(self) -> LogClosed | None:
        """End the write log; return None if these disks have none."""

    def set_disk_fault(self, serial: str, disk_fault: DiskFault) -> None:
        """Set a disk fault of a drive."""

    def clear_disk_faults(self, serials: Iterable[str] | None = None) -> None:
        """Remove the disk faults of some drives, or of all; damaged data stays damaged."""

    def corrupt(self, serial: str, offset: int, length: int, seed: int = 0) -> None:
        """Change every byte of a region of a drive, durably and silently."""

    def swap(self, one: str, other: str) -> None:
        """Exchange the content of two drives without power."""
