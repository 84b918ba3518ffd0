"""What a lab's member disks have to offer, whoever serves them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from raidproof.disk.cache import CacheMode, CutPolicy
from raidproof.disk.disk_fault import DiskFault
from raidproof.disk.messages import Counters, Description, LogClosed, Use


class Disks(Protocol):
    """The member disks of a lab: those of the disk engine, or real ones.

    What real disks cannot do is refused with RequirementMissing.
    """

    @property
    def zeroed(self) -> bool:
        """Whether `reset` leaves zeroes everywhere: then the members of an array agree before their first resync."""

    def require(self, mode: CacheMode, policy: CutPolicy) -> None:
        """Refuse, before anything is built, what these disks cannot do.

        Raises:
            RequirementMissing: they have not such a cache, or cannot lose it like that.
        """

    def reset(self, old: Iterable[str] = ()) -> None:
        """Make all members blank, with the modes and counters that they began with.

        ``old``: serials of those on which what was never written is to read as old data. Real disks have their own.
        """

    def set_mode(self, mode: CacheMode, serials: Iterable[str] | None = None) -> None:
        """Change the cache mode of some members, or of all."""

    def set_timing(self, on: bool) -> None:
        """Let requests take the time that their disks need, or answer them at once."""

    def use(self) -> Use:
        """Return how busy disks and controllers have been."""

    def counters(self) -> dict[str, Counters]:
        """Return what each member has done, by serial."""

    def describe(self) -> Description:
        """Return what is served and in which state it is."""

    def log_start(self, path: Path, *, data: bool = True) -> None:
        """Begin a write log."""

    def log_stop(self) -> LogClosed | None:
        """End the write log; None if none can be written here."""

    def set_disk_fault(self, serial: str, disk_fault: DiskFault) -> None:
        """Let something be wrong with a drive from now on."""

    def clear_disk_faults(self, serials: Iterable[str] | None = None) -> None:
        """Let nothing be wrong any more with some drives, or all; what was spoilt stays so."""

    def corrupt(self, serial: str, offset: int, length: int, seed: int = 0) -> None:
        """Change every byte of a region of a drive, durably and silently."""

    def swap(self, one: str, other: str) -> None:
        """Let two drives without power exchange all that they hold."""
