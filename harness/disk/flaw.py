"""What is wrong with one drive, and what of its requests that strikes. Pure: no clock, no thread, no content."""

import errno
from collections import Counter
from dataclasses import dataclass
from enum import Enum


class FlawKind(Enum):
    """Ways in which a drive fails."""

    FAILED = "failed"
    """Every request ends with EIO."""
    BAD_SECTORS = "bad-sectors"
    """Reads of them end with EIO until they were written: a write remaps them."""
    SLOW = "slow"
    """Every request takes longer."""
    DROP_FLUSHES = "drop-flushes"
    """Flushes and forced writes are acknowledged, and what they covered stays in the volatile cache."""
    MISDIRECTED = "misdirected"
    """Writes land elsewhere; what stood at their place stays."""
    LOST_WRITES = "lost-writes"
    """Writes are acknowledged and never done: their place reads as before, for good."""


LEAST_MISDIRECTED = 4096
"""Bytes of the smallest write that is misdirected: smaller ones are metadata of md, and the array would be gone."""


@dataclass(frozen=True)
class Flaw:
    """Something wrong with a drive; made by the functions below."""

    kind: FlawKind
    offset: int = 0
    length: int | None = None
    """The bytes from ``offset`` that are concerned; None: up to the end."""
    count: int | None = None
    """How often it strikes; None: for as long as it stands."""
    shift: int = 0
    """Bytes by which a write misses its place."""
    ms: int = 0

    def touches(self, offset: int, length: int) -> bool:
        """Whether a request concerns the bytes of this flaw."""
        return offset + length > self.offset and (self.length is None or offset < self.offset + self.length)


def failed() -> Flaw:
    """Every request ends with EIO."""
    return Flaw(FlawKind.FAILED)


def bad_sectors(offset: int, length: int) -> Flaw:
    """Reads of these bytes end with EIO until they were written."""
    return Flaw(FlawKind.BAD_SECTORS, offset, length)


def slow(ms: int) -> Flaw:
    """Every request takes ``ms`` longer, of which the other drives notice nothing."""
    return Flaw(FlawKind.SLOW, ms=ms)


def drop_flushes(count: int | None = None) -> Flaw:
    """The next ``count`` flushes are lies, or all; a forced write (FUA) is one too."""
    return Flaw(FlawKind.DROP_FLUSHES, count=count)


def misdirected(shift: int, count: int = 1, *, offset: int = 0, length: int | None = None) -> Flaw:
    """The next ``count`` writes that touch these bytes land ``shift`` bytes away, where the drive has such a place."""
    return Flaw(FlawKind.MISDIRECTED, offset, length, count, shift)


def lost_writes(count: int = 1, *, offset: int = 0, length: int | None = None) -> Flaw:
    """The next ``count`` writes that touch these bytes are acknowledged and never done."""
    return Flaw(FlawKind.LOST_WRITES, offset, length, count)


class DriveError(OSError):
    """The drive answers a request with an error."""

    def __init__(self, what: str) -> None:
        super().__init__(errno.EIO, what)


class _Standing:
    """A flaw with what is left of it."""

    def __init__(self, flaw: Flaw, size: int) -> None:
        self.flaw = flaw
        self.left = flaw.count
        end = size if flaw.length is None else flaw.offset + flaw.length
        self.bad = [(flaw.offset, end)]

    def strikes(self) -> bool:
        """Use it up by one; False if there was nothing left."""
        if self.left is None:
            return True
        self.left -= 1
        return self.left >= 0

    def remap(self, offset: int, end: int) -> None:
        """Make bytes good again."""
        pieces = [piece for first, last in self.bad for piece in ((first, min(last, offset)), (max(first, end), last))]
        self.bad = [(first, last) for first, last in pieces if first < last]


class Flaws:
    """All that is wrong with one drive of ``size`` bytes, and how often each kind struck."""

    def __init__(self, serial: str, size: int) -> None:
        self.struck: Counter[FlawKind] = Counter()
        self._serial = serial
        self._size = size
        self._standing: list[_Standing] = []

    def add(self, flaw: Flaw) -> None:
        """Let something be wrong from now on."""
        self._standing.append(_Standing(flaw, self._size))

    def clear(self) -> None:
        """Let nothing be wrong any more; how often it struck stays."""
        self._standing = []

    @property
    def errors(self) -> int:
        """Requests that ended with an error."""
        return self.struck[FlawKind.FAILED] + self.struck[FlawKind.BAD_SECTORS]

    def delay_ms(self) -> int:
        """Return how much longer the next request takes."""
        ms = sum(one.flaw.ms for one in self._of(FlawKind.SLOW))
        self.struck[FlawKind.SLOW] += ms > 0
        return ms

    def read(self, offset: int, length: int) -> None:
        """Decide about a read.

        Raises:
            DriveError: it fails.
        """
        self._require_alive()
        for one in self._of(FlawKind.BAD_SECTORS):
            if any(first < offset + length and offset < last for first, last in one.bad):
                self.struck[FlawKind.BAD_SECTORS] += 1
                raise DriveError(f"{self._serial}: unreadable sectors")

    def write(self, offset: int, length: int) -> int | None:
        """Return where a write lands; None: nowhere.

        Raises:
            DriveError: it fails.
        """
        self._require_alive()
        for one in self._of(FlawKind.LOST_WRITES):
            if one.flaw.touches(offset, length) and one.strikes():
                self.struck[FlawKind.LOST_WRITES] += 1
                return None
        landing = offset
        for one in self._of(FlawKind.MISDIRECTED):
            there = offset + one.flaw.shift
            fits = length >= LEAST_MISDIRECTED and 0 <= there <= self._size - length
            if fits and one.flaw.touches(offset, length) and one.strikes():
                self.struck[FlawKind.MISDIRECTED] += 1
                landing = there
                break
        self._remap(landing, length)
        return landing

    def zero(self, offset: int, length: int) -> None:
        """Decide about a discard, or a request to write zeroes.

        Raises:
            DriveError: it fails.
        """
        self._require_alive()
        self._remap(offset, length)

    def flush(self) -> bool:
        """Return whether a flush, or that part of a forced write, is a lie.

        Raises:
            DriveError: it fails.
        """
        self._require_alive()
        for one in self._of(FlawKind.DROP_FLUSHES):
            if one.strikes():
                self.struck[FlawKind.DROP_FLUSHES] += 1
                return True
        return False

    def _of(self, kind: FlawKind) -> list[_Standing]:
        return [one for one in self._standing if one.flaw.kind is kind]

    def _remap(self, offset: int, length: int) -> None:
        for one in self._of(FlawKind.BAD_SECTORS):
            one.remap(offset, offset + length)

    def _require_alive(self) -> None:
        if self._of(FlawKind.FAILED):
            self.struck[FlawKind.FAILED] += 1
            raise DriveError(f"{self._serial}: the drive has failed")
