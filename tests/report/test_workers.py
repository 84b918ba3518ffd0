"""The workers of a cluster in reports."""

import io

from rich.console import Console

from raidproof.core.waiting import wall_clock
from raidproof.record.cell import CellRecord, PlanRecord, Repetition
from raidproof.record.outcome import Outcome
from raidproof.record.run import RunRecord
from raidproof.record.worker import WorkerRecord
from raidproof.report.html import render
from raidproof.report.terminal import show
from raidproof.report.workers import spreads
from raidproof.verdict.cell import judge_cells

WORKERS = [
    WorkerRecord(name=name, host=f"host-{name}", cpu="a CPU", cores=8, kernel="6.12", load=0.5, version="1", done=3,
                 left_out=left_out)
    for name, left_out in (("one", None), ("two", "its kernel differs"))
]  # fmt: skip


def record(workers: list[WorkerRecord]) -> RunRecord:
    names: list[str | None] = [worker.name for worker in workers] or [None]
    cells = []
    for place, name in enumerate(("level=5", "level=10")):
        cell = CellRecord(name=name, settings={}, workload={"tool": "dd"}, unit="write_mb_s", asked={})
        cell.repeats = [
            Repetition(
                round=round_, worker=worker, value=(100 + 20 * place + round_ / 10) * (1 + number), limit="disks"
            )
            for number, worker in enumerate(names)
            for round_ in range(1 + 3 * number, 4 + 3 * number)
        ]
        cells.append(cell)
    made = RunRecord(run="run", started=wall_clock(), command=[], cells=cells)
    made.plan = PlanRecord(path="here.toml", text="", seed=1, repeats=3, workers=workers)
    judge_cells(made)
    return made


def shown(run: RunRecord) -> str:
    file = io.StringIO()
    show(run, Console(file=file, width=200))
    return file.getvalue()


def test_the_variation_between_workers_is_in_the_ranking() -> None:
    run = record(WORKERS)
    assert [cell.outcome for cell in run.cells] == [Outcome.PASS] * 2
    assert spreads(run.cells[0]) == "between workers 49 %, within 0.1 %"
    text = shown(run)
    assert "between workers 49 %, within 0.1 %" in text
    assert "worker one on host-one, 8 cores: 3 results" in text
    assert "worker two on host-two, 8 cores: 3 results; left out: its kernel differs" in text
    page = render(run)
    assert "Workers of the cluster" in page
    assert "its kernel differs" in page
    assert "<td>two</td>" in page
    assert "within rounds, which one worker makes" in page


def test_without_a_cluster_nothing_is_said_of_workers() -> None:
    run = record([])
    assert "worker" not in shown(run)
    page = render(run)
    assert "Workers of the cluster" not in page
    assert "between workers" not in page
