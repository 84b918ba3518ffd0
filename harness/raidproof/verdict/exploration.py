"""Verdicts on the crash states of an exploration, and the conclusion of the exploration."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from raidproof.core.blame import Blame, blamed_as
from raidproof.core.errors import RigError
from raidproof.fault.array import WRITE_HOLE
from raidproof.record.exploration import (
    AllLossesRecord,
    End,
    ExplorationRecord,
    Observation,
    SecondCutsRecord,
    StoppedBy,
    ThroughNfsd,
)
from raidproof.record.outcome import Outcome, Verdict, worst
from raidproof.record.run import BlockClass, ControlSpec, CrashTestRecord
from raidproof.verdict.balance import KeptParts, Loss
from raidproof.verdict.blame import Lost, blamed
from raidproof.verdict.contract import (
    APPLICATION_DATA,
    LEAST_JUDGED,
    OLDER,
    PROMISES,
    Conditions,
    judge_age,
    judge_application_checks,
    judge_application_data,
    judge_blocks,
    judge_nothing_invented,
    judge_promises,
    too_old,
)
from raidproof.verdict.controls import conclude_control_explored
from raidproof.verdict.crash_states import RECOVERY
from raidproof.verdict.crash_test import conditions_of, history_of, tears_writes
from raidproof.verdict.ledger import Found, Torn, balance_of
from raidproof.verdict.members import fault_of
from raidproof.workload.history import LONGEST_DELAY_NS, History, Operation, WorkerSpec

WHERE = "on the server"
KERNEL_LOG, BLOCKS, INVENTED = "kernel log", "blocks whole", "nothing invented"
NFSD = "content through nfsd"
REDUNDANCY = "redundancy"
DEGRADED, FILESYSTEM = "members", "file system"
_GENERATION = re.compile(r"generation \d+")


class Damage(NamedTuple):
    """A kind of damage that a crash state can show; failures with equal damage count as the same failure."""

    promise: str
    """The name of the broken promise, or of the check that failed."""
    what: str
    """What is wrong, as text without numbers of single states."""
    end: str
    """The last stage that the check of the state reached, a value of `End`."""

    def __str__(self) -> str:
        return f"{self.promise}: {self.what}"


class Missing(Loss):
    """An acknowledged operation that is missing in a crash state, and what was found instead."""

    @property
    def damage(self) -> Damage:
        """The damage that the missing operation shows: the same for every generation that was found instead."""
        kind = self.operation.kind
        promise = PROMISES[kind]
        return Damage(promise, _GENERATION.sub("an older generation", self.what), End.READ)


class Wrong(NamedTuple):
    """Damage of a crash state other than a missing operation: a corrupted block or a degraded array, for example."""

    damage: Damage
    line: str
    """Description of the damage for the report, with names and numbers."""


@dataclass(frozen=True)
class Judgement:
    """The verdict on one crash state."""

    outcome: Outcome
    reason: str
    blame: Blame | None = None
    damages: tuple[Damage, ...] = ()
    """All kinds of damage of the state; empty without damage, and if the export's options excuse the damage."""
    missing: tuple[Missing, ...] = ()
    """Missing acknowledged operations, excused ones included, in the order of their acknowledgements."""
    by_kind: Mapping[str, int] = field(default_factory=dict)
    """Number of operations acknowledged before the cut, by kind of operation."""
    judged: Mapping[str, int] = field(default_factory=dict)
    """Number of acknowledged operations whose loss this state could have shown, by kind of operation."""
    shown: frozenset[tuple[str, str]] = frozenset()
    """The client and the kind of worker (`WorkerSpec.group`) of these operations."""
    beside: tuple[Wrong, ...] = ()
    """Damage other than missing operations."""
    examples: tuple[str, ...] = ()
    """Descriptions of the first missing operations, damaged blocks, and content that no client wrote."""
    kernel: tuple[str, ...] = ()
    """Suspicious kernel messages, each preceded by the name of its sign."""
    reported: bool = True
    """Whether array, file system or kernel reported an error: no start, no mount, a failed read, or a message."""

    def lines(self, damage: Damage) -> tuple[str, ...]:
        """Return the descriptions of the missing operations and other findings that show the given damage."""
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
    def silent(self) -> bool:
        """Whether acknowledged data is lost, and neither array, nor file system, nor kernel reported an error."""
        return self.loses and not self.reported

    @property
    def loses(self) -> bool:
        """Whether acknowledged operations are missing, which breaks a promise; other failures do not count."""
        return self.broken and bool(self.missing)

    @property
    def excused(self) -> bool:
        """Whether acknowledged operations are missing and the export's options excuse every loss."""
        return bool(self.missing) and self.outcome is Outcome.PASS

    @property
    def undecided(self) -> bool:
        """Whether acknowledged operations are missing without proof that their loss breaks a promise."""
        return bool(self.missing) and self.outcome is Outcome.INCONCLUSIVE

    @property
    def unchecked(self) -> bool:
        """Whether the check command of an application gave no result."""
        return self.outcome is Outcome.ERROR

    @property
    def lost_bytes(self) -> int:
        """Size of the missing operations in bytes."""
        return sum(one.bytes for one in self.missing)

    def lost_s(self, instant_ns: int) -> float:
        """Return the seconds from the first lost acknowledgement to the cut at ``instant_ns``; 0 without a loss."""
        first = self.missing[0].operation.promised_ns if self.missing else None
        return 0.0 if first is None else (instant_ns - first) / 1e9


@dataclass(frozen=True)
class Oracle:
    """Judges the crash states of one recorded crash test, by its history of operations and its conditions.

    All instants are in nanoseconds of the host's CLOCK_MONOTONIC.
    """

    workers: tuple[WorkerSpec, ...]
    history: History
    conditions: Conditions
    """The conditions of the crash test, without torn requests and lying disks, which differ from state to state.

    ``torn``: whether the file system may leave a part of any write that the cut interrupted."""
    created_ns: int
    """The instant at which array and file system had been created and synced."""
    disconnected_clients: tuple[str, ...] = ()
    """Clients that lost power: the record may lack the last acknowledgements that they received."""
    disconnected_ns: int = 0
    """The instant from which the record may lack acknowledgements to these clients."""
    incomplete_ns: int | None = None
    """The instant from which an array may be degraded; None: no array may ever be degraded."""
    explained_ns: int = 0
    """The instant from which the fault explains a loss; 0: from the start of the crash test."""
    corrupted_ns: int = 0
    """The instant from which disk faults explain a loss; 0: from the start of the crash test."""
    expected: str | None = None
    """A regular expression for the kernel messages that only report a lost member; None: no member is lost."""
    _kept: KeptParts = field(default_factory=KeptParts, init=False, repr=False, compare=False)
    """Parts of the last judgement: most files and operations of a state are those of the state before."""

    @classmethod
    def of(cls, cycle: CrashTestRecord, run: Path, corrupted_ns: int | None = None) -> "Oracle":
        """Return the oracle of a stored crash test.

        ``corrupted_ns``: the instant at which the first drive got a disk fault; None if not known.

        Raises:
            RigError: the file of the crash test's history cannot be read.
        """
        conditions = replace(conditions_of(cycle), memory_lost=True, torn=tears_writes(cycle), lying_disks=())
        return cls(
            workers=tuple(WorkerSpec.model_validate(worker) for worker in cycle.workers),
            history=history_of(cycle, run),
            conditions=conditions,
            created_ns=cycle.ledger_begun_ns or 0,
            disconnected_clients=tuple(cycle.lost_power),
            disconnected_ns=max(0, (cycle.fault_begun_ns or 0) - LONGEST_DELAY_NS),
            incomplete_ns=incomplete_ns(cycle),
            # A fault in effect before the clients began may explain a loss at any instant.
            explained_ns=0 if cycle.during else cycle.fault_begun_ns or 0,
            corrupted_ns=corrupted_ns or 0,
        )

    def moment(self, instant_ns: int) -> tuple[int, ...]:
        """Return a value that is equal for instants at which an observation has the same judgement.

        This does not hold for a judgement with missing operations, which also states how old they are.
        """
        limits = (self.created_ns, self.disconnected_ns, self.explained_ns, self.corrupted_ns, self.incomplete_ns)
        passed = [one is not None and instant_ns >= one for one in limits]
        return (*self.history.counts(instant_ns), *passed)

    def judge(
        self,
        observation: Observation,
        instant_ns: int,
        *,
        torn: bool = False,
        torn_blocks: Torn | None = None,
        lost: Lost | None = None,
    ) -> Judgement:
        """Judge the observation of a crash state whose power was cut at ``instant_ns``.

        ``torn``: whether a write request survived in part. ``torn_blocks``: the blocks of these requests; None if not
        known. ``lost``: the requests that lying disks lost; None if no disk lied.

        Raises:
            RigError: the observation has ended with `End.READ`, but contains no scan of the ledger.
        """
        conditions = replace(
            self.conditions,
            torn=torn or self.conditions.torn,
            lying_disks=lost.disks if lost is not None else (),
            explanation=WRITE_HOLE
            if observation.refused
            else (self.conditions.explanation if instant_ns >= self.explained_ns else None),
            corrupted_by=self.conditions.corrupted_by if instant_ns >= self.corrupted_ns else None,
        )
        if self.expected is not None:
            alarms = tuple(line for line in observation.console if not re.search(self.expected, line))
            observation = observation.model_copy(update={"console": alarms})
        if observation.end != End.READ:
            return self._nothing_read(observation, instant_ns, conditions, lost)
        if observation.found is None:
            raise RigError("the checker reports that it read the ledger in a crash state, but returned no scan")
        blocks = None if self.conditions.torn else torn_blocks
        return self._read(observation, observation.found, instant_ns, conditions, lost, blocks)

    def _nothing_read(
        self, observation: Observation, instant_ns: int, conditions: Conditions, lost: Lost | None
    ) -> Judgement:
        acknowledged = sorted(self.history.acknowledged(instant_ns), key=_acknowledged_at)
        created = instant_ns >= self.created_ns
        wedged = observation.end == End.WEDGED
        if not (acknowledged or created or wedged):
            reason = f"{observation.end}: {observation.said}; at the cut, the file system was still being created"
            return Judgement(Outcome.INCONCLUSIVE, reason)
        if acknowledged:
            cost = f"all {len(acknowledged):,} acknowledged operations are lost"
        elif created:
            cost = "at the cut, array and file system were created and synced, and no operation was acknowledged"
        else:
            cost = "at the cut, array and file system were still being created"
        by_number = {worker.number: worker for worker in self.workers}
        damage = Damage(RECOVERY, observation.end.replace("-", " "), observation.end)
        missing = tuple(Missing(one, by_number[one.worker], damage.what) for one in acknowledged)
        if lost is not None:
            conditions = blamed(conditions, missing, lost)
        return Judgement(
            outcome=Outcome.FAIL,
            reason=f"{observation.end}: {observation.said}; {cost}",
            blame=fault_of(conditions),
            damages=(damage,),
            missing=missing,
            by_kind=Counter(one.kind for one in acknowledged),
            judged=Counter(one.kind for one in acknowledged),
            beside=(Wrong(damage, f"{observation.end}: {observation.said}"),),
            kernel=observation.console,
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
            kept=self._kept,
            before_ns=instant_ns,
            seen_ns=instant_ns,
            torn=torn_blocks if conditions.torn and torn_blocks is not None else conditions.torn,
            disconnected_clients=self.disconnected_clients if instant_ns >= self.disconnected_ns else (),
            indeterminate_errnos=conditions.allowed_errors | conditions.allowed_by_fault,
            shows_old_data=conditions.shows_old_data,
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
        verdicts += judge_application_checks(evidence, WHERE)
        damaged = judge_application_data(evidence, conditions, WHERE)
        verdicts += damaged
        broken = [one.kind for one in verdicts if one.outcome is Outcome.FAIL]
        failed = {PROMISES[kind] for kind in broken if kind is not None}
        damages = [one.damage for one in missing if one.damage.promise in failed]
        beside: list[Wrong] = []
        if blocks.outcome is Outcome.FAIL and not damages:
            beside += [Wrong(Damage(BLOCKS, one.kind.value, End.READ), str(one)) for one in balance.corrupted]
        if any(one.outcome is Outcome.FAIL for one in damaged):
            damage = Damage(APPLICATION_DATA, "the check command reports damage", End.READ)
            beside += [Wrong(damage, line) for line in evidence.damaged]
        if invented.outcome is Outcome.FAIL:
            damage = Damage(INVENTED, "content that no client wrote", End.READ)
            beside += [Wrong(damage, line) for line in balance.invented]
        if old := [one for one in missing if too_old(_acknowledged_at(one.operation), instant_ns, conditions)]:
            verdicts += judge_age(evidence, conditions, instant_ns, WHERE)
            damage = Damage(OLDER, "an operation is missing although its write-back was due before the cut", End.READ)
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
            shown=frozenset(one.group for one in self.workers if any(balance.parts[one.number].judged.values())),
            beside=tuple(beside),
            examples=(*evidence.examples[:5], *evidence.invented[:3]),
            kernel=observation.console,
            reported=bool(observation.console) or balance.blocks[BlockClass.UNREADABLE] > 0,
        )


def incomplete_ns(cycle: CrashTestRecord) -> int | None:
    """Return the instant from which the faults of a crash test may leave an array without a member.

    In nanoseconds; 0: from the start. None if no fault removes a member.
    """
    built = cycle.effective.get("array", {}).get("devices", ())
    if any(one["degraded"] for one in built) or any(one.effects.member_missing for one in cycle.during):
        return 0
    return cycle.fault_begun_ns if cycle.effects.member_missing else None


def _beside(observation: Observation, blame: Blame, *, whole: bool) -> Iterator[tuple[Verdict, list[Wrong]]]:
    """Yield a verdict with its damage for each failed check other than the comparison with the ledger.

    ``whole``: whether no array had lost a member before the cut.
    """
    if observation.degraded and whole:
        what = "md assembled a degraded array"
        counted = sorted(observation.degraded.items())
        said = ", ".join(f"{device} lacks {count} member{'' if count == 1 else 's'}" for device, count in counted)
        verdict = Verdict(checker=DEGRADED, outcome=Outcome.FAIL, reason=f"{what}: {said}", blame=blame)
        yield verdict, [Wrong(Damage(DEGRADED, what, observation.end), f"{what}: {said}")]
    if (checked := observation.filesystem) is not None and checked.outcome != "clean":
        what = f"the file system's checker (fsck) reports {checked.outcome}"
        said = f"{what}: {'; '.join(checked.reasons[:3])}"
        verdict = Verdict(checker=FILESYSTEM, outcome=Outcome.FAIL, reason=said, blame=blame)
        yield verdict, [Wrong(Damage(FILESYSTEM, what, observation.end), said)]
    if observation.console:
        said = "; ".join(observation.console[:3])
        verdict = Verdict(checker=KERNEL_LOG, outcome=Outcome.FAIL, reason=said, blame=blame)
        # Each line begins with the name of the pattern that it matches, and a colon.
        signs = [(line.partition(":")[0], line) for line in observation.console]
        yield verdict, [Wrong(Damage(KERNEL_LOG, sign, observation.end), line) for sign, line in signs]
    if (rows := observation.rows) is not None and (rows.settled or rows.unmarked):
        what = "copies or parity are inconsistent, and md would not resync them"
        if rows.settled:
            what = "copies or parity were not written: rows are inconsistent although no write was in progress"
        number = rows.settled or rows.unmarked
        reason = f"{what}: {number:,} of {rows.differ:,} inconsistent rows, the first is {rows.first}"
        verdict = Verdict(checker=REDUNDANCY, outcome=Outcome.FAIL, reason=reason, blame=blame)
        yield verdict, [Wrong(Damage(REDUNDANCY, what, observation.end), reason)]
    if observation.through_nfsd is ThroughNfsd.DIFFERENT:
        what = "the NFS server serves content that differs from the mounted file system"
        reason = f"{what}: {observation.said}"
        verdict = Verdict(checker=NFSD, outcome=Outcome.FAIL, reason=reason, blame=blame)
        yield verdict, [Wrong(Damage(NFSD, what, observation.end), reason)]


def _conclude_state(
    verdicts: Sequence[Verdict], acknowledged: int, missing: Sequence[Missing]
) -> tuple[Outcome, str, Blame | None]:
    """Return outcome, reason and blame of a crash state in which the ledger was read.

    ``acknowledged``: number of operations acknowledged before the cut.
    """
    broken = [one for one in verdicts if one.outcome is Outcome.FAIL]
    if broken:
        return Outcome.FAIL, "; ".join(f"{one.checker}: {one.reason}" for one in broken), broken[0].blame
    if unchecked := next((one for one in verdicts if one.outcome is Outcome.ERROR), None):
        return Outcome.ERROR, unchecked.reason, None
    if not acknowledged:
        return Outcome.PASS, "no operation was acknowledged before the cut, and no check failed", None
    if missing:
        # Verdicts on other kinds do not count: they can be INCONCLUSIVE because too few operations were acknowledged.
        kinds = {one.operation.kind for one in missing}
        about = [one for one in verdicts if one.kind in kinds]
        outcome = worst(one.outcome for one in about)
        reason = f"{len(missing):,} of {acknowledged:,} acknowledged operations are missing"
        if outcome is Outcome.PASS:
            return outcome, reason, next((one.blame for one in about if one.blame), None)
        undecided = next(one for one in about if one.outcome is outcome)
        return outcome, f"{reason}; {undecided.checker}: {undecided.reason}", undecided.blame
    return Outcome.PASS, f"all {acknowledged:,} acknowledged operations survived", None


def _acknowledged_at(operation: Operation) -> int:
    return operation.promised_ns or 0


def conclude_exploration(record: ExplorationRecord) -> tuple[Outcome, str]:
    """Return the outcome of an exploration, and the reason.

    The exploration of a control passes if it shows the result that is expected of the control: see `verdict.controls`.
    Outcomes other than PASS and FAIL are the same for a control and for any other crash test.
    """
    outcome, reason = _conclude(record)
    if record.control is None or outcome not in (Outcome.PASS, Outcome.FAIL):
        return outcome, reason
    return conclude_control_explored(
        record.control,
        reason,
        broken=outcome is Outcome.FAIL or record.loss is not None,
        complete=record.ended_early is None,
        by_another=_by_another(record, record.control),
    )


def _by_another(record: ExplorationRecord, control: ControlSpec) -> tuple[str, Blame | None] | None:
    """Return the first failure whose blame is not the one that a control expects, with its blame; None without one."""
    for one in record.failures:
        again = one.confirmed or not one.repeated
        if again and not blamed_as(one.blame, control.expects_blame):
            return f"{one.promise}: {one.damage} in crash state {one.state} is", one.blame
    return None


def _conclude(record: ExplorationRecord) -> tuple[Outcome, str]:
    """Return the outcome and the reason of an exploration as if its crash test were no control."""
    second, seen = record.second_cuts or SecondCutsRecord(asked=0, states_each=0), judged_states(record)
    unreliable = ""
    if differing := [*record.cold.differing, *second.cold.differing]:
        names = ", ".join(differing[:3])
        unreliable = f"a reused checker gave wrong results: a freshly booted machine gave other results for {names}"
        if record.control is not None or not any(one.confirmed for one in record.failures):
            return Outcome.ERROR, unreliable
    if record.failures:
        return _failed(record, unreliable)
    if record.stopped_by is StoppedBy.RIG:
        return Outcome.ERROR, record.ended_early or "the rig failed"
    if not record.judged:
        return Outcome.INCONCLUSIVE, record.ended_early or "no crash state was checked"
    if (unchecked := record.unchecked or second.unchecked) is not None:
        return Outcome.ERROR, (
            f"in {unchecked.states:,} of {seen}, the first is {unchecked.state}: {unchecked.reason}"
        )
    if (undecided := record.undecided or second.undecided) is not None:
        return Outcome.INCONCLUSIVE, (
            f"in {undecided.states:,} of {seen} a loss may or may not break a promise, the first is "
            f"{undecided.state}: {undecided.reason}"
        )
    early = f"; {record.ended_early}" if record.ended_early else ""
    if not any(record.tested.values()):
        return Outcome.INCONCLUSIVE, f"no operation was acknowledged before the cut in any of {seen}{early}"
    if second.asked and not second.judged:
        return (
            Outcome.INCONCLUSIVE,
            f"no state of a second power cut was checked; no promise was broken in {seen}{early}",
        )
    return _held(record, seen, early)


def judged_states(record: ExplorationRecord) -> str:
    """Return the numbers of judged states of an exploration as text."""
    return f"{record.judged:,} crash states ({record.distinct:,} different){after_second_cuts(record.second_cuts)}"


def after_second_cuts(second: SecondCutsRecord | None) -> str:
    """Return the numbers of judged states of a second cut as a suffix; empty if none was requested."""
    if second is None:
        return ""
    recoveries = "1 recovery" if len(second.recoveries) == 1 else f"{len(second.recoveries):,} recoveries"
    return f", and {second.judged:,} ({second.distinct:,} different) of a second cut during {recoveries}"


def _failed(record: ExplorationRecord, unreliable: str) -> tuple[Outcome, str]:
    """Return the outcome and the reason of an exploration with failures.

    ``unreliable``: why the results are not reliable; empty if they are.
    """
    first = next((one for one in record.failures if one.confirmed), record.failures[0])
    if all(one.repeated and not one.confirmed for one in record.failures):
        return (
            Outcome.INCONCLUSIVE,
            f"{first.promise}: {first.damage}; seen in crash state {first.state}, not reproduced",
        )
    kinds = f"{len(record.failures)} distinct failures, one of them is " if len(record.failures) > 1 else ""
    blame = f"; blamed on {first.blame}" if first.blame else ""
    blame += f"; it agrees with the finding {first.finding}" if first.finding else ""
    broken = f"{record.broken:,}"
    if (second := record.second_cuts) is not None:
        broken += f" and {second.broken:,}"
    return (
        Outcome.FAIL,
        f"{broken} of {judged_states(record)} break a promise{unrecovered(second)}; "
        f"{kinds}{first.promise}: {first.damage}{blame}{f'; also, {unreliable}' if unreliable else ''}",
    )


def unrecovered(second: SecondCutsRecord | None) -> str:
    """Return the number of states that break a promise after their recovery as a suffix; empty if there are none."""
    count = sum(one.broken for one in second.recoveries) if second is not None else 0
    return f", and {count:,} after the whole recovery" if count else ""


def all_losses(record: AllLossesRecord) -> str:
    """Return the states of an exhaustive exploration as text, with the number done if some are left."""
    done, total = sum(record.judged), record.total
    states = f"all {total:,}" if record.complete else f"{done:,} of the {total:,}"
    epochs = f"all {record.epochs:,} flush epochs"
    if record.epochs < record.of_epochs:
        epochs = f"the flush epochs {record.first_epoch:,} to {record.last_epoch:,} of {record.of_epochs:,}"
    return f"{states} crash states with up to {record.most} lost requests of {epochs}"


def _held(record: ExplorationRecord, seen: str, early: str) -> tuple[Outcome, str]:
    """Return the outcome and the reason of an exploration in which every promise of the export held.

    ``seen``: the numbers of judged states as text; ``early``: why the exploration ended early, as a suffix.
    """
    if record.loss is not None:
        lost = record.loss
        return (
            Outcome.PASS,
            f"measured loss: up to {lost.operations:,} of {lost.of:,} acknowledged operations in {seen}",
        )
    if few := [f"{count} {kind}" for kind, count in sorted(record.tested.items()) if count < LEAST_JUDGED]:
        counted = (
            f"too few operations could have shown a loss: {', '.join(few)}; {LEAST_JUDGED} of each kind are needed"
        )
        return Outcome.INCONCLUSIVE, f"no promise was broken in {seen}; {counted}{early}"
    if record.idle:
        idle = f"none could have shown a loss of {', '.join(record.idle)}"
        return Outcome.INCONCLUSIVE, f"no promise was broken in {seen}; {idle}{early}"
    if (every := record.all_losses) is not None:
        # A statement about all states needs no second statement about their number.
        seen = f"{all_losses(every)} ({record.distinct:,} different){after_second_cuts(record.second_cuts)}"
    # The states that the user's interruption left out could have shown a failure.
    outcome = Outcome.INCONCLUSIVE if record.stopped_by is StoppedBy.USER else Outcome.PASS
    return outcome, f"every promise held in {seen}{left_out(record)}{early}"


def left_out(record: ExplorationRecord) -> str:
    """Return the numbers of requested states and recoveries that were not checked as a suffix; empty if all were."""
    parts = []
    if record.asked is not None and record.all_losses is None:
        requested = min(record.asked, record.candidates or record.asked)
        if (left := requested - record.judged) > 0:
            parts.append(f"; {left:,} of {requested:,} requested states were not checked")
    if (second := record.second_cuts) is not None and (left := second.asked - len(second.recoveries)) > 0:
        parts.append(f"; {left:,} of {second.asked:,} requested recoveries got no second cut")
    return "".join(parts)
