"""The promises that a client is given, and what it means that one is broken (see README, "Promises")."""

from collections.abc import Mapping
from dataclasses import dataclass

from harness.verdict.evidence import Evidence
from harness.verdict.outcome import Outcome, Verdict
from harness.workload.agent import METADATA

PROMISES: Mapping[str, tuple[str, ...]] = {
    "write + fsync": ("fsync",),
    "O_SYNC write": ("o_sync",),
    "write + close": ("close",),
    "metadata": METADATA,
}
"""Each promise, and the kinds of operation that it covers."""


@dataclass(frozen=True)
class Conditions:
    """Under which the promises were given."""

    export_sync: bool
    lying_disks: tuple[str, ...] = ()
    """Serials of the disks that acknowledged a flush and kept nothing, as the engine counted them."""

    @property
    def blame(self) -> str:
        """Whose fault a loss is."""
        if self.lying_disks:
            return f"the disks: {', '.join(self.lying_disks)} acknowledged flushes and kept nothing"
        if not self.export_sync:
            return "the async export: the server answers before its disks have the data"
        return "the stack: the export is sync and the disks are honest"


def judge_promises(evidence: Evidence, conditions: Conditions, where: str) -> list[Verdict]:
    """Judge each promise by the evidence from one place of observation."""
    verdicts = []
    for promise, kinds in PROMISES.items():
        told = sum(evidence.acknowledged.get(kind, 0) for kind in kinds)
        lost = sum(evidence.lost.get(kind, 0) for kind in kinds)
        verdicts.append(judge_promise(f"{promise}, seen {where}", told, lost, conditions))
    return verdicts


def judge_promise(checker: str, told: int, lost: int, conditions: Conditions) -> Verdict:
    """Judge one promise by how many acknowledged operations there were and how many of them are not there."""
    if not told:
        return Verdict(checker=checker, outcome=Outcome.INCONCLUSIVE, reason="nothing was acknowledged")
    if not lost:
        return Verdict(checker=checker, outcome=Outcome.PASS, reason=f"all {told:,} acknowledged operations are there")
    reason = f"{lost:,} of {told:,} acknowledged operations are not there"
    if not conditions.export_sync and not conditions.lying_disks:
        # RFC 8881, 18.32: an answer before stable storage breaks the protocol; the administrator asked for it.
        reason = f"measured loss: {reason}"
        return Verdict(checker=checker, outcome=Outcome.PASS, reason=reason, blame=conditions.blame)
    return Verdict(checker=checker, outcome=Outcome.FAIL, reason=reason, blame=conditions.blame)


def judge_nothing_invented(evidence: Evidence, conditions: Conditions, where: str) -> Verdict:
    """Judge that nothing is there which nobody wrote."""
    checker = f"nothing invented, seen {where}"
    if not evidence.invented:
        return Verdict(checker=checker, outcome=Outcome.PASS, reason="everything that is there was written")
    blame = conditions.blame if conditions.lying_disks else "the stack"
    return Verdict(checker=checker, outcome=Outcome.FAIL, reason="; ".join(evidence.invented[:5]), blame=blame)
