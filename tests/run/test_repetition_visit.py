from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raidproof.core.errors import DeadlineExceeded, RigError
from raidproof.core.units import MIB
from raidproof.monitor import Monitor
from raidproof.plan.cell import matrix_of
from raidproof.plan.plan import read_plan
from raidproof.record.cell import Repetition
from raidproof.run.repetition import fill, keep, memory_of, run_within
from raidproof.workload.regime import Memory
from raidproof.workload.workload import Place, Point, Sample, Workload

PLACE = Place((), "/mnt")


def sample(**changes: Any) -> Sample:
    values = {"write_mb_s": 100.0}
    return Sample(**{"primary": "write_mb_s", "values": values, "seconds": 3.0, **changes})


def test_what_a_tool_measured_is_entered() -> None:
    repeat = Repetition(round=1)
    fill(repeat, sample(series=(Point(at_s=1, value=90),)), 1.0)
    assert (repeat.value, repeat.timed_s, repeat.series) == (100.0, 3.0, [(1.0, 90.0)])
    fill(repeat, sample(), 4.0)
    assert (repeat.value, repeat.steady) == (400.0, None)


def test_outputs_are_kept_as_files(tmp_path: Path) -> None:
    directory = tmp_path / "cells" / "000-1"
    directory.mkdir(parents=True)
    monitor = cast("Monitor", SimpleNamespace(output={"server": "counted"}))
    files = keep(sample(output={"client1": "said"}), monitor, directory)
    assert {what: (tmp_path / path).read_text() for what, path in files.items()} == {
        "tool client1": "said", "monitor server": "counted"
    }  # fmt: skip


def memory(on: str = "clients", **controller: Any) -> Memory:
    document = {
        "hardware": {
            "disks": {"count": 4, "profile": "hdd-7200-sata"},
            "controller": {"count": 1, "cache": "256MiB", **controller},
            "memory": {"server": "512MiB", "client": "256MiB"},
        },
        "workload": {"tool": "fio", "on": on},
    }
    matrix = matrix_of(read_plan(document, source="here.toml", name="here"))
    return memory_of(matrix.plan.hardware.topology(), matrix.cells[0])


def test_what_there_is_to_cache_in() -> None:
    found = memory()
    assert (found.server, found.client, found.controller) == (512 * MIB, 256 * MIB, 256 * MIB)
    assert memory("disk0").drives == found.drives / 4
    assert memory(battery="failed").controller == 0
    assert memory(battery="unnoticed").controller == 256 * MIB


def work(run: Any) -> Workload:
    return cast("Workload", SimpleNamespace(run=run))


@pytest.mark.parametrize("seconds", [None, 60.0])
def test_within_its_time_a_workload_is_let_alone(seconds: float | None) -> None:
    assert run_within(work(lambda _: sample()), PLACE, seconds) == sample()


def test_a_workload_that_takes_longer_is_ended() -> None:
    lab_ends = Event()
    with pytest.raises(DeadlineExceeded, match=r"longer than max_seconds, 0\.01 s"):
        run_within(work(lambda _: lab_ends.wait()), PLACE, 0.01)
    lab_ends.set()


def test_what_fails_within_its_time_has_failed() -> None:
    def fail(_: Place) -> Sample:
        raise RigError("looped")

    with pytest.raises(RigError, match="looped"):
        run_within(work(fail), PLACE, 60.0)
