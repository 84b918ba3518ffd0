"""Verdicts on the crash states of an exploration, and the conclusion of the exploration."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from raidproof.core.blame import Blame, blamed_as
from raidproof.core.errors import RigError
from raidproof.record.exploration import End, ExplorationRecord, Observation, StoppedBy, ThroughNfsd
from raidproof.record.outcome import Outcome, Verdict, worst
from raidproof.record.run import CrashTestRecord
from raidproof.verdict.blame import Lost, blamed
from raidproof.verdict.contract import (
    LEAST_JUDGED,
    OLDER,
    PROMISES,
    Conditions,
    judge_age,
    judge_blocks,
    judge_nothing_invented,
    judge_promises,
    too_old,
)
from raidproof.verdict.crash_test import conditions_of, history_of
from raidproof.verdict.ledger import Found, Loss, Torn, balance_of
from raidproof.verdict.members import fault_of
from raidproof.workload.history import LONGEST_DELAY_NS, History, Operation, WorkerSpec

WHERE = "on the server"
RECOVERY, KERNEL_LOG, BLOCKS, INVENTED = "recovery", "kernel log", "blocks whole", "nothing invented"
NFSD = "nfsd gives what is there"
REDUNDANCY = "redundancy"
DEGRADED, FILESYSTEM = "members", "file system"
_GENERATION = re.compile(r"generation \d+ is there")


class Damage(NamedTuple):
    """One kind of damage of a crash state; failures with equal damage count as the same failure."""

    promise: str
    what: str
    end: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.what}"


class Missing(Loss):
    """An acknowledged operation that is missing, and what is there in its place."""

    @property
    def damage(self) -> Damage:
        """The damage that the missing operation shows."""
        kind = self.operation.kind
        promise = PROMISES[kind]
        return Damage(promise, _GENERATION.sub("an older generation is there", self.what), End.READ)


class Wrong(NamedTuple):
    """Damage other than missing operations."""

    damage: Damage
    line: str
    """The description for the report."""


@dataclass(frozen=True)
class Judgement:
    """The verdict on one crash state."""

    outcome: Outcome
    reason: str
    blame: Blame | None = None
    damages: tuple[Damage, ...] = ()
    """All damages of the state; empty if there are none, or if the export's options excuse them."""
    missing: tuple[Missing, ...] = ()
    """Missing acknowledged operations, excused ones included, in the order of their acknowledgements."""
    by_kind: Mapping[str, int] = field(default_factory=dict)
    """Number of operations acknowledged before the cut, by kind."""
    judged: Mapping[str, int] = field(default_factory=dict)
    """Number of these operations whose loss this state could have shown, by kind."""
    beside: tuple[Wrong, ...] = ()
    """Damage other than missing operations."""
    examples: tuple[str, ...] = ()
    """Descriptions of the first ledger failures."""

    def lines(self, damage: Damage) -> tuple[str, ...]:
        """Return the descriptions of what shows one damage, and of nothing else."""
        missing = (str(one) for one in self.missing if one.damage == damage)
        return (*missing, *(one.line for one in self.beside if one.damage == damage))

    @property
    def acknowledged(self) -> int:
        """Number of operations of all kinds acknowledged before the cut."""
        return sum(self.by_kind.values())

    @property
    def broken(self) -> bool:
        """Whether a promise was broken."""
        return self.outcome is Outcome.FAIL

    @property
    def excused(self) -> bool:
        """Whether acknowledged operations are missing, and the export's options excuse each loss."""
        return bool(self.missing) and self.outcome is Outcome.PASS

    @property
    def undecided(self) -> bool:
        """Whether operations are missing, and it is unknown whether that breaks a promise."""
        return bool(self.missing) and self.outcome is Outcome.INCONCLUSIVE

    @property
    def lost_bytes(self) -> int:
        """Size of the missing operations in bytes."""
        return sum(one.bytes for one in self.missing)

    def lost_s(self, instant_ns: int) -> float:
        """Return the seconds of lost acknowledged work: from the first lost acknowledgement to the cut."""
        first = self.missing[0].operation.promised_ns if self.missing else None
        return 0.0 if first is None else (instant_ns - first) / 1e9


@dataclass(frozen=True)
class Oracle:
    """Judges crash states; holds what is common to all states of one recorded crash test."""

    workers: tuple[WorkerSpec, ...]
    history: History
    conditions: Conditions
    """The conditions of the crash test, without those that each state has: torn requests, earlier faults."""
    created_ns: int
    """The instant by which array and file system had been created and synced."""
    disconnected_clients: tuple[str, ...] = ()
    """Clients that lost power: acknowledgements that they received last may be unrecorded."""
    disconnected_ns: int = 0
    """The instant from which acknowledgements to these clients may be unrecorded."""
    incomplete_ns: int | None = None
    """The instant from which an array may be degraded; None: never."""
    explained_ns: int = 0
    """The instant from which the fault explains a loss; 0: from the start."""
    corrupted_ns: int = 0
    """The instant from which disk faults explain a loss; 0: from the start."""

    @classmethod
    def of(cls, cycle: CrashTestRecord, run: Path, corrupted_ns: int | None = None) -> "Oracle":
        """Return the oracle of a stored crash test; ``corrupted_ns``: when its first drive got a disk fault, if known.

        Raises:
            RigError: its history cannot be read.
        """
        conditions = replace(conditions_of(cycle), memory_lost=True, torn=False, lying_disks=())
        return cls(
            workers=tuple(WorkerSpec.model_validate(worker) for worker in cycle.workers),
            history=history_of(cycle, run),
            conditions=conditions,
            created_ns=cycle.ledger_begun_ns or 0,
            disconnected_clients=tuple(cycle.lost_power),
            disconnected_ns=max(0, (cycle.fault_begun_ns or 0) - LONGEST_DELAY_NS),
            incomplete_ns=incomplete_ns(cycle),
            # Faults set before the clients began may explain a loss, too.
            explained_ns=0 if cycle.during else cycle.fault_begun_ns or 0,
            corrupted_ns=corrupted_ns or 0,
        )

    def judge(
        self,
        observation: Observation,
        instant_ns: int,
        *,
        torn: bool = False,
        torn_blocks: Torn | None = None,
        lost: Lost | None = None,
    ) -> Judgement:
        """Judge the observation of a crash state whose power was cut at an instant.

        ``torn``: a request survived in part; ``torn_blocks``: the blocks of such requests, where they are known.
        ``lost``: the data lost because disks acknowledged flushes that they did not do; None where no disk did so.

        Raises:
            RigError: the observation claims that the ledger was read, but has no result.
        """
        conditions = replace(
            self.conditions,
            torn=torn,
            lying_disks=lost.disks if lost is not None else (),
            explanation=self.conditions.explanation if instant_ns >= self.explained_ns else None,
            corrupted_by=self.conditions.corrupted_by if instant_ns >= self.corrupted_ns else None,
        )
        if observation.end != End.READ:
            return self._nothing_read(observation, instant_ns, conditions, lost)
        if observation.found is None:
            raise RigError("a state was read, but its observation has no ledger result")
        return self._read(observation, observation.found, instant_ns, conditions, lost, torn_blocks)

    def _nothing_read(
        self, observation: Observation, instant_ns: int, conditions: Conditions, lost: Lost | None
    ) -> Judgement:
        told = sorted(self.history.acknowledged(instant_ns), key=_acknowledged_at)
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
        missing = tuple(Missing(one, by_number[one.worker], damage.what) for one in told)
        if lost is not None:
            conditions = blamed(conditions, missing, lost)
        return Judgement(
            outcome=Outcome.FAIL,
            reason=f"{observation.end}: {observation.said}; {cost}",
            blame=fault_of(conditions),
            damages=(damage,),
            missing=missing,
            by_kind=Counter(one.kind for one in told),
            judged=Counter(one.kind for one in told),
            beside=(Wrong(damage, f"{observation.end}: {observation.said}"),),
        )

    def _read(
        self,
        observation: Observation,
        found: Found,
        instant_ns: int,
        conditions: Conditions,
        lost: Lost | None,
        torn_blocks: Torn | None,
    ) -> Judgement:
        balance = balance_of(
            self.workers,
            self.history,
            found,
            before_ns=instant_ns,
            seen_ns=instant_ns,
            torn=torn_blocks if conditions.torn and torn_blocks is not None else conditions.torn,
            disconnected_clients=self.disconnected_clients if instant_ns >= self.disconnected_ns else (),
            indeterminate_errnos=conditions.allowed_errors | conditions.allowed_by_fault,
        )
        evidence = balance.evidence()
        missing = tuple(
            sorted((Missing(*one) for one in balance.losses), key=lambda one: _acknowledged_at(one.operation))
        )
        if lost is not None:
            conditions = blamed(conditions, balance.losses, lost)
        blocks = judge_blocks(evidence, conditions, WHERE)
        invented = judge_nothing_invented(evidence, conditions, WHERE)
        verdicts = [*judge_promises(evidence, conditions, WHERE), blocks, invented]
        broken = [one.kind for one in verdicts if one.outcome is Outcome.FAIL]
        failed = {PROMISES[kind] for kind in broken if kind is not None}
        damages = [one.damage for one in missing if one.damage.promise in failed]
        beside: list[Wrong] = []
        if blocks.outcome is Outcome.FAIL and not damages:
            beside += [Wrong(Damage(BLOCKS, one.kind.value, End.READ), str(one)) for one in balance.corrupted]
        if invented.outcome is Outcome.FAIL:
            damage = Damage(INVENTED, "content that no client wrote", End.READ)
            beside += [Wrong(damage, line) for line in balance.invented]
        if old := [one for one in missing if too_old(_acknowledged_at(one.operation), instant_ns, conditions)]:
            verdicts += judge_age(evidence, conditions, instant_ns, WHERE)
            damage = Damage(OLDER, "missing although the kernel's write-back was due", End.READ)
            beside += [Wrong(damage, str(one)) for one in old]
        whole = self.incomplete_ns is None or instant_ns < self.incomplete_ns
        for verdict, seen in _beside(observation, fault_of(conditions), whole=whole):
            verdicts.append(verdict)
            beside += seen
        return Judgement(
            *_conclude_state(verdicts, evidence.acknowledged_total, missing),
            damages=tuple(dict.fromkeys([*damages, *(one.damage for one in beside)])),
            missing=missing,
            by_kind=evidence.acknowledged,
            judged=evidence.judged,
            beside=tuple(beside),
            examples=(*evidence.examples[:5], *evidence.invented[:3]),
        )


def incomplete_ns(cycle: CrashTestRecord) -> int | None:
    """Return the instant from which an array may lack a member: 0 (from the start), that of the fault, or None."""
    built = cycle.effective.get("array", {}).get("devices", ())
    if any(one["degraded"] for one in built) or any(one.effects.member_missing for one in cycle.during):
        return 0
    return cycle.fault_begun_ns if cycle.effects.member_missing else None


def _beside(observation: Observation, blame: Blame, *, whole: bool) -> Iterator[tuple[Verdict, list[Wrong]]]:
    """Yield failures other than the ledger's; ``whole``: no array had lost a member before the crash."""
    if observation.degraded and whole:
        what = "md went on without a member"
        said = ", ".join(f"{device} without {count}" for device, count in sorted(observation.degraded.items()))
        verdict = Verdict(checker=DEGRADED, outcome=Outcome.FAIL, reason=f"{what}: {said}", blame=blame)
        yield verdict, [Wrong(Damage(DEGRADED, what, observation.end), f"{what}: {said}")]
    if (checked := observation.filesystem) is not None and checked.outcome != "clean":
        what = f"the file system checker reports {checked.outcome}"
        said = f"{what}: {'; '.join(checked.reasons[:3])}"
        verdict = Verdict(checker=FILESYSTEM, outcome=Outcome.FAIL, reason=said, blame=blame)
        yield verdict, [Wrong(Damage(FILESYSTEM, what, observation.end), said)]
    if observation.console:
        said = "; ".join(observation.console[:3])
        verdict = Verdict(checker=KERNEL_LOG, outcome=Outcome.FAIL, reason=said, blame=blame)
        # Each line begins with the sign that it is of.
        signs = [(line.partition(":")[0], line) for line in observation.console]
        yield verdict, [Wrong(Damage(KERNEL_LOG, sign, observation.end), line) for sign, line in signs]
    if (rows := observation.rows) is not None and rows.unmarked:
        what = "rows differ, and md would not resync them"
        reason = f"{what}: {rows.unmarked:,} of {rows.differ:,}, the first {rows.first}"
        verdict = Verdict(checker=REDUNDANCY, outcome=Outcome.FAIL, reason=reason, blame=blame)
        yield verdict, [Wrong(Damage(REDUNDANCY, what, observation.end), reason)]
    if observation.through_nfsd is ThroughNfsd.DIFFERENT:
        what = "nfsd serves other content than the mounted file system"
        reason = f"{what}: {observation.said}"
        verdict = Verdict(checker=NFSD, outcome=Outcome.FAIL, reason=reason, blame=blame)
        yield verdict, [Wrong(Damage(NFSD, what, observation.end), reason)]


def _conclude_state(
    verdicts: Sequence[Verdict], told: int, missing: Sequence[Missing]
) -> tuple[Outcome, str, Blame | None]:
    broken = [one for one in verdicts if one.outcome is Outcome.FAIL]
    if broken:
        return Outcome.FAIL, "; ".join(f"{one.checker}: {one.reason}" for one in broken), broken[0].blame
    if not told:
        return Outcome.PASS, "nothing had been acknowledged yet, and nothing is wrong", None
    if missing:
        # Only verdicts on the missing operations count: one on a promise that was never given is inconclusive too.
        kinds = {one.operation.kind for one in missing}
        about = [one for one in verdicts if one.kind in kinds]
        outcome = worst(one.outcome for one in about)
        reason = f"{len(missing):,} of {told:,} acknowledged operations are not there"
        if outcome is Outcome.PASS:
            return outcome, reason, next((one.blame for one in about if one.blame), None)
        open_ = next(one for one in about if one.outcome is outcome)
        return outcome, f"{reason}; {open_.checker}: {open_.reason}", open_.blame
    return Outcome.PASS, f"all {told:,} acknowledged operations are there", None


def _acknowledged_at(operation: Operation) -> int:
    return operation.promised_ns or 0


def conclude_exploration(record: ExplorationRecord) -> tuple[Outcome, str]:
    """Return the outcome of an exploration, and the reason.

    An exploration of a control passes (exit status 0) if it showed what the control's crash test had to show,
    else it is INVALID, as in `conclude_control`. Outcomes other than PASS and FAIL are returned unchanged.
    """
    outcome, reason = _conclude(record)
    if record.control is None or outcome not in (Outcome.PASS, Outcome.FAIL):
        return outcome, reason
    broken = outcome is Outcome.FAIL or record.loss is not None
    if not record.control.expects_loss:
        if broken:
            return Outcome.INVALID, f"control: expected no failure, yet {reason}"
        return Outcome.PASS, f"as it must, a control: {reason}"
    if not broken:
        # An interrupted exploration could still have found the loss.
        outcome = Outcome.INVALID if record.ended_early is None else Outcome.INCONCLUSIVE
        return outcome, f"control: had to lose acknowledged work, yet {reason}"
    for one in record.failures:
        again = one.confirmed or not one.repeated
        if again and not blamed_as(one.blame, record.control.expects_blame):
            return Outcome.INVALID, f"control: {one.promise}: {one.damage} is blamed on {one.blame} in {one.state}"
    return Outcome.PASS, f"as it must, a control: {reason}"


def _conclude(record: ExplorationRecord) -> tuple[Outcome, str]:
    """Return the outcome and the reason, ignoring that the crash test may be a control."""
    seen = f"{record.judged:,} crash states ({record.distinct:,} different)"
    hid = ""
    if record.cold.differing:
        names = ", ".join(record.cold.differing[:3])
        hid = f"a reused checker gave wrong results: {names} differed on a freshly booted machine"
        if record.control is not None or not any(one.confirmed for one in record.failures):
            return Outcome.ERROR, hid
    if record.failures:
        # Prefer a failure that was reproduced.
        first = next((one for one in record.failures if one.confirmed), record.failures[0])
        if all(one.repeated and not one.confirmed for one in record.failures):
            return (
                Outcome.INCONCLUSIVE,
                f"{first.promise}: {first.damage}; seen once in {first.state}, not reproduced",
            )
        kinds = f"{len(record.failures)} kinds of failure, one of them: " if len(record.failures) > 1 else ""
        blame = f"; blamed on {first.blame}" if first.blame else ""
        return (
            Outcome.FAIL,
            f"{record.broken:,} of {seen} break a promise; {kinds}{first.promise}: {first.damage}{blame}"
            f"{f'; also, {hid}' if hid else ''}",
        )
    if record.stopped_by is StoppedBy.RIG:
        return Outcome.ERROR, record.ended_early or "the rig failed"
    if not record.judged:
        return Outcome.INCONCLUSIVE, record.ended_early or "no crash state was checked"
    if record.undecided is not None:
        open_ = record.undecided
        return Outcome.INCONCLUSIVE, f"undecided in {open_.states:,} of {seen}: {open_.reason}, in {open_.state}"
    early = f"; {record.ended_early}" if record.ended_early else ""
    if not any(record.tested.values()):
        return Outcome.INCONCLUSIVE, f"no operation had been acknowledged at the cut of any of {seen}{early}"
    return _held(record, seen, early)


def _held(record: ExplorationRecord, seen: str, early: str) -> tuple[Outcome, str]:
    """Return the outcome and the reason if no promise of the export was broken."""
    if record.loss is not None:
        lost = record.loss
        return (
            Outcome.PASS,
            f"measured loss: up to {lost.operations:,} of {lost.of:,} acknowledged operations in {seen}",
        )
    if few := [f"{count} {kind}" for kind, count in sorted(record.tested.items()) if count < LEAST_JUDGED]:
        reason = f"no promise broke in {seen}; too few operations could have shown a loss: {', '.join(few)}{early}"
        return Outcome.INCONCLUSIVE, reason
    return Outcome.PASS, f"every promise held in {seen}{early}"
