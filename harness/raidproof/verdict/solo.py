"""Which operations of a crash test were solo operations: those that began while all other workers paused."""

from raidproof.guest.ledger_format import PAUSE_STEP
from raidproof.record.observation import SoloSeen
from raidproof.workload.history import History, Operation


def solo_operations(history: History, seen: SoloSeen | None) -> list[Operation]:
    """Return the acknowledged solo operations of a crash test, in the order in which they began.

    ``seen``: the time of the solo operations; None: there were none.
    """
    if seen is None or seen.ended_ns is None:
        return []
    first = {one.worker: one.issued_ns for one in reversed(history.steps) if one.kind == PAUSE_STEP}
    # The first pauses of all workers begin the time of solo operations: until then others were at work.
    paused_ns = max(first.values(), default=seen.ended_ns)
    found = [one for one in history.acknowledged(seen.ended_ns) if one.issued_ns >= paused_ns]
    return sorted(found, key=lambda one: one.issued_ns)
