"""What is left of a run, by what its parts have taken until now."""

from collections import defaultdict
from collections.abc import Hashable
from datetime import timedelta

VISIT, CONTROL, CUT, EXPLORATION = "visit", "control", "cut", "exploration"
"""Kinds of parts."""
Part = tuple[str, Hashable]
"""Its kind, and which one of that kind it is."""


class Forecast:
    """The parts of a run that are still to come, each with the seconds that were expected of it before the run.

    A part that has ended corrects what is expected of the others of its kind: they take longer, or shorter, by the
    same factor. Kinds of which none has ended yet are corrected by all parts that have.
    """

    def __init__(self) -> None:
        self._left: dict[Part, float] = {}
        self._expected: dict[str, float] = defaultdict(float)
        self._took: dict[str, float] = defaultdict(float)

    def add(self, kind: str, name: Hashable, seconds: float) -> None:
        """Expect a part, or expect something else of it."""
        self._left[kind, name] = seconds

    def ended(self, kind: str, name: Hashable, seconds: float) -> None:
        """Note how long a part took; a part that was not expected changes no estimate."""
        expected = self._left.pop((kind, name), 0.0)
        if expected > 0:
            self._expected[kind] += expected
            self._took[kind] += seconds

    def dropped(self, kind: str, name: Hashable) -> None:
        """Expect a part no more."""
        self._left.pop((kind, name), None)

    @property
    def left_s(self) -> float:
        """Seconds until the end."""
        return sum(seconds * self._factor(kind) for (kind, _), seconds in self._left.items())

    @property
    def learned(self) -> bool:
        """Whether any part has ended."""
        return bool(self._expected)

    def _factor(self, kind: str) -> float:
        if kind in self._expected:
            return self._took[kind] / self._expected[kind]
        return sum(self._took.values()) / sum(self._expected.values()) if self._expected else 1.0


def left_in_words(*forecasts: Forecast) -> str:
    """Say how long is left, of runs that are carried out in turn; empty as long as nothing has been learned."""
    if not all(one.learned for one in forecasts):
        return ""
    return f" (about {timedelta(seconds=round(sum(one.left_s for one in forecasts)))} left)"
