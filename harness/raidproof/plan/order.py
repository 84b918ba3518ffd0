"""The order of visits: rounds of all cells, by chance, yet such that what is expensive to rebuild stays together."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from raidproof.plan.cell import Cell

LAYERS = ("array", "filesystem", "tuning", "link", "export", "mount")
"""What a visit may have to rebuild, from below: a layer is rebuilt if it or one below it changed."""


class Visit(NamedTuple):
    """One measurement of one cell."""

    round: int
    """From 1 on; each round visits each cell once."""
    cell: Cell


def layer_keys(cell: Cell) -> tuple[str, ...]:
    """What each layer of a cell is, from below; equal for cells that can share it."""
    return tuple(getattr(cell.stack, layer).model_dump_json() for layer in LAYERS)


def shared_layers(before: Cell | None, after: Cell) -> int:
    """Return how many layers, from below, a visit can take over from the visit before it."""
    if before is None:
        return 0
    same = [one == other for one, other in zip(layer_keys(before), layer_keys(after), strict=True)]
    return [*same, False].index(False)


def visits_of(cells: Sequence[Cell], repeats: int, seed: int) -> tuple[Visit, ...]:
    """Return all visits in their order, the same for the same cells and seed.

    Repeats are interleaved, so that a host which grows slower meanwhile does so for all cells. Within a round cells
    that share their array are neighbours, among them those that share the filesystem, then the export; the order of
    the groups, and within them, is drawn anew for each round.
    """
    keys = {cell.name: layer_keys(cell) for cell in cells}
    ordered = sorted(cells, key=lambda cell: cell.name)
    return tuple(
        Visit(number, cell)
        for number in range(1, repeats + 1)
        for cell in _grouped(ordered, keys, 0, Random(f"{seed}/{number}"))  # noqa: S311  a seeded order, no secret
    )


def _grouped(cells: Sequence[Cell], keys: dict[str, tuple[str, ...]], depth: int, chance: Random) -> list[Cell]:
    if depth == len(LAYERS):
        return chance.sample(cells, len(cells))
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(keys[cell.name][depth], []).append(cell)
    mixed = [_grouped(group, keys, depth + 1, chance) for group in groups.values()]
    chance.shuffle(mixed)
    return [cell for group in mixed for cell in group]
