"""The recommended configuration of each workload: the fastest of those shown SAFE."""

from dataclasses import dataclass
from enum import StrEnum

from raidproof.record.cell import CellRecord
from raidproof.record.run import RunRecord
from raidproof.verdict.cell import SafetyWord, safety_in
from raidproof.verdict.controls import blind


class NoneRecommended(StrEnum):
    """Why no configuration is recommended; the value is the reason as a clause."""

    BLIND = "a control did not show what it had to show"
    NO_CUT = "no power cut tested the configurations, so that none is shown SAFE"
    NONE_SAFE = "no configuration is shown SAFE"
    NONE_RANKED = "no configuration that is shown SAFE has a rank"


@dataclass(frozen=True)
class Recommendation:
    """The recommended cells of one workload: the fastest of those shown SAFE, or the reason why there are none."""

    workload: str
    """Key of the workload, `CellRecord.compared_with`."""
    cells: tuple[CellRecord, ...]
    """The cells that share the best rank of the safe cells: their differences are not settled."""
    why_none: NoneRecommended | None = None


def recommend(record: RunRecord) -> list[Recommendation]:
    """Return the recommendation for each workload of a plan's run, in order of appearance; none without a plan."""
    workloads = dict.fromkeys(cell.compared_with for cell in record.cells)
    return [recommend_for(record, workload) for workload in workloads]


def recommend_for(record: RunRecord, workload: str) -> Recommendation:
    """Return the recommendation for one workload."""
    cells = [cell for cell in record.cells if cell.compared_with == workload]
    if blind(record) is not None:
        return Recommendation(workload, (), NoneRecommended.BLIND)
    if not any(cell.cycle for cell in cells):
        return Recommendation(workload, (), NoneRecommended.NO_CUT)
    safe = [cell for cell in cells if safety_in(record, cell).word is SafetyWord.SAFE]
    if not safe:
        return Recommendation(workload, (), NoneRecommended.NONE_SAFE)
    best = min((cell.rank for cell in safe if cell.rank is not None), default=None)
    if best is None:
        return Recommendation(workload, (), NoneRecommended.NONE_RANKED)
    return Recommendation(workload, tuple(cell for cell in safe if cell.rank == best))
