"""The verdict on the flushes that the member disks received."""

from collections.abc import Mapping
from typing import Any

from raidproof.core.blame import Blame, Cause, Culprit
from raidproof.disk.cache import CacheMode
from raidproof.disk.messages import Counters
from raidproof.guest.ledger_format import APPLICATION, KINDS, METADATA
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.blame import Disks
from raidproof.verdict.check import CAUSES, Check
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.evidence import CrashTestEvidence

FLUSHES = "flushes reach the disks"
"""Name of the check that each member that received writes also received a flush or FUA write."""
SYNCED = frozenset(KINDS) - {*METADATA, APPLICATION} | {"append"}
"""Kinds of operation that sync data: each operation needs a flush of every member that it wrote to.

Whether an application syncs its data is not known.
"""
LEAST_SYNCS = 10
"""Least number of acknowledged syncing operations for a verdict: the first ones may not flush every member."""
LOGGED = ("journal", "ppl")
"""Consistency policies (mdadm(8)) with a log: md decides when it flushes which member."""


class Flushes(Check[CrashTestEvidence]):
    """The layers above the members send flushes."""

    name = FLUSHES
    stages = CAUSES
    rank = 150
    explains = True

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return a verdict if the workers sync data, and the disks have volatile caches and were counted."""
        record = evidence.record
        disks = record.observed.disks
        flushed = evidence.server.sync and record.asked["array"].get("consistency_policy") not in LOGGED
        if disks is None or not flushed or record.cache_mode.startswith(CacheMode.NONE.value):
            return []
        # The file system may make changes of names durable without a flush of every member.
        if not any(SYNCED & {*worker.kinds} - {"append"} for worker in evidence.workers):
            return []
        synced = sum(one.kind in SYNCED for one in evidence.history.acknowledged(record.fault_begun_ns))
        return [judge_flushes(disks, record.disks, synced)]


def judge_flushes(start: Mapping[str, Counters], end: Disks, synced: int) -> Verdict:
    """Judge that each member that received writes also received a flush or FUA write.

    Without any, a layer above the member drops all flushes. A single flush is enough for PASS, because the necessary
    number depends on the layout of the data on the members.

    ``start`` and ``end``: the counters when the clients began, and at the cut or at the end of the clients' work.
    ``synced``: number of operations of the kinds `SYNCED` that were acknowledged in this time.
    """
    begun = {serial: start.get(serial, Counters(serial)) for serial in end}
    grown = {serial: flushes_of(now) - begun[serial].flushes - begun[serial].fua for serial, now in end.items()}
    written = {serial: now.get("writes", 0) - begun[serial].writes for serial, now in end.items()}
    if not any(written.values()):
        return Verdict(checker=FLUSHES, outcome=Outcome.PASS, reason="no member disk received a write")
    if synced < LEAST_SYNCS:
        reason = f"only {synced} syncing operations were acknowledged, at least {LEAST_SYNCS} are needed"
        return Verdict(checker=FLUSHES, outcome=Outcome.INCONCLUSIVE, reason=reason, of_the_stack=True)
    if never := sorted(serial for serial, count in written.items() if count and not grown[serial]):
        disks = ", ".join(f"{serial} ({written[serial]:,} writes)" for serial in never)
        reason = f"{synced:,} syncing operations were acknowledged, but no flush reached {disks}"
        detail = f"the layer above {', '.join(never)} sends no flushes"
        blame = Blame(culprit=Culprit.STACK, cause=Cause.NO_FLUSHES_SENT, members=tuple(never), detail=detail)
        return Verdict(checker=FLUSHES, outcome=Outcome.FAIL, reason=reason, of_the_stack=True, blame=blame)
    reason = f"the members received {sum(grown.values()):,} flushes and FUA writes for {synced:,} syncing operations"
    return Verdict(checker=FLUSHES, outcome=Outcome.PASS, reason=reason)


def flushes_of(counters: Mapping[str, Any]) -> int:
    """Return the sum of the flushes and the FUA writes that a disk received."""
    return int(counters.get("flushes", 0)) + int(counters.get("fua", 0))
