"""Stored runs as tables for other programs: CSV, Parquet, and OpenMetrics text."""

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from raidproof.core.errors import RequirementMissing
from raidproof.record.cell import CellRecord, Repetition
from raidproof.record.environment import flat
from raidproof.record.results.summary import plan_name
from raidproof.record.run import CrashTestRecord, RunRecord
from raidproof.verdict.crash_states import outcome_of

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

Row = dict[str, Any]
MONITORS = ("derived", "engine", "steady", "regime")
"""The fields of a repetition with values of monitors and checks; a column's name begins with that of the field."""


def identity(record: RunRecord) -> Row:
    """Return the columns of a run: its name, begin, plan, provider, the kernel of the server, and the outcome."""
    environment = record.environment
    return {
        "run": record.run,
        "started": record.started.isoformat(),
        "plan": plan_name(record.plan) if record.plan else None,
        "provider": environment.provider if environment else record.topology.get("provider"),
        "kernel": record.server_kernel or None,
        "run_outcome": record.outcome.value,
    }


def cell_rows(records: Iterable[RunRecord]) -> Iterator[Row]:
    """Yield a row for each repetition of each cell, repetitions without a value included.

    The names of columns begin with ``axis.`` for the cell's value on an axis, with ``values.`` for the values of the
    workload, and with those of `MONITORS`.
    """
    for record in records:
        for cell in record.cells:
            for repetition in cell.repeats:
                yield identity(record) | _cell_columns(cell) | _repetition_columns(repetition)


def _cell_columns(cell: CellRecord) -> Row:
    return {
        "cell": cell.name,
        "workload": cell.compared_with,
        **{f"axis.{name}": value for name, value in cell.settings.items()},
        "outcome": cell.outcome.value,
        "rank": cell.rank,
        "unit": cell.unit,
    }


def _repetition_columns(repetition: Repetition) -> Row:
    found = repetition.model_dump(mode="json")
    plain = ("round", "worker", "value", "timed_s", "visit_s", "limit", "caveat", "rig_error")
    monitors = dict(flat({name: found[name] or {} for name in MONITORS}))
    return {name: found[name] for name in plain} | dict(flat({"values": found["values"]})) | monitors


def crash_test_rows(records: Iterable[RunRecord]) -> Iterator[Row]:
    """Yield a row for each crash test; the columns of its requested configuration begin with ``asked.``."""
    for record in records:
        for cycle in record.cycles:
            yield identity(record) | _crash_test_columns(cycle)


def _crash_test_columns(cycle: CrashTestRecord) -> Row:
    seen = cycle.on_server
    throughput = flat({"throughput": cycle.throughput.model_dump(mode="json")})
    return {
        "crash_test": cycle.name,
        "title": cycle.title,
        "control": cycle.control is not None,
        "fault": cycle.fault,
        "fault_target": cycle.fault_target,
        "policy": cycle.policy,
        "cache_mode": cycle.cache_mode,
        "seed": cycle.seed,
        "outcome": outcome_of(cycle)[0].value,
        "reason": cycle.reason,
        "acknowledged": seen.acknowledged_total if seen else None,
        "lost": seen.lost_total if seen else None,
        "lost_bytes": seen.lost_bytes if seen else None,
        "lost_files": seen.lost_files if seen else None,
        "loss_window_s": cycle.loss_window_s,
        **dict(throughput),
        "recovery.total_s": cycle.recovery.total_s,
        **dict(flat({"asked": cycle.asked})),
    }


def columns(rows: Sequence[Row]) -> list[str]:
    """Return the columns of all rows in the order of their first appearance."""
    return list(dict.fromkeys(name for row in rows for name in row))


def as_csv(rows: Sequence[Row]) -> str:
    """Return rows as CSV (RFC 4180) with a header; a value that is not known is an empty field, a list is JSON."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns(rows), restval="")
    writer.writeheader()
    writer.writerows({name: _plain(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def as_parquet(rows: Sequence[Row]) -> bytes:
    """Return rows as a Parquet file.

    A column with integers alone has the type int64, with other numbers alone double, with booleans alone bool; all
    others are text.

    Raises:
        RequirementMissing: pyarrow is not installed.
    """
    try:
        import pyarrow  # noqa: PLC0415  an optional requirement
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError as error:
        raise _missing("pyarrow", "Parquet") from error
    made = {}
    for name in columns(rows):
        values = [_plain(row.get(name)) for row in rows]
        kinds = {type(value) for value in values if value is not None}
        if kinds == {int} and all(one is None or -(2**63) <= one < 2**63 for one in values):
            made[name] = pyarrow.array(values, pyarrow.int64())
        elif kinds and kinds <= {int, float}:
            made[name] = pyarrow.array(
                [None if value is None else float(value) for value in values], pyarrow.float64()
            )
        elif kinds == {bool}:
            made[name] = pyarrow.array(values, pyarrow.bool_())
        else:
            made[name] = pyarrow.array([None if one is None else str(one) for one in values], pyarrow.string())
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(made), file)
    return file.getvalue()


def as_openmetrics(records: Sequence[RunRecord]) -> str:
    """Return runs as OpenMetrics text; each sample has the time at which its run ended, or began without an end.

    Raises:
        RequirementMissing: prometheus-client is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry  # noqa: PLC0415  an optional requirement
        from prometheus_client.openmetrics.exposition import generate_latest  # noqa: PLC0415
        from prometheus_client.registry import Collector  # noqa: PLC0415
    except ImportError as error:
        raise _missing("prometheus-client", "OpenMetrics") from error

    class Runs(Collector):
        def collect(self) -> Iterator["Metric"]:
            yield from _metrics(records)

    registry = CollectorRegistry()
    registry.register(Runs())
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return text.decode()


def _metrics(records: Sequence[RunRecord]) -> Iterator["Metric"]:
    from prometheus_client.metrics_core import GaugeMetricFamily, StateSetMetricFamily  # noqa: PLC0415

    value = GaugeMetricFamily("raidproof_cell_value", "The primary value of a repetition; the label unit names it.")
    monitored = GaugeMetricFamily("raidproof_cell_monitor", "A value of a repetition; the label name names it.")
    acknowledged = GaugeMetricFamily("raidproof_crash_test_acknowledged", "Acknowledged operations of a crash test.")
    lost = GaugeMetricFamily("raidproof_crash_test_lost", "Lost acknowledged operations of a crash test.")
    outcome = StateSetMetricFamily("raidproof_run_outcome", "The outcome of a run.")
    for record in records:
        at_s = (record.ended or record.started).timestamp()
        of_run = _labels(identity(record) | {"started": None})
        outcome.add_sample(outcome.name, {**of_run, outcome.name: record.outcome.value}, 1, timestamp=at_s)
        for cell in record.cells:
            axes = {f"axis_{_word(name)}": text for name, text in cell.settings.items()}
            of_cell = of_run | axes | {"cell": cell.name, "workload": cell.compared_with}
            for repetition in cell.repeats:
                labels = of_cell | {"repetition": str(repetition.round)}
                if repetition.value is not None:
                    value.add_sample(value.name, labels | {"unit": cell.unit}, repetition.value, timestamp=at_s)
                for name, number in _numbers(repetition):
                    monitored.add_sample(monitored.name, labels | {"name": name}, number, timestamp=at_s)
        for cycle in record.cycles:
            labels = of_run | {"crash_test": cycle.name, "fault": cycle.fault, "outcome": outcome_of(cycle)[0].value}
            labels["control"] = "yes" if cycle.control is not None else "no"
            if cycle.on_server is not None:
                acknowledged.add_sample(acknowledged.name, labels, cycle.on_server.acknowledged_total, timestamp=at_s)
                lost.add_sample(lost.name, labels, cycle.on_server.lost_total, timestamp=at_s)
    yield from (outcome, value, monitored, acknowledged, lost)


def _numbers(repetition: Repetition) -> Iterator[tuple[str, float]]:
    for name, found in _repetition_columns(repetition).items():
        if "." in name and isinstance(found, int | float):
            yield name, float(found)


def _labels(row: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in row.items() if value is not None}


def _word(name: str) -> str:
    """Return the name of an axis as a part of a label's name."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


def _missing(package: str, what: str) -> RequirementMissing:
    return RequirementMissing(
        f"the Python package {package}, which writes {what}, is not installed",
        remedy=f"install it: {sys.executable} -m pip install {package}",
    )
