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
from raidproof.verdict.cell import SafetyWord, judge_cells, safety_in

LEAST_REPETITIONS = 2
"""Least number of repetitions of a recommended configuration."""
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
    chosen = recommended(record.configurations, {axis.name: axis.work for axis in record.axes})
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


def ratio(base: CellRecord, new: CellRecord, final: Collection[int] = ()) -> RatioRecord | None:
    """Return the speed of a cell divided by that of another, from the rounds in which both were measured.

    ``final``: the rounds of the last comparison. If at least two of them have both cells, only these count: in the
    rounds of the search, a configuration was chosen because its values were high, also by chance.
    """
    from raidproof.verdict.change import statistics  # noqa: PLC0415  numpy and scipy take half a second

    before, after = speeds(base), speeds(new)
    rounds = sorted(before.keys() & after.keys())
    if len(unbiased := [one for one in rounds if one in final]) >= LEAST_REPETITIONS:
        rounds = unbiased
    found = statistics.paired_ratio([before[one] for one in rounds], [after[one] for one in rounds])
    if found is None:
        return None
    return RatioRecord(ratio=found.estimate, low=found.low, high=found.high, rounds=found.rounds)


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
    cycle = next((one for one in run.cycles if one.name == cell.cycle), None)
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
        against_current=None if current is None or current is cell else ratio(current, cell, record.final_rounds),
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
    """Return why a configuration cannot be recommended; None if it can."""
    if word is not SafetyWord.SAFE:
        return safety
    if cell.why_not is not None:
        return cell.why_not
    if len(cell.measured) < LEAST_REPETITIONS:
        return f"measured {len(cell.measured)} time, fewer than {LEAST_REPETITIONS}"
    return None


def recommended(configurations: Sequence[Configuration], work: Mapping[str, Work]) -> Configuration | None:
    """Return the configuration to recommend; None if none is shown to be safe.

    It is the fastest safe configuration; or one that is at most `MARGIN` slower by its median, with lighter work on
    the server or fewer changes. ``configurations``: the fastest first; ``work``: by name of the axis.
    """
    safe = [one for one in configurations if one.why_not is None and one.median]
    if not safe:
        return None
    fastest = safe[0].median or 0.0

    def burden(one: Configuration) -> tuple[int, int]:
        kinds = [HEAVIEST_LAST.index(work[name]) for name in one.changes]
        return (max(kinds, default=0), len(kinds))

    # The ratio of the medians holds for both directions of the unit.
    near = [one for one in safe if max((one.median or 0.0) / fastest, fastest / (one.median or 1e-9)) <= 1 + MARGIN]
    return min(near, key=burden)


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
    controls = [one for one in run.cycles if one.control is not None]
    for outcome in (Outcome.FAIL, Outcome.INVALID, Outcome.ERROR, Outcome.INCONCLUSIVE):
        if control := next((one for one in controls if one.outcome is outcome), None):
            return outcome, f"{control.title}: {control.reason}"
    chosen = record.chosen
    if chosen is None:
        return _without_answer(record, run)
    gain = chosen.against_current
    if not chosen.changes:
        return Outcome.PASS, "no change is recommended: no safe configuration was clearly faster than the current one"
    changes = ", ".join(f"{name}={value}" for name, value in chosen.changes.items())
    faster = "" if gain is None else f"; {gain.ratio:.2f} times the speed of the current configuration"
    return Outcome.PASS, f"recommended: {changes}{faster}"


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
