"""When each fault of a crash test was in effect, and what the faults together excuse.

The judge reads the effects of faults here only. All instants are in nanoseconds of the host's CLOCK_MONOTONIC.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raidproof.fault.fault import FaultEffects, combined
from raidproof.record.run import CrashTestRecord, FaultRecord


@dataclass(frozen=True)
class Window:
    """The time in which one fault excuses failures, with the effects of the fault."""

    effects: FaultEffects
    begun_ns: int | None = 0
    """The instant from which the fault excuses failures; 0: from the start; None: not known, so it excuses none."""
    at_ns: int | None = None
    """The instant of the fault itself; None if it is not known."""
    served_until_ns: int | None = None
    """The instant until which the server may have executed requests without a reply; None if it is not known.

    A kernel serves requests for some time after the time stamp of its panic.
    """
    served_ns: int | None = None
    """The instant at which an unavailable server served again; None if the fault left it available."""
    healed_ns: int | None = None
    """The instant from which the fault causes no more errors, because it was healed while clients worked."""

    def begun_by(self, instant_ns: int) -> bool:
        """Return whether the fault had begun at an instant."""
        return self.begun_ns is not None and self.begun_ns <= instant_ns


def windows_of(cycle: CrashTestRecord) -> tuple[Window, ...]:
    """Return the windows of all faults of a crash test, in the order of their injection."""
    return tuple(window_of(one) for one in cycle.injected)


def window_of(fault: FaultRecord) -> Window:
    """Return the window of one fault."""
    return Window(
        effects=fault.effects,
        begun_ns=fault.begun_ns,
        at_ns=fault.at_ns,
        served_until_ns=fault.served_until_ns,
        served_ns=fault.resumed_ns if fault.effects.server_away else None,
        healed_ns=fault.healed_ns,
    )


def combined_by(windows: Iterable[Window], instant_ns: int | None) -> FaultEffects:
    """Return the effects together of the faults that had begun at an instant; None: of all faults."""
    return combined(one.effects for one in windows if instant_ns is None or one.begun_by(instant_ns))


def first_ns(windows: Sequence[Window], effect: str) -> int | None:
    """Return the earliest instant from which a fault has an effect, by the name of its field; None if none has."""
    begun = (one.at_ns if one.begun_ns is None else one.begun_ns for one in windows if getattr(one.effects, effect))
    return min((one for one in begun if one is not None), default=None)
