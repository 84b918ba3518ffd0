"""A plan's cells in words: how they are grouped, measured and explained, the same in every form of the report."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from raidproof.record.cell import CellRecord
from raidproof.record.leaves import flat
from raidproof.record.run import RunRecord
from raidproof.report.configuration import value
from raidproof.report.words import UNKNOWN, data, number, plural

_UNITS = {
    "mb_s": "MB/s",
    "kb_s": "kB/s",
    "mib_s": "MiB/s",
    "kib_s": "KiB/s",
    "iops": "1/s",
    "per_s": "1/s",
    "ns": "ns",
    "us": "us",
    "ms": "ms",
    "s": "s",
}
"""The last words of a value's name, the longest first where one ends in another."""


@dataclass(frozen=True)
class Ranking:
    """The cells of one workload: only those can be compared."""

    place: int
    """From 1 on, in the order in which workloads appear."""
    workload: str
    measure: str
    """What is measured: ``write``."""
    unit: str
    ranked: list[CellRecord]
    """The fastest first."""
    unranked: list[CellRecord]
    """The fastest first, then those that were not measured."""

    @property
    def cells(self) -> list[CellRecord]:
        """All of them, those with a rank first."""
        return [*self.ranked, *self.unranked]

    @property
    def title(self) -> str:
        """The workload and what is measured of it."""
        measured = f"{self.measure} [{self.unit}]" if self.unit else self.measure
        return f"{self.workload}: {measured}" if measured else self.workload


def rankings(record: RunRecord) -> list[Ranking]:
    """Return one ranking a workload."""
    groups: dict[str, list[CellRecord]] = {}
    for cell in record.cells:
        groups.setdefault(cell.compared_with, []).append(cell)
    titles = workload_titles([cells[0].workload for cells in groups.values()])
    found = []
    for place, (title, cells) in enumerate(zip(titles, groups.values(), strict=True), start=1):
        what, unit = measure(next((cell.unit for cell in cells if cell.unit), ""))
        ranked = sorted((cell for cell in cells if cell.rank is not None), key=lambda cell: cell.rank or 0)
        rest = sorted((cell for cell in cells if cell.rank is None), key=lambda cell: -(cell.median or 0.0))
        found.append(Ranking(place, title, what, unit, ranked, rest))
    return found


def workload_titles(workloads: Sequence[dict[str, Any]]) -> list[str]:
    """Name each workload by its tool, and by whatever tells it from the others of that tool."""
    fields = [dict(flat(workload)) for workload in workloads]
    titles = []
    for mine in fields:
        tool = mine.get("tool")
        alike = [other for other in fields if other.get("tool") == tool]
        apart = [
            f"{field.replace('_', ' ')} {value(field, content)}"
            for field, content in mine.items()
            if any(field not in other or other[field] != content for other in alike)
        ]
        titles.append(", ".join([str(tool or "workload"), *apart]))
    return titles


def measure(name: str) -> tuple[str, str]:
    """Split the name of a value into what it is and its unit: ``write_mb_s`` is (``write``, ``MB/s``)."""
    for ending, unit in _UNITS.items():
        if name == ending or name.endswith(f"_{ending}"):
            return name.removesuffix(ending).replace("_", " ").strip(), unit
    return name.replace("_", " "), ""


def with_unit(name: str) -> str:
    """Write the name of a value for people: ``write [MB/s]``."""
    what, unit = measure(name)
    return f"{what} [{unit}]".strip() if unit else what


def spread(cell: CellRecord) -> str:
    """Return the least and the greatest of the repeats."""
    return UNKNOWN if cell.spread is None else f"{number(cell.spread[0])}-{number(cell.spread[1])}"


def of_expected(cell: CellRecord) -> str:
    """Return measured over expected, in %."""
    return UNKNOWN if cell.ratio is None else f"{100 * cell.ratio:.0f}"


def expected_value(cell: CellRecord) -> float | None:
    """Return what the hardware should have given, in the cell's unit."""
    found = (cell.expected or {}).get("value")
    return float(found) if isinstance(found, int | float) else None


def costs(cell: CellRecord) -> bool:
    """Whether a power cut is known to have cost something."""
    return cell.lost_everything or bool(cell.lost_operations)


def promises(record: RunRecord) -> str:
    """Say whether the promises of the cells were put to the test."""
    plan = record.plan
    if plan is None or plan.cut is None:
        return "promises were not tested: no power was cut, and a rank says nothing of safety"
    cut = sum(cell.lost_everything or cell.lost_operations is not None for cell in record.cells)
    return f"promises of {cut} of {plural(len(record.cells), 'cell')} were tested by a power cut"


def visited(record: RunRecord) -> str:
    """Say how many visits were made and how many of them measured something."""
    made = sum(len(cell.repeats) for cell in record.cells)
    measured = sum(len(cell.measured) for cell in record.cells)
    planned = len(record.plan.order) if record.plan else 0
    said = f"{plural(len(record.cells), 'cell')}, {plural(made, 'visit')}"
    if planned > made:
        said += f" of {planned:,}"
    return said if measured == made else f"{said}, of which {made - measured:,} measured nothing"


def overhead(record: RunRecord) -> str:
    """Say how much of the visits' wall time was not measuring."""
    plan = record.plan
    if plan is None or plan.overhead is None:
        return "no visit was timed"
    timed, whole = number(plan.timed_s), number(plan.visits_s)
    return f"the harness itself took {plan.overhead:.0%} of the visits' wall time ({timed} s of {whole} s were timed)"


def impossible(record: RunRecord) -> list[tuple[str, list[str]]]:
    """Return why combinations were left out, with their names."""
    reasons: dict[str, list[str]] = {}
    for name, reason in record.plan.impossible if record.plan else ():
        reasons.setdefault(reason, []).append(name)
    return list(reasons.items())


def seen(cell: CellRecord, part: str) -> list[tuple[str, list[str]]]:
    """Return what the visits saw of one part (``derived``, ``engine``, ...): a row a field, a value a visit."""
    visits = [dict(flat(getattr(repeat, part) or {})) for repeat in cell.repeats]
    fields = dict.fromkeys(field for visit in visits for field in visit)
    return [
        (field.replace("_", " "), [written(field, visit[field]) if field in visit else UNKNOWN for visit in visits])
        for field in fields
    ]


def written(field: str, content: Any) -> str:
    """Write a value: measured ones with three digits, bytes with a unit, the rest as the configuration does."""
    if isinstance(content, float):
        return number(content)
    if isinstance(content, int) and field.endswith(("bytes", "working_set")):
        return data(content)
    return value(field, content)


def pairs(content: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Yield the leaves of a record in words."""
    for field, leaf in flat(content or {}):
        yield field.replace("_", " "), written(field, leaf)


def value_names(cell: CellRecord) -> list[str]:
    """Return the names of all values that any visit measured, the primary one first."""
    names = dict.fromkeys(name for repeat in cell.repeats for name in repeat.values)
    return [*(name for name in names if name == cell.unit), *(name for name in names if name != cell.unit)]
