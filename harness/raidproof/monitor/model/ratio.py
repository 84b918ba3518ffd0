"""What was measured, beside what the hardware should have given."""

from dataclasses import dataclass

from raidproof.monitor.model.expected import CONTROLLER, DISKS, NETWORK, SYNC, TRIPS, Expected

LEAST_SHARE = 0.7
"""Below this share of what was expected, a cell is flagged."""
_LIKELY = {
    DISKS: "the members do more than the formula counts: requests that are split, misaligned or not whole stripes, "
    "a log on the same heads, or one slow member",
    CONTROLLER: "the controller is shared with more traffic than this, or its commands are smaller than the stripe's",
    NETWORK: "the link is not filled: losses, a small window, or a processor that cannot keep up",
    TRIPS: "fewer requests are outstanding than the client may have, or they are smaller than rsize and wsize",
    SYNC: "each wait costs more than one data write and one log write: parity reads first, or several flushes",
}


@dataclass(frozen=True)
class Ratio:
    """Measured over expected."""

    share: float
    flagged: bool
    cause: str | None
    """The likely one, of a flagged cell: by the term that should have been the limit."""


def compare(measured_mb_s: float, expected: Expected) -> Ratio:
    """Judge a measurement, in MB/s, by what was expected."""
    share = measured_mb_s / expected.mb_s
    flagged = share < LEAST_SHARE
    return Ratio(share, flagged, likely_cause(expected.limit) if flagged else None)


def likely_cause(limit: str) -> str:
    """Say why a cell may stay below what was expected, by the term that should have been its limit."""
    return f"expected the {limit} to be the limit; {_LIKELY[limit]}"
