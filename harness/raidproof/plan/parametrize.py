"""A plan as parameters of a test: ``@pytest.mark.parametrize("cell", cells_of("plan.toml"), ids=str)``."""

from dataclasses import dataclass, field, fields
from pathlib import Path

from raidproof.plan.cell import Cell, Matrix, matrix_of
from raidproof.plan.plan import load_plan


@dataclass(frozen=True)
class PlannedCell(Cell):
    """A cell that knows its plan, and so its hardware."""

    matrix: Matrix = field(repr=False, compare=False)
    path: Path = field(repr=False, compare=False)


def cells_of(path: Path | str, k: str | None = None) -> tuple[PlannedCell, ...]:
    """Return the possible cells of a plan, or those that ``k`` selects; ``str`` of each is its name.

    Raises:
        RequestError: the plan cannot be, or nothing is selected.
    """
    matrix = matrix_of(load_plan(Path(path)))
    return tuple(
        PlannedCell(**{one.name: getattr(cell, one.name) for one in fields(Cell)}, matrix=matrix, path=Path(path))
        for cell in matrix.select(k).cells
    )
