import csv
import io
import json
from pathlib import Path
from tarfile import open as open_tar

import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from raidproof.record import RunRecord, RunStore
from raidproof.report.results.export import as_csv, as_openmetrics, as_parquet, cell_rows, crash_test_rows

DATA = Path(__file__).resolve().parents[2] / "data"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunRecord]:
    """A plan with two cells, two repetitions of each and four crash tests; a run with one crash test."""
    folder = tmp_path_factory.mktemp("runs")
    with open_tar(DATA / "older" / "plan.tar.xz") as tar:
        tar.extractall(folder, filter="data")
    return [RunStore(folder / "plan").load(), RunStore(DATA / "run").load()]


def families_of(runs: list[RunRecord]) -> dict[str, Metric]:
    """Return the metrics that the parser of another program finds in the export."""
    found = text_string_to_metric_families(as_openmetrics(runs))  # type: ignore[no-untyped-call]
    return {one.name: one for one in found}


def test_each_repetition_is_a_row_with_its_axes_and_all_values(runs: list[RunRecord]) -> None:
    rows = list(cell_rows(runs))
    repeats = [(cell, repeat) for cell in runs[0].cells for repeat in cell.repeats]
    assert len(rows) == len(repeats) == 4
    for row, (cell, repeat) in zip(rows, repeats, strict=True):
        assert (row["run"], row["plan"], row["kernel"]) == (runs[0].run, "plan", "6.12.101")
        assert (row["cell"], row["axis.level"], row["unit"]) == (cell.name, cell.settings["level"], cell.unit)
        assert (row["round"], row["value"]) == (repeat.round, repeat.value)
        assert row["values.write_mb_s"] == repeat.values["write_mb_s"]
        assert repeat.derived is not None
        assert row["derived.members.disk0.busy"] == repeat.derived["members"]["disk0"]["busy"]
        assert repeat.engine is not None
        assert row["engine.cpu_share"] == repeat.engine["cpu_share"]
        assert row["run_outcome"] == "PASS"


def test_a_repetition_that_failed_is_a_row_without_a_value(runs: list[RunRecord]) -> None:
    run = runs[0].model_copy(deep=True)
    repeat = run.cells[0].repeats[0]
    repeat.value, repeat.values, repeat.derived, repeat.rig_error = None, {}, None, "the lab ended"
    first = next(csv.DictReader(io.StringIO(as_csv(list(cell_rows([run]))))))
    assert (first["value"], first["derived.seconds"], first["rig_error"]) == ("", "", "the lab ended")
    families = families_of([run])
    assert len(families["raidproof_cell_value"].samples) == 3


def test_each_crash_test_is_a_row(runs: list[RunRecord]) -> None:
    rows = list(crash_test_rows(runs))
    cycles = [cycle for run in runs for cycle in run.cycles]
    assert [row["crash_test"] for row in rows] == [cycle.name for cycle in cycles]
    for row, cycle in zip(rows, cycles, strict=True):
        assert cycle.on_server is not None
        assert (row["acknowledged"], row["lost"]) == (cycle.on_server.acknowledged_total, cycle.on_server.lost_total)
        assert row["control"] == (cycle.control is not None)
        assert row["asked.export.sync"] == cycle.asked["export"]["sync"]


def test_csv_has_the_columns_of_all_rows(runs: list[RunRecord]) -> None:
    for rows in (list(cell_rows(runs)), list(crash_test_rows(runs))):
        read = list(csv.DictReader(io.StringIO(as_csv(rows))))
        assert len(read) == len(rows)
        for row, found in zip(rows, read, strict=True):
            assert all(found[name] == ("" if value is None else text_of(value)) for name, value in row.items())


def text_of(value: object) -> str:
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


def test_parquet_has_the_same_rows(runs: list[RunRecord]) -> None:
    for rows in (list(cell_rows(runs)), list(crash_test_rows(runs))):
        read = pyarrow.parquet.read_table(io.BytesIO(as_parquet(rows))).to_pylist()
        for row, found in zip(rows, read, strict=True):
            for name, value in row.items():
                assert found[name] == (text_of(value) if isinstance(value, list | dict) else value), name


VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.lists(st.integers())


@given(rows=st.lists(st.dictionaries(st.sampled_from("abc"), VALUES), min_size=1))
def test_any_values_can_be_written_as_parquet(rows: list[dict[str, object]]) -> None:
    read = pyarrow.parquet.read_table(io.BytesIO(as_parquet([{"a": None, **row} for row in rows]))).to_pylist()
    assert len(read) == len(rows)
    for row, found in zip(rows, read, strict=True):
        assert all((found[name] is None) == (value is None) for name, value in row.items())


def test_openmetrics_is_read_by_its_parser(runs: list[RunRecord]) -> None:
    families = families_of(runs)
    values = families["raidproof_cell_value"].samples
    assert [(one.labels["cell"], one.labels["axis_level"], one.value) for one in values] == [
        (cell.name, cell.settings["level"], repeat.value) for cell in runs[0].cells for repeat in cell.repeats
    ]
    assert runs[0].ended is not None
    assert values[0].timestamp is not None
    assert float(values[0].timestamp) == pytest.approx(runs[0].ended.timestamp())
    monitored = {one.labels["name"] for one in families["raidproof_cell_monitor"].samples}
    assert {"values.write_mb_s", "derived.members.disk0.busy", "engine.cpu_share"} <= monitored
    lost = {
        one.labels["crash_test"]: (one.labels["control"], one.value)
        for one in families["raidproof_crash_test_lost"].samples
    }
    assert lost["control-lying-disks"] == ("yes", 1536)
    assert lost["cut-000"] == ("no", 0)
    assert {one.labels["raidproof_run_outcome"] for one in families["raidproof_run_outcome"].samples} == {"PASS"}
