"""How long the heads take to another track."""

from math import sqrt

from raidproof.disk.profile import Rotational

_KNEE = 1 / 3
# The mean of the curve over two random tracks (density 2(1-d) of the distance d) is
# 0.2 track_to_track + (0.8 - 4/27) at the knee + 4/27 full_stroke; data sheets give that mean as "average seek".
_NEAR, _FAR = 0.2, 4 / 27


class SeekCurve:
    """Seek time by distance: the square root of it up to a third of the stroke (the arm accelerates), then linear.

    The shape is that of Ruemmler and Wilkes, "An introduction to disk drive modeling", IEEE Computer 27(3), 1994. It
    begins at the track-to-track time, ends at the full stroke, and its mean over random seeks is the average seek.
    """

    def __init__(self, mechanics: Rotational) -> None:
        self._shortest = mechanics.track_to_track_ms * 1e6
        full = mechanics.full_stroke_ms * 1e6
        self._knee = (mechanics.average_seek_ms * 1e6 - _NEAR * self._shortest - _FAR * full) / (1 - _NEAR - _FAR)
        self._root = (self._knee - self._shortest) / sqrt(_KNEE)
        self._slope = (full - self._knee) / (1 - _KNEE)

    def ns(self, distance: float) -> int:
        """Return the time for a distance, as a share (0 to 1) of the full stroke."""
        if distance <= _KNEE:
            return int(self._shortest + self._root * sqrt(distance))
        return int(self._knee + self._slope * (distance - _KNEE))
