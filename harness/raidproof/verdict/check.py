"""The interface of checks: each judges one promise, observation or rule by the evidence.

A check is a class in the folder `checks`, or in another Python distribution (entry points `raidproof.checks`).
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from raidproof.core.registry import Registry
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.damage import Wrong
from raidproof.verdict.evidence import CrashStateEvidence, Evidence, Scan, Stage
from raidproof.workload.history import Operation

E_contra = TypeVar("E_contra", bound=Evidence, contravariant=True)
CHECKS: Registry[type["Check[Any]"]] = Registry("check", "raidproof.verdict.checks", "raidproof.checks")
"""All classes of checks, by name."""
LEDGER = frozenset({Stage.COMPLETE, Stage.BROKEN_OFF, Stage.STATE})
"""The stages whose evidence has a scan of the ledger."""
CAUSES = frozenset({Stage.COMPLETE, Stage.NOT_RECOVERED, Stage.BROKEN_OFF})
"""The stages of crash tests whose losses may have a cause that was observed beside them."""
LAST = 1000
"""The rank of a check that sets none."""


class Check(ABC, Generic[E_contra]):
    """A check. A subclass that sets ``name`` is registered in `CHECKS` under that name."""

    name: ClassVar[str]
    stages: ClassVar[Collection[Stage]] = frozenset({Stage.COMPLETE})
    """The stages whose evidence the check judges: the evidence of others lacks what it needs."""
    rank: ClassVar[int] = LAST
    """The check's place in the order of verdicts. The reason of an outcome is that of the first verdict with it."""
    explains: ClassVar[bool] = False
    """Whether a failure of this check explains losses of operations, which other checks then blame on it."""

    def __init_subclass__(cls, **more: Any) -> None:
        """Register a subclass that sets ``name``.

        Raises:
            RequestError: another check has the same name.
        """
        super().__init_subclass__(**more)
        if "name" in vars(cls):
            CHECKS.add(cls.name, cls)

    @abstractmethod
    def judge(self, evidence: E_contra, conditions: Conditions) -> list[Verdict]:
        """Return the verdicts; none if the evidence has nothing that this check judges."""

    def wrong(self, evidence: CrashStateEvidence, conditions: Conditions) -> Sequence[Wrong]:  # noqa: ARG002
        """Return the damage of a crash state that fails this check, beside missing operations."""
        return ()


class LedgerCheck(Check[Evidence]):
    """A check of each scan of the ledger: of crash tests, and of crash states."""

    stages = LEDGER

    def judge(self, evidence: Evidence, conditions: Conditions) -> list[Verdict]:
        """Return the verdicts on all scans."""
        verdicts = []
        for scan in evidence.scans:
            verdicts += self.judge_scan(scan, conditions_at(scan, conditions))
        return verdicts

    @abstractmethod
    def judge_scan(self, scan: Scan, conditions: Conditions) -> list[Verdict]:
        """Return the verdicts on one scan."""


def conditions_at(scan: Scan, conditions: Conditions) -> Conditions:
    """Return the conditions of a scan: an async export excuses no loss before the server has lost its memory."""
    return conditions if scan.memory_lost else replace(conditions, memory_lost=False)


class Judged(NamedTuple):
    """The verdict of a check."""

    rank: int
    """The rank of the check."""
    verdict: Verdict


def checks_of(stage: Stage) -> list[Check[Any]]:
    """Return the checks that judge the evidence of a stage, in their order."""
    kinds = [kind for _, kind in CHECKS.items() if stage in kind.stages]
    return [kind() for kind in sorted(kinds, key=lambda kind: kind.rank)]


def judged(evidence: Evidence, conditions: Conditions, *, explaining: bool) -> list[Judged]:
    """Return the verdicts of the checks whose failures explain losses, or of all others."""
    return [
        Judged(check.rank, verdict)
        for check in checks_of(evidence.stage)
        if check.explains is explaining
        for verdict in check.judge(evidence, conditions)
    ]


def judge_wrong_steps(
    checker: str, wrong: Sequence[Operation], reason: str, conditions: Conditions, fault_at_ns: int | None
) -> Verdict:
    """Return the verdict on steps of workers that met other data or names than there should be.

    On an async export the fault may have lost what clients wrote: then it is a measured loss, unless a step was wrong
    before the fault at ``fault_at_ns``.
    """
    early = [one for one in wrong if fault_at_ns is None or (one.ended_ns or 0) < fault_at_ns]
    if conditions.excused and not early:
        said = f"measured loss: {reason}"
        return Verdict(checker=checker, outcome=Outcome.PASS, reason=said, blame=conditions.blame)
    return Verdict(checker=checker, outcome=Outcome.FAIL, reason=reason, blame=conditions.blame)
