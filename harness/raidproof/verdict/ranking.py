"""The ranking of the cells of one workload: cells whose difference is not settled share a rank."""

from collections.abc import Sequence

from raidproof.record.cell import CellRecord
from raidproof.verdict import statistics

LEVEL = 0.05
"""Greatest probability that a ranking parts any two cells that are equal."""


def rank(cells: Sequence[CellRecord]) -> None:
    """Fill in the ranks of one workload's rankable cells, the fastest first.

    A cell's rank is 1 plus the number of cells above its group; two neighbours are in different groups if every cell
    above differs from every cell below by `statistics.differing`.
    """
    for cell in cells:
        cell.rank, cell.tied_with, cell.parts_at = None, None, None
    comparable = [cell for cell in cells if cell.rankable and cell.median is not None]
    ordered = sorted(comparable, key=lambda one: (one.median or 0.0) * (1 if one.lower_is_better else -1))
    differ = statistics.differing([cell.measured for cell in ordered], LEVEL)
    pairs = len(ordered) * (len(ordered) - 1) // 2
    begin = 0
    for place, cell in enumerate(ordered):
        if all(differ[above][below] for above in range(place) for below in range(place, len(ordered))):
            begin = place
        cell.rank = begin + 1
        if place > begin:
            above = ordered[place - 1]
            cell.tied_with = above.name
            cell.parts_at = statistics.repetitions_to_part(above.measured, cell.measured, LEVEL / pairs)
