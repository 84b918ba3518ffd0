"""What a drive has read beyond what it was asked for."""

from dataclasses import dataclass

_SEGMENTS = 8
"""Streams that a drive tells apart."""


@dataclass(slots=True)
class Segment:
    """A run of addresses that was read; while it grows, its end moves with the heads."""

    start: int
    end: int
    limit: int
    """So far it may be read ahead."""
    used: int
    """The end of what has been requested of it."""


class ReadAhead:
    """Segments of what was read, the latest last; the latest may be growing."""

    def __init__(self, size: int) -> None:
        self.size = size
        """Bytes that are read beyond a request; 0 reads nothing ahead and keeps nothing."""
        self._segments: list[Segment] = []

    def of(self, address: int) -> Segment | None:
        """Return the segment that holds an address, or ends there."""
        for segment in reversed(self._segments):
            if segment.start <= address <= segment.end:
                return segment
        return None

    def began(self, start: int, end: int) -> Segment:
        """Note a read from the medium, which becomes the latest segment, joined to the one that it goes on from."""
        known = self.of(start)
        if known is None:
            known = Segment(start, end, end, end)
            self._segments.append(known)
            del self._segments[:-_SEGMENTS]
        elif known is not self._segments[-1]:
            self._segments.remove(known)
            self._segments.append(known)
        known.end, known.used = max(known.end, end), max(known.used, end)
        known.limit = max(known.end, end + self.size)
        # Of a long stream only so much is kept.
        known.start = max(known.start, known.end - 2 * self.size)
        return known
