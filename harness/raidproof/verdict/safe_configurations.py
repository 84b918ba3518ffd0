"""Which configurations of a run are safe: derived from the record wherever it is shown, never stored beside it."""

from raidproof.record.cell import CellRecord
from raidproof.record.outcome import Outcome
from raidproof.record.run import CycleRecord, RunRecord
from raidproof.verdict.safety import MEMORY_LOST, Safety, SafetyWord, judge_safety, loses_data, not_shown


def safety_of(cycle: CycleRecord) -> Safety:
    """Return whether the configuration of a cycle is safe, by itself."""
    return judge_safety(
        cycle.outcome,
        cycle.reason,
        [one for one in (cycle.on_server, cycle.on_client) if one is not None],
        memory_lost=cycle.fault in MEMORY_LOST,
        export_sync=bool(cycle.asked.get("export", {}).get("sync", True)),
        seconds=cycle.loss_window_s,
        not_recovered=cycle.not_recovered,
    )


def safety_in(record: RunRecord, part: CycleRecord | CellRecord) -> Safety:
    """Return whether a configuration of a run is safe; where a control misbehaved, nothing of the run counts."""
    if record.outcome is Outcome.INVALID:
        return not_shown("the run is INVALID")
    return safety_of(part) if isinstance(part, CycleRecord) else safety_of_cell(record, part)


def safety_of_cell(record: RunRecord, cell: CellRecord) -> Safety:
    """Return what the power cut of a cell, and the crash states explored from it, say of its safety."""
    cycle = next((one for one in record.cycles if one.name == cell.cycle), None)
    if cycle is None:
        return not_shown("no power was cut")
    cut, explored = safety_of(cycle), cell.explored
    if explored is None or cut.word is not SafetyWord.SAFE or explored.outcome is Outcome.PASS:
        return cut
    if explored.outcome is Outcome.FAIL:
        return loses_data(f"in {explored.broken:,} of {explored.judged:,} crash states")
    return not_shown(f"crash states: {explored.reason}")


def configurations(record: RunRecord) -> list[CycleRecord | CellRecord]:
    """Return what a run says something about: the cells of a plan, else the cycles that are no controls."""
    return [*record.cells] if record.plan else [cycle for cycle in record.cycles if cycle.control is None]


def by_safety(record: RunRecord) -> dict[SafetyWord, list[str]]:
    """Return the names of a run's configurations by the answer for each, in the order of the answers."""
    named: dict[SafetyWord, list[str]] = {word: [] for word in SafetyWord}
    for part in configurations(record):
        name = part.title if isinstance(part, CycleRecord) else part.name
        named[safety_in(record, part).word].append(name)
    return {word: names for word, names in named.items() if names}


def losing(record: RunRecord) -> bool:
    """Whether any configuration of a run loses data: then its PASS is no good news by itself."""
    return any(safety_in(record, part).loses for part in configurations(record))
