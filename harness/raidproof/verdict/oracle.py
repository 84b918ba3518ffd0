"""Judgements of the crash states of a recorded crash test."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from raidproof.core.blame import Blame
from raidproof.core.errors import RigError
from raidproof.fault.array import WRITE_HOLE
from raidproof.record.exploration import End, Observation
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.run import BlockClass, CrashTestRecord
from raidproof.verdict.balance import KeptParts, Loss
from raidproof.verdict.blame import Lost
from raidproof.verdict.check import checks_of
from raidproof.verdict.checks.blocks import BLOCKS
from raidproof.verdict.conclusion import Part, concluded
from raidproof.verdict.conditions import Conditions, blamed, conditions_of, fault_of
from raidproof.verdict.contract import PROMISES
from raidproof.verdict.crash_states import RECOVERY
from raidproof.verdict.damage import Damage, Wrong
from raidproof.verdict.evidence import ON_SERVER, CrashStateEvidence, CrashTestEvidence, Scan
from raidproof.verdict.ledger import Found, Torn, balance_of
from raidproof.verdict.window import first_ns, windows_of
from raidproof.workload.history import LONGEST_DELAY_NS, History, Operation, WorkerSpec

_GENERATION = re.compile(r"generation \d+")


class Missing(Loss):
    """An acknowledged operation that is missing in a crash state, and what was found instead."""

    @property
    def damage(self) -> Damage:
        """The damage that the missing operation shows: the same for every generation that was found instead."""
        kind = self.operation.kind
        promise = PROMISES[kind]
        return Damage(promise, _GENERATION.sub("an older generation", self.what), End.READ)


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
        evidence = CrashTestEvidence(cycle, run)
        permitted = conditions_of(evidence)
        return cls(
            workers=evidence.workers,
            history=evidence.history,
            conditions=replace(permitted, memory_lost=True, torn=evidence.tears_writes, lying_disks=()),
            created_ns=cycle.ledger_begun_ns or 0,
            disconnected_clients=tuple(cycle.lost_power),
            disconnected_ns=max(0, (cycle.fault_begun_ns or 0) - LONGEST_DELAY_NS),
            incomplete_ns=incomplete_ns(cycle),
            explained_ns=first_ns(permitted.windows, "explanation") or 0,
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
            indeterminate_errnos=conditions.allowed_errors,
            shows_old_data=conditions.shows_old_data,
        )
        result = balance.result()
        missing = tuple(
            sorted((Missing(*one) for one in balance.losses), key=lambda one: _acknowledged_at(one.operation))
        )
        if lost is not None:
            conditions = blamed(conditions, balance.losses, lost)
        evidence = CrashStateEvidence(
            workers=self.workers,
            history=self.history,
            fault_at_ns=instant_ns,
            scans=(Scan(ON_SERVER, found, balance, result),),
            observation=observation,
            whole=self.incomplete_ns is None or instant_ns < self.incomplete_ns,
        )
        verdicts: list[Verdict] = []
        beside: list[Wrong] = []
        for check in checks_of(evidence.stage):
            mine = check.judge(evidence, conditions)
            verdicts += mine
            if any(one.outcome is Outcome.FAIL for one in mine):
                beside += check.wrong(evidence, conditions)
        failed = {PROMISES[one.kind] for one in verdicts if one.outcome is Outcome.FAIL and one.kind is not None}
        damages = [one.damage for one in missing if one.damage.promise in failed]
        if damages:
            # The missing operation is the damage, not the block that it left.
            beside = [one for one in beside if one.damage.promise != BLOCKS]
        return Judgement(
            *_conclude_state(verdicts, result.acknowledged_total, missing),
            damages=tuple(dict.fromkeys([*damages, *(one.damage for one in beside)])),
            missing=missing,
            by_kind=result.acknowledged,
            judged=result.judged,
            shown=frozenset(one.group for one in self.workers if any(balance.parts[one.number].judged.values())),
            beside=tuple(beside),
            examples=(*result.examples[:5], *result.invented[:3]),
            kernel=observation.console,
            reported=bool(observation.console) or balance.blocks[BlockClass.UNREADABLE] > 0,
        )


def incomplete_ns(cycle: CrashTestRecord) -> int | None:
    """Return the instant from which the faults of a crash test may leave an array without a member.

    In nanoseconds; 0: from the start. None if no fault removes a member.
    """
    built = cycle.effective.get("array", {}).get("devices", ())
    return 0 if any(one["degraded"] for one in built) else first_ns(windows_of(cycle), "member_missing")


def _conclude_state(
    verdicts: Sequence[Verdict], acknowledged: int, missing: Sequence[Missing]
) -> tuple[Outcome, str, Blame | None]:
    """Return outcome, reason and blame of a crash state in which the ledger was read.

    ``acknowledged``: number of operations acknowledged before the cut.
    """
    broken = [one for one in verdicts if one.outcome is Outcome.FAIL]
    if broken:
        said = "; ".join(f"{one.checker}: {one.reason}" for one in broken)
        return *concluded([Part(Outcome.FAIL, said)], held=""), broken[0].blame
    if unchecked := next((one for one in verdicts if one.outcome is Outcome.ERROR), None):
        return *concluded([Part(Outcome.ERROR, unchecked.reason)], held=""), None
    if not acknowledged:
        held = "no operation was acknowledged before the cut, and no check failed"
    elif missing:
        held = f"{len(missing):,} of {acknowledged:,} acknowledged operations are missing"
    else:
        held = f"all {acknowledged:,} acknowledged operations survived"
    # Verdicts on other kinds do not count: they can be INCONCLUSIVE because too few operations were acknowledged.
    kinds = {one.operation.kind for one in missing} if acknowledged else set()
    about = [one for one in verdicts if one.kind in kinds]
    outcome, reason = concluded([Part(one.outcome, f"{held}; {one.checker}: {one.reason}") for one in about], held)
    return outcome, reason, next((one.blame for one in about if one.outcome is outcome and one.blame), None)


def _acknowledged_at(operation: Operation) -> int:
    return operation.promised_ns or 0
