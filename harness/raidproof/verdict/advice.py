"""The judgement of `raidproof advise`: Pareto front, the recommended configuration, the cost of each change, lines."""

from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from raidproof.record.advice import (
    AdviceRecord,
    AdvisedLine,
    Configuration,
    LeftOut,
    ModelRecord,
    PickedBy,
    RatioRecord,
)
from raidproof.record.cell import CellRecord
from raidproof.record.comparison import MARGIN
from raidproof.record.outcome import Outcome
from raidproof.record.run import RunRecord
from raidproof.storage.deployment import HEAVIEST_LAST, Work, deployed, lines_of
from raidproof.storage.stack import StackSpec
from raidproof.verdict.cell import SafetyWord, judge_cells, safety_in, why_not_of_the_hardware
from raidproof.verdict.conclusion import Part, concluded

LEAST_REPETITIONS = 2
"""Least number of repetitions of a recommended configuration, and of rounds of an interval."""
CONFIDENCE = 0.95
"""Probability with which an interval has the true ratio; with which all those against the current one have theirs."""
AS_GOOD = 0.99
"""Least ratio to the tested configuration with which another one may take its place."""
P99 = ("write_p99_ms", "read_p99_ms")
"""Names of a workload's 99th percentiles of the latency; the greatest counts."""


class Point(NamedTuple):
    """A configuration in the space of the three goals; None: not known."""

    speed: float
    """Greater is better."""
    latency: float | None
    lost: float | None
    """Acknowledged operations lost; infinite if the storage did not recover."""


def front(points: Sequence[Point]) -> list[bool]:
    """Return for each point whether no other point is better in one goal and not worse in any (Pareto front).

    A latency that not all points have is no goal. A point whose loss is not known is not on the front.
    """
    timed = all(point.latency is not None for point in points)

    def goals(point: Point) -> tuple[float, ...]:
        return (-point.speed, point.lost or 0.0, *([point.latency or 0.0] if timed else []))

    def beaten(mine: Point, other: Point) -> bool:
        pairs = list(zip(goals(other), goals(mine), strict=True))
        return (
            other.lost is not None and all(its <= own for its, own in pairs) and any(its < own for its, own in pairs)
        )

    return [point.lost is not None and not any(beaten(point, other) for other in points) for point in points]


def judge_advice(record: AdviceRecord, run: RunRecord) -> None:
    """Fill in the computed fields of the answer from the rungs and the run's record."""
    judge_cells(run)
    cells = {cell.name: cell for cell in run.cells}
    record.unit = next((cell.unit for cell in run.cells if cell.unit), "")
    record.model = judge_model(record, cells)
    record.configurations = _configurations(record, run)
    work = {axis.name: axis.work for axis in record.axes}
    promising = leader(record.configurations, work)
    record.leader = None if promising is None else promising.name
    _require_proof(record, cells.get(record.current))
    chosen = recommended(record.configurations, work)
    record.recommended = None if chosen is None else chosen.name
    record.left_out = [] if chosen is None else _left_out(record, chosen, cells)
    record.lines = [] if chosen is None else _lines(record, chosen, cells)
    record.outcome, record.reason = conclude(record, run)


def speed_of(cell: CellRecord, value: float) -> float:
    """Return a value of a cell such that greater is better."""
    return 1 / value if cell.lower_is_better else value


def speeds(cell: CellRecord) -> dict[int, float]:
    """Return the speeds of a cell by round; greater is better."""
    return {one.round: speed_of(cell, one.value) for one in cell.repeats if one.value}


def ratio(
    base: CellRecord, new: CellRecord, final: Collection[int] | None = None, comparisons: int = 1
) -> RatioRecord | None:
    """Return the speed of a cell divided by that of another, from the rounds in which both were measured.

    ``final``: the rounds of the last comparison; None: all rounds count. In the rounds of the search, a configuration
    was chosen because its values were high, also by chance. If fewer than two of the last rounds have both cells, the
    ratio is that of all rounds, without an interval.

    ``comparisons``: the number of ratios whose intervals hold all at once with `CONFIDENCE` (Bonferroni).
    """
    from raidproof.verdict.change import statistics  # noqa: PLC0415  numpy and scipy take half a second

    before, after = speeds(base), speeds(new)
    shared = sorted(before.keys() & after.keys())
    rounds = shared if final is None else [one for one in shared if one in final]
    limited = len(rounds) >= LEAST_REPETITIONS
    if not limited:
        rounds = shared
    confidence = 1 - (1 - CONFIDENCE) / max(1, comparisons)
    found = statistics.paired_ratio([before[one] for one in rounds], [after[one] for one in rounds], confidence)
    if found is None:
        return None
    low, high = (found.low, found.high) if limited else (None, None)
    return RatioRecord(ratio=found.estimate, low=low, high=high, rounds=found.rounds)


def judge_model(record: AdviceRecord, cells: Mapping[str, CellRecord]) -> ModelRecord:
    """Return the rank correlation of the expected and the measured speeds."""
    from raidproof.verdict.change import statistics  # noqa: PLC0415

    first: dict[str, tuple[float, PickedBy]] = {}
    for rung in record.rungs:
        for one in rung.picked:
            if one.expected is not None:
                first.setdefault(one.name, (one.expected, one.by))
    measured = {name: speed_of(cells[name], cells[name].median or 0.0) for name in first if _has_value(cells, name)}
    chance = [name for name in measured if first[name][1] is PickedBy.CHANCE]

    def correlation(names: Sequence[str]) -> float | None:
        return statistics.rank_correlation([first[name][0] for name in names], [measured[name] for name in names])

    return ModelRecord(
        expected=record.expected,
        compared=len(measured),
        correlation=correlation(list(measured)),
        compared_random=len(chance),
        correlation_random=correlation(chance),
    )


def _has_value(cells: Mapping[str, CellRecord], name: str) -> bool:
    return name in cells and bool(cells[name].median)


def _configurations(record: AdviceRecord, run: RunRecord) -> list[Configuration]:
    """Return the current configuration and those whose power was cut, the fastest first."""
    cut = {cycle.name for cycle in run.cycles}
    shown = [cell for cell in run.cells if cell.median and (cell.cycle in cut or cell.name == record.current)]
    shown.sort(key=lambda cell: -speed_of(cell, cell.median or 0.0))
    made = [_configuration(record, run, cell) for cell in shown]
    points = [
        Point(speed_of(cell, cell.median or 0.0), one.latency_ms, _loss(cell, one))
        for cell, one in zip(shown, made, strict=True)
    ]
    for one, on_front in zip(made, front(points), strict=True):
        one.on_front = on_front
    return made


def _loss(cell: CellRecord, one: Configuration) -> float | None:
    return float("inf") if cell.lost_everything else one.lost


def _configuration(record: AdviceRecord, run: RunRecord, cell: CellRecord) -> Configuration:
    safety = safety_in(run, cell)
    settings = {axis.name: cell.settings[axis.name] for axis in record.axes if axis.name in cell.settings}
    current = next((one for one in run.cells if one.name == record.current), None)
    cycle = run.power_cut_of(cell)
    seen = None if cycle is None else cycle.on_server
    return Configuration(
        name=cell.name,
        settings=settings,
        changes={
            axis.name: settings[axis.name] for axis in record.axes if _is_changed(settings, axis.name, axis.values)
        },
        median=cell.median,
        least=None if cell.spread is None else cell.spread[0],
        greatest=None if cell.spread is None else cell.spread[1],
        repetitions=len(cell.measured),
        against_current=None
        if current is None or current is cell
        else ratio(current, cell, record.final_rounds, record.comparisons),
        latency_ms=latency_of(cell),
        safety=safety.word.value,
        lost=safety.lost if safety.lost is not None else cell.lost_operations,
        acknowledged=None if seen is None else seen.acknowledged_total,
        lost_s=None if cycle is None or seen is None else cycle.loss_window_s,
        cycle=cell.cycle,
        why_not=_why_not(cell, safety.word, str(safety)),
    )


def _is_changed(settings: Mapping[str, str], name: str, values: Sequence[str]) -> bool:
    return name in settings and settings[name] != values[0]


def latency_of(cell: CellRecord) -> float | None:
    """Return the median over repetitions of the greatest 99th percentile of the latency, in ms; None without one."""
    found = [
        max(one.values[name] for name in P99 if name in one.values)
        for one in cell.repeats
        if one.value is not None and any(name in one.values for name in P99)
    ]
    return median(found) if found else None


def _why_not(cell: CellRecord, word: SafetyWord, safety: str) -> str | None:
    """Return why a configuration cannot be recommended, whatever its speed; None if it can."""
    if word is not SafetyWord.SAFE:
        return safety
    if cell.why_not is not None:
        return cell.why_not
    if len(cell.measured) < LEAST_REPETITIONS:
        return f"measured {len(cell.measured)} time, fewer than {LEAST_REPETITIONS}"
    return None


def needs_proof(record: AdviceRecord) -> bool:
    """Return whether only what is shown to be faster can be recommended: the current configuration loses no data."""
    current = next((one for one in record.configurations if one.name == record.current), None)
    return current is None or current.safety != SafetyWord.LOSES_DATA.value


def _require_proof(record: AdviceRecord, current: CellRecord | None) -> None:
    """Add the reason against each change that is not shown to be faster, unless the current one loses data."""
    if not needs_proof(record):
        return
    measured = current is not None and why_not_of_the_hardware(current) is None
    for one in record.configurations:
        if one.name == record.current or one.why_not is not None:
            continue
        if not measured:
            one.why_not = "no value of the current configuration measures the requested hardware"
        elif one.against_current is None or not one.against_current.is_above_one:
            one.why_not = "not shown to be faster than the current configuration"


def leader(configurations: Sequence[Configuration], work: Mapping[str, Work]) -> Configuration | None:
    """Return the safe configuration that the last comparison is to test, by the medians of all rounds; None without.

    It is the fastest one, or one that is at most `MARGIN` slower and a lighter change. ``configurations``: without the
    reasons against changes that are not shown to be faster. ``work``: by name of the axis.
    """
    safe = {one.name: one.median for one in configurations if one.why_not is None and one.median}
    fastest = next((one.median for one in configurations if one.name in safe), None) or 1.0
    # The fastest is the first one, and the greater of both ratios holds for both directions of the unit.
    pace = {name: min(value / fastest, fastest / value) for name, value in safe.items()}
    return _lightest([one for one in configurations if one.name in safe], pace, work)


def recommended(configurations: Sequence[Configuration], work: Mapping[str, Work]) -> Configuration | None:
    """Return the configuration to recommend; None if none can be.

    It is the change that is the fastest in the last comparison, or one that is at most `MARGIN` slower and lighter.
    Without a change that can be recommended, it is the current configuration.
    """
    usable = [one for one in configurations if one.why_not is None and one.median]
    changed = [one for one in usable if one.changes]
    if not changed:
        return next(iter(usable), None)
    ratios = {one.name: one.against_current for one in changed}
    pace = {name: found.ratio for name, found in ratios.items() if found is not None and found.low is not None}
    if not pace:  # the current configuration loses data, and no other one was compared with it
        return leader(changed, work)
    return _lightest([one for one in changed if one.name in pace], pace, work)


def _lightest(
    pool: Sequence[Configuration], pace: Mapping[str, float], work: Mapping[str, Work]
) -> Configuration | None:
    """Return the lightest change among those that are at most `MARGIN` slower than the fastest; None of none.

    ``pace``: a number by name that is proportional to the speed.
    """

    def burden(one: Configuration) -> tuple[int, int, float]:
        kinds = [HEAVIEST_LAST.index(work[name]) for name in one.changes]
        return (max(kinds, default=0), len(kinds), -pace[one.name])

    near = [one for one in pool if pace[one.name] * (1 + MARGIN) >= max(pace.values())]
    return min(near, key=burden, default=None)


def rivals(record: AdviceRecord, run: RunRecord, tested: str) -> list[str]:
    """Return the names of the configurations that the last comparison shows to be as good as the tested one.

    Each is shown to be faster than the current configuration, unless this one loses data.
    """
    cells = {cell.name: cell for cell in run.cells}
    found = []
    for name in record.compared:
        if not _has_value(cells, name) or not _has_value(cells, record.current) or name == tested:
            continue
        gain = ratio(cells[record.current], cells[name], record.final_rounds, record.comparisons)
        beside = ratio(cells[tested], cells[name], record.final_rounds)
        shown = gain is not None and (gain.is_above_one or not needs_proof(record))
        if shown and beside is not None and beside.low is not None and beside.ratio >= AS_GOOD:
            found.append(name)
    return found


def _left_out(record: AdviceRecord, chosen: Configuration, cells: Mapping[str, CellRecord]) -> list[LeftOut]:
    found = []
    for axis in record.axes:
        if axis.name not in chosen.changes:
            continue
        cell = cell_with(cells, chosen.settings | {axis.name: axis.values[0]}, [one.name for one in record.axes])
        found.append(
            LeftOut(
                axis=axis.name,
                value=chosen.changes[axis.name],
                current=axis.values[0],
                cell="" if cell is None else cell.name,
                ratio=None if cell is None else ratio(cells[chosen.name], cell, record.final_rounds),
            )
        )
    return found


def cell_with(cells: Mapping[str, CellRecord], settings: Mapping[str, str], axes: Sequence[str]) -> CellRecord | None:
    """Return the cell that has these values on the axes that apply to it; None if it was not measured."""

    def fits(cell: CellRecord) -> bool:
        return all(cell.settings[name] == settings.get(name) for name in axes if name in cell.settings)

    return next((cell for cell in cells.values() if fits(cell)), None)


def _lines(record: AdviceRecord, chosen: Configuration, cells: Mapping[str, CellRecord]) -> list[AdvisedLine]:
    cell = cells[chosen.name]
    current = cells.get(record.current, cell)
    return [
        AdvisedLine(line=line, run=record.run, cell=chosen.name, repetitions=chosen.repetitions, cycle=chosen.cycle)
        for line in lines_of(_deployed(cell), _deployed(current))
    ]


def _deployed(cell: CellRecord) -> StackSpec:
    """Return the stack that a cell requests, without what only the harness requests."""
    stack = StackSpec.model_validate(cell.asked)
    return deployed(stack, lease="lease" in cell.settings, grace="grace" in cell.settings)


def conclude(record: AdviceRecord, run: RunRecord) -> tuple[Outcome, str]:
    """Return the outcome of the search and its reason."""
    controls = [one for one in run.cycles if one.control is not None and one.outcome is not Outcome.SKIP]
    parts = [Part(one.outcome, f"{one.title}: {one.reason}") for one in controls]
    return concluded(parts, held="") if any(one.outcome is not Outcome.PASS for one in parts) else _answer(record, run)


def _answer(record: AdviceRecord, run: RunRecord) -> tuple[Outcome, str]:
    """Return the outcome of a search whose controls behaved, and the reason."""
    chosen = record.chosen
    if chosen is None:
        return _without_answer(record, run)
    if not chosen.changes:
        why = (
            "in the last comparison, no safe configuration is shown to be faster"
            if record.comparisons
            else "no safe configuration was compared with it in the last comparison"
        )
        return Outcome.PASS, f"no change is recommended, keep the current configuration: {why}"
    changes = ", ".join(f"{name}={value}" for name, value in chosen.changes.items())
    return Outcome.PASS, f"recommended: {changes}{_gain(record, chosen)}"


def _gain(record: AdviceRecord, chosen: Configuration) -> str:
    """Return the gain of the recommended configuration as text that continues a sentence."""
    gain = chosen.against_current
    loses = "" if needs_proof(record) else "; the current configuration loses data"
    if gain is None:
        return loses
    limits = "" if gain.low is None or gain.high is None else f" ({gain.low:.2f} to {gain.high:.2f})"
    return f"; {gain.ratio:.2f} times the speed of the current configuration{limits}{loses}"


def _without_answer(record: AdviceRecord, run: RunRecord) -> tuple[Outcome, str]:
    if not any(cell.median for cell in run.cells):
        return Outcome.INCONCLUSIVE, "no configuration was measured"
    cut = [one for one in record.configurations if one.cycle is not None]
    if not cut:
        return Outcome.INCONCLUSIVE, "no power was cut, so no configuration is shown to be safe"
    losing = [one for one in cut if one.safety == SafetyWord.LOSES_DATA.value]
    if len(losing) == len(cut):
        return (
            Outcome.FAIL,
            f"every configuration whose power was cut loses data: {losing[0].name}: {losing[0].why_not}",
        )
    open_one = next(one for one in cut if one not in losing)
    return Outcome.INCONCLUSIVE, f"no configuration can be recommended: {open_one.name}: {open_one.why_not}"
