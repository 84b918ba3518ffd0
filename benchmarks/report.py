"""Prints the size of a run's HTML report, the time to build it, and the time until Chromium shows it.

The record is made of measured-like values from a fixed seed: cells of five axes, each with three repetitions, values
over time, monitors, and a power cut. Run it as `python -m benchmarks.report`; an argument is the number of cells.
"""

import random
import shutil
import sys
import tempfile
from itertools import product
from pathlib import Path

from raidproof.core.waiting import now_ns
from raidproof.monitor.chart import Moment
from raidproof.record.cell import CellRecord, PlanRecord, Repetition
from raidproof.record.run import CrashTestRecord, RunRecord
from raidproof.report.html import write_html
from raidproof.verdict.run import conclude_run

RECORDED = Path(__file__).resolve().parents[1] / "tests" / "data" / "run" / "ab-base.json"
AXES = {
    "level": ("0", "1", "10", "5", "6"),
    "chunk": ("16KiB", "64KiB", "256KiB", "512KiB", "1MiB"),
    "filesystem": ("xfs", "ext4"),
    "export": ("sync", "async"),
    "wsize": ("32KiB", "256KiB", "1MiB", "4MiB", "16MiB"),
}
"""Axes with 500 combinations."""
ROUNDS = 3


def record_of(template: RunRecord, cells: int) -> RunRecord:
    """Return a run with ``cells`` cells, each like the first cell and the last power cut of ``template``."""
    draw = random.Random(4711)  # noqa: S311  no secret
    shape, cut = template.cells[0], template.cycles[-1]
    made: list[CellRecord] = []
    cycles: list[CrashTestRecord] = []
    for place, values in enumerate(list(product(*AXES.values()))[:cells], start=1):
        settings = dict(zip(AXES, values, strict=True))
        name = " ".join(f"{axis}={value}" for axis, value in settings.items())
        speed = 40 + 25 * (5 - list(AXES["level"]).index(settings["level"])) + draw.random() * 20
        cell = shape.model_copy(deep=True)
        cell.name, cell.settings, cell.cycle = name, settings, f"cut-{place:03}"
        cell.asked["export"]["sync"] = settings["export"] == "sync"
        cell.repeats = [repetition(cell.repeats[0], turn, speed, draw) for turn in range(1, ROUNDS + 1)]
        made.append(cell)
        cycle = cut.model_copy(deep=True)
        cycle.name, cycle.title = f"cut-{place:03}", name
        cycle.asked["export"]["sync"] = settings["export"] == "sync"
        if settings["export"] == "sync" and cycle.on_server is not None:
            cycle.on_server.lost, cycle.on_server.examples, cycle.loss_window_s = {}, [], 0.0
            cycle.on_server.blocks = {}
            cycle.lives = []
            if cycle.on_client is not None:
                cycle.on_client.lost, cycle.on_client.examples, cycle.on_client.blocks = {}, [], {}
        cycles.append(cycle)
    plan = template.plan or PlanRecord(path="plan.toml", text="", seed=1, repeats=ROUNDS)
    order = [(turn, cell.name) for turn in range(1, ROUNDS + 1) for cell in made]
    record = template.model_copy(
        update={"cells": made, "cycles": cycles, "plan": plan.model_copy(update={"order": order, "repeats": ROUNDS})}
    )
    conclude_run(record)
    return record


def repetition(shape: Repetition, turn: int, speed: float, draw: random.Random) -> Repetition:
    """Return a repetition with 30 s of values over time and of monitors."""
    value = speed * (1 + draw.gauss(0, 0.02))
    made = shape.model_copy(deep=True)
    made.round, made.value, made.values = turn, value, {"write_mb_s": value}
    made.series = [(float(at), value * (1 + draw.gauss(0, 0.1))) for at in range(1, 31)]
    made.moments = [
        Moment(
            at_s=float(at),
            client_mb_s=value,
            array_mb_s=value * draw.random(),
            member_write_mb_s=value * draw.random(),
            member_read_mb_s=0.0,
            busiest_member=draw.random(),
            commits_s=draw.random() * 10,
            server_cpu=draw.random(),
            busiest_client_cpu=draw.random(),
            dirty=int(draw.random() * 2**28),
            writeback=int(draw.random() * 2**24),
        )
        for at in range(1, 31)
    ]
    made.limit, made.caveat, made.rig_error = "member disks", None, None
    return made


def opened_s(page: Path, width: int) -> tuple[float, int]:
    """Return the seconds until Chromium has drawn the first chart, and the width of the page's content in pixels."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  of the extra dev

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": width, "height": 900})
        begun = now_ns()
        tab.goto(page.as_uri())
        tab.wait_for_selector(".chart svg")
        seconds = (now_ns() - begun) / 1e9
        tab.wait_for_function("document.documentElement.dataset.drawn === 'yes'")
        wide = tab.evaluate("document.documentElement.scrollWidth")
        browser.close()
    return seconds, int(wide)


def main(template: Path, cells: int) -> None:
    """Print the figures."""
    record = record_of(RunRecord.model_validate_json(template.read_text()), cells)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        begun = now_ns()
        write_html(record, page)
        print(
            f"{len(record.cells)} cells: built in {(now_ns() - begun) / 1e9:.1f} s, {page.stat().st_size / 1e6:.2f} MB"
        )
        for width in (1200, 400):
            seconds, wide = opened_s(page, width)
            print(f"opened at {width} px in {seconds:.2f} s; content {wide} px wide")


if __name__ == "__main__":
    main(RECORDED, int(sys.argv[1]) if len(sys.argv) > 1 else 500)
