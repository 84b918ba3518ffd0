"""Ranks: cells whose difference is not settled share one, and say what would part them."""

import random

from hypothesis import given
from hypothesis import strategies as st

from raidproof.record.cell import CellRecord, Repetition
from raidproof.verdict.change.statistics import repetitions_to_part
from raidproof.verdict.ranking import LEVEL, rank


def cell(name: str, *values: float, unit: str = "write_mb_s") -> CellRecord:
    repeats = [Repetition(round=number, value=value) for number, value in enumerate(values, start=1)]
    return CellRecord(name=name, settings={}, workload={}, unit=unit, asked={}, repeats=repeats, rankable=True)


def ranks(*cells: CellRecord) -> dict[str, int | None]:
    rank(cells)
    return {one.name: one.rank for one in cells}


def test_cells_with_one_repetition_share_a_rank() -> None:
    cells = [cell(name, value) for name, value in (("a", 57.4), ("b", 55.1), ("c", 52), ("d", 50.5))]
    assert set(ranks(*cells).values()) == {1}
    assert [(one.tied_with, one.parts_at) for one in cells] == [(None, None), ("a", None), ("b", None), ("c", None)]


def test_a_settled_difference_parts_ranks() -> None:
    cells = [cell("far", 5, 5.1, 5.2), cell("fast", 20, 20.5, 21), cell("near", 19.8, 20.5, 20.3)]
    assert ranks(*cells) == {"fast": 1, "near": 1, "far": 3}
    assert [one.tied_with for one in cells] == [None, None, "fast"]
    assert cells[2].parts_at is not None
    assert cells[2].parts_at > 10
    # Three cells are three comparisons, each of which must reach a third of the level.
    assert cells[2].parts_at == repetitions_to_part(cells[1].measured, cells[2].measured, LEVEL / 3)
    assert cells[2].parts_at != repetitions_to_part(cells[1].measured, cells[2].measured, LEVEL)


def test_a_chain_of_unsettled_differences_shares_a_rank() -> None:
    # The ends of the chain differ, but each cell is close to the next one.
    base = [100, 101, 102, 103, 104]
    cells = [cell(name, *(value * factor for value in base)) for name, factor in (("a", 1), ("b", 0.98), ("c", 0.96))]
    assert ranks(*cells[::2]) == {"a": 1, "c": 2}
    assert set(ranks(*cells).values()) == {1}


def test_of_latencies_the_smallest_is_first() -> None:
    assert ranks(cell("a", 5, 5.1, 5.2, unit="lat_us"), cell("b", 9, 9.1, 9.2, unit="lat_us")) == {"a": 1, "b": 2}


def test_without_any_variation_every_difference_counts() -> None:
    assert ranks(cell("a", 5, 5), cell("b", 6, 6), cell("c", 6, 6)) == {"b": 1, "c": 1, "a": 3}


def test_a_cell_without_a_rank_is_left_out() -> None:
    other = cell("b", 9, 9, 9)
    other.rankable = False
    assert ranks(cell("a", 5, 5.1), other, cell("c")) == {"a": 1, "b": None, "c": None}


@given(st.lists(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=4), max_size=6))
def test_ranks_begin_at_one_and_count_the_cells_above(samples: list[list[float]]) -> None:
    cells = [cell(str(place), *values) for place, values in enumerate(samples)]
    found = [one or 0 for one in ranks(*cells).values()]
    assert all(one == 1 + sum(other < one for other in found) for one in found)


def test_equal_cells_are_seldom_parted() -> None:
    source = random.Random(1)
    parted = 0
    for _ in range(200):
        cells = [cell(str(place), *(100 * 1.05 ** source.gauss() for _ in range(3))) for place in range(8)]
        parted += len(set(ranks(*cells).values())) > 1
    assert parted <= 10
