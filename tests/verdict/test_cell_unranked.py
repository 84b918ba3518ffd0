"""The outcome of a plan without any rank: PASS only if nothing was to be ranked, and every promise was kept."""

import pytest

from raidproof.core.waiting import wall_clock
from raidproof.record.cell import CellRecord, PlanRecord, Repetition
from raidproof.record.outcome import Outcome
from raidproof.record.run import ControlSpec, CrashTestRecord, RunRecord, ScanResult
from raidproof.verdict.run import conclude_run

PASSED = "every promise that holds by design was kept, and the controls behaved; no speed is ranked: "
INCONCLUSIVE = "no cell has a rank; the table gives the reason for each cell"


def cell(name: str, limit: str = "host cpu", *, sync: bool = True, cut: bool = True, tool: str = "fio") -> CellRecord:
    return CellRecord(
        name=name, settings={}, workload={"tool": tool}, unit="operations_s", asked={"export": {"sync": sync}},
        cycle=f"cut-{name}" if cut else None,
        repeats=[Repetition(round=1, value=10.0, limit=limit, cause=limit)],
    )  # fmt: skip


def crash_test(name: str, *, sync: bool = True, lost: int = 0, control: bool | None = None) -> CrashTestRecord:
    return CrashTestRecord.model_validate(
        {
            "name": name, "title": name, "asked": {"export": {"sync": sync}}, "cache_mode": "volatile", "seed": 1,
            "fault": "power-cut", "effects": {"server_memory_lost": True}, "outcome": "PASS", "reason": "so",
            "on_server": ScanResult(acknowledged={"fsync": 100}, lost={"fsync": lost} if lost else {}),
            "control": None if control is None else ControlSpec(expects_loss=control),
        }
    )  # fmt: skip


def outcome(*cells: CellRecord, cuts: dict[str, int] | None = None, controls: bool = True) -> tuple[Outcome, str]:
    made = [crash_test("control", control=True, lost=9)] if controls else []
    by_name = {one.cycle: one for one in cells}
    made += [
        crash_test(name, lost=lost, sync=bool(by_name[name].asked["export"]["sync"]))
        for name, lost in (cuts or {one.cycle: 0 for one in cells if one.cycle}).items()
    ]
    plan = PlanRecord(path="p.toml", text="", seed=1, repeats=1, cut="power")
    run = RunRecord(run="r", started=wall_clock(), command=[], cells=list(cells), plan=plan, cycles=made)
    conclude_run(run)
    assert all(one.rank is None for one in run.cells)
    return run.outcome, run.reason


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("host cpu", "the host's CPU"),
        ("engine", "the simulation of the disks"),
        ("server cpu", "the CPU of the simulated server"),
        ("client cpu", "the CPU of the simulated clients"),
    ],
)
def test_one_cell_that_kept_its_promises_passes_without_a_rank(limit: str, words: str) -> None:
    assert outcome(cell("a", limit)) == (Outcome.PASS, f"{PASSED}{words} was the limit")


def test_async_cells_are_never_ranked_and_leave_nothing_to_rank() -> None:
    cells = cell("sync"), cell("async", sync=False)
    assert outcome(*cells, cuts={"cut-sync": 0, "cut-async": 7})[0] is Outcome.PASS


def test_two_workloads_are_not_compared() -> None:
    assert outcome(cell("a"), cell("b", tool="dd"))[0] is Outcome.PASS


def test_a_requested_ranking_that_was_not_shown_is_inconclusive() -> None:
    assert outcome(cell("a"), cell("b")) == (Outcome.INCONCLUSIVE, INCONCLUSIVE)


def test_promises_that_were_not_tested_are_not_claimed() -> None:
    assert outcome(cell("a", cut=False)) == (Outcome.INCONCLUSIVE, INCONCLUSIVE)
    assert outcome(cell("a"), controls=False) == (Outcome.INCONCLUSIVE, INCONCLUSIVE)
    assert outcome(cell("a"), cuts={"cut-a": 7}) == (Outcome.INCONCLUSIVE, INCONCLUSIVE)
    assert outcome(cell("async", sync=False), cuts={"cut-async": 7}) == (Outcome.INCONCLUSIVE, INCONCLUSIVE)


def test_a_cache_is_no_limit_of_the_processor() -> None:
    assert outcome(cell("a", "client cache")) == (Outcome.INCONCLUSIVE, INCONCLUSIVE)
