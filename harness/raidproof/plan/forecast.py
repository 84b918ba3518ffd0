"""The order of a plan's repetitions, the estimated duration, and the description that ``--dry-run`` prints."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from random import Random
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from raidproof.core.units import GIB
from raidproof.fault.schedule import AfterRecovery, At
from raidproof.monitor.model import Expected
from raidproof.plan.axes import write_value
from raidproof.plan.ceiling import ceilings_of
from raidproof.plan.cell import Cell, Impossible, Matrix
from raidproof.plan.members import Members
from raidproof.plan.plan import Plan
from raidproof.plan.warnings import warnings_of
from raidproof.plan.works import names
from raidproof.storage.server import USUAL_LEASE_S

LAYERS = ("array", "filesystem", "tuning", "link", "export", "mount")
"""Layers from bottom to top; a layer is rebuilt if its own settings or those of a lower layer differ."""

# Estimates of wall time on two cores without KVM. A run corrects them by its own measured durations.
BOOT_S = 3.0
"""Seconds to start a lab, without its machines."""
BOOT_EACH_S = 1.0
"""Seconds to boot each machine of a lab."""
REBUILD_S = {"array": 3.0, "filesystem": 3.0, "tuning": 3.0, "link": 1.0, "export": 0.8, "mount": 0.4}
"""Seconds to rebuild a layer and all layers above it."""
REPETITION_S = 0.8
"""Overhead in seconds of reading and recording values around the timed part of each repetition."""
REFERENCE_S = 0.4
"""Seconds of the reference measurement before each repetition."""
CUT_S = 20.0
"""Seconds of one power cut (build the stack, write, cut, boot, read back), and of one control."""
AGAIN_S = 8.0
"""Seconds of each further fault of a crash test that ends, and of the recovery from it."""
CONTROLS = 2
"""Number of controls of a run with power cuts: lying disks, and a clean reboot."""
EXPLORE_S, STATE_S = 15.0, 0.25
"""Seconds of an exploration: to read the write log and boot checkers; and to check each crash state."""
DIRECTED_S, DIRECTED_STATE_S = 6.0, 0.1
"""The same for the states at the replies to solo operations, which are near each other and checked once."""
ASSUMED_S = 5.0
"""Assumed seconds of the timed part of a workload that ends when its work is done."""
REPETITION, CONTROL, CUT, EXPLORATION = "repetition", "control", "cut", "exploration"
"""Kinds of parts of a run, for which `Forecast` corrects the estimates separately."""
Part = tuple[str, Hashable]
"""A part of a run: its kind, and its name within the kind."""
FAULTS_SHOWN = 6
"""Greatest number of faults of a crash test that a description lists."""
SHOWN = 3
"""Greatest number of impossible combinations with the same reason that a description lists."""


class PlannedRepetition(NamedTuple):
    """One repetition in the order of a run."""

    round: int
    """Number of the round, from 1 on; a round has one repetition of each cell."""
    cell: Cell


def layer_keys(cell: Cell) -> tuple[str, ...]:
    """Return a key for each layer of a cell's stack, the lowest first; equal keys mean equal settings of the layer."""
    return tuple(getattr(cell.stack, layer).model_dump_json() for layer in LAYERS)


def shared_layers(before: Cell | None, after: Cell) -> int:
    """Return how many layers of ``before``, counted from the lowest, ``after`` can use without a rebuild."""
    if before is None:
        return 0
    same = [one == other for one, other in zip(layer_keys(before), layer_keys(after), strict=True)]
    return [*same, False].index(False)


def repetitions_of(cells: Sequence[Cell], repeats: int, seed: int) -> tuple[PlannedRepetition, ...]:
    """Return all repetitions in the order of the run; the order depends on cells and seed only.

    Repetitions of different cells are interleaved, so that drift of the host affects all cells equally. Within a
    round, cells with the same array follow each other; among cells with the same array, cells with the same file
    system follow each other; and so on for each of ``LAYERS``. The order of the groups, and the order within each
    group, is random and differs between rounds.
    """
    keys = {cell.name: layer_keys(cell) for cell in cells}
    ordered = sorted(cells, key=lambda cell: cell.name)
    return tuple(
        PlannedRepetition(number, cell)
        for number in range(1, repeats + 1)
        for cell in _grouped(ordered, keys, 0, Random(f"{seed}/{number}"))  # noqa: S311  a seeded order, no secret
    )


def _grouped(cells: Sequence[Cell], keys: dict[str, tuple[str, ...]], depth: int, chance: Random) -> list[Cell]:
    if depth == len(LAYERS):
        return chance.sample(cells, len(cells))
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(keys[cell.name][depth], []).append(cell)
    mixed = [_grouped(group, keys, depth + 1, chance) for group in groups.values()]
    chance.shuffle(mixed)
    return [cell for group in mixed for cell in group]


@dataclass(frozen=True)
class Expectation:
    """The estimated time and memory of a run."""

    repetitions: int
    timed_s: float
    """Seconds of the timed parts of all repetitions together."""
    overhead_s: float
    """Seconds to boot machines, rebuild layers, and read counters and logs."""
    cut_s: float
    """Seconds of all controls, power cuts and explorations."""
    open_ended: bool
    """Whether a workload of the plan ends only when its work is done, so that its duration is unknown."""
    memory: int
    """Bytes of memory of all machines."""
    disk: int
    """Bytes of memory that the disk engine needs if the workloads write every block of every disk."""

    @property
    def total_s(self) -> float:
        """Estimated duration of the run in seconds of wall time."""
        return self.timed_s + self.overhead_s + self.cut_s

    def __str__(self) -> str:
        parts = [
            f"{in_words(self.timed_s)} of timed work",
            f"{in_words(self.overhead_s)} to boot machines and rebuild layers",
            *([f"{in_words(self.cut_s)} of power cuts and controls"] if self.cut_s else []),
        ]
        unknown = (
            f"; the duration of a workload is unknown: max_seconds or {ASSUMED_S:g} s are assumed"
            if self.open_ended
            else ""
        )
        count = "1 repetition" if self.repetitions == 1 else f"{self.repetitions} repetitions"
        return f"{count}, about {in_words(self.total_s)} ({', '.join(parts)}{unknown})"

    @property
    def needs(self) -> str:
        """The memory that machines and disk engine need, as text."""
        disks = f"up to {self.disk / GIB:.1f} GiB for the data on the disks"
        return f"{self.memory / GIB:.1f} GiB of memory for the machines, and {disks}"


def expect(matrix: Matrix) -> Expectation:
    """Return the estimated time and memory of a run of a plan's cells, in the order of the run."""
    plan, cells = matrix.plan, matrix.cells
    overheads = repetition_overheads(matrix)
    # Cells that differ only in the workload share one power cut.
    cuts = {cell.stack.model_dump_json(): cut_s(plan, cell) + exploration_s(plan) for cell in cells}
    return Expectation(
        repetitions=len(overheads),
        timed_s=plan.run.repeats * sum(timed_s(plan, cell) for cell in cells),
        overhead_s=BOOT_S + BOOT_EACH_S * (plan.hardware.clients + 1) + sum(overheads.values()),
        cut_s=CONTROLS * CUT_S + sum(cuts.values()) if plan.run.cut else 0.0,
        open_ended=any(cell.workload.workload().timed_s is None for cell in cells),
        memory=plan.hardware.memory.server + plan.hardware.clients * plan.hardware.memory.client,
        disk=sum(plan.hardware.disk_sizes.values()),
    )


def repetition_overheads(matrix: Matrix) -> dict[tuple[int, str], float]:
    """Return the seconds that each repetition takes to rebuild layers and read counters, by round and cell name."""
    before: Cell | None = None
    overheads = {}
    for planned in repetitions_of(matrix.cells, matrix.plan.run.repeats, matrix.plan.run.seed):
        shared = shared_layers(before, planned.cell)
        rebuild = REBUILD_S[LAYERS[shared]] if shared < len(LAYERS) else 0.0
        overheads[planned.round, planned.cell.name] = rebuild + repetition_s(matrix.plan)
        before = planned.cell
    return overheads


def repetition_s(plan: Plan) -> float:
    """Return the seconds of a repetition around its timed part, without building layers."""
    return REPETITION_S + (REFERENCE_S if plan.run.reference else 0.0)


def timed_s(plan: Plan, cell: Cell) -> float:
    """Return the seconds of the timed part of a repetition; if unknown, ``max_seconds`` of the plan or `ASSUMED_S`."""
    known = cell.workload.workload().timed_s
    return known if known is not None else plan.run.max_seconds or ASSUMED_S


def cut_s(plan: Plan, cell: Cell) -> float:
    """Return the estimated seconds of a cell's crash test, of which a power cut is the usual one.

    After each fault that ends, NFSv4.0 clients wait for the end of the grace period.
    """
    grace_s = float(cell.stack.export.grace_s or 0) if cell.stack.mount.vers == "4.0" else 0.0
    ends = sum(not one.stays for one in plan.faults) or 1
    waits_s = sum(one.lasts_s or 0.0 for one in plan.faults)
    waits_s += sum(one.moment.seconds for one in plan.faults if isinstance(one.moment, AfterRecovery))
    waits_s += max((one.moment.seconds for one in plan.faults if isinstance(one.moment, At)), default=0.0)
    return CUT_S + (ends - 1) * AGAIN_S + waits_s + ends * grace_s


def exploration_s(plan: Plan) -> float:
    """Return the estimated seconds of the check of the crash states of one power cut; 0 if none is to be checked."""
    if plan.run.cut != "explore":
        return DIRECTED_S + DIRECTED_STATE_S * plan.run.states if plan.run.cut and plan.run.states else 0.0
    holes = set(plan.run.explore_members) - {Members.WHOLE}
    others = len(holes) * (EXPLORE_S + STATE_S * plan.run.explore_states) + CUT_S * (Members.MISSING in holes)
    return EXPLORE_S + STATE_S * plan.run.explore_states + others


def in_words(seconds: float) -> str:
    """Return a duration as text in s, min or h: ``45 s``, ``2 h 05 min``."""
    whole = round(seconds)
    if whole < 90:
        return f"{whole} s"
    minutes = round(whole / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02} min"


class Forecast:
    """The remaining parts of a run with their estimated durations, corrected by the parts that have ended.

    The estimates of a kind are multiplied by measured over estimated duration of the ended parts of this kind. If no
    part of the kind has ended, the factor is that of all ended parts.
    """

    def __init__(self) -> None:
        self._left: dict[Part, float] = {}
        self._expected: dict[str, float] = defaultdict(float)
        self._took: dict[str, float] = defaultdict(float)

    def add(self, kind: str, name: Hashable, seconds: float) -> None:
        """Add a part with its estimated duration, or replace the estimate of a part."""
        self._left[kind, name] = seconds

    def ended(self, kind: str, name: Hashable, seconds: float) -> None:
        """Remove a part and note its measured duration; a part that was not added changes no estimate."""
        expected = self._left.pop((kind, name), 0.0)
        if expected > 0:
            self._expected[kind] += expected
            self._took[kind] += seconds

    def dropped(self, kind: str, name: Hashable) -> None:
        """Remove a part that is not going to run."""
        self._left.pop((kind, name), None)

    @property
    def left_s(self) -> float:
        """Estimated seconds until the end of the run."""
        return sum(seconds * self._factor(kind) for (kind, _), seconds in self._left.items())

    @property
    def learned(self) -> bool:
        """Whether any part has ended."""
        return bool(self._expected)

    def _factor(self, kind: str) -> float:
        if kind in self._expected:
            return self._took[kind] / self._expected[kind]
        return sum(self._took.values()) / sum(self._expected.values()) if self._expected else 1.0


def left_in_words(*forecasts: Forecast) -> str:
    """Return the remaining time of interleaved runs as the end of a message; empty until each run has ended a part."""
    if not all(one.learned for one in forecasts):
        return ""
    return f" (about {timedelta(seconds=round(sum(one.left_s for one in forecasts)))} left)"


def describe(matrix: Matrix, *, list_cells: bool = True, in_full: bool = False) -> RenderableType:
    """Return a plan's description for the terminal: hardware, cells, impossible combinations, warnings, time, memory.

    ``in_full``: with the ceiling of each cell, and with the source and the remedy of each warning.
    """
    parts: list[RenderableType] = [Text(line) for line in headline(matrix)]
    if list_cells:
        table = cell_table(matrix, ceilings_of(matrix) if in_full else {})
        # Of a single cell without a ceiling the table has nothing but its number.
        parts += [Text(), table] if len(table.columns) > 1 else []
    parts += [Text(line) for line in left_out(matrix)]
    if warned := warnings_of(matrix):
        parts += [Text(), *(Text(line) for one in warned for line in (one.lines() if in_full else [one.line()]))]
    expected = expect(matrix)
    parts += [Text(), Text(f"expected: {expected}"), Text(f"needs {expected.needs}")]
    return Group(*parts)


def headline(matrix: Matrix) -> list[str]:
    """Return lines about a plan's hardware, workloads and options, and the values that all cells share."""
    plan = matrix.plan
    run = plan.run
    fixed = " ".join(f"{name}={write_value(name, value)}" for name, value in plan.fixed.items())
    resync = "skipped (assume_clean)" if run.assume_clean else "waited for"
    return [
        f"plan: {plan.name}{f': {plan.title}' if plan.title else ''}",
        f"hardware: {plan.hardware}",
        *([f"fixed: {fixed}"] if fixed else []),
        *_periods(matrix),
        f"workload: {', '.join(names(plan.workload))}",
        f"cells: {len(matrix.cells)} of {plan.combinations} combinations; repetitions of each: {run.repeats}; "
        f"seed {run.seed}" + (f", selected by {' '.join(run.only.split())!r}" if run.only else ""),
        f"first resync: {resync}; {_faults(plan)}"
        + (f"; crash states checked of each power cut: {run.explore_states:,}" if run.cut == "explore" else ""),
    ]


def _faults(plan: Plan) -> str:
    """Return the faults of each crash test as text; of many, the first ones and their number."""
    if plan.run.cut is None:
        return "power cut: none"
    listed = [str(one) for one in plan.faults]
    more = f" and {len(listed) - FAULTS_SHOWN} more" if len(listed) > FAULTS_SHOWN else ""
    named = f"faults: {'; '.join(listed[:FAULTS_SHOWN])}{more};" if listed else "power cut:"
    return f"{named} once for each configuration, after two controls"


def _periods(matrix: Matrix) -> list[str]:
    """Return a line with the NFS lease and grace period, unless the plan sets both."""
    plan = matrix.plan
    if {"lease", "grace"} <= {*plan.axes, *plan.fixed}:
        return []
    lease = sorted({str(cell.stack.export.lease_s) for cell in matrix.cells})
    grace = sorted({str(cell.stack.export.grace_s) for cell in matrix.cells})
    return [
        f"NFS lease {', '.join(lease)} s, grace period {', '.join(grace)} s (the kernel's default: {USUAL_LEASE_S} s)"
    ]


def cell_table(matrix: Matrix, ceilings: Mapping[str, Expected | None] | None = None) -> Table:
    """Return a table with a row for each cell, a column for each axis, and the cell's ceiling, if any is given."""
    plan = matrix.plan
    several = len(plan.workload) > 1
    table = Table(box=None, pad_edge=False, header_style="bold")
    ceilings = ceilings if ceilings and any(ceilings.values()) else {}
    ceiling = ["ceiling", "limited by"] if ceilings else []
    for column in ("#", *plan.axes, *(["workload"] if several else []), *ceiling):
        table.add_column(column, justify="right" if column in {"#", "ceiling"} else "left", overflow="fold")
    for cell in matrix.cells:
        values = (write_value(name, cell.settings[name]) if name in cell.settings else "-" for name in plan.axes)
        row = [str(cell.index + 1), *values, *([cell.workload_name] if several else [])]
        table.add_row(*row, *(ceiling_in_words(ceilings[cell.name]) if ceilings else ()))
    return table


def ceiling_in_words(ceiling: Expected | None) -> tuple[str, str]:
    """Return a ceiling and the name of the term of the model that gives it, as text."""
    if ceiling is None:
        return "-", "-"
    return f"{ceiling.mb_s:.4g} MB/s, {ceiling.iops:.4g} requests/s", ceiling.limit


def left_out(matrix: Matrix) -> list[str]:
    """Return lines about axes that are left out, combinations that equal others, and impossible combinations."""
    lines = list(matrix.without)
    if matrix.merged:
        lines.append(
            f"{matrix.merged} combinations equal others once these axes are left out, and are not measured again"
        )
    for reason, those in by_reason(matrix.impossible).items():
        lines.append(f"impossible: {reason}")
        lines += [f"  {one.name}" for one in islice(those, SHOWN)]
        if len(those) > SHOWN:
            lines.append(f"  and {len(those) - SHOWN} more combinations")
    return ["", *lines] if lines else []


def by_reason(impossible: Sequence[Impossible]) -> dict[str, list[Impossible]]:
    """Return impossible combinations grouped by reason, the most frequent reason first."""
    groups: dict[str, list[Impossible]] = {}
    for one in impossible:
        groups.setdefault(one.reason, []).append(one)
    return dict(sorted(groups.items(), key=lambda group: -len(group[1])))
