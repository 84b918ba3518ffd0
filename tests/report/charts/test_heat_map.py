import pytest

from raidproof.record.cell import CellRecord, Repetition
from raidproof.record.run import RunRecord
from raidproof.report.charts.heat_map import axes_of, effect, rows_of


def cell(value: float, **settings: str) -> CellRecord:
    name = " ".join(f"{axis}={one}" for axis, one in settings.items())
    workload = {"tool": "dd"}
    return CellRecord(
        name=name,
        settings=settings,
        workload=workload,
        unit="write_mb_s",
        asked={},
        repeats=[Repetition(round=1, value=value)],
    )


CELLS = [
    cell((400.0 if level == "0" else 100.0) + (10 if export == "async" else 0) + int(chunk), **settings)
    for level in ("0", "5")
    for export in ("sync", "async")
    for chunk in ("1", "2")
    for settings in ({"level": level, "export": export, "chunk": chunk, "fixed": "x"},)
]


def test_the_axes_with_the_greatest_effect_come_first() -> None:
    assert axes_of(CELLS) == ["level", "export", "chunk"]
    assert effect(CELLS, "level") == pytest.approx(0.99, abs=0.01)
    assert effect(CELLS, "fixed") == 0.0


def test_cells_without_a_value_have_no_effect() -> None:
    empty = cell(1.0, level="9", export="sync")
    empty.repeats = []
    assert axes_of([empty]) == []


def test_rows_have_each_axis_as_a_column(plan_run: RunRecord) -> None:
    cells = plan_run.cells[:2]
    rows = rows_of(plan_run, cells, 1, {one.name: place for place, one in enumerate(cells, start=1)})
    assert [row["median"] for row in rows] == [one.median for one in cells]
    for axis, value in cells[0].settings.items():
        assert rows[0][f"axis:{axis}"] == value
