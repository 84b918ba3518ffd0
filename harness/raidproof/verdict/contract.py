"""The durability promises to NFS clients, the conditions that excuse a loss, and verdicts on both."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from errno import EEXIST, EIO, ENOENT, errorcode

from raidproof.core.blame import Blame, Cause, Culprit
from raidproof.guest.ledger_writer import METADATA
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.run import BlockClass, Evidence
from raidproof.workload.history import Ended, History, Operation

PROMISES: Mapping[str, str] = {
    "fsync": "write + fsync",
    "fdatasync": "write + fdatasync",
    "o_sync": "O_SYNC write",
    "o_dsync": "O_DSYNC write",
    "o_direct": "O_DIRECT write + fsync",
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
}
"""Report names of the operation kinds; when such an operation returns, its effect must be durable."""
LEAST_JUDGED = 3
"""Least number of acknowledged operations whose loss could have been seen; with fewer a promise is not tested."""

OLDER = "older than write-back allows"


@dataclass(frozen=True)
class Conditions:
    """The conditions under which the promises to clients hold."""

    export_sync: bool
    memory_lost: bool = True
    """Whether the server lost its memory: only then does an async export excuse a loss."""
    torn: bool = False
    """Whether the disks may write a request that was not durable in part (torn write)."""
    delegations: bool = False
    """Whether the server may grant delegations: under a write delegation `close` need not flush to the server."""
    lying_disks: tuple[str, ...] = ()
    """Serials of the disks that acknowledged a flush without executing it, as counted by the disk engine."""
    allowed_errors: frozenset[int] = frozenset()
    """Errors (errno) that clients may get at any time, due to a fault that began before the clients."""
    allowed_by_fault: frozenset[int] = frozenset()
    """Errors (errno) that clients may get from the beginning of the fault on."""
    fault_begun_ns: int | None = None
    exactly_once: bool = False
    """Whether the protocol guarantees that a retransmitted request is not executed again (RFC 8881, 2.10.6)."""
    write_back_s: float | None = None
    """Greatest age, in seconds, of dirty data in the server's memory; None: not known, or without limit."""
    lease_lost: bool = False
    """Whether a client's lease expired while it held locks: an operation under a lock may fail with EIO."""
    unreadable_blocks: bool = False
    """Whether md must list bad blocks."""
    content_changed: bool = False
    """Whether a scrub must find differing stripes and repair them."""

    explanation: Blame | None = None
    """The blame for a loss that the fault declares."""
    corrupted_by: Blame | None = None
    """Damage found below the file system: it explains a loss, but does not excuse it."""

    @property
    def excused(self) -> bool:
        """Whether the requested options permit a loss: an async export whose server lost its memory."""
        return not self.export_sync and self.memory_lost and not self.lying_disks

    @property
    def broken_drives(self) -> bool:
        """Whether a cause of damage below the file system is known."""
        return bool(self.lying_disks or self.explanation or self.corrupted_by)

    @property
    def blame(self) -> Blame:
        """The blame for a loss."""
        if self.lying_disks:
            detail = f"{', '.join(self.lying_disks)} {Cause.LOST_FLUSHES}"
            return Blame(culprit=Culprit.DISKS, cause=Cause.LOST_FLUSHES, members=self.lying_disks, detail=detail)
        known = self.explanation or self.corrupted_by
        if known is not None:
            return known
        if self.excused:
            return Blame(culprit=Culprit.ASYNC_EXPORT, detail="the server answers before its disks have the data")
        return Blame(culprit=Culprit.STACK, detail="no option and no injected fault explains it")


def judge_promises(evidence: Evidence, conditions: Conditions, where: str) -> list[Verdict]:
    """Judge each promise by the evidence from one place of observation."""
    verdicts = []
    for kind, promise in PROMISES.items():
        if (acknowledged := evidence.acknowledged.get(kind)) is None:
            continue
        checker = f"{promise}, seen {where}"
        judged = evidence.judged.get(kind, acknowledged)
        verdict = judge_promise(checker, acknowledged, judged, evidence.lost.get(kind, 0), conditions)
        if verdict.outcome is Outcome.FAIL and kind == "close" and conditions.delegations:
            reason = f"{verdict.reason}; close promises nothing under a write delegation, and one may have been held"
            verdict = verdict.model_copy(update={"outcome": Outcome.INCONCLUSIVE, "reason": reason})
        if kind == "close" and evidence.across_restart:
            more = f"{evidence.across_restart} more were in progress when the server restarted, and are not judged"
            verdict = verdict.model_copy(update={"reason": f"{verdict.reason}; {more} (docs/findings.md)"})
        verdicts.append(verdict.model_copy(update={"kind": kind}))
    if evidence.lost_after_recovery:
        reason = f"{evidence.lost_after_recovery:,} operations issued after recovery are missing"
        blame = Blame(culprit=Culprit.STACK, detail="no fault followed those operations")
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


def judge_promise(checker: str, told: int, judged: int, lost: int, conditions: Conditions) -> Verdict:
    """Judge one promise by the counts of acknowledged (``told``) and missing (``lost``) operations.

    ``judged``: count of the acknowledged operations whose loss could have been seen; too few prove nothing.
    """
    if not told:
        return Verdict(checker=checker, outcome=Outcome.INCONCLUSIVE, reason="nothing was acknowledged")
    if not lost and judged < LEAST_JUDGED:
        reason = f"{judged} of {told:,} acknowledged operations could have shown a loss: too few to tell"
        return Verdict(checker=checker, outcome=Outcome.INCONCLUSIVE, reason=reason)
    if not lost:
        reason = f"all {told:,} acknowledged operations are there; {judged:,} could have shown a loss"
        return Verdict(checker=checker, outcome=Outcome.PASS, reason=reason)
    reason = f"{lost:,} of {told:,} acknowledged operations are not there"
    if conditions.excused:
        # RFC 8881, 18.32: a reply before stable storage breaks the protocol, but exports(5) async requests it.
        reason = f"measured loss: {reason}"
        return Verdict(checker=checker, outcome=Outcome.PASS, reason=reason, blame=conditions.blame)
    return Verdict(checker=checker, outcome=Outcome.FAIL, reason=reason, blame=conditions.blame)


def judge_blocks(evidence: Evidence, conditions: Conditions, where: str) -> Verdict:
    """Judge that no block is garbage, misplaced or unreadable, which no export option excuses."""
    checker = f"blocks whole, seen {where}"
    wrong = [BlockClass.MISPLACED, BlockClass.UNREADABLE]
    if not (conditions.excused and conditions.torn):
        wrong.append(BlockClass.GARBAGE)
    counted = {kind.value: evidence.blocks[kind] for kind in wrong if evidence.blocks.get(kind)}
    if not counted:
        return Verdict(checker=checker, outcome=Outcome.PASS, reason="no block is garbage, misplaced or unreadable")
    reason = ", ".join(f"{count:,} {kind}" for kind, count in counted.items())
    blame = conditions.blame if conditions.broken_drives else Blame(culprit=Culprit.STACK)
    return Verdict(checker=checker, outcome=Outcome.FAIL, reason=reason, blame=blame)


def judge_errors(
    history: History, conditions: Conditions, fault_at_ns: int | None, resumed_ns: int | None = None
) -> Verdict:
    """Judge that clients got only errors that the faults allow; an excused loss may cause errors too."""
    checker = "errors told to clients"
    told = [
        one
        for one in history.operations
        if one.ended is Ended.FAILED and (conditions.exactly_once or not resent(one, fault_at_ns, resumed_ns))
    ]
    failed = [one for one in told if not is_expected(one, conditions)]
    if not failed:
        counted = Counter(errorcode.get(one.error, str(one.error)) for one in told)
        reason = ", ".join(f"{count:,} {name}" for name, count in sorted(counted.items()))
        return Verdict(
            checker=checker, outcome=Outcome.PASS, reason=f"{reason}: allowed by the fault" if told else "none"
        )
    # A loss by an async export can show as errors too, but only after the fault.
    begun_ns = conditions.fault_begun_ns or fault_at_ns
    early = [one for one in failed if begun_ns is None or (one.ended_ns or 0) < begun_ns]
    excused = conditions.excused and not early
    wrong, when = (early, ", before the fault") if conditions.excused and early else (failed, "")
    first = wrong[0]
    reason = f"{len(wrong):,} errors, the first is {errorcode.get(first.error, first.error)} for {first.kind}{when}"
    blame = Blame(culprit=Culprit.STACK, detail="no fault had begun") if when else conditions.blame
    outcome = Outcome.PASS if excused else Outcome.FAIL
    return Verdict(checker=checker, outcome=outcome, reason=reason, blame=blame)


def is_expected(operation: Operation, conditions: Conditions) -> bool:
    """Return whether the faults allow the error of an operation."""
    if operation.error in conditions.allowed_errors:
        return True
    begun_ns = conditions.fault_begun_ns
    since = begun_ns is not None and (operation.ended_ns or 0) >= begun_ns
    # A client whose lease expired has lost its lock.
    lock_lost = operation.kind == "o_append" and operation.error == EIO and conditions.lease_lost
    return since and (operation.error in conditions.allowed_by_fault or lock_lost)


def resent(operation: Operation, fault_at_ns: int | None, resumed_ns: int | None = None) -> bool:
    """Return whether an error may be due to a retransmission of a request that the server had already executed.

    A kernel stops some time after the time stamp of its panic, so operations that began before service resumed count.
    """
    ended = operation.ended_ns or 0
    return (
        fault_at_ns is not None
        and operation.kind in METADATA
        and operation.error in {EEXIST, ENOENT}
        and operation.issued_ns < max(fault_at_ns, resumed_ns or 0)
        and fault_at_ns <= ended
    )


def judge_nothing_invented(evidence: Evidence, conditions: Conditions, where: str) -> Verdict:
    """Judge that the storage holds nothing that no client wrote."""
    checker = f"nothing invented, seen {where}"
    if not evidence.invented:
        return Verdict(checker=checker, outcome=Outcome.PASS, reason="clients wrote everything that was found")
    blame = conditions.blame if conditions.lying_disks else Blame(culprit=Culprit.STACK)
    return Verdict(checker=checker, outcome=Outcome.FAIL, reason="; ".join(evidence.invented[:5]), blame=blame)


def too_old(acknowledged_ns: int, until_ns: int, conditions: Conditions) -> bool:
    """Return whether write-back had to make an acknowledged operation durable before the cut on an async export.

    An async export only omits waiting for stable storage: the server's kernel still writes dirty pages back after
    some time, and the file system still commits its log.
    """
    longest_s = conditions.write_back_s
    return conditions.excused and longest_s is not None and until_ns - acknowledged_ns > longest_s * 1e9


def judge_age(evidence: Evidence, conditions: Conditions, until_ns: int | None, where: str) -> list[Verdict]:
    """Judge that no lost operation is older than the write-back limit; return nothing if the limit is not known."""
    first_ns = evidence.first_lost_ns
    if until_ns is None or first_ns is None or not too_old(first_ns, until_ns, conditions):
        return []
    age_s = (until_ns - first_ns) / 1e9
    reason = f"an operation that was acknowledged {age_s:,.0f} s before the fault is lost"
    reason = f"{reason}; write-back takes at most {conditions.write_back_s:,.0f} s"
    blame = Blame(culprit=Culprit.STACK, detail="an async export does not excuse a loss older than write-back")
    return [Verdict(checker=f"{OLDER}, seen {where}", outcome=Outcome.FAIL, reason=reason, blame=blame)]


def judge_export(asked: Iterable[str], applied: Iterable[str], path: str) -> Verdict:
    """Judge the export options that were in effect just before the fault."""
    checker = "export"
    if gone := sorted(set(asked) - set(applied)):
        found = sorted(set(applied) - set(asked))
        reason = f"{path}: {', '.join(gone)} was asked, but the server applied {', '.join(found) or 'nothing else'}"
        blame = Blame(culprit=Culprit.SERVER, detail="its export was changed while clients were active")
        return Verdict(checker=checker, outcome=Outcome.FAIL, reason=reason, of_the_stack=True, blame=blame)
    return Verdict(checker=checker, outcome=Outcome.PASS, reason=f"{path}: {', '.join(sorted(asked))}")
