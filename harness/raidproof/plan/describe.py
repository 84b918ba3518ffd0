"""What is told of a plan before anything boots."""

from collections.abc import Sequence
from itertools import islice

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from raidproof.plan.axes import AXES, write_value
from raidproof.plan.cell import Impossible, Matrix
from raidproof.plan.duration import expect
from raidproof.plan.works import names
from raidproof.storage.server import USUAL_LEASE_S

SHOWN = 3
"""Of the combinations that one reason excludes, so many are named."""


def describe(matrix: Matrix, *, list_cells: bool = True) -> RenderableType:
    """Return hardware, cells, what is left out and why, size and expected duration."""
    parts: list[RenderableType] = [Text(line) for line in headline(matrix)]
    if list_cells:
        parts += [Text(), cell_table(matrix)]
    parts += [Text(line) for line in left_out(matrix)]
    expected = expect(matrix)
    parts += [Text(), Text(f"expected: {expected}"), Text(f"needs {expected.needs}")]
    return Group(*parts)


def headline(matrix: Matrix) -> list[str]:
    """Return what is the same for all cells."""
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
        f"cells: {len(matrix.cells)} of {plan.combinations} combinations, {run.repeats} times each, seed {run.seed}"
        + (f", only {' '.join(run.only.split())}" if run.only else ""),
        f"first resync: {resync}; power cut: "
        + ("once in each cell, after two controls" if run.cut else "none")
        + (f", and {run.explore_states:,} crash states of it" if run.cut == "explore" else ""),
    ]


def _periods(matrix: Matrix) -> list[str]:
    """Say which lease and grace period the plan sets: they are not the kernel's."""
    plan = matrix.plan
    if {"lease", "grace"} <= {*plan.axes, *plan.fixed}:
        return []
    lease = sorted({str(cell.stack.export.lease_s) for cell in matrix.cells})
    grace = sorted({str(cell.stack.export.grace_s) for cell in matrix.cells})
    return [f"NFS lease {', '.join(lease)} s, grace period {', '.join(grace)} s (the kernel's are {USUAL_LEASE_S} s)"]


def cell_table(matrix: Matrix) -> Table:
    """Return a row for each cell, a column for each axis."""
    plan = matrix.plan
    several = len(plan.workload) > 1
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("#", *plan.axes, *(["workload"] if several else [])):
        table.add_column(column, justify="right" if column == "#" else "left", overflow="fold")
    for cell in matrix.cells:
        values = (write_value(name, cell.settings[name]) if name in cell.settings else "-" for name in plan.axes)
        table.add_row(str(cell.index + 1), *values, *([cell.workload_name] if several else []))
    return table


def axis_table() -> Table:
    """Return every axis that a plan may vary, for the help."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("axis", "is", "left out where"):
        table.add_column(column, overflow="fold")
    for axis in AXES.values():
        table.add_row(axis.name, axis.help, axis.where.unless if axis.where else "")
    return table


def left_out(matrix: Matrix) -> list[str]:
    """Return what there is no cell for, and why; each reason once."""
    lines = list(matrix.without)
    if matrix.merged:
        lines.append(f"so {matrix.merged} combinations are the same as others, and not measured twice")
    for reason, those in by_reason(matrix.impossible).items():
        lines.append(f"impossible: {reason}")
        lines += [f"  {one.name}" for one in islice(those, SHOWN)]
        if len(those) > SHOWN:
            lines.append(f"  and {len(those) - SHOWN} more")
    return ["", *lines] if lines else []


def by_reason(impossible: Sequence[Impossible]) -> dict[str, list[Impossible]]:
    """Group what is impossible by the reason, the most frequent first."""
    groups: dict[str, list[Impossible]] = {}
    for one in impossible:
        groups.setdefault(one.reason, []).append(one)
    return dict(sorted(groups.items(), key=lambda group: -len(group[1])))
