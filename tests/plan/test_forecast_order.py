from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from raidproof.plan.cell import Cell, matrix_of
from raidproof.plan.forecast import LAYERS, layer_keys, repetitions_of, shared_layers
from tests.plan.conftest import plan_of

CELLS = matrix_of(
    plan_of(
        {
            "wsize": ["32KiB", "1MiB"],
            "export": ["sync", "async"],
            "chunk": ["16KiB", "64KiB"],
            "block_size": ["1KiB", "4KiB"],
            "level": [5, 10, 1],
            "nr_requests": [64, 128],
        }
    )
).cells
subsets = st.lists(st.sampled_from(CELLS), unique_by=lambda cell: cell.name, min_size=1)
seeds = st.integers(0, 2**32)
repeats = st.integers(1, 4)


@given(subsets, repeats, seeds)
def test_each_round_has_one_repetition_of_each_cell(cells: list[Cell], times: int, seed: int) -> None:
    planned = repetitions_of(cells, times, seed)
    assert len(planned) == times * len(cells)
    for number in range(1, times + 1):
        names = [cell.name for round_, cell in planned if round_ == number]
        assert sorted(names) == sorted(cell.name for cell in cells)
    assert [one.round for one in planned] == sorted(one.round for one in planned)


@given(st.data(), subsets, repeats, seeds)
def test_the_order_follows_from_cells_and_seed_alone(
    data: st.DataObject, cells: list[Cell], times: int, seed: int
) -> None:
    mixed = data.draw(st.permutations(cells))
    assert repetitions_of(cells, times, seed) == repetitions_of(mixed, times, seed)


@given(subsets, seeds)
def test_cells_that_share_layers_are_neighbours(cells: list[Cell], seed: int) -> None:
    keys = [layer_keys(one.cell) for one in repetitions_of(cells, 1, seed)]
    for depth in range(1, len(LAYERS) + 1):
        runs = [key for key, _ in groupby(keys, key=lambda layers: layers[:depth])]
        assert len(runs) == len(set(runs))


def test_the_order_differs_between_rounds_and_seeds() -> None:
    def names(seed: int, number: int) -> list[str]:
        return [cell.name for round_, cell in repetitions_of(CELLS, 2, seed) if round_ == number]

    assert names(1, 1) != names(1, 2)
    assert names(1, 1) != names(2, 1)


def test_layers_are_shared_from_below() -> None:
    sync, other = (
        next(
            cell
            for cell in CELLS
            if cell.name == f"wsize=1MiB export={export} chunk=16KiB block_size=1KiB level=5 nr_requests=64"
        )
        for export in ("sync", "async")
    )
    assert shared_layers(None, sync) == 0
    assert shared_layers(sync, sync) == len(LAYERS)
    assert LAYERS[shared_layers(sync, other)] == "export"
