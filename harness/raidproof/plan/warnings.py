"""Warnings about the cells of a plan: each rule once, with the group of cells for which it fires."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from pydantic import BaseModel, ConfigDict

from raidproof.plan.axes import write_value
from raidproof.plan.cell import Cell, Matrix
from raidproof.plan.configuration import configuration_of, profiles_of
from raidproof.plan.rules import Rule, Severity, firing


class Warned(BaseModel):
    """A rule that fires, and for a plan the cells for which it does."""

    model_config = ConfigDict(extra="forbid")

    rule: str
    severity: Severity
    reason: str
    source: str
    remedy: str
    group: str | None = None
    """The cells as settings, such as ``export=async``, or ``all cells``; None: the warning is not about cells."""
    cells: list[str] = []
    """The names of the cells."""

    def line(self) -> str:
        """Return the warning as one line without its source and its remedy."""
        return f"warning ({self.severity.value}) {self.rule}{_of(self.group)}: {self.reason}"

    def lines(self) -> Iterator[str]:
        """Yield the warning as lines for users, with its source and its remedy."""
        yield self.line()
        yield f"    source: {self.source}"
        yield f"    remedy: {self.remedy}"


def _of(group: str | None) -> str:
    return f" [{group}]" if group else ""


def warned(rule: Rule, group: str | None = None, cells: Sequence[str] = ()) -> Warned:
    """Return the warning of a rule, for users and for records."""
    return Warned(
        rule=rule.name,
        severity=rule.severity,
        reason=rule.reason,
        source=rule.source,
        remedy=rule.remedy,
        group=group,
        cells=list(cells),
    )


def warnings_of(matrix: Matrix) -> tuple[Warned, ...]:
    """Return the warnings about a plan's cells, the most severe first; each rule occurs once."""
    fired: dict[str, Rule] = {}
    cells: dict[str, list[Cell]] = {}
    profiles = profiles_of(matrix.plan.hardware)
    for cell in matrix.cells:
        for rule in firing(configuration_of(matrix.plan.hardware, cell, profiles)):
            fired[rule.name] = rule
            cells.setdefault(rule.name, []).append(cell)
    order = list(Severity)
    ranked = sorted(fired.values(), key=lambda rule: order.index(rule.severity))
    groups = Groups(matrix)
    return tuple(
        warned(rule, groups.of(cells[rule.name]), [cell.name for cell in cells[rule.name]]) for rule in ranked
    )


class Groups:
    """Short descriptions of some cells of a plan: by values of one or two axes, or else by an example."""

    def __init__(self, matrix: Matrix) -> None:
        self.axes = tuple(matrix.plan.axes)
        self.values = {cell.name: tuple(_value(axis, cell) for axis in self.axes) for cell in matrix.cells}
        """The values of each cell on the axes, in the order of the axes."""

    def of(self, some: Sequence[Cell]) -> str:
        """Return the description of some of the plan's cells."""
        names = {cell.name for cell in some}
        if len(names) == len(self.values):
            return "all cells"
        count = f"{len(names)} of {len(self.values)} cells"
        for number in (1, 2):
            for places in combinations(range(len(self.axes)), number):
                if (found := self._described_by(places, names)) is not None:
                    return f"{found}: {count}"
        return f"{count}, for example {some[0].name}"

    def _described_by(self, places: Sequence[int], names: set[str]) -> str | None:
        """Return the values on these axes, if no other cell has them; None if one has."""
        values = [{self.values[name][place] for name in names} for place in places]
        for name, own in self.values.items():
            if name not in names and all(own[place] in of for place, of in zip(places, values, strict=True)):
                return None
        words = (f"{self.axes[place]}={' or '.join(sorted(of))}" for place, of in zip(places, values, strict=True))
        return ", ".join(words)


def _value(axis: str, cell: Cell) -> str:
    return write_value(axis, cell.settings[axis]) if axis in cell.settings else "-"
