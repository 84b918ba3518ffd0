"""A plan's cells are measured as parameters of a test, and plans are run by `raidproof run`, up to the exit status."""

import json
from pathlib import Path
from typing import Any

import pytest

from raidproof.cli.main import main
from raidproof.core.errors import Status
from raidproof.core.waiting import unwinding_on_signals
from raidproof.plan.cell import PlannedCell, cells_of
from raidproof.pytest_plugin.fixtures import Measure
from raidproof.record import RunRecord
from raidproof.record.outcome import Outcome

PLANS = Path(__file__).resolve().parents[1] / "plans"
BOTH_EXPORTS = """
title = "what async gains, and what it costs"
hardware = { disks = { count = 3, size = "512MiB" } }
axes = { export = ["sync", "async"] }
fixed = { level = 5 }
workload = { tool = "dd", count = 64 }
run = { repeats = 1, cut = "power", states = 20, allow_cache = true }
"""


EVERY_VERSION = """
title = "every NFS version, two clients, several connections: repetitions do not wait for a grace period"
hardware = { disks = { count = 4, size = "512MiB" }, clients = 2 }
axes = { vers = ["3", "4.0", "4.2"] }
fixed = { level = 10, nconnect = 2 }
workload = { tool = "dd", count = 64 }
run = { repeats = 2, cut = "power", allow_cache = true, reference = false }
"""


@pytest.mark.parametrize("cell", cells_of(PLANS / "tiny.toml", k="level=10"), ids=str)
def test_each_cell_is_configured_as_requested_and_measured(measure: Measure, cell: PlannedCell) -> None:
    measured = measure(cell).must_be_measured()
    assert measured.record.settings["export"] in measured.record.effective["export"]["options"]


def carried_out(plan: Path, results: Path) -> tuple[int, Path, RunRecord]:
    """Run `raidproof run` on a plan; return its exit status, the path of the record, and the record."""
    with unwinding_on_signals():
        status = main(["run", str(plan), "--results", str(results)])
    (path,) = results.glob(f"*-{plan.stem}/report.json")
    return status, path, RunRecord.model_validate(json.loads(path.read_text()))


@pytest.mark.exhaustive
def test_every_nfs_version_is_measured_and_keeps_its_promises_over_several_connections(tmp_path: Path) -> None:
    plan = tmp_path / "versions.toml"
    plan.write_text(EVERY_VERSION)
    _, _, record = carried_out(plan, tmp_path)
    assert {cell.name: cell.lost for cell in record.cells if not (cell.lost or "").startswith("0 of ")} == {}
    for cell in record.cells:
        assert (cell.effective["export"]["lease_s"], cell.effective["export"]["grace_s"]) == (10, 10)
        assert any("grace period is 10 s, not the default 90" in caveat for caveat in cell.effective["caveats"])


def test_a_plan_says_what_async_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "exports.toml"
    plan.write_text(BOTH_EXPORTS)
    status, path, record = carried_out(plan, tmp_path)
    controls = [cycle for cycle in record.cycles if cycle.control is not None]
    assert [cycle.outcome for cycle in controls] == [Outcome.PASS, Outcome.PASS]
    assert record.cycles[:2] == controls
    cells: dict[str, Any] = {cell.name: cell for cell in record.cells}
    sync, fast = cells["export=sync"], cells["export=async"]
    assert all(repeat.reference is not None for cell in record.cells for repeat in cell.repeats)
    assert sync.lost is not None
    assert sync.lost.startswith("0 of ")
    assert fast.lost is not None
    assert not fast.lost.startswith("0 of ")
    # The disks have no simulated latency, so this machine may limit both cells. Then no cell is ranked, and the output
    # gives this reason. The run passes all the same: there is one cell with a sync export, and it is shown to be safe.
    assert fast.rank is None
    assert sync.rank == 1 or "of this machine" in (sync.why_not or "")
    assert status == Status.PASS, record.reason
    assert (path.parent / "report.html").is_file()
    assert "export=async" in capsys.readouterr().out
