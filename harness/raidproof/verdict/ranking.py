"""The ranking of the cells of one workload: cells whose difference is not settled share a rank."""

from collections.abc import Callable, Hashable, Sequence

from raidproof.record.cell import CellRecord
from raidproof.verdict.change import statistics

LEVEL = 0.05
"""Greatest probability that a ranking parts any two cells that are equal."""


def rank(cells: Sequence[CellRecord]) -> None:
    """Fill in the ranks of one workload's rankable cells, the fastest first.

    A cell's rank is 1 plus the number of cells above its group; two neighbours are in different groups if every cell
    above differs from every cell below by `statistics.differing`. Cells that several workers measured are compared
    within rounds, because the workers' machines differ; a round is made by one worker.
    """
    for cell in cells:
        cell.rank, cell.tied_with, cell.parts_at = None, None, None
    comparable = [cell for cell in cells if cell.rankable and cell.median is not None]
    if len({worker for cell in comparable for worker in cell.by_worker}) > 1:
        _rank_within_rounds(comparable)
        return
    ordered = sorted(comparable, key=lambda one: (one.median or 0.0) * (1 if one.lower_is_better else -1))
    differ = statistics.differing([cell.measured for cell in ordered], LEVEL)

    def parts_at(one: CellRecord, other: CellRecord, level: float) -> int | None:
        return statistics.repetitions_to_part(one.measured, other.measured, level)

    _share_ranks(ordered, differ, parts_at)


def _rank_within_rounds(cells: Sequence[CellRecord]) -> None:
    levels = dict(
        zip([cell.name for cell in cells], statistics.levels([in_rounds(one) for one in cells]), strict=True)
    )
    ordered = sorted(cells, key=lambda one: levels[one.name] * (1 if one.lower_is_better else -1))
    differ = statistics.differing_in_rounds([in_rounds(cell) for cell in ordered], LEVEL)

    def parts_at(one: CellRecord, other: CellRecord, level: float) -> int | None:
        return statistics.rounds_to_part(in_rounds(one), in_rounds(other), level)

    _share_ranks(ordered, differ, parts_at)


def in_rounds(cell: CellRecord) -> dict[Hashable, float]:
    """Return the positive values of a cell by the worker and the round."""
    return {(one.worker, one.round): one.value for one in cell.repeats if one.value is not None and one.value > 0}


def _share_ranks(
    ordered: Sequence[CellRecord],
    differ: Sequence[Sequence[bool]],
    parts_at: Callable[[CellRecord, CellRecord, float], int | None],
) -> None:
    """Fill in the ranks of cells in the order of their speed."""
    pairs = len(ordered) * (len(ordered) - 1) // 2
    begin = 0
    for place, cell in enumerate(ordered):
        if all(differ[above][below] for above in range(place) for below in range(place, len(ordered))):
            begin = place
        cell.rank = begin + 1
        if place > begin:
            above = ordered[place - 1]
            cell.tied_with = above.name
            cell.parts_at = parts_at(above, cell, LEVEL / pairs)
