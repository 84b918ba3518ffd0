"""The recommended configuration: only one that is shown SAFE, and the fastest of these."""

import pytest

from raidproof.core.waiting import wall_clock
from raidproof.fault import FaultEffects
from raidproof.record.cell import CellRecord, PlanRecord, Repetition
from raidproof.record.outcome import Outcome
from raidproof.record.run import ControlSpec, CrashTestRecord, RunRecord, ScanResult
from raidproof.verdict.recommendation import NoneRecommended, recommend


def cut(name: str, lost: int) -> CrashTestRecord:
    return CrashTestRecord(
        name=name,
        title=name,
        asked={"export": {"sync": True}},
        cache_mode="volatile",
        fault="power-cut",
        effects=FaultEffects(server_memory_lost=True),
        seed=1,
        on_server=ScanResult(acknowledged={"fsync": 100}, lost={"fsync": lost} if lost else {}),
        outcome=Outcome.FAIL if lost else Outcome.PASS,
        reason="judged",
    )


def cell(name: str, value: float, rank: int | None) -> CellRecord:
    repeats = [Repetition(round=1, value=value)]
    shared = {"settings": {}, "workload": {}, "asked": {}, "workload_name": "w", "unit": "write_mb_s"}
    return CellRecord.model_validate({**shared, "name": name, "repeats": repeats, "rank": rank, "cycle": name})


@pytest.fixture
def record() -> RunRecord:
    return RunRecord(
        run="r",
        started=wall_clock(),
        command=[],
        plan=PlanRecord(path="p", text="", seed=1, repeats=1, cut="power"),
        cells=[cell("fast", 300.0, 1), cell("safe", 200.0, 2), cell("also", 199.0, 2), cell("slow", 50.0, 4)],
        cycles=[cut("fast", 7), cut("safe", 0), cut("also", 0), cut("slow", 0)],
        outcome=Outcome.PASS,
    )


def names(record: RunRecord) -> list[str]:
    [one] = recommend(record)
    return [cell.name for cell in one.cells]


def test_the_fastest_safe_cells_share_the_recommendation(record: RunRecord) -> None:
    assert names(record) == ["safe", "also"]


def test_a_faster_cell_that_loses_data_or_was_not_cut_is_never_recommended(record: RunRecord) -> None:
    assert "fast" not in names(record)
    record.cells[0].cycle = None
    assert "fast" not in names(record)
    record.cells[0].cycle, record.cycles[0] = "fast", cut("fast", 0)
    assert names(record) == ["fast"]


@pytest.mark.parametrize("why", list(NoneRecommended))
def test_there_is_a_reason_if_nothing_is_recommended(record: RunRecord, why: NoneRecommended) -> None:
    if why is NoneRecommended.BLIND:
        record.cycles.append(
            record.cycles[0].model_copy(
                update={"name": "c", "control": ControlSpec(expects_loss=True), "outcome": Outcome.INVALID}
            )
        )
    for one in record.cells:
        if why is NoneRecommended.NO_CUT:
            one.cycle = None
        if why is NoneRecommended.NONE_RANKED:
            one.rank = None
    if why is NoneRecommended.NONE_SAFE:
        record.cycles = [cut(one.name, 1) for one in record.cycles]
    [found] = recommend(record)
    assert (found.cells, found.why_none) == ((), why)
