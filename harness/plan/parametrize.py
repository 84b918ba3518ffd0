"""A plan as parameters of a test: ``@pytest.mark.parametrize("cell", cells_of("plan.toml"), ids=str)``."""

from pathlib import Path

from harness.plan.cell import Cell, matrix_of
from harness.plan.plan import load_plan


def cells_of(path: Path | str, k: str | None = None) -> tuple[Cell, ...]:
    """Return the possible cells of a plan, or those that ``k`` selects; ``str`` of each is its name.

    Raises:
        RequestError: the plan cannot be, or nothing is selected.
    """
    return matrix_of(load_plan(Path(path))).select(k).cells
