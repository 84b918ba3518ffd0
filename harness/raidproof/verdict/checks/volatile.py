"""The verdict on data that were only in the volatile cache of a disk when the server replied, by the write log."""

from collections.abc import Mapping, Sequence
from math import inf

from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import LogError
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.check import CAUSES, Check
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.durability import Durability, Needed, Requests
from raidproof.verdict.evidence import CrashTestEvidence
from raidproof.verdict.window import first_ns, windows_of
from raidproof.workload.history import Operation, WorkerSpec

VOLATILE = "data at the reply"
"""Name of the check that the data of an operation were durable on a disk when the server acknowledged it."""
CLOCKS_NS = 1_000_000
"""Nanoseconds by which data may become durable after the reply: the reply's time is of another clock."""
NAMED = 3
"""Greatest number of operations that the reason names."""


class Volatile(Check[CrashTestEvidence]):
    """The data of an acknowledged operation are durable on a disk when the server replies."""

    name = VOLATILE
    stages = CAUSES
    rank = 27

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return a verdict if the write log shows where all data went, and the disks promise what they keep."""
        if conditions.excused or conditions.broken_drives or not shows_all(evidence):
            return []
        try:
            data = evidence.data
        except LogError:
            return []
        # What a lying disk kept is known only at a cut: the ledger, and the crash states, show what it lost.
        if data is None or not data.needed or data.requests.lied:
            return []
        # Under a write delegation, close promises nothing.
        needed = {
            one: blocks for one, blocks in data.needed.items() if not (one.kind == "close" and conditions.delegations)
        }
        return [judge_volatile(needed, data.requests, evidence.workers, conditions)]


def shows_all(evidence: CrashTestEvidence) -> bool:
    """Return whether a durable block of the ledger is in a write request, unless all of its copies are encoded.

    The data of a member that is missing, or is being rebuilt, are durable as parity only.
    """
    record, members = evidence.record, evidence.record.observed.members
    missing_ns, begun_ns = first_ns(windows_of(record), "member_missing"), record.fault_begun_ns
    incomplete = members is not None and bool(members.absent or members.renewed)
    # Also if the member was back before the main fault, with which the log ends.
    incomplete = incomplete or (missing_ns is not None and begun_ns is not None and missing_ns < begun_ns)
    return not incomplete and record.cache_mode == CacheMode.VOLATILE.value


def judge_volatile(
    needed: Mapping[Operation, Sequence[Needed]],
    requests: Requests,
    workers: Sequence[WorkerSpec],
    conditions: Conditions,
) -> Verdict:
    """Judge that at least one copy of each block was durable when the server acknowledged the operation.

    ``needed``: the blocks of the acknowledged operations that are in the write log.
    """
    late = late_ns(needed, requests)
    if not late:
        reason = f"the data of {len(needed):,} acknowledged operations were durable at the reply"
        return Verdict(checker=VOLATILE, outcome=Outcome.PASS, reason=reason)
    paths = {worker.number: worker.path for worker in workers}
    named = [
        f"{one.kind} {one.sequence} of {paths[one.worker]} "
        + (f"until {later_ns / 1e6:.1f} ms later" if later_ns != inf else "until the end of the write log")
        for one, later_ns in list(late.items())[:NAMED]
    ]
    reason = (
        f"the data of {len(late):,} of {len(needed):,} acknowledged operations were only in volatile caches of disks "
        f"at the reply: {'; '.join(named)}{' and others' if len(late) > NAMED else ''}"
    )
    return Verdict(checker=VOLATILE, outcome=Outcome.FAIL, reason=reason, blame=conditions.blame)


def late_ns(needed: Mapping[Operation, Sequence[Needed]], requests: Requests) -> dict[Operation, float]:
    """Return the operations whose data became durable later than `CLOCKS_NS` after the reply, and how much later.

    The value is infinite if the data were volatile until the end of the write log. ``needed``: see `judge_volatile`.
    """
    durability = Durability(requests.flushes)
    late: dict[Operation, float] = {}
    for one, blocks in needed.items():
        for block in blocks:
            # A block whose first write to a disk comes after the reply was durable in another form, or is missing: the
            # scan of the ledger shows which.
            written = min(copy.done_ns for copy in block.copies) <= block.promised_ns
            later_ns = durability.durable_ns(block.copies) - block.promised_ns
            if written and later_ns > CLOCKS_NS:
                late[one] = max(late.get(one, 0.0), later_ns)
    return late
