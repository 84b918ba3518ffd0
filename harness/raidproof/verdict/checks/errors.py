"""The verdict on the errors that clients got."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from errno import EEXIST, EIO, ENOENT, errorcode
from math import inf

from raidproof.core.blame import Blame, Culprit
from raidproof.guest.ledger_format import REFUSED
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.blame import OF_BLOCKS
from raidproof.verdict.check import Check
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.evidence import CrashTestEvidence
from raidproof.verdict.window import Window
from raidproof.workload.history import Ended, History, Operation

ERRORS = "errors told to clients"
"""Name of the check that clients got only errors that the faults or an excused loss allow."""
OF_LOCKS = frozenset({"o_append", "lock", "unlock", "claim", "guarded write", "release"})
"""Kinds of operation and of step that need the lock of a file."""
RECONNECT_NS = 10_000_000_000
"""Least time in ns that every client is given to connect again: two refused attempts, 3 and 6 s apart.

Source: XS_TCP_INIT_REEST_TO in net/sunrpc/xprtsock.c of Linux."""
LAST_CLOSE = "last close"
"""The step in which a worker closes a file that it kept open."""
CLOSES = frozenset({"close", LAST_CLOSE})
"""The operation and the step that end with a close."""
SYNCED = (OF_BLOCKS - {"close", "o_direct"}) | {"append", "fragments", "copy", "unaligned"}
"""Kinds of operation that end with an fsync, or with a write that includes one."""


class Errors(Check[CrashTestEvidence]):
    """Clients got only errors that the faults or an excused loss allow."""

    name = ERRORS
    rank = 70

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return one verdict."""
        return [judge_errors(evidence.history, conditions)]


def judge_errors(history: History, conditions: Conditions) -> Verdict:
    """Judge that clients got only errors that the faults or an excused loss allow, in operations and in steps."""
    errors = [
        one
        for one in (*history.operations, *history.steps)
        if one.ended is Ended.FAILED
        and not (one.kind == "claim" and one.error in REFUSED)
        and (conditions.exactly_once or not any(resent(one, window) for window in conditions.windows))
    ]
    permitted = [(window, connected_ns(history, window)) for window in conditions.windows]
    failed = [
        one
        for one in errors
        if not any(is_expected(one, window, connected(one.worker)) for window, connected in permitted)
    ]
    failed = without_reported_late(errors, failed)
    if not failed:
        counted = Counter(errorcode.get(one.error, str(one.error)) for one in errors)
        names = ", ".join(f"{count:,} {name}" for name, count in sorted(counted.items()))
        reason = f"{names}: the fault allows these errors" if errors else "no client got an error"
        return Verdict(checker=ERRORS, outcome=Outcome.PASS, reason=reason)
    # A loss by an async export can also cause errors (ESTALE, for example), but only after the fault.
    begun_ns = conditions.losing_ns
    early = [one for one in failed if begun_ns is None or (one.ended_ns or 0) < begun_ns]
    excused = conditions.excused and not early
    wrong, when = (early, " before the fault") if conditions.excused and early else (failed, "")
    first = wrong[0]
    name = errorcode.get(first.error, first.error)
    reason = f"errors that clients got{when}: {len(wrong):,}, the first is {name} for {first.kind}"
    blame = Blame(culprit=Culprit.STACK, detail="the fault had not begun") if when else conditions.blame
    outcome = Outcome.PASS if excused else Outcome.FAIL
    return Verdict(checker=ERRORS, outcome=outcome, reason=reason, blame=blame)


def without_reported_late(errors: Iterable[Operation], failed: Sequence[Operation]) -> list[Operation]:
    """Return ``failed`` without the errors of write-back in an outage that a later operation reports.

    ``errors``: all errors; those that are not in ``failed`` are permitted. An fsync that fails leaves written pages
    without a COMMIT. The close that follows sends it, and can fail too. Each later close of the file reports this
    error until an fsync has reported it, also by a new descriptor (fsync(2), close(2)): nfs_file_flush in
    fs/nfs/file.c checks the error and does not mark it as seen (lib/errseq.c). So an operation with a permitted error
    explains errors of later closes of its worker, and the same error of one later fsync.
    """
    unexplained = {id(one) for one in failed}
    met: dict[int, list[int]] = {}
    left = []
    for one in sorted(errors, key=lambda one: one.ended_ns or 0):
        permitted = met.get(one.worker, [])
        if id(one) not in unexplained:
            met.setdefault(one.worker, []).append(one.error)
        elif one.kind in SYNCED and one.error in permitted:
            permitted.remove(one.error)
        elif one.worker not in met or one.kind not in CLOSES:
            left.append(one)
    return left


def connected_ns(history: History, window: Window) -> Callable[[int], float]:
    """Return a function of a worker's number: the instant from which on the fault of a window excuses no error.

    It is the end of the worker's first successful operation that began after the server served again, or the time in
    which each client has connected again, whichever is earlier. If the server was always available, it is the
    instant at which the fault was healed; infinite if it was not.
    """
    served_ns, healed_ns = window.served_ns, window.healed_ns
    if served_ns is None:
        return lambda _: inf if healed_ns is None else healed_ns
    # The timer of TCP's retransmissions, which doubles, is at most as long as the outage.
    outage_ns = served_ns - (window.begun_ns or served_ns)
    latest_ns = served_ns + max(outage_ns, RECONNECT_NS)
    first: dict[int, int] = {}
    for one in history.operations:
        if one.ended is Ended.OK and one.ended_ns is not None and one.earliest_ns >= served_ns:
            first.setdefault(one.worker, one.ended_ns)
    return lambda worker: min(latest_ns, first.get(worker, latest_ns))


def is_expected(operation: Operation, window: Window, connected_ns: float = inf) -> bool:
    """Return whether the fault of a window allows the error of an operation; ``connected_ns``: as the function.

    A client whose connection is back gets no error of the outage for an operation that begins later.
    """
    effects = window.effects
    # A client whose lease expired has lost its lock.
    lock_lost = operation.kind in OF_LOCKS and operation.error == EIO and effects.lease_lost
    by_fault = operation.error in effects.errors and operation.earliest_ns < connected_ns
    return window.begun_by(operation.ended_ns or 0) and (by_fault or lock_lost)


RESENT: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("mkdir", "create", "link", "symlink"), (EEXIST,)),
    **dict.fromkeys(("subdirectory", "link_into", "mknod", "recreate", "long_name"), (EEXIST,)),
    **dict.fromkeys(("rename", "replace", "remove", "unlink", "rmdir"), (ENOENT,)),
    **dict.fromkeys(("rename_into", "rename_directory", "rename_symlink"), (ENOENT,)),
    "open and remove": (EEXIST, ENOENT),
    "change names": (EEXIST, ENOENT),
}
"""The errors (errno) of a retransmitted request that was executed before, by kind of operation; others get none."""


def resent(operation: Operation, window: Window) -> bool:
    """Return whether the error may be the reply to a retransmission of a request that the server had executed.

    ``window``: that of the fault across which the client retransmitted.
    """
    ended, fault_at_ns = operation.ended_ns or 0, window.at_ns
    return (
        fault_at_ns is not None
        and operation.error in RESENT.get(operation.kind, ())
        and operation.earliest_ns < max(fault_at_ns, window.served_until_ns or 0)
        and fault_at_ns <= ended
    )
