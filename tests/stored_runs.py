"""Runs of a plan as they could have been stored: the record of a real run, with other values, dates and kernels."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from raidproof.record.cell import Repetition
from raidproof.record.reference import ReferenceRecord
from raidproof.record.results.store import RunStore
from raidproof.record.run import RunRecord
from raidproof.run.reference import VERSION
from raidproof.verdict.run import conclude_run

SAMPLE = Path(__file__).resolve().parent / "data" / "run" / "ab-new.json"
SYNC, ASYNC = "export=sync", "export=async"


def reference(host: float = 1.0, version: int = VERSION) -> ReferenceRecord:
    """Return a reference measurement on a host with this speed."""
    return ReferenceRecord(version=version, processor_s=0.1 / host, disks_s=0.05 / host, network_s=0.03 / host)


def run_with(
    *values: Sequence[float],
    day: int = 0,
    kernel: str = "6.12.101",
    limit: str = "disks",
    plan: str = "two",
    hosts: Sequence[float] | None = (1.0,),
) -> RunRecord:
    """Return a run with the cells ``export=sync`` and ``export=async``; ``values``: those of each cell, in this order.

    If ``values`` has one sequence, both cells have these values. ``hosts``: the speed of the host before each value by
    the reference measurement, the last one for all further values; None: without reference measurements.
    """
    record = RunRecord.model_validate_json(SAMPLE.read_text())
    record.started += timedelta(days=day)
    record.ended = record.started + timedelta(minutes=3)
    record.run = f"{record.started:%Y%m%d-%H%M%S}-{plan}"
    assert record.environment is not None
    assert record.plan is not None
    record.plan.path = f"plans/{plan}.toml"
    for machine in record.environment.machines:
        machine.kernel = kernel
    for place, cell in enumerate(record.cells):
        mine = values[min(place, len(values) - 1)]
        cell.repeats = [
            Repetition(
                round=number,
                value=value,
                limit=limit,
                reference=reference(hosts[min(number, len(hosts)) - 1]) if hosts else None,
            )
            for number, value in enumerate(mine, start=1)
        ]
    conclude_run(record)
    return record


def store(record: RunRecord, results: Path) -> RunStore:
    """Store a run in a directory."""
    stored = RunStore(results / record.run)
    stored.path.mkdir(parents=True)
    stored.save(record)
    return stored
