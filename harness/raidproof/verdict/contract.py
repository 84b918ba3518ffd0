"""The promises to a client, what excuses a loss under the options requested, and the export's options."""

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
"""What each kind of operation is called in reports: when it has returned, it is durable."""
LEAST_JUDGED = 3
"""Acknowledged operations that could have shown a loss, without which a promise has not been tested."""

OLDER = "older than write-back allows"


@dataclass(frozen=True)
class Conditions:
    """Under which the promises were given."""

    export_sync: bool
    memory_lost: bool = True
    """Whether the fault took the server's memory: only then does an async export excuse a loss."""
    torn: bool = False
    """Whether the disks may tear requests that were not durable."""
    delegations: bool = False
    """Whether clients may be lent files: then `close` need not send anything to the server."""
    lying_disks: tuple[str, ...] = ()
    """Serials of the disks that acknowledged a flush and kept nothing, as the engine counted them."""
    allowed_errors: frozenset[int] = frozenset()
    """Errors (errno) of which clients may be told: something is wrong, from before they began, that means them."""
    allowed_by_fault: frozenset[int] = frozenset()
    """Those of which they may be told from the fault's beginning on."""
    fault_begun_ns: int | None = None
    exactly_once: bool = False
    """Whether the protocol promises that a request which is sent again is not done again (RFC 8881, 2.10.6)."""
    write_back_s: float | None = None
    """The age from which on the server's kernel has nothing in its memory alone; None: not known, or without limit."""
    lease_lost: bool = False
    """Whether a client's lease ended while it held locks: an operation under a lock may end with EIO."""
    unreadable_blocks: bool = False
    """Whether md must list blocks that it cannot read."""
    content_changed: bool = False
    """Whether a scrub must find stripes that differ, and repair them."""

    explanation: Blame | None = None
    """Whose fault a loss is, where the fault itself says so."""
    spoilt: Blame | None = None
    """What was found to be wrong below: it explains a loss, and excuses nothing."""

    @property
    def excused(self) -> bool:
        """Whether the administrator asked for what a loss shows."""
        return not self.export_sync and self.memory_lost and not self.lying_disks

    @property
    def broken_drives(self) -> bool:
        """Whether it is known what is wrong below the file system."""
        return bool(self.lying_disks or self.explanation or self.spoilt)

    @property
    def blame(self) -> Blame:
        """Whose fault a loss is."""
        if self.lying_disks:
            detail = f"{', '.join(self.lying_disks)} {Cause.LOST_FLUSHES}"
            return Blame(culprit=Culprit.DISKS, cause=Cause.LOST_FLUSHES, members=self.lying_disks, detail=detail)
        known = self.explanation or self.spoilt
        if known is not None:
            return known
        if self.excused:
            return Blame(culprit=Culprit.ASYNC_EXPORT, detail="the server answers before its disks have the data")
        return Blame(culprit=Culprit.STACK, detail="nothing that was configured or broken explains it")


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
            reason = f"{verdict.reason}; under a write delegation, which may have been held, close promises nothing"
            verdict = verdict.model_copy(update={"outcome": Outcome.INCONCLUSIVE, "reason": reason})
        if kind == "close" and evidence.across_restart:
            more = f"{evidence.across_restart} more were under way when the server restarted, and are not judged"
            verdict = verdict.model_copy(update={"reason": f"{verdict.reason}; {more} (docs/findings.md)"})
        verdicts.append(verdict.model_copy(update={"kind": kind}))
    if evidence.lost_after_recovery:
        reason = f"{evidence.lost_after_recovery:,} operations of clients that were served again are not there"
        blame = Blame(culprit=Culprit.STACK, detail="no fault came after them")
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
    """Judge one promise by how many acknowledged operations there were and how many of them are not there.

    ``judged``: how many of them could have shown a loss; too few of them prove nothing.
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
        # RFC 8881, 18.32: an answer before stable storage breaks the protocol; the administrator asked for it.
        reason = f"measured loss: {reason}"
        return Verdict(checker=checker, outcome=Outcome.PASS, reason=reason, blame=conditions.blame)
    return Verdict(checker=checker, outcome=Outcome.FAIL, reason=reason, blame=conditions.blame)


def judge_blocks(evidence: Evidence, conditions: Conditions, where: str) -> Verdict:
    """Judge that no block holds what no option of an export excuses: rubbish, another block, or an error."""
    checker = f"blocks whole, seen {where}"
    wrong = [BlockClass.MISPLACED, BlockClass.UNREADABLE]
    if not (conditions.excused and conditions.torn):
        wrong.append(BlockClass.GARBAGE)
    counted = {kind.value: evidence.blocks[kind] for kind in wrong if evidence.blocks.get(kind)}
    if not counted:
        return Verdict(checker=checker, outcome=Outcome.PASS, reason="none is garbage, misplaced or unreadable")
    reason = ", ".join(f"{count:,} {kind}" for kind, count in counted.items())
    blame = conditions.blame if conditions.broken_drives else Blame(culprit=Culprit.STACK)
    return Verdict(checker=checker, outcome=Outcome.FAIL, reason=reason, blame=blame)


def judge_errors(
    history: History, conditions: Conditions, fault_at_ns: int | None, resumed_ns: int | None = None
) -> Verdict:
    """Judge that no client was told of an error that the fault does not mean; a loss by design is an error too."""
    checker = "errors told to clients"
    told = [
        one
        for one in history.operations
        if one.ended is Ended.FAILED and (conditions.exactly_once or not resent(one, fault_at_ns, resumed_ns))
    ]
    failed = [one for one in told if not meant(one, conditions)]
    if not failed:
        counted = Counter(errorcode.get(one.error, str(one.error)) for one in told)
        reason = ", ".join(f"{count:,} {name}" for name, count in sorted(counted.items()))
        return Verdict(
            checker=checker, outcome=Outcome.PASS, reason=f"{reason}: the fault means them" if told else "none"
        )
    # What an async export has lost shows as errors too; before the fault it had lost nothing.
    begun_ns = conditions.fault_begun_ns or fault_at_ns
    early = [one for one in failed if begun_ns is None or (one.ended_ns or 0) < begun_ns]
    excused = conditions.excused and not early
    wrong, when = (early, ", before the fault") if conditions.excused and early else (failed, "")
    first = wrong[0]
    reason = f"{len(wrong):,}, the first of them {errorcode.get(first.error, first.error)} for {first.kind}{when}"
    blame = Blame(culprit=Culprit.STACK, detail="no fault had begun yet") if when else conditions.blame
    outcome = Outcome.PASS if excused else Outcome.FAIL
    return Verdict(checker=checker, outcome=outcome, reason=reason, blame=blame)


def meant(operation: Operation, conditions: Conditions) -> bool:
    """Whether an error is one that the fault, or what was wrong before it, means."""
    if operation.error in conditions.allowed_errors:
        return True
    begun_ns = conditions.fault_begun_ns
    since = begun_ns is not None and (operation.ended_ns or 0) >= begun_ns
    # Who lost its lock with its lease cannot go on as if it held it.
    lock_lost = operation.kind == "o_append" and operation.error == EIO and conditions.lease_lost
    return since and (operation.error in conditions.allowed_by_fault or lock_lost)


def resent(operation: Operation, fault_at_ns: int | None, resumed_ns: int | None = None) -> bool:
    """Whether an error may mean that the server had done it before the fault, and the client asked once more.

    A kernel that panics dies some time after the fault was stamped: what began before the server served again counts.
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
    """Judge that nothing is there which nobody wrote."""
    checker = f"nothing invented, seen {where}"
    if not evidence.invented:
        return Verdict(checker=checker, outcome=Outcome.PASS, reason="everything that is there was written")
    blame = conditions.blame if conditions.lying_disks else Blame(culprit=Culprit.STACK)
    return Verdict(checker=checker, outcome=Outcome.FAIL, reason="; ".join(evidence.invented[:5]), blame=blame)


def too_old(acknowledged_ns: int, until_ns: int, conditions: Conditions) -> bool:
    """Whether the kernel itself had to have written what was acknowledged so long before the power went.

    An async export only leaves out the waiting: the server's kernel writes dirty pages back after a while, and its
    file system commits what is in its log, whoever waits for it or nobody.
    """
    longest_s = conditions.write_back_s
    return conditions.excused and longest_s is not None and until_ns - acknowledged_ns > longest_s * 1e9


def judge_age(evidence: Evidence, conditions: Conditions, until_ns: int | None, where: str) -> list[Verdict]:
    """Judge that no loss is older than what the server keeps in its memory; nothing where that is not known."""
    first_ns = evidence.first_lost_ns
    if until_ns is None or first_ns is None or not too_old(first_ns, until_ns, conditions):
        return []
    age_s = (until_ns - first_ns) / 1e9
    reason = f"an operation is lost that had been acknowledged {age_s:,.0f} s before the fault"
    reason = f"{reason}; what is not synced is in memory for {conditions.write_back_s:,.0f} s at most"
    blame = Blame(culprit=Culprit.STACK, detail="an async export delays what the kernel writes, and excuses no more")
    return [Verdict(checker=f"{OLDER}, seen {where}", outcome=Outcome.FAIL, reason=reason, blame=blame)]


def judge_export(asked: Iterable[str], applied: Iterable[str], path: str) -> Verdict:
    """Judge the options that the server applied just before the fault."""
    checker = "export"
    if gone := sorted(set(asked) - set(applied)):
        found = sorted(set(applied) - set(asked))
        reason = f"{path}: {', '.join(gone)} was asked, and the server applied {', '.join(found) or 'nothing else'}"
        blame = Blame(culprit=Culprit.SERVER, detail="its export was changed while clients worked")
        return Verdict(checker=checker, outcome=Outcome.FAIL, reason=reason, of_the_stack=True, blame=blame)
    return Verdict(checker=checker, outcome=Outcome.PASS, reason=f"{path}: {', '.join(sorted(asked))}")
