"""The answer of `raidproof advise` on real machines, against the full matrix of the same plan."""

from pathlib import Path

import pytest

from raidproof.cli.main import main
from raidproof.core.waiting import unwinding_on_signals
from raidproof.record import RunRecord, RunStore
from raidproof.record.advice import AdviceRecord, PickedBy
from raidproof.record.outcome import Outcome
from raidproof.record.results.names import ADVICE, RECORD
from raidproof.run.advise.advisor import load
from raidproof.verdict.advice import ratio

WITHIN = 0.9
"""Least speed of the answer, as a share of the best of the full matrix."""
THREE_AXES = """
title = "small writes, each 16 with an fsync: what may be changed on a RAID5 of three disks"
hardware = { disks = { count = 3, profile = "hdd-7200-sata", size = "512MiB" }, slow_motion = 1 }
axes = { mount = ["sync", "async"], bitmap = ["internal", "none"], chunk = ["512KiB", "64KiB"] }
fixed = { level = 5 }
workload = { tool = "fio", rw = "write", bs = "16KiB", fsync = 16, size = "32MiB", runtime_s = 2 }
run = { repeats = 4, allow_cache = true, reference = false }
"""
TWO_AXES = """
title = "two axes, for a short search"
hardware = { disks = { count = 3, profile = "hdd-7200-sata", size = "512MiB" }, slow_motion = 1 }
axes = { mount = ["sync", "async"], wdelay = [true, false] }
fixed = { level = 5 }
workload = { tool = "fio", rw = "write", bs = "16KiB", fsync = 16, size = "16MiB", runtime_s = 1 }
run = { allow_cache = true, reference = false }
"""


def advised(plan: Path, results: Path, *words: str) -> tuple[AdviceRecord, RunRecord, Path]:
    """Run `raidproof advise` on a plan; return its record, that of the run, and the run's directory."""
    with unwinding_on_signals():
        main(["advise", str(plan), "--results", str(results), *words])
    (path,) = results.glob(f"*-{plan.stem}-advise/{ADVICE}")
    return load(path), RunStore(path.parent).load(), path.parent


def check(record: AdviceRecord, run: RunRecord, folder: Path) -> None:
    """Check what holds for each answer: controls, a safe recommendation, and evidence for each line."""
    assert [one.outcome for one in run.cycles if one.control is not None] == [Outcome.PASS, Outcome.PASS]
    assert record.ended is not None
    for name in ("advice.html", "report.html", RECORD):
        assert (folder / name).is_file()
    chosen = record.chosen
    if chosen is None:  # every value was limited by this machine, which the reasons say
        assert all(one.why_not is not None for one in record.configurations)
        return
    assert chosen.safety == "SAFE"
    assert chosen.cycle in {one.name for one in run.cycles}
    assert {line.cell for line in record.lines} == {chosen.name}
    assert {line.repetitions for line in record.lines} == {chosen.repetitions}


def test_a_short_search_recommends_only_what_is_safe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "two.toml"
    plan.write_text(TWO_AXES)
    record, run, folder = advised(plan, tmp_path / "results", "--minutes", "2")
    check(record, run, folder)
    assert record.rungs[0].picked[0].by is PickedBy.CURRENT
    assert record.current == "mount=sync wdelay=true"
    assert "advice: " in capsys.readouterr().out


@pytest.mark.exhaustive
def test_the_answer_is_near_the_best_of_the_full_matrix(tmp_path: Path) -> None:
    plan = tmp_path / "three.toml"
    plan.write_text(THREE_AXES)
    record, run, folder = advised(plan, tmp_path / "advice", "--minutes", "6")
    check(record, run, folder)
    with unwinding_on_signals():
        main(["run", str(plan), "--results", str(tmp_path / "matrix")])
    (path,) = (tmp_path / "matrix").glob(f"*/{RECORD}")
    every = {cell.name: cell for cell in RunStore(path.parent).load().cells}
    assert len(every) == 8
    best = max(every.values(), key=lambda cell: cell.median or 0.0)
    # If this machine limits every value, nothing is recommended; the search has a leader all the same.
    found = every[record.recommended or record.configurations[0].name]
    if found is best:
        return
    apart = ratio(best, found)
    assert apart is not None
    assert apart.high is not None
    # Other load of this host varies the values by more than the bar; cells that differ by chance share a rank.
    assert apart.ratio >= WITHIN or found.rank == 1 or apart.high >= 1, f"{found.name}: {apart}, best: {best.name}"
