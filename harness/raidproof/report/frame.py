"""The size of a chart: one for a wide page, one for a narrow; the page shows the one that fits."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Frame:
    """A chart's size, and where its axes stand, in pixels."""

    name: str
    """The class of its element, for which the style sheet knows on which pages it is shown."""
    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float

    @property
    def suffix(self) -> str:
        """What tells an identity on the page from that of the same chart in the wide frame."""
        return "" if self.name == "wide" else f"-{self.name}"
