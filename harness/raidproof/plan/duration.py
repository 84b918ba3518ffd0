"""How long a run is going to take, and what it needs, before it begins."""

from dataclasses import dataclass

from raidproof.core.units import GIB
from raidproof.plan.cell import Cell, Matrix
from raidproof.plan.order import LAYERS, shared_layers, visits_of
from raidproof.plan.plan import Plan
from raidproof.workload.tools import workload_of

# Seconds of wall time on two cores without KVM; what is more, a run itself finds out.
BOOT_S = 3.0
BOOT_EACH_S = 1.0
REBUILD_S = {"array": 3.0, "filesystem": 3.0, "tuning": 3.0, "link": 1.0, "export": 0.8, "mount": 0.4}
"""From this layer up."""
VISIT_S = 0.8
"""What is read and written down around the timed part of each visit."""
CUT_S = 20.0
"""A power cut: build, write, cut, boot, check what is there. A control takes as long."""
CONTROLS = 2
"""Of a plan with power cuts, once in a run: disks that lie, and a clean reboot."""
EXPLORE_S, STATE_S = 15.0, 0.25
"""To explore one cut: reading its log, booting checkers; then for each crash state."""
ASSUMED_S = 5.0
"""The timed part of a workload of which only the amount of work is known."""


@dataclass(frozen=True)
class Expectation:
    """What a run takes."""

    visits: int
    timed_s: float
    """Sum of the timed parts."""
    overhead_s: float
    """Booting, rebuilding, reading what happened."""
    cut_s: float
    """Power cuts at the end, and the controls before them."""
    open_ended: bool
    """A workload ends when its work is done: what it takes, nobody knows before."""
    memory: int
    """Bytes of all machines."""
    disk: int
    """Bytes of memory that the members take if every disk is written all over."""

    @property
    def total_s(self) -> float:
        """All of it, in seconds of wall time."""
        return self.timed_s + self.overhead_s + self.cut_s

    def __str__(self) -> str:
        parts = [
            f"{in_words(self.timed_s)} timed",
            f"{in_words(self.overhead_s)} to boot and rebuild",
            *([f"{in_words(self.cut_s)} of power cuts and controls"] if self.cut_s else []),
        ]
        unknown = f"; a workload says no duration, {ASSUMED_S:g} s are assumed" if self.open_ended else ""
        visits = "1 visit" if self.visits == 1 else f"{self.visits} visits"
        return f"{visits}, about {in_words(self.total_s)} ({', '.join(parts)}{unknown})"

    @property
    def needs(self) -> str:
        """Memory, in words: what is written to a member disk is held in memory too."""
        disks = f"what is written to the disks, at most {self.disk / GIB:.1f} GiB"
        return f"{self.memory / GIB:.1f} GiB of memory, and {disks}"


def expect(matrix: Matrix) -> Expectation:
    """Estimate what the cells of a matrix take, in the very order in which they are going to be visited."""
    plan, cells = matrix.plan, matrix.cells
    overheads = visit_overheads(matrix)
    # Cells that differ in the workload alone share their cut.
    cuts = {cell.stack.model_dump_json(): cut_s(cell) + exploration_s(plan) for cell in cells}
    return Expectation(
        visits=len(overheads),
        timed_s=plan.run.repeats * sum(timed_s(plan, cell) for cell in cells),
        overhead_s=BOOT_S + BOOT_EACH_S * (plan.hardware.clients + 1) + sum(overheads.values()),
        cut_s=CONTROLS * CUT_S + sum(cuts.values()) if plan.run.cut else 0.0,
        open_ended=any(workload_of(cell.workload).timed_s is None for cell in cells),
        memory=plan.hardware.memory.server + plan.hardware.clients * plan.hardware.memory.client,
        disk=sum(plan.hardware.disk_sizes.values()),
    )


def visit_overheads(matrix: Matrix) -> dict[tuple[int, str], float]:
    """Return the seconds of each visit, by round and cell, in which nothing is measured."""
    before: Cell | None = None
    overheads = {}
    for visit in visits_of(matrix.cells, matrix.plan.run.repeats, matrix.plan.run.seed):
        shared = shared_layers(before, visit.cell)
        rebuild = REBUILD_S[LAYERS[shared]] if shared < len(LAYERS) else 0.0
        overheads[visit.round, visit.cell.name] = rebuild + VISIT_S
        before = visit.cell
    return overheads


def timed_s(plan: Plan, cell: Cell) -> float:
    """Return the seconds that a visit measures, or what is assumed of them."""
    known = workload_of(cell.workload).timed_s
    return known if known is not None else plan.run.max_seconds or ASSUMED_S


def cut_s(cell: Cell) -> float:
    """Return the seconds that a configuration's power cut takes: NFSv4.0 clients wait for the grace period's end."""
    return CUT_S + (float(cell.stack.export.grace_s or 0) if cell.stack.mount.vers == "4.0" else 0.0)


def exploration_s(plan: Plan) -> float:
    """Return the seconds that the crash states of one cut take; 0 where none are asked for."""
    return EXPLORE_S + STATE_S * plan.run.explore_states if plan.run.cut == "explore" else 0.0


def in_words(seconds: float) -> str:
    """Write a duration as people say it."""
    whole = round(seconds)
    if whole < 90:
        return f"{whole} s"
    minutes = round(whole / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02} min"
