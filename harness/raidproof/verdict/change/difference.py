"""The verdict on the differences between two sides: of the values of cells, and of the results of power cuts."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from raidproof.record.cell import CellRecord
from raidproof.record.comparison import (
    BASE,
    CONFIDENCE,
    ERROR_RATE,
    MARGIN,
    NEW,
    Change,
    CutPair,
    Modes,
    Pair,
    PairFinding,
    PromiseChange,
    RateChange,
    SideCell,
    SideCut,
)
from raidproof.record.outcome import Outcome, worst
from raidproof.record.run import CrashTestRecord
from raidproof.verdict.cell import modes_of, two_groups, what_was_lost, why_not_of_the_hardware
from raidproof.verdict.change import statistics
from raidproof.verdict.change.noticed import why_no_change
from raidproof.verdict.crash_states import explored_of, noticed_by
from raidproof.verdict.known import EXPLORATION


@dataclass(frozen=True)
class Rules:
    """The rules of a comparison."""

    margin: float = MARGIN
    """Margin of the finding SAME, as a share."""
    looks: int = 1
    """Number of times that the sides may be compared before they are called; the looks share the error rate."""
    paired: bool = True
    """Whether both sides were measured in turn, so that their rounds belong together."""

    @property
    def error_rate(self) -> float:
        """Greatest probability that this look at equal sides calls any cell faster or slower."""
        return ERROR_RATE / self.looks

    @property
    def confidence(self) -> float:
        """Confidence level of the interval of each ratio."""
        return 1 - (1 - CONFIDENCE) / self.looks


def judge_pairs(both: Sequence[tuple[CellRecord, CellRecord]], rules: Rules) -> list[Pair]:
    """Return the comparison of each cell, whose tests are corrected over all cells."""
    pairs = [pair_of(base, new, rules) for base, new in both]
    samples = {place: sample for place, pair in enumerate(pairs) if (sample := sample_of(pair, rules)) is not None}
    found = {
        place: statistics.shift(sample.base, sample.new, sample.blocks, confidence=rules.confidence)
        for place, sample in samples.items()
        if min(len(sample.base), len(sample.new)) > 1
    }
    corrected = dict(zip(found, statistics.corrected([one.p for one in found.values()]), strict=True))
    level = rules.error_rate / max(1, len(samples))
    for place, sample in samples.items():
        pair, fewest = pairs[place], min(len(sample.base), len(sample.new))
        blocks = sample.blocks if sample.workers > 1 else None
        if place not in found:
            pair.finding, pair.why = PairFinding.UNDECIDED, "a side has a single repetition"
            pair.more = statistics.least_repetitions(level) - fewest
            continue
        change = found[place]
        pair.change = Change(
            ratio=math.exp(change.estimate),
            low=None if change.low is None else math.exp(change.low),
            high=None if change.high is None else math.exp(change.high),
            p=change.p,
            corrected=corrected[place],
            blocks=sample.blocks,
            least=statistics.least_change(change.variation, fewest, level, blocks=blocks),
        )
        pair.finding = finding_of(pair.change, rules, lower_is_better=pair.lower_is_better)
        if pair.finding is PairFinding.UNDECIDED:
            needed = statistics.repetitions_to_settle(
                change, rules.margin, level, confidence=rules.confidence, least=fewest + 1, workers=sample.workers
            )
            pair.more = None if needed is None else needed - fewest
            pair.why = "neither a difference nor its absence is shown"
    return pairs


def finding_of(change: Change, rules: Rules, *, lower_is_better: bool = False) -> PairFinding:
    """Return the finding from the result of the test."""
    limits = [limit for limit in (change.low, change.high) if limit is not None]
    if limits and all(1 - rules.margin <= limit <= 1 + rules.margin for limit in limits):
        return PairFinding.SAME
    if change.corrected > rules.error_rate:
        return PairFinding.UNDECIDED
    return PairFinding.FASTER if (change.ratio > 1) is not lower_is_better else PairFinding.SLOWER


class PairedSample(NamedTuple):
    """The values of both sides of a cell, as the test uses them."""

    base: list[float]
    new: list[float]
    blocks: list[int]
    """The number of consecutive values of both sides in each block."""
    workers: int = 1
    """Number of workers that measured the values."""


def sample_of(pair: Pair, rules: Rules) -> PairedSample | None:
    """Return the values of both sides and the sizes of the blocks; None if the pair has a finding already.

    Of sides that were measured in turn, only the rounds count in which both sides have a value of the same worker; a
    block has rounds of one worker only, so that the speed of its machine has no effect.
    """
    if pair.finding is not PairFinding.UNDECIDED or pair.why:
        return None
    base, new = (_by_worker_and_round(side) if rules.paired else {} for side in (pair.base, pair.new))
    rounds = sorted(base.keys() & new.keys())
    if not rounds:
        return _of_common_workers(pair) if pair.base.workers or pair.new.workers else _of_one_block(pair)
    each = Counter(worker for worker, _ in rounds)
    blocks = [size for count in each.values() for size in statistics.blocks_of(count)]
    return PairedSample([base[one] for one in rounds], [new[one] for one in rounds], blocks, len(each))


def _of_one_block(pair: Pair) -> PairedSample:
    base, new = pair.base.values, pair.new.values
    return PairedSample(base, new, [min(len(base), len(new))])


def _by_worker_and_round(side: SideCell) -> dict[tuple[str, int], float]:
    keys = zip(workers_of(side), side.rounds, strict=True)
    return dict(zip(keys, side.values, strict=True))


def workers_of(side: SideCell) -> list[str]:
    """Return the worker of each value; empty text for the host of the run."""
    return [one or "" for one in side.workers] or [""] * len(side.values)


def _of_common_workers(pair: Pair) -> PairedSample:
    """Return the values of the workers that measured both sides, as many of each side; a block is a worker."""
    base, new, blocks = [], [], []
    for worker in sorted({*workers_of(pair.base)} & {*workers_of(pair.new)}):
        mine, theirs = (
            [value for name, value in zip(workers_of(side), side.values, strict=True) if name == worker]
            for side in (pair.base, pair.new)
        )
        blocks.append(min(len(mine), len(theirs)))
        base += mine[: blocks[-1]]
        new += theirs[: blocks[-1]]
    return PairedSample(base, new, blocks, len(blocks))


def pair_of(base: CellRecord, new: CellRecord, rules: Rules) -> Pair:
    """Return the two sides of a cell; the finding is UNDECIDED if only a test can tell."""
    sides = [side_cell(cell, rules) for cell in (base, new)]
    finding, why = without_test(base, new, sides)
    both = base.median is not None and new.median is not None and base.median > 0
    return Pair(
        name=base.name,
        workload=base.compared_with,
        unit=base.unit or new.unit,
        base=sides[0],
        new=sides[1],
        lower_is_better=base.lower_is_better or new.lower_is_better,
        ratio=(new.median or 0.0) / (base.median or 1.0) if both and finding is not PairFinding.BIMODAL else None,
        finding=finding,
        why=why,
    )


def side_cell(cell: CellRecord, rules: Rules) -> SideCell:
    """Return the values and the verdict of a cell on one side."""
    worked = [repeat for repeat in cell.repeats if repeat.value is not None]
    modes = modes_of(cell, rules.margin)
    return SideCell(
        values=cell.measured,
        rounds=[repeat.round for repeat in worked],
        workers=[repeat.worker for repeat in worked] if any(repeat.worker for repeat in worked) else [],
        between_workers=cell.between_workers,
        within_workers=cell.within_workers,
        modes=None if modes is None else Modes(low=modes[0], high=modes[1]),
        median=cell.median,
        spread=cell.spread,
        failed=sum(repeat.rig_error is not None for repeat in cell.repeats),
        limit=cell.limit,
        cause=cell.cause,
        flag=cell.flag,
        lost=cell.lost,
        outcome=cell.outcome,
        reason=cell.reason,
    )


def without_test(base: CellRecord, new: CellRecord, sides: Sequence[SideCell]) -> tuple[PairFinding, str]:
    """Return the finding on a cell that cannot be tested, and the reason as a clause; UNDECIDED without a reason."""
    cells = ((BASE, base), (NEW, new))
    missing = [f"{name}: {why_not_measured(cell)}" for name, cell in cells if not cell.measured]
    if missing:
        return PairFinding.ONE_SIDED, "; ".join(missing)
    rig = {name: why for name, cell in cells if (why := why_not_of_the_hardware(cell))}
    if rig:
        reasons = set(rig.values())
        if len(rig) == 2 and len(reasons) == 1:
            return PairFinding.NOT_COMPARABLE, f"both: {reasons.pop()}"
        return PairFinding.NOT_COMPARABLE, "; ".join(f"{name}: {why}" for name, why in rig.items())
    if min(*base.measured, *new.measured) <= 0:
        return PairFinding.NOT_COMPARABLE, "a value is not greater than 0, so that no ratio is known"
    if not {*workers_of(sides[0])} & {*workers_of(sides[1])}:
        return PairFinding.NOT_COMPARABLE, "no worker measured both sides, and the machines of workers differ"
    modes = {name: side.modes for name, side in zip((BASE, NEW), sides, strict=True) if side.modes is not None}
    if modes:
        return PairFinding.BIMODAL, "; ".join(
            f"{name}: {two_groups((one.low, one.high))}" for name, one in modes.items()
        )
    return PairFinding.UNDECIDED, ""


def why_not_measured(cell: CellRecord) -> str:
    """Return the reason why a cell has no value."""
    return f"{cell.outcome.value}, {cell.reason}" if cell.outcome is not Outcome.PASS else "not measured"


def judge_cuts(
    both: Sequence[tuple[CellRecord, CellRecord | None]], cycles: Sequence[Mapping[str, CrashTestRecord]]
) -> list[CutPair]:
    """Return the power cuts of each configuration on both sides.

    ``cycles``: the crash tests of base and of new, by name. Cells that differ only in the workload have the same power
    cut, and share a pair.
    """
    pairs: dict[tuple[str | None, str | None], CutPair] = {}
    for base, new in both:
        key = (base.cycle, new.cycle if new else None)
        found = [side.get(name or "") for side, name in zip(cycles, key, strict=True)]
        if any(found) and key not in pairs:
            pairs[key] = CutPair(
                title=base.name,
                base=side_cut(found[0], base),
                new=side_cut(found[1], new),
                promises=promise_changes((found[0], base), (found[1], new)),
            )
    judge_rates(list(pairs.values()))
    return list(pairs.values())


def judge_rates(cuts: Sequence[CutPair]) -> None:
    """Fill in the comparison of the shares of broken crash states, corrected over all power cuts."""
    found: list[tuple[CutPair, float]] = []
    for cut in cuts:
        if cut.base and cut.new and cut.base.states and cut.new.states:
            counts = (cut.base.broken_states or 0, cut.base.states, cut.new.broken_states or 0, cut.new.states)
            found.append((cut, statistics.same_share(*counts)))
    for (cut, p), corrected in zip(found, statistics.corrected([p for _, p in found]), strict=True):
        cut.rate = RateChange(p=p, corrected=corrected)


def side_cut(cycle: CrashTestRecord | None, cell: CellRecord | None) -> SideCut | None:
    """Return the verdict and the loss of a power cut on one side; None if none was made."""
    if cycle is None:
        return None
    seen, explored = cycle.on_server, explored_of(cell, cycle) if cell else None
    return SideCut(
        outcome=cycle.outcome,
        reason=cycle.reason,
        lost_words=what_was_lost(cycle),
        acknowledged=seen.acknowledged_total if seen else None,
        lost=seen.lost_total if seen else None,
        loss_window_s=cycle.loss_window_s,
        recovery_s=cycle.recovery.total_s,
        noticed=noticed_by(cycle, cell),
        states=explored.judged if explored else None,
        broken_states=explored.broken if explored else None,
    )


Cut = tuple[CrashTestRecord | None, CellRecord | None]


def promise_changes(base: Cut, new: Cut) -> list[PromiseChange]:
    """Return the promises that one side kept and the other broke, with the doubt whether this is a change."""
    ours, theirs = promises_of(*base), promises_of(*new)
    noticed = noticed_by(*base), noticed_by(*new)
    changes = [
        PromiseChange(checker=key[0], kind=key[1], base=outcome, new=theirs[key])
        for key, outcome in ours.items()
        if key in theirs
    ]
    # Other checks, such as that of the array, find their failures however much of the data is at risk.
    return [
        one.model_copy(update={"doubt": why_no_change(*(noticed if one.newly_broken else reversed(noticed)))})
        if one.kind is not None or one.checker == EXPLORATION
        else one
        for one in changes
        if one.newly_broken or one.newly_kept
    ]


def promises_of(cycle: CrashTestRecord | None, cell: CellRecord | None) -> dict[tuple[str, str | None], Outcome]:
    """Return the worst verdict on each promise that a power cut and the exploration of its crash states tested."""
    found: dict[tuple[str, str | None], list[Outcome]] = {}
    for verdict in cycle.verdicts if cycle else ():
        found.setdefault((verdict.checker, verdict.kind), []).append(verdict.outcome)
    if cell is not None and (explored := explored_of(cell, cycle)) is not None:
        found[EXPLORATION, None] = [explored.outcome]
    return {key: worst(outcomes) for key, outcomes in found.items()}
