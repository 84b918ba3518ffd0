from raidproof.monitor.chart import Moment
from raidproof.record.cell import CellRecord, Repetition
from raidproof.report.charts.monitors import GROUPS, measured, rows_of, specification


def moment(**known: float) -> Moment:
    return Moment.model_validate({**dict.fromkeys(Moment.model_fields), "at_s": 1.0, **known})


def test_each_measured_quantity_is_a_row_in_the_unit_of_its_chart() -> None:
    moments = [moment(client_mb_s=100.0, server_cpu=0.5, dirty=1 << 20)]
    repeats = [Repetition(round=2, moments=moments)]
    cell = CellRecord(name="c", settings={}, workload={}, unit="write_mb_s", asked={}, repeats=repeats)
    [row] = rows_of(cell, 1, 60)
    known = {name: value for name, value in row.items() if value is not None}
    shared = {"cell": 1, "repetition": 2, "at_s": 1.0}
    assert known == {**shared, "client_mb_s": 100.0, "server_cpu": 50.0, "dirty": 1.0}
    assert measured(cell) == ["throughput", "utilization", "memory"]


def test_every_field_of_a_moment_is_drawn_once() -> None:
    drawn = [field for group in GROUPS.values() for field in group.fields]
    assert sorted(drawn) == sorted(set(Moment.model_fields) - {"at_s"})
    assert specification("memory")["encoding"]["y"]["title"] == "MiB"
