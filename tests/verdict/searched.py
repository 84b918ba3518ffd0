"""A run of `raidproof advise` that was never measured: cells with given speeds, and power cuts with given losses."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from raidproof.core.waiting import wall_clock
from raidproof.fault import FaultEffects
from raidproof.plan.free_axes import free_of
from raidproof.plan.plan import read_plan
from raidproof.record.advice import AdviceRecord, FreeAxisRecord, Picked, PickedBy, RungRecord
from raidproof.record.cell import CellRecord, PlanRecord, Repetition
from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord, RunRecord, ScanResult
from raidproof.run.repetition import new_record
from raidproof.storage.deployment import Work
from raidproof.verdict.advice import judge_advice

AXES = {"chunk": ["512KiB", "64KiB"], "wsize": ["64KiB", "1MiB"], "export": ["sync", "async"]}
CURRENT = "chunk=512KiB wsize=64KiB export=sync"
BEST = "chunk=64KiB wsize=1MiB export=sync"


class Measured:
    """A run whose cells have given speeds, and whose power cuts lost a given number of operations."""

    def __init__(self) -> None:
        plan = read_plan(
            {
                "hardware": {"disks": {"count": 4, "size": "1GiB"}},
                "axes": AXES,
                "workload": [{"tool": "dd"}],
                "fixed": {"level": 5},
            },
            source="here.toml",
        )
        self.cells = {cell.name: cell for cell in free_of(plan).matrix.cells}
        self.run = RunRecord(
            run="a-run",
            started=wall_clock(),
            command=[],
            plan=PlanRecord(path="here.toml", text="", seed=1, repeats=0),
        )
        self.advice = AdviceRecord(
            run="a-run", plan="here", digest="", command=[], started=wall_clock(), budget_s=60, seed=1, workload="dd",
            current=CURRENT, candidates=8,
            axes=[
                FreeAxisRecord(name="chunk", values=AXES["chunk"], assumed=False, work=Work.ARRAY),
                FreeAxisRecord(name="wsize", values=AXES["wsize"], assumed=False, work=Work.REMOUNT),
                FreeAxisRecord(name="export", values=AXES["export"], assumed=False, work=Work.IN_PLACE),
            ],
        )  # fmt: skip

    def measure(self, name: str, *values: float, unit: str = "write_mb_s", **other: float) -> CellRecord:
        cell = new_record(self.cells[name])
        cell.unit = unit
        cell.repeats = [
            Repetition(round=number, value=value, values={unit: value, **other}, limit="disks")
            for number, value in enumerate(values, 1)
        ]
        self.run.cells.append(cell)
        return cell

    def cut(self, name: str, lost: int = 0, outcome: Outcome = Outcome.PASS, **other: Any) -> CrashTestRecord:
        cell = next(one for one in self.run.cells if one.name == name)
        made = CrashTestRecord(
            name=f"cut-{len(self.run.cycles)}", title=name, asked=cell.asked, cache_mode="volatile", fault="power-cut",
            effects=FaultEffects(server_memory_lost=True), seed=1, outcome=outcome, reason="so", loss_window_s=0.5,
            on_server=ScanResult(
                acknowledged={"fsync": 100}, judged={"fsync": 100}, lost={"fsync": lost} if lost else {}
            ),
            **other,
        )  # fmt: skip
        self.run.cycles.append(made)
        cell.cycle = made.name
        return made

    def add(self, speeds: Mapping[str, Sequence[float]]) -> None:
        """Add rounds with the speeds of each configuration."""
        first = 1 + max((one.round for cell in self.run.cells for one in cell.repeats), default=0)
        for name, values in speeds.items():
            cell = next(one for one in self.run.cells if one.name == name)
            cell.repeats += [
                Repetition(round=number, value=value, limit="disks") for number, value in enumerate(values, first)
            ]

    def compare(self, speeds: Mapping[str, Sequence[float]], *, unsafe: Collection[str] = ()) -> None:
        """Add the rounds of a last comparison with the speeds of each configuration; before them is the search."""
        first = 1 + max((one.round for cell in self.run.cells for one in cell.repeats), default=0)
        self.advice.rungs = [RungRecord(round=number, picked=[]) for number in range(1, first)]
        self.add(speeds)
        picked = [Picked(name=name, by=PickedBy.UNSAFE if name in unsafe else PickedBy.RESULTS) for name in speeds]
        rounds = max(map(len, speeds.values()))
        self.advice.rungs += [
            RungRecord(round=number, picked=picked, final=True) for number in range(first, first + rounds)
        ]

    def judge(self) -> AdviceRecord:
        judge_advice(self.advice, self.run)
        return self.advice
