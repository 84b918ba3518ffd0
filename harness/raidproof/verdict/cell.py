"""Verdicts on the cells of a plan: outcome, rank, flags, and the safety of configurations."""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from raidproof.monitor.bottleneck import Limit
from raidproof.monitor.model import LEAST_SHARE, likely_cause
from raidproof.record.cell import CellRecord
from raidproof.record.outcome import Outcome, and_errors
from raidproof.record.run import CrashTestRecord, Evidence, RunRecord

SAYS_NOTHING = {
    Outcome.ERROR: "the rig failed",
    Outcome.SKIP: "a requirement is missing",
    Outcome.INVALID: "a control misbehaved",
}
"""Outcomes of a crash test that prove nothing about its configuration, with the reason."""


class SafetyWord(StrEnum):
    """The safety verdict on one configuration."""

    SAFE = "SAFE"
    """The server lost its memory, and every acknowledged operation survived."""
    LOSES_DATA = "LOSES DATA"
    """An acknowledged operation was lost or damaged, whether by design or not."""
    NOT_SHOWN = "NOT SHOWN"
    """The run proves neither."""


class Safety(BaseModel):
    """The safety verdict on one configuration, with the size of its loss."""

    model_config = ConfigDict(frozen=True)

    word: SafetyWord
    lost: int | None = None
    """Number of acknowledged operations that were lost; None where they cannot be counted."""
    acknowledged: int | None = None
    seconds: float | None = None
    """Time from the earliest lost acknowledgement to the fault."""
    why: str = ""
    """Reason, shown in place of counts."""

    @property
    def loses(self) -> bool:
        """Whether a loss was seen."""
        return self.word is SafetyWord.LOSES_DATA

    @property
    def size(self) -> str:
        """The text that follows the verdict word: counts or a reason."""
        if self.why or self.lost is None or self.acknowledged is None:
            return self.why
        if not self.lost:
            return f"all {self.acknowledged:,} acknowledged operations survived"
        return f"{self.lost:,} of {self.acknowledged:,} acknowledged operations{self._seconds}"

    @property
    def brief(self) -> str:
        """The verdict for a narrow column: counts instead of a sentence, and no reason."""
        if self.lost is None or self.acknowledged is None:
            return f"{self.word}: {self.why}" if self.loses else self.word.value
        if not self.lost:
            return f"{self.word}: 0 of {self.acknowledged:,} lost"
        return f"{self.word}: {self.lost:,} of {self.acknowledged:,}{self._seconds}"

    @property
    def _seconds(self) -> str:
        return f", {self.seconds:.1f} s" if self.lost and self.seconds is not None else ""

    def __str__(self) -> str:
        return f"{self.word}: {self.size}" if self.size else self.word.value


def not_shown(why: str) -> Safety:
    """Return the verdict of a run that proves neither safety nor loss."""
    return Safety(word=SafetyWord.NOT_SHOWN, why=why)


def loses_data(why: str) -> Safety:
    """Return the verdict on a loss that cannot be counted in operations."""
    return Safety(word=SafetyWord.LOSES_DATA, why=why)


def judge_safety(
    outcome: Outcome,
    reason: str,
    seen: Sequence[Evidence],
    *,
    memory_lost: bool,
    export_sync: bool,
    seconds: float | None = None,
    not_recovered: str | None = None,
) -> Safety:
    """Return the safety of a configuration from the outcome and the evidence of its crash test.

    ``seen``: the evidence of each place of observation, the server first; ``memory_lost``: whether the server lost its
    memory in the fault, without which survival proves nothing.
    """
    if (nothing := SAYS_NOTHING.get(outcome)) is not None:
        return not_shown(nothing)
    if not_recovered is not None:
        return loses_data("everything, the storage did not recover")
    if (loss := next((one for one in seen if one.lost_total), None)) is not None:
        if set(loss.lost) <= {"close"} and outcome is Outcome.INCONCLUSIVE:
            return not_shown(reason)  # under a delegation close promises nothing
        counted = {"lost": loss.lost_total, "acknowledged": loss.acknowledged_total, "seconds": seconds}
        return Safety.model_validate({"word": SafetyWord.LOSES_DATA, **counted})
    if damaged := max((one.broken_blocks for one in seen), default=0):
        return loses_data(f"{damaged:,} blocks damaged")
    if outcome is not Outcome.PASS:
        return not_shown(reason)
    told = max((one.acknowledged_total for one in seen[:1]), default=0)
    if not told:
        return not_shown("nothing was acknowledged")
    if not memory_lost:
        return not_shown("the server's power was not cut")
    if not export_sync:
        return not_shown("an async export lost nothing this time")
    return Safety(word=SafetyWord.SAFE, lost=0, acknowledged=told)


def safety_of(cycle: CrashTestRecord) -> Safety:
    """Return the safety of the configuration of one crash test, regardless of the rest of the run."""
    return judge_safety(
        cycle.outcome,
        cycle.reason,
        [one for one in (cycle.on_server, cycle.on_client) if one is not None],
        memory_lost=cycle.effects.server_memory_lost,
        export_sync=bool(cycle.asked.get("export", {}).get("sync", True)),
        seconds=cycle.loss_window_s,
        not_recovered=cycle.not_recovered,
    )


def safety_in(record: RunRecord, part: CrashTestRecord | CellRecord) -> Safety:
    """Return the safety of a configuration of a run; NOT SHOWN if the run is INVALID."""
    if record.outcome is Outcome.INVALID:
        return not_shown("the run is INVALID")
    return safety_of(part) if isinstance(part, CrashTestRecord) else safety_of_cell(record, part)


def safety_of_cell(record: RunRecord, cell: CellRecord) -> Safety:
    """Return the safety of a cell from its power cut and the crash states explored from it."""
    cycle = next((one for one in record.cycles if one.name == cell.cycle), None)
    if cycle is None:
        return not_shown("no power was cut")
    cut, explored = safety_of(cycle), cell.explored
    if explored is None or cut.word is not SafetyWord.SAFE or explored.outcome is Outcome.PASS:
        return cut
    if explored.outcome is Outcome.FAIL:
        return loses_data(f"in {explored.broken:,} of {explored.judged:,} crash states")
    return not_shown(f"crash states: {explored.reason}")


def configurations(record: RunRecord) -> list[CrashTestRecord | CellRecord]:
    """Return the configurations of a run: the cells of a plan, else the crash tests that are no controls."""
    return [*record.cells] if record.plan else [cycle for cycle in record.cycles if cycle.control is None]


def by_safety(record: RunRecord) -> dict[SafetyWord, list[str]]:
    """Return the names of a run's configurations by safety verdict, in the order of `SafetyWord`."""
    named: dict[SafetyWord, list[str]] = {word: [] for word in SafetyWord}
    for part in configurations(record):
        name = part.title if isinstance(part, CrashTestRecord) else part.name
        named[safety_in(record, part).word].append(name)
    return {word: names for word, names in named.items() if names}


def losing(record: RunRecord) -> bool:
    """Return whether any configuration of a run loses data, so that a PASS does not mean safe."""
    return any(safety_in(record, part).loses for part in configurations(record))


def judge_cells(record: RunRecord) -> None:
    """Fill in the judged fields of a run's cells, and rank the comparable cells."""
    cycles = {cycle.name: cycle for cycle in record.cycles}
    misbehaved = next((one for one in record.cycles if one.control and one.outcome is Outcome.INVALID), None)
    for cell in record.cells:
        judge_cell(cell, cycles.get(cell.cycle or ""), misbehaved)
    # Values of different workloads are not comparable.
    for workload in {cell.compared_with for cell in record.cells}:
        rank([cell for cell in record.cells if cell.compared_with == workload])


def judge_cell(cell: CellRecord, cycle: CrashTestRecord | None, misbehaved: CrashTestRecord | None = None) -> None:
    """Fill in the outcome of a cell, its limit, and whether it may be ranked.

    A control that misbehaved makes the cell INVALID, whatever else was observed.
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
    """Return the most common limit of the repetitions, and the cause in the repetition nearest to the median."""
    worked = [repeat for repeat in cell.repeats if repeat.value is not None]
    if not worked or cell.median is None:
        return "unknown", ""
    limit = Counter(repeat.limit for repeat in worked).most_common(1)[0][0]
    middle = cell.median
    typical = min(
        (repeat for repeat in worked if repeat.limit == limit), key=lambda repeat: abs((repeat.value or 0) - middle)
    )
    return limit, typical.cause


def what_was_lost(cycle: CrashTestRecord) -> str:
    """Return the loss by a power cut: the counts of lost and acknowledged operations."""
    if cycle.not_recovered is not None:
        return "everything"
    if cycle.on_server is None:
        return "unknown"
    lost, told = cycle.on_server.lost_total, cycle.on_server.acknowledged_total
    return f"{lost:,} of {told:,}"


def conclude_cell(cell: CellRecord, cycle: CrashTestRecord | None) -> tuple[Outcome, str]:
    """Return the outcome of a cell and the reason: PASS if it was measured and no tested promise was broken."""
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
        return Outcome.PASS, f"measured {len(cell.measured)} times; failed repetitions: {len(failed)}, {failed[0]}"
    return Outcome.PASS, f"measured {len(cell.measured)} times"


def flags(cell: CellRecord) -> list[str]:
    """Return the caveats about the measured value of a cell."""
    said = []
    ratio = cell.ratio
    if ratio is not None and ratio < LEAST_SHARE:
        limit = (cell.expected or {}).get("limit")
        likely = f" ({likely_cause(limit)})" if limit else ""
        said.append(f"{ratio:.0%} of what the hardware should give{likely}")
    if cell.unstable:
        said.append("repetitions vary widely: the median is unreliable")
    worked = [repeat for repeat in cell.repeats if repeat.value is not None]
    if cached := next((one.regime for one in worked if one.regime and one.regime.get("cache")), None):
        said.append(f"measures the {cached['cache']}")
    if any((repeat.steady or {}).get("steady") is False for repeat in worked):
        said.append("no steady state")
    if any((repeat.derived or {}).get("syncing") for repeat in worked):
        said.append("a resync was running")
    said += dict.fromkeys(one.caveat for one in worked if one.caveat)
    return said


def why_no_rank(cell: CellRecord, cycle: CrashTestRecord | None) -> str | None:
    """Return why a cell cannot be ranked; None if it can."""
    if cell.outcome is not Outcome.PASS:
        return f"{cell.outcome.value}: {cell.reason}"
    if cycle is not None and cycle.on_server is not None and cycle.on_server.lost_total:
        return f"breaks its promises: {what_was_lost(cycle)} acknowledged operations lost"
    if not cell.asked.get("export", {}).get("sync", True):
        return "async export: promises nothing"
    return why_not_of_the_hardware(cell)


def why_not_of_the_hardware(cell: CellRecord) -> str | None:
    """Return why a measured value does not reflect the requested hardware; None if it does."""
    cached = next((one.regime for one in cell.repeats if one.regime and not one.regime.get("accepted", True)), None)
    if cached is not None:
        return f"measures a cache: {cached.get('reason', 'the working set fits into it')}"
    if cell.limit in set(Limit) and not Limit(cell.limit).rankable:
        return f"limited by the {cell.limit} of this machine, not by the requested hardware"
    return None


def rank(cells: Sequence[CellRecord]) -> None:
    """Number the comparable cells, the fastest first."""
    comparable = [cell for cell in cells if cell.rankable and cell.median is not None]
    ordered = sorted(comparable, key=lambda one: -(one.median or 0.0))
    for place, cell in enumerate(ordered, start=1):
        cell.rank = place
        better = ordered[place - 2] if place > 1 else None
        # A single repetition has no range that could overlap.
        if better and min(len(better.measured), len(cell.measured)) > 1 and max(cell.measured) >= min(better.measured):
            tie = f"not distinguishable from rank {place - 1}: the ranges overlap"
            cell.flag = f"{cell.flag}; {tie}" if cell.flag else tie


def conclude_plan(record: RunRecord) -> tuple[Outcome, str]:
    """Return the outcome and the reason of a plan's run: of its worst cell, or of a control that did not pass."""
    if not record.cells:
        return Outcome.INCONCLUSIVE, "no cell was measured"
    for outcome in (Outcome.INVALID, Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE):
        if culprit := next((cell for cell in record.cells if cell.outcome is outcome), None):
            errors = (f"{cell.name}: {cell.reason}" for cell in record.cells if cell.outcome is Outcome.ERROR)
            return outcome, f"{culprit.name}: {culprit.reason}{and_errors(outcome, errors)}"
    controls = [cycle for cycle in record.cycles if cycle.control is not None]
    if control := next((one for one in controls if one.outcome not in {Outcome.PASS, Outcome.SKIP}), None):
        return control.outcome, f"{control.title}: {control.reason}"
    best = [cell for cell in record.cells if cell.rank == 1]
    if not best:
        return Outcome.INCONCLUSIVE, "no cell can be ranked; the table gives the reason for each"
    words = "; ".join(
        f"{one.name} ({'promises not tested' if one.lost is None else 'kept every promise'})" for one in best
    )
    return Outcome.PASS, f"fastest: {words}{'; ' if controls else ''}{controls_in_words(controls)}"


def controls_in_words(controls: Sequence[CrashTestRecord]) -> str:
    """Return a summary of a run's controls; empty without controls."""
    missing = [f"{one.title} is not possible here: {one.reason}" for one in controls if one.outcome is Outcome.SKIP]
    return "; ".join(missing) if missing else "the controls behaved" if controls else ""
