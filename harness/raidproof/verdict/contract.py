"""The durability promises to NFS clients, the conditions that excuse a loss, and verdicts on both."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from errno import EEXIST, EIO, ENOENT, errorcode
from math import inf

from raidproof.core.blame import Blame, Cause, Culprit
from raidproof.guest.ledger_format import APPLICATION, METADATA, REFUSED
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.run import BlockClass, Evidence
from raidproof.workload.history import Ended, History, Operation, WorkerSpec

PROMISES: Mapping[str, str] = {
    "fsync": "write + fsync",
    "fdatasync": "write + fdatasync",
    "o_sync": "O_SYNC write",
    "o_dsync": "O_DSYNC write",
    "o_direct": "O_DIRECT write + fsync",
    "o_direct_sync": "O_DIRECT and O_SYNC write",
    "msync": "mmap + msync",
    "pages": "many pages + fsync",
    "unaligned": "unaligned writes + fsync",
    "o_append": "O_APPEND + fsync",
    "close": "write + close",
    "append": "append + fsync",
    "copy": "copy_file_range + fsync",
    "mkdir": "mkdir",
    "create": "create",
    "setattr": "chmod",
    "setxattr": "setxattr",
    "link": "link",
    "symlink": "symlink",
    "rename": "rename",
    "replace": "rename over a file",
    "truncate": "truncate",
    "remove": "unlink of one of two names",
    "unlink": "unlink of the last name",
    "rmdir": "rmdir",
    "allocate": "fallocate",
    "punch": "fallocate, punch hole",
    "clone": "FICLONE",
    "shrink": "truncate within a block",
    "grow": "truncate to a larger size",
    "subdirectory": "mkdir of a subdirectory",
    "rename_into": "rename into another directory",
    "rename_directory": "rename of a directory",
    "link_into": "link in another directory",
    "rename_symlink": "rename of a symlink",
    "mknod": "mknod",
    "recreate": "create with the name of a removed file",
    "long_name": "create with a name of 255 bytes",
    "chown": "chown",
    "utimes": "utimes",
    "application": "acknowledged by the application",
}
"""The name of each kind of operation in reports. The promise: when the operation returns, its effect is durable."""
LEAST_JUDGED = 3
"""Least number of acknowledged operations whose loss could have been seen, for a verdict of PASS on a promise."""

NAMES = frozenset(METADATA) - {"append", "copy", "allocate", "punch", "clone", "shrink", "grow"}
"""Kinds of operation that change names and attributes, and no data."""
OF_LOCKS = frozenset({"o_append", "lock", "unlock", "claim", "guarded write", "release"})
"""Kinds of operation and of step that need the lock of a file."""
APPLICATION_CHECK = "check of the application"
"""Name of the check that the check command of an application gave a result."""
APPLICATION_DATA = "data of the application"
"""Name of the check that the check command of an application reported no damage."""
RECONNECT_NS = 10_000_000_000
"""Least time in ns that every client is given to connect again: two refused attempts, 3 and 6 s apart.

Source: XS_TCP_INIT_REEST_TO in net/sunrpc/xprtsock.c of Linux."""
OLDER = "older than write-back allows"
"""Name of the check for lost operations whose data the server's kernel had to write back before the cut."""


@dataclass(frozen=True)
class Conditions:
    """The options and fault effects of one crash test, as far as they decide whether a loss breaks a promise."""

    export_sync: bool
    """Whether the export has the option ``sync`` (exports(5))."""
    memory_lost: bool = True
    """Whether the server lost its memory: only then does an async export excuse a loss."""
    torn: bool = False
    """Whether the cut may have torn requests that were not yet durable."""
    shows_old_data: bool = False
    """Whether the file system may show old content of the disk in a block that was never acknowledged."""
    delegations: bool = False
    """Whether the server may grant delegations: under a write delegation `close` need not flush to the server."""
    lying_disks: tuple[str, ...] = ()
    """Serials of the disks that acknowledged a flush without executing it, as counted by the disk engine."""
    beyond_lies: int = 0
    """Number of losses that no lie of a disk explains, although lies explain others; 0 if lies explain all or none."""
    allowed_errors: frozenset[int] = frozenset()
    """Errors (errno) that clients may get at any time, because a fault was in effect before the clients began."""
    allowed_by_fault: frozenset[int] = frozenset()
    """Errors (errno) that clients may get from the beginning of the fault on."""
    fault_begun_ns: int | None = None
    """The instant (CLOCK_MONOTONIC, ns) at which the injection of the fault began; None if not known."""
    served_ns: int | None = None
    """The instant (CLOCK_MONOTONIC, ns) at which an unavailable server served again; None if it was available."""
    exactly_once: bool = False
    """Whether the protocol guarantees that a retransmitted request is not executed again (RFC 8881, 2.10.6)."""
    write_back_s: float | None = None
    """Greatest age, in seconds, of dirty data in the server's memory; None: not known, or without limit."""
    lease_lost: bool = False
    """Whether a client's lease expired while it held locks: an operation under a lock may fail with EIO."""
    unreadable_blocks: bool = False
    """Whether the fault made sectors unreadable, so that md must list bad blocks."""
    content_changed: bool = False
    """Whether the fault changed a member's content, so that a scrub must find and repair inconsistent stripes."""

    explanation: Blame | None = None
    """The blame for a loss that the injected fault explains; None if it explains no loss."""
    fsync_caveat: str = ""
    """The setting with which the file system does not keep acknowledged fsyncs: it explains a loss, no more."""
    names_caveat: str = ""
    """The setting with which the file system may lose acknowledged changes of names and attributes, and no data."""
    corrupted_by: Blame | None = None
    """The blame on drives that misdirected or dropped writes: it explains a loss, but does not excuse the loss."""

    @property
    def excused(self) -> bool:
        """Whether the options permit a loss: the export is async, the server lost its memory, and no disk lied."""
        return not self.export_sync and self.memory_lost and not self.lying_disks

    @property
    def broken_drives(self) -> bool:
        """Whether lying disks, the fault or misdirected writes explain damage below the file system."""
        return bool(self.lying_disks or self.explanation or self.corrupted_by)

    @property
    def blame(self) -> Blame:
        """The part of the system to blame for a loss under these conditions."""
        if self.lying_disks:
            detail = f"{', '.join(self.lying_disks)} acknowledged flushes and did not make the data durable"
            return Blame(culprit=Culprit.DISKS, cause=Cause.LOST_FLUSHES, members=self.lying_disks, detail=detail)
        known = self.explanation or self.corrupted_by
        if known is not None:
            return known
        if self.excused:
            return Blame(culprit=Culprit.ASYNC_EXPORT, detail="the server replies before its disks have the data")
        if self.fsync_caveat:
            return Blame(culprit=Culprit.FILESYSTEM_SETTINGS, detail=self.fsync_caveat)
        return Blame(culprit=Culprit.STACK, detail="no option and no injected fault explains the failure")


def judge_promises(evidence: Evidence, conditions: Conditions, where: str) -> list[Verdict]:
    """Judge the promise of each kind of operation by the evidence from one place of observation.

    ``where``: the place of observation as text for the name of the check: ``on the server`` or ``on the client``.
    """
    verdicts = []
    for kind, promise in PROMISES.items():
        if (acknowledged := evidence.acknowledged.get(kind)) is None:
            continue
        checker = f"{promise}, seen {where}"
        judged = evidence.judged.get(kind, acknowledged)
        verdict = judge_promise(checker, acknowledged, judged, evidence.lost.get(kind, 0), conditions)
        if verdict.outcome is Outcome.FAIL and kind == "close" and conditions.delegations:
            reason = (
                f"{verdict.reason}; close promises nothing under a write delegation, and clients may have held one"
            )
            verdict = verdict.model_copy(update={"outcome": Outcome.INCONCLUSIVE, "reason": reason})
        if kind == "close" and evidence.across_restart:
            more = f"{evidence.across_restart} other close calls were in progress at the server's restart: not judged"
            verdict = verdict.model_copy(update={"reason": f"{verdict.reason}; {more} (docs/findings.md)"})
        if kind == APPLICATION and verdict.outcome is Outcome.FAIL:
            verdict = verdict.model_copy(update={"blame": blame_with_application(conditions)})
        if kind in NAMES and conditions.names_caveat and verdict.blame and verdict.blame.culprit is Culprit.STACK:
            settings = Blame(culprit=Culprit.FILESYSTEM_SETTINGS, detail=conditions.names_caveat)
            verdict = verdict.model_copy(update={"blame": settings})
        verdicts.append(verdict.model_copy(update={"kind": kind}))
    if evidence.lost_after_recovery:
        reason = f"{evidence.lost_after_recovery:,} operations that began after recovery are missing"
        blame = Blame(culprit=Culprit.STACK, detail="no fault followed these operations")
        verdicts.append(
            Verdict(
                checker=f"after recovery, seen {where}",
                outcome=Outcome.FAIL,
                reason=reason,
                of_the_stack=True,
                blame=blame,
            )
        )
    return verdicts


def judge_promise(checker: str, acknowledged: int, judged: int, lost: int, conditions: Conditions) -> Verdict:
    """Judge the promise of one kind of operation by the numbers of ``acknowledged`` and missing (``lost``) operations.

    ``judged``: number of acknowledged operations whose loss could have been seen; fewer than `LEAST_JUDGED` prove
    nothing.
    """
    if not acknowledged:
        return Verdict(checker=checker, outcome=Outcome.INCONCLUSIVE, reason="no operation was acknowledged")
    if not lost and judged < LEAST_JUDGED:
        reason = (
            f"no loss was seen, but only {judged} of {acknowledged:,} acknowledged operations could have shown one; "
            f"at least {LEAST_JUDGED} are needed"
        )
        return Verdict(checker=checker, outcome=Outcome.INCONCLUSIVE, reason=reason)
    if not lost:
        reason = f"all {acknowledged:,} acknowledged operations survived; {judged:,} could have shown a loss"
        return Verdict(checker=checker, outcome=Outcome.PASS, reason=reason)
    reason = f"{lost:,} of {acknowledged:,} acknowledged operations are missing"
    if conditions.excused:
        # RFC 8881, 18.32: a reply before stable storage breaks the protocol, but exports(5) async requests it.
        reason = f"measured loss: {reason}"
        return Verdict(checker=checker, outcome=Outcome.PASS, reason=reason, blame=conditions.blame)
    return Verdict(checker=checker, outcome=Outcome.FAIL, reason=reason, blame=conditions.blame)


def judge_blocks(evidence: Evidence, conditions: Conditions, where: str) -> Verdict:
    """Judge that no block of the ledger is garbage, torn, misplaced or unreadable, or holds old data of the disk.

    No export option excuses such a block, except for torn blocks on an async export. Old data of the disk may be
    another user's; some file systems do not promise to hide them.
    """
    checker = f"blocks whole, seen {where}"
    wrong = [BlockClass.MISPLACED, BlockClass.UNREADABLE, BlockClass.GARBAGE]
    if not (conditions.excused and conditions.torn):
        wrong.append(BlockClass.TORN)
    if not conditions.shows_old_data:
        wrong.append(BlockClass.OLD)
    counted = {kind.value: evidence.blocks[kind] for kind in wrong if evidence.blocks.get(kind)}
    if not counted:
        return Verdict(checker=checker, outcome=Outcome.PASS, reason="each block has content that a client wrote")
    reason = f"blocks of the ledger: {', '.join(f'{count:,} {kind}' for kind, count in counted.items())}"
    blame = conditions.blame if conditions.broken_drives else Blame(culprit=Culprit.STACK)
    return Verdict(checker=checker, outcome=Outcome.FAIL, reason=reason, blame=blame)


def blame_with_application(conditions: Conditions) -> Blame:
    """Return the blame for a loss of an application: what the conditions blame, or the stack or the application."""
    if conditions.excused or conditions.broken_drives or conditions.fsync_caveat:
        return conditions.blame
    detail = "no option and no injected fault explains the failure; the application may acknowledge too early"
    return Blame(culprit=Culprit.APPLICATION, detail=detail)


def judge_application_data(evidence: Evidence, conditions: Conditions, where: str) -> list[Verdict]:
    """Return a verdict if the check command of an application reported damage; else an empty list.

    The loss of acknowledged writes can damage an application's data, so that the same options excuse both.
    """
    if not evidence.damaged:
        return []
    excused = conditions.excused
    reason = f"{'measured loss: ' if excused else ''}the check command reports {'; '.join(evidence.damaged[:3])}"
    outcome = Outcome.PASS if excused else Outcome.FAIL
    checker = f"{APPLICATION_DATA}, seen {where}"
    return [Verdict(checker=checker, outcome=outcome, reason=reason, blame=blame_with_application(conditions))]


def judge_application_checks(evidence: Evidence, where: str) -> list[Verdict]:
    """Return an ERROR verdict if the check command of an application gave no result; else an empty list."""
    if not evidence.unchecked:
        return []
    reason = f"the application's own check command gave no result: {'; '.join(evidence.unchecked[:3])}"
    return [Verdict(checker=f"{APPLICATION_CHECK}, seen {where}", outcome=Outcome.ERROR, reason=reason)]


def judge_application_runs(
    workers: Iterable[WorkerSpec], history: History, conditions: Conditions, fault_at_ns: int | None
) -> list[Verdict]:
    """Return a verdict for each application whose run command failed after the fault.

    A failure before the fault ends the crash test. Whether the stack or the application is at fault is not known; an
    excused loss may be the cause.
    """
    verdicts = []
    for worker in workers:
        end = history.ends.get(worker.number)
        if worker.kind == APPLICATION and end is not None and end.status:
            after = "" if fault_at_ns is None else f" {(end.at_ns - fault_at_ns) / 1e9:.1f} s after the fault"
            reason = f"the run command on {worker.client} ended with status {end.status}{after}"
            outcome = Outcome.PASS if conditions.excused else Outcome.INCONCLUSIVE
            verdicts.append(Verdict(checker="application goes on", outcome=outcome, reason=reason))
    return verdicts


LAST_CLOSE = "last close"
"""The step in which a worker closes a file that it kept open."""
CLOSES = frozenset({"close", LAST_CLOSE})
"""The operation and the step that end with a close."""


def judge_errors(
    history: History, conditions: Conditions, fault_at_ns: int | None, served_until_ns: int | None = None
) -> Verdict:
    """Judge that clients got only errors that the faults or an excused loss allow, in operations and in steps.

    ``fault_at_ns``: the instant of the fault; None if there was none. ``served_until_ns``: see `resent`.
    """
    checker = "errors told to clients"
    errors = [
        one
        for one in (*history.operations, *history.steps)
        if one.ended is Ended.FAILED
        and not (one.kind == "claim" and one.error in REFUSED)
        and (conditions.exactly_once or not resent(one, fault_at_ns, served_until_ns))
    ]
    connected = connected_ns(history, conditions)
    failed = [one for one in errors if not is_expected(one, conditions, connected(one.worker))]
    # Each close of a file reports an error of its write-back until an fsync has reported it, also by a new descriptor
    # (close(2)): nfs_file_flush in fs/nfs/file.c checks the error and does not mark it as seen (lib/errseq.c).
    met = {one.worker for one in errors if one not in failed}
    failed = [one for one in failed if not (one.kind in CLOSES and one.worker in met)]
    if not failed:
        counted = Counter(errorcode.get(one.error, str(one.error)) for one in errors)
        names = ", ".join(f"{count:,} {name}" for name, count in sorted(counted.items()))
        reason = f"{names}: the fault allows these errors" if errors else "no client got an error"
        return Verdict(checker=checker, outcome=Outcome.PASS, reason=reason)
    # A loss by an async export can also cause errors (ESTALE, for example), but only after the fault.
    begun_ns = conditions.fault_begun_ns or fault_at_ns
    early = [one for one in failed if begun_ns is None or (one.ended_ns or 0) < begun_ns]
    excused = conditions.excused and not early
    wrong, when = (early, " before the fault") if conditions.excused and early else (failed, "")
    first = wrong[0]
    name = errorcode.get(first.error, first.error)
    reason = f"errors that clients got{when}: {len(wrong):,}, the first is {name} for {first.kind}"
    blame = Blame(culprit=Culprit.STACK, detail="the fault had not begun") if when else conditions.blame
    outcome = Outcome.PASS if excused else Outcome.FAIL
    return Verdict(checker=checker, outcome=outcome, reason=reason, blame=blame)


def connected_ns(history: History, conditions: Conditions) -> Callable[[int], float]:
    """Return a function of a worker's number: the instant from which on an unavailable server excuses no error.

    It is the end of the worker's first successful operation that began after the server served again, or the time in
    which each client has connected again, whichever is earlier; infinite if the server was always available.
    """
    served_ns = conditions.served_ns
    if served_ns is None:
        return lambda _: inf
    # The timer of TCP's retransmissions, which doubles, is at most as long as the outage.
    outage_ns = served_ns - (conditions.fault_begun_ns or served_ns)
    latest_ns = served_ns + max(outage_ns, RECONNECT_NS)
    first: dict[int, int] = {}
    for one in history.operations:
        if one.ended is Ended.OK and one.ended_ns is not None and one.earliest_ns >= served_ns:
            first.setdefault(one.worker, one.ended_ns)
    return lambda worker: min(latest_ns, first.get(worker, latest_ns))


def is_expected(operation: Operation, conditions: Conditions, connected_ns: float = inf) -> bool:
    """Return whether the faults of the crash test allow the error of an operation; ``connected_ns``: as the function.

    A client whose connection is back gets no error of the outage for an operation that begins later.
    """
    if operation.error in conditions.allowed_errors:
        return True
    begun_ns = conditions.fault_begun_ns
    since = begun_ns is not None and (operation.ended_ns or 0) >= begun_ns
    # A client whose lease expired has lost its lock.
    lock_lost = operation.kind in OF_LOCKS and operation.error == EIO and conditions.lease_lost
    by_fault = operation.error in conditions.allowed_by_fault and operation.earliest_ns < connected_ns
    return since and (by_fault or lock_lost)


RESENT: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("mkdir", "create", "link", "symlink"), (EEXIST,)),
    **dict.fromkeys(("subdirectory", "link_into", "mknod", "recreate", "long_name"), (EEXIST,)),
    **dict.fromkeys(("rename", "replace", "remove", "unlink", "rmdir"), (ENOENT,)),
    **dict.fromkeys(("rename_into", "rename_directory", "rename_symlink"), (ENOENT,)),
    "open and remove": (EEXIST, ENOENT),
}
"""The errors (errno) of a retransmitted request that was executed before, by kind of operation; others get none."""


def resent(operation: Operation, fault_at_ns: int | None, served_until_ns: int | None = None) -> bool:
    """Return whether the error may be the reply to a retransmission of a request that the server had executed.

    ``served_until_ns``: the instant until which the server may have executed requests without a reply: a kernel
    serves requests for some time after the time stamp of its panic.
    """
    ended = operation.ended_ns or 0
    return (
        fault_at_ns is not None
        and operation.error in RESENT.get(operation.kind, ())
        and operation.earliest_ns < max(fault_at_ns, served_until_ns or 0)
        and fault_at_ns <= ended
    )


def judge_nothing_invented(evidence: Evidence, conditions: Conditions, where: str) -> Verdict:
    """Judge that the scan of the ledger found no content, file or name that no client wrote."""
    checker = f"nothing invented, seen {where}"
    if not evidence.invented:
        return Verdict(checker=checker, outcome=Outcome.PASS, reason="clients wrote all content that was found")
    blame = conditions.blame if conditions.lying_disks else Blame(culprit=Culprit.STACK)
    return Verdict(checker=checker, outcome=Outcome.FAIL, reason="; ".join(evidence.invented[:5]), blame=blame)


def too_old(acknowledged_ns: int, until_ns: int, conditions: Conditions) -> bool:
    """Return whether a loss is not excused by an async export, because write-back was due before ``until_ns``.

    With ``async`` the server replies before the data is on stable storage. But its kernel still writes dirty pages
    back after some time, and the file system still commits its log.
    """
    longest_s = conditions.write_back_s
    return conditions.excused and longest_s is not None and until_ns - acknowledged_ns > longest_s * 1e9


def judge_age(evidence: Evidence, conditions: Conditions, until_ns: int | None, where: str) -> list[Verdict]:
    """Return a FAIL verdict if a lost operation is older than the write-back limit; else an empty list.

    ``until_ns``: the instant of the fault. The list is also empty if the limit or this instant is not known.
    """
    first_ns = evidence.first_lost_ns
    if until_ns is None or first_ns is None or not too_old(first_ns, until_ns, conditions):
        return []
    age_s = (until_ns - first_ns) / 1e9
    reason = f"an operation that was acknowledged {age_s:,.0f} s before the fault is lost"
    reason = f"{reason}; the server's kernel writes dirty data back within {conditions.write_back_s:,.0f} s"
    detail = "an async export does not excuse the loss of data whose write-back was due before the fault"
    blame = Blame(culprit=Culprit.STACK, detail=detail)
    return [Verdict(checker=f"{OLDER}, seen {where}", outcome=Outcome.FAIL, reason=reason, blame=blame)]


def judge_export(asked: Iterable[str], applied: Iterable[str], path: str) -> Verdict:
    """Judge that the export options in effect just before the fault (``applied``) include the requested ones."""
    checker = "export"
    if gone := sorted(set(asked) - set(applied)):
        found = sorted(set(applied) - set(asked))
        instead = f"; in effect instead: {', '.join(found)}" if found else ""
        reason = f"{path}: export options requested but not in effect: {', '.join(gone)}{instead}"
        blame = Blame(culprit=Culprit.SERVER, detail="its export was changed while clients were active")
        return Verdict(checker=checker, outcome=Outcome.FAIL, reason=reason, of_the_stack=True, blame=blame)
    return Verdict(checker=checker, outcome=Outcome.PASS, reason=f"{path}: {', '.join(sorted(asked))}")
