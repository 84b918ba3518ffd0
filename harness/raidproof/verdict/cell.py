"""Verdicts on the cells of a plan: outcome, rank, flags, and the safety of configurations."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict

from raidproof.monitor.bottleneck import Limit
from raidproof.monitor.model import LEAST_SHARE, likely_cause
from raidproof.record.cell import CellRecord, Explored
from raidproof.record.comparison import MARGIN
from raidproof.record.outcome import Outcome, and_errors
from raidproof.record.run import CrashTestRecord, RunRecord, ScanResult
from raidproof.verdict.conclusion import Part, concluded
from raidproof.verdict.controls import blind, doubt
from raidproof.verdict.crash_states import BEGIN, explorations_of, explored_of, outcome_of
from raidproof.verdict.slow_motion import advice_for

PROVES_NOTHING = {
    Outcome.ERROR: "the rig failed",
    Outcome.SKIP: "a requirement is missing",
    Outcome.INVALID: "a control did not show what it had to show",
}
"""Outcomes of a crash test that prove nothing about its configuration, each with the reason."""
MOST_BEST = 4
"""Greatest number of cells with rank 1 that the reason of a run's outcome names."""


PROCESSORS: Mapping[str, str] = MappingProxyType(
    {
        Limit.ENGINE: "the simulation of the disks",
        Limit.HOST_CPU: "the host's CPU",
        Limit.SERVER_CPU: "the CPU of the simulated server",
        Limit.CLIENT_CPU: "the CPU of the simulated clients",
    }
)
"""The limits of a cell that show the speed of the simulation, each as words."""


class SafetyWord(StrEnum):
    """The safety verdict on one configuration."""

    SAFE = "SAFE"
    """The server lost its memory, every acknowledged operation survived, and no explored crash state lacks one."""
    LOSES_DATA = "LOSES DATA"
    """An acknowledged operation was lost or damaged, whether by design or not."""
    NOT_SHOWN = "NOT SHOWN"
    """The run proves neither safety nor a loss."""


class Safety(BaseModel):
    """The safety verdict on one configuration, with the size of its loss."""

    model_config = ConfigDict(frozen=True)

    word: SafetyWord
    lost: int | None = None
    """Number of acknowledged operations that were lost; None if it is not known."""
    acknowledged: int | None = None
    """Number of acknowledged operations; None if it is not known."""
    seconds: float | None = None
    """Time from the earliest lost acknowledgement to the fault, in seconds; None if it is not known."""
    states: int | None = None
    """Number of crash states that the largest exploration judged, if the word is SAFE; None if none was explored."""
    why: str = ""
    """Reason of the verdict, which `size` returns in place of the counts; empty if the counts are the reason."""

    @property
    def loses(self) -> bool:
        """Whether the configuration lost data."""
        return self.word is SafetyWord.LOSES_DATA

    @property
    def size(self) -> str:
        """The text after the word of the verdict: the numbers of operations, or the reason."""
        if self.why or self.lost is None or self.acknowledged is None:
            return self.why
        if not self.lost:
            return f"all {self.acknowledged:,} acknowledged operations survived{self._explored}"
        since = "" if self.seconds is None else f", the earliest {self.seconds:.1f} s before the fault"
        return f"{self.lost:,} of {self.acknowledged:,} acknowledged operations lost{since}"

    @property
    def brief(self) -> str:
        """The verdict as text for a narrow column: the word with the numbers of operations or the reason of a loss."""
        if self.lost is None or self.acknowledged is None:
            return f"{self.word}: {self.why}" if self.loses else self.word.value
        if not self.lost:
            return f"{self.word}: 0 of {self.acknowledged:,} lost{self._explored}"
        return f"{self.word}: {self.lost:,} of {self.acknowledged:,} lost"

    @property
    def claim(self) -> str:
        """The word of the verdict; of SAFE with the number of crash states that were explored."""
        return f"{self.word}{self._explored}"

    @property
    def _explored(self) -> str:
        if self.states is None:
            return ""
        return f"; {self.states:,} crash state{'' if self.states == 1 else 's'}, none broken"

    def __str__(self) -> str:
        return f"{self.word}: {self.size}" if self.size else self.word.value


def not_shown(why: str) -> Safety:
    """Return the verdict NOT SHOWN with its reason."""
    return Safety(word=SafetyWord.NOT_SHOWN, why=why)


def loses_data(why: str) -> Safety:
    """Return the verdict LOSES DATA for a loss whose number of operations is not known; ``why``: what was lost."""
    return Safety(word=SafetyWord.LOSES_DATA, why=why)


def damage_in(seen: Sequence[ScanResult]) -> str:
    """Return what is damaged in the scans of a crash test, as a clause; empty without damage."""
    if damaged := max((one.broken_blocks for one in seen), default=0):
        return f"{damaged:,} blocks damaged"
    return "the application reports damage" if any(one.damaged for one in seen) else ""


def judge_safety(
    outcome: Outcome,
    reason: str,
    seen: Sequence[ScanResult],
    *,
    memory_lost: bool,
    export_sync: bool,
    seconds: float | None = None,
    not_recovered: str | None = None,
) -> Safety:
    """Return the safety of a configuration from the outcome and the evidence of its crash test.

    ``seen``: the evidence from each scan of the ledger, the scan on the server first. ``memory_lost``: whether the
    server lost its memory in the fault; if not, the survival of all operations proves nothing. ``seconds``: time from
    the earliest lost acknowledgement to the fault. ``not_recovered``: how the storage failed to recover; None if the
    storage recovered.
    """
    if (nothing := PROVES_NOTHING.get(outcome)) is not None:
        return not_shown(nothing)
    if not_recovered is not None:
        return loses_data("all data, the storage did not recover")
    if (loss := next((one for one in seen if one.lost_total), None)) is not None:
        if set(loss.lost) <= {"close"} and outcome is Outcome.INCONCLUSIVE:
            return not_shown(reason)  # under a write delegation close promises nothing
        counted = {"lost": loss.lost_total, "acknowledged": loss.acknowledged_total, "seconds": seconds}
        return Safety.model_validate({"word": SafetyWord.LOSES_DATA, **counted})
    if damage := damage_in(seen):
        return loses_data(damage)
    if outcome is not Outcome.PASS:
        return not_shown(reason)
    acknowledged = max((one.acknowledged_total for one in seen[:1]), default=0)
    if not acknowledged:
        return not_shown("no operation was acknowledged")
    if not memory_lost:
        return not_shown("this fault loses no unwritten data of the server")
    if not export_sync:
        return not_shown("the export is async, but this fault lost no operation")
    return Safety(word=SafetyWord.SAFE, lost=0, acknowledged=acknowledged)


def safety_of(cycle: CrashTestRecord, cell: CellRecord | None = None) -> Safety:
    """Return the safety of the configuration of one crash test, without regard to the outcome of the run.

    It is the safety that the fault showed, and that the explorations of the crash states showed. ``cell``: the cell
    whose power cut the crash test is.
    """
    seen = judge_safety(
        cycle.outcome,
        cycle.reason,
        [one for one in (cycle.on_server, cycle.on_client) if one is not None],
        memory_lost=cycle.effects.server_memory_lost,
        export_sync=cycle.on_server_itself or exports_sync(cycle.asked),
        seconds=cycle.loss_window_s,
        not_recovered=cycle.not_recovered,
    )
    return with_explorations(seen, explorations_of(cycle, cell))


def exports_sync(asked: Mapping[str, Any]) -> bool:
    """Return whether a requested stack, as in a record, has a ``sync`` export; an older record may not say it."""
    return bool(asked.get("export", {}).get("sync", True))


def with_explorations(seen: Safety, explorations: Sequence[Explored]) -> Safety:
    """Return the safety of a configuration from that which a fault showed, and from the explored crash states."""
    if seen.loses or not explorations:
        return seen
    for one in explorations:
        if loss := loss_in(one):
            return loses_data(loss)
    if seen.word is not SafetyWord.SAFE:
        return seen
    for one in explorations:
        if one.outcome is not Outcome.PASS:
            return not_shown(f"{BEGIN}{one.reason}")
    return seen.model_copy(update={"states": max(one.judged for one in explorations)})


def loss_in(explored: Explored) -> str:
    """Return what an exploration shows to be lost, by design or not, as a clause; empty if it shows no loss."""
    if explored.outcome is Outcome.FAIL or (explored.broken and explored.outcome in (Outcome.PASS, Outcome.INVALID)):
        return f"in {explored.broken:,} of {explored.judged:,} explored crash states"
    return f"up to {explored.lost:,} acknowledged operations in an explored crash state" if explored.lost else ""


def safety_in(record: RunRecord, part: CrashTestRecord | CellRecord) -> Safety:
    """Return the safety of one configuration of a run: of a crash test or a cell.

    NOT SHOWN takes the place of SAFE if a control raises a doubt.
    """
    found = safety_of(part) if isinstance(part, CrashTestRecord) else safety_of_cell(record, part)
    return not_shown(why) if found.word is SafetyWord.SAFE and (why := doubt(record)) else found


def safety_of_cell(record: RunRecord, cell: CellRecord) -> Safety:
    """Return the safety of a cell, from its power cut and from the explorations of the power cut's crash states."""
    cycle = record.power_cut_of(cell)
    return not_shown("no power cut was made in this configuration") if cycle is None else safety_of(cycle, cell)


def configurations(record: RunRecord) -> list[CrashTestRecord | CellRecord]:
    """Return the configurations of a run: the cells of its plan, or without a plan its crash tests except controls."""
    return [*record.cells] if record.plan else [cycle for cycle in record.cycles if cycle.control is None]


def by_safety(record: RunRecord) -> dict[SafetyWord, list[str]]:
    """Return the names of a run's configurations, grouped by safety verdict in the order of `SafetyWord`."""
    named: dict[SafetyWord, list[str]] = {word: [] for word in SafetyWord}
    for part in configurations(record):
        name = part.title if isinstance(part, CrashTestRecord) else part.name
        named[safety_in(record, part).word].append(name)
    return {word: names for word, names in named.items() if names}


def losing(record: RunRecord) -> bool:
    """Return whether any configuration of a run loses data: then PASS does not mean that the storage is safe."""
    return any(safety_in(record, part).loses for part in configurations(record))


def judge_cells(record: RunRecord) -> None:
    """Fill in outcome, reason, flag, limit and loss of a run's cells, and rank the cells of each workload."""
    if not record.cells:
        return
    from raidproof.verdict.ranking import rank  # noqa: PLC0415  numpy and scipy take half a second

    cycles = {cycle.name: cycle for cycle in record.cycles}
    unseen = blind(record)
    for cell in record.cells:
        judge_cell(cell, cycles.get(cell.cycle or ""), unseen)
    if (advice := slow_motion_advice(record)) is not None:
        for cell in record.cells:
            if cell.limit in PROCESSORS and cell.why_not == why_not_of_the_hardware(cell):
                cell.why_not = f"{cell.why_not}; {advice}"
    # Values of different workloads are not comparable.
    for workload in {cell.compared_with for cell in record.cells}:
        rank([cell for cell in record.cells if cell.compared_with == workload])


def judge_cell(cell: CellRecord, cycle: CrashTestRecord | None, unseen: CrashTestRecord | None = None) -> None:
    """Fill in outcome, reason, flag, limit and loss of a cell, but not its rank.

    ``cycle``: the crash test that cut the power of this configuration. ``unseen``: a control that did not show what
    it had to show, which makes every cell INVALID that did not fail.
    """
    cell.rank, cell.flag = None, None
    cell.limit, cell.cause = most_common_limit(cell)
    cell.between_workers, cell.within_workers = spreads_of(cell)
    cell.lost = None if cycle is None else what_was_lost(cycle)
    seen = None if cycle is None else cycle.on_server
    cell.lost_operations = None if seen is None else seen.lost_total
    cell.lost_everything = cycle is not None and cycle.not_recovered is not None
    cell.outcome, cell.reason = conclude_cell(cell, cycle, unseen)
    cell.flag = "; ".join(flags(cell)) or None
    cell.why_not = why_no_rank(cell, cycle)
    cell.rankable = cell.why_not is None


def slow_motion_advice(record: RunRecord) -> str | None:
    """Return what to do so that no processor of the simulation limits a cell of a run; None if none did."""
    return advice_for(record, [cell for cell in record.cells if cell.limit in PROCESSORS])


def spreads_of(cell: CellRecord) -> tuple[float | None, float | None]:
    """Return the standard deviations of a cell's values between and within workers, as shares of the value."""
    if len(cell.by_worker) < 2:
        return None, None
    from raidproof.verdict.change import statistics  # noqa: PLC0415  numpy and scipy take half a second

    found = statistics.components(list(cell.by_worker.values()))
    return (None, None) if found is None else (found.between, found.within)


def modes_of(cell: CellRecord, margin: float = MARGIN) -> tuple[list[float], list[float]] | None:
    """Return the two groups of the values of one worker, if they are bimodal; None if those of no worker are.

    Values of different workers form groups because their machines differ.
    """
    from raidproof.verdict.change import statistics  # noqa: PLC0415  numpy and scipy take half a second

    each = (statistics.groups(values, math.log1p(margin)) for values in cell.by_worker.values())
    return next((one for one in each if one is not None), None)


def most_common_limit(cell: CellRecord) -> tuple[str, str]:
    """Return the most common limit of a cell's repetitions, and the cause of this limit as a sentence.

    The cause is that of the repetition with this limit whose value is nearest to the median.
    """
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
    """Return the loss by a power cut as text: ``LOST of ACKNOWLEDGED`` operations, ``everything`` or ``unknown``."""
    if cycle.not_recovered is not None:
        return "everything"
    if cycle.on_server is None:
        return "unknown"
    return f"{cycle.on_server.lost_total:,} of {cycle.on_server.acknowledged_total:,}"


def conclude_cell(
    cell: CellRecord, cycle: CrashTestRecord | None, unseen: CrashTestRecord | None = None
) -> tuple[Outcome, str]:
    """Return the outcome of a cell and the reason: PASS if the cell was measured and no tested promise was broken.

    ``unseen``: a control that did not show what it had to show; None if all did.
    """
    parts = []
    if cell.not_effective is not None:
        parts.append(Part(Outcome.FAIL, cell.not_effective))
    if cycle is not None:
        parts.append(Part(*outcome_of(cycle, cell)))
    unseen_parts = [] if unseen is None else [Part(Outcome.INVALID, f"{unseen.title}: {outcome_of(unseen)[1]}")]
    if any(one.outcome is not Outcome.PASS for one in parts):
        return concluded([*unseen_parts, *parts], held="")
    if (explored := explored_of(cell, cycle)) is not None and explored.outcome is not Outcome.PASS:
        return concluded([*unseen_parts, Part(explored.outcome, f"{BEGIN}{explored.reason}")], held="")
    failed = [repeat.rig_error for repeat in cell.repeats if repeat.rig_error]
    errors = [Part(Outcome.ERROR, failed[0])] if failed and not cell.measured else []
    measured = f"measured {len(cell.measured)} time{'' if len(cell.measured) == 1 else 's'}"
    if failed:
        measured += f"; repetitions in which the rig failed: {len(failed)}, {failed[0]}"
    return concluded([*unseen_parts, *errors], measured, nothing="" if cell.measured else "not measured")


def flags(cell: CellRecord) -> list[str]:
    """Return the caveats about the measured value of a cell, as clauses."""
    said = []
    ratio = cell.ratio
    if ratio is not None and ratio < LEAST_SHARE:
        limit = (cell.expected or {}).get("limit")
        likely = f" ({likely_cause(limit)})" if limit else ""
        said.append(f"the median is {ratio:.0%} of the value expected of the hardware{likely}")
    if cell.unstable:
        said.append("the repetitions vary widely: the median is unreliable")
    worked = [repeat for repeat in cell.repeats if repeat.value is not None]
    if cached := next((one.regime for one in worked if one.regime and one.regime.get("cache")), None):
        said.append(f"the workload measures the {cached['cache']}")
    if any((repeat.steady or {}).get("steady") is False for repeat in worked):
        said.append("the workload reached no steady state")
    if any((repeat.derived or {}).get("syncing") for repeat in worked):
        said.append("a resync was running during the measurement")
    said += dict.fromkeys(one.caveat for one in worked if one.caveat)
    return said


def why_no_rank(cell: CellRecord, cycle: CrashTestRecord | None) -> str | None:
    """Return the reason why a cell has no rank; None if the cell can be ranked."""
    if cell.outcome is not Outcome.PASS:
        return f"{cell.outcome.value}: {cell.reason}"
    if cycle is not None and cycle.on_server is not None and cycle.on_server.lost_total:
        return f"the power cut lost {what_was_lost(cycle)} acknowledged operations"
    if cycle is not None and (loss := next(filter(None, map(loss_in, explorations_of(cycle, cell))), "")):
        return f"the exploration of the power cut shows a loss {loss}"
    if not exports_sync(cell.asked):
        return "the export is async: its acknowledgements promise nothing"
    if (modes := modes_of(cell)) is not None:
        return f"bimodal: {two_groups(modes)}"
    return why_not_of_the_hardware(cell)


def two_groups(modes: Sequence[Sequence[float]]) -> str:
    """Return the groups of the values of a bimodal cell as a clause."""
    return ", ".join(f"{len(one)} values from {one[0]:.4g} to {one[-1]:.4g}" for one in modes)


def why_not_of_the_hardware(cell: CellRecord) -> str | None:
    """Return the reason why a cell's value is no measure of the requested hardware; None if it is one."""
    cached = next((one.regime for one in cell.repeats if one.regime and not one.regime.get("accepted", True)), None)
    if cached is not None:
        return f"the workload measures a cache: {cached.get('reason', 'the working set fits into it')}"
    if cell.limit in set(Limit) and not Limit(cell.limit).rankable:
        return f"limited by the {cell.limit} of this machine, not by the requested hardware"
    return None


def conclude_plan(record: RunRecord) -> tuple[Outcome, str]:
    """Return the outcome and the reason of a plan's run: those of its worst cell or of a control that did not pass."""
    if not record.cells:
        return concluded([], held="", nothing="no cell was measured")
    excused = set(record.known.excused) if record.known else set()
    counted = [cell for cell in record.cells if not (cell.outcome is Outcome.FAIL and cell.name in excused)]
    controls = [cycle for cycle in record.cycles if cycle.control is not None]
    ended = [(cell.name, cell.outcome, cell.reason) for cell in counted]
    ended += [(control.title, *outcome_of(control)) for control in controls]
    errors = [f"{cell.name}: {cell.reason}" for cell in record.cells if cell.outcome is Outcome.ERROR]
    parts = [
        Part(outcome, f"{name}: {reason}{and_errors(outcome, errors)}")
        for name, outcome, reason in ended
        if outcome is not Outcome.SKIP
    ]
    best = [cell for cell in record.cells if cell.rank == 1]
    expected = len(record.cells) - len(counted)
    if best:
        return concluded(parts, fastest(record, best, controls, expected))
    if expected:
        return concluded(parts, f"all failures are expected, in {expected:,} of {len(record.cells):,} cells")
    return concluded(parts, held_without_rank(record), nothing=why_no_cell_has_a_rank(record, controls))


def fastest(record: RunRecord, best: Sequence[CellRecord], controls: Sequence[CrashTestRecord], expected: int) -> str:
    """Return the reason of a plan's run that passed: its best cells. ``expected``: number of expected failures."""
    words = "; ".join(
        f"{one.name} ({'promises not tested' if one.lost is None else 'kept every promise'})"
        for one in best[:MOST_BEST]
    )
    if len(best) > MOST_BEST:
        words += f"; {len(best) - MOST_BEST} more"
    if len(best) > 1:
        words += f"; the differences of these {len(best)} cells are not settled"
    known = f"; all failures are expected, in {expected:,} of {len(record.cells):,} cells" if expected else ""
    return f"fastest: {words}{'; ' if controls else ''}{controls_in_words(controls)}{known}"


def ranked_if_possible(record: RunRecord) -> list[CellRecord]:
    """Return the cells of a plan's run that could have a rank: an async export promises nothing, and has none."""
    return [cell for cell in record.cells if exports_sync(cell.asked)]


def why_no_cell_has_a_rank(record: RunRecord, controls: Sequence[CrashTestRecord]) -> str:
    """Return why a plan's run without a ranked cell proves nothing; empty if nothing was to be ranked.

    Nothing was to be ranked if each workload has at most one cell with a sync export, each of these cells is shown
    SAFE, a processor of the simulation limited it, and all controls passed.
    """
    contenders = ranked_if_possible(record)
    if (
        set(Counter(cell.compared_with for cell in contenders).values()) == {1}
        and all(cell.limit in PROCESSORS for cell in contenders)
        and bool(controls)
        and all(one.outcome is Outcome.PASS for one in controls)
        and all(safety_of_cell(record, cell).word is SafetyWord.SAFE for cell in contenders)
    ):
        return ""
    advice = slow_motion_advice(record)
    said = "; the table gives the reason for each cell" if advice is None else f": {advice}"
    return f"no cell has a rank{said}"


def held_without_rank(record: RunRecord) -> str:
    """Return the reason of a plan's run that passed and in which nothing was to be ranked."""
    limits = dict.fromkeys(PROCESSORS.get(cell.limit, "") for cell in ranked_if_possible(record))
    kept = "every promise that holds by design was kept, and the controls behaved"
    advice = slow_motion_advice(record)
    then = "" if advice is None else f" ({advice})"
    return f"{kept}; no speed is ranked: {' and '.join(limits)} was the limit{then}"


def controls_in_words(controls: Sequence[CrashTestRecord]) -> str:
    """Return a clause about the controls of a run that passed; empty without controls."""
    missing = [f"{one.title} was skipped: {one.reason}" for one in controls if one.outcome is Outcome.SKIP]
    return "; ".join(missing) if missing else "the controls behaved" if controls else ""
