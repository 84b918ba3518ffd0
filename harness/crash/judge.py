"""The oracle of one crash state: what the clients had been told by then, held against what was found."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from harness.crash.observation import End, Observation, ThroughNfsd
from harness.errors import RigError
from harness.record.judge import conditions_of, history_of
from harness.record.run import CycleRecord
from harness.verdict.contract import PROMISES, Conditions, judge_blocks, judge_nothing_invented, judge_promises
from harness.verdict.evidence import Found, Loss, balance_of
from harness.verdict.integrity import fault_of
from harness.verdict.outcome import Outcome, Verdict, worst
from harness.workload.agent import METADATA
from harness.workload.history import History, Operation, WorkerSpec

ON_THE_WAY_NS = 1_000_000_000
"""A word may be on its way for so long: what a client began within it after the cut may have reached the server.

A client's word and its request to the server go different ways, and what counts as begun is when the word arrived. One
lost packet costs it 200 ms at least (TCP_RTO_MIN in Linux' include/net/tcp.h), the next 400 ms: it may be two.
"""
WHERE = "on the server"
RECOVERY, KERNEL_LOG, BLOCKS, INVENTED = "recovery", "kernel log", "blocks whole", "nothing invented"
NFSD = "nfsd gives what is there"
REDUNDANCY = "redundancy"
_GENERATION = re.compile(r"generation \d+ is there")


class Damage(NamedTuple):
    """One way in which a state is broken: failures that agree in it are the same failure."""

    promise: str
    what: str
    end: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.what}"


class Missing(Loss):
    """An acknowledged operation that is not there, and what that means."""

    @property
    def damage(self) -> Damage:
        """The failure that it shows."""
        kind = self.operation.kind
        promise = next(name for name, kinds in PROMISES.items() if kind in kinds)
        what = (
            f"{kind}: {self.what}" if kind in METADATA else _GENERATION.sub("an older generation is there", self.what)
        )
        return Damage(promise, what, End.READ)


class Wrong(NamedTuple):
    """Something that is broken beside operations that are missing."""

    damage: Damage
    line: str
    """It in words."""


@dataclass(frozen=True)
class Judgement:
    """What one state is judged to mean."""

    outcome: Outcome
    reason: str
    blame: str | None = None
    damages: tuple[Damage, ...] = ()
    """All ways in which it is broken; none where it is not, or where the export's options excuse it."""
    missing: tuple[Missing, ...] = ()
    """Acknowledged operations that are not there, the first that was acknowledged first; excused or not."""
    acknowledged: int = 0
    beside: tuple[Wrong, ...] = ()
    """What else is broken."""
    examples: tuple[str, ...] = ()
    """Of all that is broken by the ledger the first, in words."""

    def lines(self, damage: Damage) -> tuple[str, ...]:
        """Return what shows one of the damages, in words: no line is about another."""
        missing = (str(one) for one in self.missing if one.damage == damage)
        return (*missing, *(one.line for one in self.beside if one.damage == damage))

    @property
    def broken(self) -> bool:
        """Whether a promise was."""
        return self.outcome is Outcome.FAIL

    @property
    def lost_bytes(self) -> int:
        """Of the operations that are not there."""
        return sum(one.operation.bytes for one in self.missing)

    def lost_s(self, instant_ns: int) -> float:
        """Return the seconds of acknowledged work that are lost: from the first lost operation on."""
        first = self.missing[0].operation.promised_ns if self.missing else None
        return 0.0 if first is None else (instant_ns - first) / 1e9


@dataclass(frozen=True)
class Oracle:
    """What holds for every state of one recorded cycle."""

    workers: tuple[WorkerSpec, ...]
    history: History
    conditions: Conditions
    """But for what is each state's own: torn requests, and what had gone wrong by then."""
    created_ns: int
    """By when array and file system had been created and synced."""
    unheard: tuple[str, ...] = ()
    """Clients that lost their power: what they did last, they could not tell."""
    explained_ns: int = 0
    """From when on the fault explains a loss; 0: all the time."""
    spoilt_ns: int = 0
    """The same of what drives did wrong."""

    @classmethod
    def of(cls, cycle: CycleRecord, run: Path, spoilt_ns: int | None = None) -> "Oracle":
        """Return the oracle of a stored cycle; ``spoilt_ns`` is when its first drive got a flaw, where that is known.

        Raises:
            RigError: its history cannot be read.
        """
        conditions = replace(conditions_of(cycle), memory_lost=True, torn=False, lying_disks=())
        return cls(
            workers=tuple(WorkerSpec.model_validate(worker) for worker in cycle.workers),
            history=history_of(cycle, run),
            conditions=conditions,
            created_ns=cycle.ledger_begun_ns or 0,
            unheard=tuple(cycle.lost_power),
            # What was wrong before the clients began may be what explains it, too.
            explained_ns=0 if cycle.during else cycle.fault_begun_ns or 0,
            spoilt_ns=spoilt_ns or 0,
        )

    def judge(
        self, observation: Observation, instant_ns: int, *, torn: bool = False, lying: Sequence[str] = ()
    ) -> Judgement:
        """Judge what was found in a state whose power went at an instant.

        ``torn``: a request is there in part. ``lying``: serials of the disks that had acknowledged a flush by then
        and kept nothing.

        Raises:
            RigError: the observation says that it was read, and not what was found.
        """
        conditions = replace(
            self.conditions,
            torn=torn,
            lying_disks=tuple(lying),
            explanation=self.conditions.explanation if instant_ns >= self.explained_ns else None,
            spoilt=self.conditions.spoilt if instant_ns >= self.spoilt_ns else None,
        )
        if observation.end != End.READ:
            return self._nothing_read(observation, instant_ns, conditions)
        if observation.found is None:
            raise RigError("a state was read, and nothing says what was found")
        return self._read(observation, observation.found, instant_ns, conditions)

    def _nothing_read(self, observation: Observation, instant_ns: int, conditions: Conditions) -> Judgement:
        told = list(self.history.acknowledged(instant_ns))
        created = instant_ns >= self.created_ns
        wedged = observation.end == End.WEDGED
        if not (told or created or wedged):
            return Judgement(Outcome.INCONCLUSIVE, f"nothing was promised yet ({observation.end}: {observation.said})")
        if told:
            cost = f"all {len(told):,} acknowledged operations are lost"
        elif created:
            cost = "array and file system had been created and synced, and nothing acknowledged yet"
        else:
            cost = "array and file system were being created"
        by_number = {worker.number: worker for worker in self.workers}
        damage = Damage(RECOVERY, observation.end.replace("-", " "), observation.end)
        return Judgement(
            outcome=Outcome.FAIL,
            reason=f"{observation.end}: {observation.said}; {cost}",
            blame=fault_of(conditions),
            damages=(damage,),
            missing=tuple(
                Missing(one, by_number[one.worker], damage.what) for one in sorted(told, key=_acknowledged_at)
            ),
            acknowledged=len(told),
            beside=(Wrong(damage, f"{observation.end}: {observation.said}"),),
        )

    def _read(self, observation: Observation, found: Found, instant_ns: int, conditions: Conditions) -> Judgement:
        balance = balance_of(
            self.workers,
            self.history,
            found,
            before_ns=instant_ns,
            seen_ns=instant_ns + ON_THE_WAY_NS,
            torn=conditions.torn,
            unheard=self.unheard,
            unsure=conditions.allowed_errors | conditions.allowed_by_fault,
        )
        evidence = balance.evidence()
        missing = tuple(
            sorted((Missing(*one) for one in balance.losses), key=lambda one: _acknowledged_at(one.operation))
        )
        blocks = judge_blocks(evidence, conditions, WHERE)
        invented = judge_nothing_invented(evidence, conditions, WHERE)
        verdicts = [*judge_promises(evidence, conditions, WHERE), blocks, invented]
        failed = {one.checker.partition(",")[0] for one in verdicts if one.outcome is Outcome.FAIL}
        damages = [one.damage for one in missing if one.damage.promise in failed]
        beside: list[Wrong] = []
        if blocks.outcome is Outcome.FAIL and not damages:
            beside += [Wrong(Damage(BLOCKS, one.kind.value, End.READ), str(one)) for one in balance.spoilt]
        if invented.outcome is Outcome.FAIL:
            damage = Damage(INVENTED, "something is there that nobody wrote", End.READ)
            beside += [Wrong(damage, line) for line in balance.invented]
        for verdict, seen in _beside(observation, fault_of(conditions)):
            verdicts.append(verdict)
            beside += seen
        return Judgement(
            *_conclude(verdicts, evidence.acknowledged_total, len(missing)),
            damages=tuple(dict.fromkeys([*damages, *(one.damage for one in beside)])),
            missing=missing,
            acknowledged=evidence.acknowledged_total,
            beside=tuple(beside),
            examples=(*evidence.examples[:5], *evidence.invented[:3]),
        )


def _beside(observation: Observation, blame: str) -> Iterator[tuple[Verdict, list[Wrong]]]:
    """Yield what is wrong beside the ledger."""
    if observation.console:
        said = "; ".join(observation.console[:3])
        verdict = Verdict(checker=KERNEL_LOG, outcome=Outcome.FAIL, reason=said, blame=blame)
        # Each line begins with what it is a sign of.
        signs = [(line.partition(":")[0], line) for line in observation.console]
        yield verdict, [Wrong(Damage(KERNEL_LOG, sign, observation.end), line) for sign, line in signs]
    if (rows := observation.rows) is not None and rows.unmarked:
        what = "rows differ, and md would not put them right"
        reason = f"{what}: {rows.unmarked:,} of {rows.differ:,}, the first {rows.first}"
        verdict = Verdict(checker=REDUNDANCY, outcome=Outcome.FAIL, reason=reason, blame=blame)
        yield verdict, [Wrong(Damage(REDUNDANCY, what, observation.end), reason)]
    if observation.through_nfsd is ThroughNfsd.DIFFERENT:
        what = "nfsd gives something else than the mounted file system"
        reason = f"{what}: {observation.said}"
        verdict = Verdict(checker=NFSD, outcome=Outcome.FAIL, reason=reason, blame=blame)
        yield verdict, [Wrong(Damage(NFSD, what, observation.end), reason)]


def _conclude(verdicts: Sequence[Verdict], told: int, lost: int) -> tuple[Outcome, str, str | None]:
    broken = [one for one in verdicts if one.outcome is Outcome.FAIL]
    if broken:
        return Outcome.FAIL, "; ".join(f"{one.checker}: {one.reason}" for one in broken), broken[0].blame
    if not told:
        return Outcome.PASS, "nothing had been acknowledged yet, and nothing is wrong", None
    if lost:
        # Of an async export, or of `close` under a delegation: the verdicts say which.
        outcome = worst(one.outcome for one in verdicts if "nothing was acknowledged" not in one.reason)
        excused = next(one for one in verdicts if "acknowledged operations are not there" in one.reason)
        return outcome, f"{lost:,} of {told:,} acknowledged operations are not there", excused.blame
    return Outcome.PASS, f"all {told:,} acknowledged operations are there", None


def _acknowledged_at(operation: Operation) -> int:
    return operation.promised_ns or 0
