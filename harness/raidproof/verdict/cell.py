"""Which cells of a plan may be compared, in which order, and what has to stand beside their figures."""

from collections import Counter
from collections.abc import Sequence

from raidproof.monitor.bottleneck import Limit
from raidproof.monitor.model.ratio import LEAST_SHARE, likely_cause
from raidproof.record.cell import CellRecord
from raidproof.record.outcome import Outcome, and_errors
from raidproof.record.run import CycleRecord, RunRecord


def judge_cells(record: RunRecord) -> None:
    """Fill in all that is judged of the cells of a run, and rank those that may be compared."""
    cycles = {cycle.name: cycle for cycle in record.cycles}
    misbehaved = next((one for one in record.cycles if one.control and one.outcome is Outcome.INVALID), None)
    for cell in record.cells:
        judge_cell(cell, cycles.get(cell.cycle or ""), misbehaved)
    # Figures of different workloads cannot be compared.
    for workload in {cell.compared_with for cell in record.cells}:
        rank([cell for cell in record.cells if cell.compared_with == workload])


def judge_cell(cell: CellRecord, cycle: CycleRecord | None, misbehaved: CycleRecord | None = None) -> None:
    """Say how a cell ended, what limited it, and whether it may have a rank.

    A control that misbehaved overrules all else: what it was to vouch for proves nothing.
    """
    cell.rank, cell.flag = None, None
    cell.limit, cell.cause = most_common_limit(cell)
    cell.lost = None if cycle is None else what_was_lost(cycle)
    seen = None if cycle is None else cycle.on_server
    cell.lost_operations = None if seen is None else seen.lost_total
    cell.lost_everything = cycle is not None and cycle.not_recovered is not None
    cell.outcome, cell.reason = conclude_cell(cell, cycle)
    if misbehaved is not None:
        cell.outcome, cell.reason = Outcome.INVALID, f"{misbehaved.title}: {misbehaved.reason}"
    cell.flag = "; ".join(flags(cell)) or None
    cell.why_not = why_no_rank(cell, cycle)
    cell.rankable = cell.why_not is None


def most_common_limit(cell: CellRecord) -> tuple[str, str]:
    """Return what limited most visits, and the sentence of the visit that is nearest to the median."""
    worked = [repeat for repeat in cell.repeats if repeat.value is not None]
    if not worked or cell.median is None:
        return "unknown", ""
    limit = Counter(repeat.limit for repeat in worked).most_common(1)[0][0]
    middle = cell.median
    typical = min(
        (repeat for repeat in worked if repeat.limit == limit), key=lambda repeat: abs((repeat.value or 0) - middle)
    )
    return limit, typical.cause


def what_was_lost(cycle: CycleRecord) -> str:
    """Say what a power cut cost."""
    if cycle.not_recovered is not None:
        return "everything"
    if cycle.on_server is None:
        return "unknown"
    lost, told = cycle.on_server.lost_total, cycle.on_server.acknowledged_total
    return f"{lost:,} of {told:,}"


def conclude_cell(cell: CellRecord, cycle: CycleRecord | None) -> tuple[Outcome, str]:
    """Return how a cell ended: measured, and with its promises kept as far as they were tested."""
    if cell.not_effective is not None:
        return Outcome.FAIL, cell.not_effective
    if cycle is not None and cycle.outcome is not Outcome.PASS:
        return cycle.outcome, cycle.reason
    if cell.explored is not None and cell.explored.outcome is not Outcome.PASS:
        return cell.explored.outcome, f"crash states: {cell.explored.reason}"
    failed = [repeat.rig_error for repeat in cell.repeats if repeat.rig_error]
    if not cell.measured:
        return (Outcome.ERROR, failed[0]) if failed else (Outcome.INCONCLUSIVE, "not measured")
    if failed:
        return Outcome.PASS, f"measured {len(cell.measured)} times; visits that failed: {len(failed)}, {failed[0]}"
    return Outcome.PASS, f"measured {len(cell.measured)} times"


def flags(cell: CellRecord) -> list[str]:
    """Name what is odd about the figure of a cell."""
    said = []
    ratio = cell.ratio
    if ratio is not None and ratio < LEAST_SHARE:
        limit = (cell.expected or {}).get("limit")
        likely = f" ({likely_cause(limit)})" if limit else ""
        said.append(f"{ratio:.0%} of what the hardware should give{likely}")
    if cell.unstable:
        said.append("repeats far apart: the median says little")
    worked = [repeat for repeat in cell.repeats if repeat.value is not None]
    if cached := next((one.regime for one in worked if one.regime and one.regime.get("cache")), None):
        said.append(f"measures the {cached['cache']}")
    if any((repeat.steady or {}).get("steady") is False for repeat in worked):
        said.append("no steady state")
    if any((repeat.derived or {}).get("syncing") for repeat in worked):
        said.append("a resync was running")
    said += dict.fromkeys(one.caveat for one in worked if one.caveat)
    return said


def why_no_rank(cell: CellRecord, cycle: CycleRecord | None) -> str | None:
    """Return why a cell cannot be compared with others, or None if it can."""
    if cell.outcome is not Outcome.PASS:
        return f"{cell.outcome.value}: {cell.reason}"
    if cycle is not None and cycle.on_server is not None and cycle.on_server.lost_total:
        return f"does not keep its promises: {what_was_lost(cycle)} acknowledged operations lost"
    if not cell.asked.get("export", {}).get("sync", True):
        return "async export: promises nothing"
    return why_not_of_the_hardware(cell)


def why_not_of_the_hardware(cell: CellRecord) -> str | None:
    """Return why a figure says nothing of the hardware that was asked for, or None if it does."""
    cached = next((one.regime for one in cell.repeats if one.regime and not one.regime.get("accepted", True)), None)
    if cached is not None:
        return f"measures a cache: {cached.get('reason', 'the working set fits into it')}"
    if cell.limit in set(Limit) and not Limit(cell.limit).rankable:
        return f"limited by the {cell.limit} of this machine, not by the hardware that was asked for"
    return None


def rank(cells: Sequence[CellRecord]) -> None:
    """Number the cells that may be compared, the fastest first."""
    comparable = [cell for cell in cells if cell.rankable and cell.median is not None]
    ordered = sorted(comparable, key=lambda one: -(one.median or 0.0))
    for place, cell in enumerate(ordered, start=1):
        cell.rank = place
        better = ordered[place - 2] if place > 1 else None
        # A single visit has no range that could overlap.
        if better and min(len(better.measured), len(cell.measured)) > 1 and max(cell.measured) >= min(better.measured):
            tie = f"not told apart from rank {place - 1}: the repeats overlap"
            cell.flag = f"{cell.flag}; {tie}" if cell.flag else tie


def conclude_plan(record: RunRecord) -> tuple[Outcome, str]:
    """Return how a plan's run ended: by its worst cell that says anything about a promise or the rig."""
    if not record.cells:
        return Outcome.INCONCLUSIVE, "no cell was measured"
    for outcome in (Outcome.INVALID, Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE):
        if culprit := next((cell for cell in record.cells if cell.outcome is outcome), None):
            errors = (f"{cell.name}: {cell.reason}" for cell in record.cells if cell.outcome is Outcome.ERROR)
            return outcome, f"{culprit.name}: {culprit.reason}{and_errors(outcome, errors)}"
    controls = [cycle for cycle in record.cycles if cycle.control is not None]
    if unsure := next((one for one in controls if one.outcome not in {Outcome.PASS, Outcome.SKIP}), None):
        return unsure.outcome, f"{unsure.title}: {unsure.reason}"
    best = [cell for cell in record.cells if cell.rank == 1]
    if not best:
        return Outcome.INCONCLUSIVE, "no cell can be ranked; the table says why of each"
    words = "; ".join(
        f"{one.name} ({'promises not tested' if one.lost is None else 'kept every promise'})" for one in best
    )
    return Outcome.PASS, f"fastest: {words}{'; ' if controls else ''}{controls_in_words(controls)}"


def controls_in_words(controls: Sequence[CycleRecord]) -> str:
    """Say what the controls of a run showed; nothing where there was none."""
    missing = [f"{one.title} is not possible here: {one.reason}" for one in controls if one.outcome is Outcome.SKIP]
    return "; ".join(missing) if missing else "the controls behaved" if controls else ""
