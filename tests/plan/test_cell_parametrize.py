from pathlib import Path

import pytest

from raidproof.plan.cell import cells_of

TINY = Path(__file__).resolve().parents[2] / "scenarios" / "plans" / "tiny.toml"


@pytest.mark.parametrize("cell", cells_of(TINY), ids=str)
def test_a_plan_gives_the_parameters_of_a_test(cell: object, request: pytest.FixtureRequest) -> None:
    assert f"[{cell}]" in request.node.name


def test_some_can_be_selected() -> None:
    assert [str(cell) for cell in cells_of(TINY, k="level=5 and not async")] == ["level=5 export=sync"]


def test_a_cell_has_its_plan() -> None:
    (cell,) = cells_of(TINY, k="level=5 and not async")
    assert cell.path == TINY
    assert cell.matrix.plan.name == "tiny"
    assert len(cell.matrix.cells) == 4
    assert cell.index < 4
