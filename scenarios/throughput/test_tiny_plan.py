"""A plan's cells as parameters of a test, and a plan from the command line to its verdict."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.fixtures import Measure
from harness.interrupt import unwinding_on_signals
from harness.plan.parametrize import PlannedCell, cells_of
from harness.record import RunRecord
from harness.status import Status

PLANS = Path(__file__).resolve().parents[1] / "plans"
BOTH_EXPORTS = """
title = "what async gains, and what it costs"
hardware = { disks = { count = 3, size = "512MiB" } }
axes = { export = ["sync", "async"] }
fixed = { level = 5 }
workload = { tool = "dd", count = 64 }
run = { repeats = 1, cut = "power", allow_cache = true }
"""


@pytest.mark.parametrize("cell", cells_of(PLANS / "tiny.toml", k="level=10"), ids=str)
def test_each_cell_is_what_was_asked_and_can_be_measured(measure: Measure, cell: PlannedCell) -> None:
    measured = measure(cell).must_be_measured()
    assert measured.record.settings["export"] in measured.record.effective["export"]["options"]


def test_a_plan_says_what_async_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "exports.toml"
    plan.write_text(BOTH_EXPORTS)
    with unwinding_on_signals():
        status = main(["run", str(plan), "--results", str(tmp_path)])
    (path,) = tmp_path.glob("*-exports/report.json")
    record = RunRecord.model_validate(json.loads(path.read_text()))
    cells: dict[str, Any] = {cell.name: cell for cell in record.cells}
    sync, fast = cells["export=sync"], cells["export=async"]
    assert sync.lost is not None
    assert sync.lost.startswith("0 of ")
    assert fast.lost is not None
    assert not fast.lost.startswith("0 of ")
    # Without mechanics it may well be this machine that limits both; then nothing is ranked, and that is said.
    assert fast.rank is None
    assert sync.rank == 1 or "of this machine" in (sync.why_not or "")
    assert status == (Status.PASS if sync.rank == 1 else Status.INCONCLUSIVE)
    assert (path.parent / "report.html").is_file()
    assert "export=async" in capsys.readouterr().out
