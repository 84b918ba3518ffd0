"""The verdict on the sizes of the ledger's writes: which sizes clients wrote, and which the server received."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from raidproof.core.units import KIB
from raidproof.record.observation import RepliesSeen
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.check import Check
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.contract import PROMISES
from raidproof.verdict.evidence import ON_SERVER, CrashTestEvidence, Stage
from raidproof.workload.history import Operation, PieceSpec, WorkerSpec
from raidproof.workload.ledger_sizes import SIZE_CLASSES, class_of

SIZES = "sizes of writes"
"""Name of the check that data of each class of sizes was written, and that the server received stable WRITEs of it."""
STABLE = frozenset({"o_sync", "o_dsync", "o_direct_sync"})
"""Kinds of operation for which a client sends stable WRITEs, unless it needs several of them."""
LISTED = 5
"""Greatest number of pieces that were not written, and that a reason names."""


class Sizes(Check[CrashTestEvidence]):
    """Data of each class of sizes were written, and the server received stable WRITEs of it."""

    name = SIZES
    stages = frozenset({Stage.COMPLETE, Stage.BROKEN_OFF})
    rank = 26

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return a verdict if the ledger wrote data of many sizes."""
        record = evidence.record
        if evidence.scan_at(ON_SERVER) is None:
            return []
        acknowledged = evidence.history.acknowledged(evidence.fault_at_ns)
        wsizes = [mount["wsize"] for mount in record.effective.get("mounts", {}).values()]
        return judge_sizes(evidence.workers, acknowledged, record.observed.replies, wsizes)


def judge_sizes(
    workers: Iterable[WorkerSpec],
    acknowledged: Iterable[Operation],
    seen: RepliesSeen | None,
    wsizes: Collection[int],
) -> list[Verdict]:
    """Return a verdict if the ledger had workers of kind ``sizes``; else an empty list.

    ``acknowledged``: the operations that must be durable. ``seen``: the capture of the server's replies. ``wsizes``:
    the greatest size of a WRITE in bytes on each mount.

    A loss of data needs no class of sizes: the promise of its kind fails. This verdict is INCONCLUSIVE if no data of a
    class was written, or if the server received no stable WRITE of a class, although clients asked for it.
    """
    named = {worker.number: worker.pieces for worker in workers if worker.pieces}
    if not named:
        return []
    written = Counter(named[one.worker][one.place] for one in acknowledged if one.worker in named)
    pieces = {piece for of_one in named.values() for piece in of_one}
    done = {class_of(piece.size) for piece in written}
    problems = [f"no data of {size_text(size)} were written" for size in SIZE_CLASSES if size not in done]
    if seen is not None and seen.stable_writes is not None and wsizes:
        # A client divides data that are larger than its wsize into UNSTABLE WRITEs.
        asked = {class_of(one.size) for one in written if one.kind in STABLE and one.size <= min(wsizes)}
        unseen = sorted(size for size in asked if not seen.stable_writes.get(size))
        problems += [f"the server received no stable WRITE of {size_text(size)}" for size in unseen]
    if problems:
        return [Verdict(checker=SIZES, outcome=Outcome.INCONCLUSIVE, reason="; ".join(problems))]
    missing = sorted(pieces - written.keys(), key=lambda one: (one.size, one.position, one.kind))
    reason = f"{len(written)} of {len(pieces)} combinations of size, position and way of writing"
    return [Verdict(checker=SIZES, outcome=Outcome.PASS, reason=reason + not_written(missing))]


def not_written(missing: Sequence[PieceSpec]) -> str:
    """Return a clause that names some pieces that were not written; empty without one."""
    if not missing:
        return ""
    more = f", and {len(missing) - LISTED} more" if len(missing) > LISTED else ""
    named = ", ".join(f"{one.size:,} bytes by {PROMISES[one.kind]}" for one in missing[:LISTED])
    return f"; not written: {named}{more}"


def size_text(least: int) -> str:
    """Return the name of a class of sizes."""
    following = [size for size in SIZE_CLASSES if size > least]
    if least < KIB:
        return f"less than {following[0] // KIB} KiB"
    return (
        f"{least // KIB} KiB to less than {following[0] // KIB} KiB" if following else f"at least {least // KIB} KiB"
    )
