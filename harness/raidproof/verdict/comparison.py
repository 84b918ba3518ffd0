"""Comparison of two runs of one plan with different software (the sides base and new), from their records.

Two values differ if the ranges of their repetitions do not overlap; there is no statistical test.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from pydantic import Field

from raidproof.record.cell import CellRecord, Strict
from raidproof.record.environment import MachineRecord, flat
from raidproof.record.outcome import Outcome, and_errors, worst
from raidproof.record.run import CrashTestRecord, RunRecord
from raidproof.verdict.cell import what_was_lost, why_not_of_the_hardware

BASE, NEW = "base", "new"
COMPARISON_SCHEMA = 1
TRANSIENT = frozenset({"array_state", "sync_action", "last_sync_action", "resynced", "mismatch_cnt", "kernel_name"})
"""Fields of a layer's state that do not depend on how the layer was built; they are not compared."""
NAMES = ("uuid=", "fsid=", "clientaddr=")
"""Beginnings of options whose values differ each time a layer is built; they are not compared."""


class Finding(StrEnum):
    """The result of the comparison of the values of one cell on both sides."""

    HIGHER = "higher"
    """Every value of new is greater than every value of base."""
    LOWER = "lower"
    """Every value of new is less than every value of base."""
    NONE = "no difference shown"
    """The ranges of the repetitions overlap."""
    SINGLE = "one repetition"
    """A side has a single value, so that its range is not known."""
    NOT_COMPARABLE = "not comparable"
    """The value of a side is a measure of the rig or of a cache, and not of the requested hardware."""
    ONE_SIDED = "not measured"
    """At least one side has no value."""


class SideCell(Strict):
    """The values and the verdict of one cell on one side."""

    values: list[float]
    """The value of each repetition without an error, in `Pair.unit`."""
    median: float | None
    spread: tuple[float, float] | None
    """The least and the greatest value."""
    failed: int
    """Number of repetitions in which the rig failed."""
    limit: str
    """The resource that limited most repetitions."""
    cause: str
    """The limit as a sentence."""
    flag: str | None
    """Caveats about the value; None without any."""
    lost: str | None
    """The loss by a power cut, as text; None without a power cut."""
    outcome: Outcome
    reason: str


class Pair(Strict):
    """One cell of the plan on both sides."""

    name: str
    workload: str
    """Key of the cell's workload; only cells with the same key can be compared."""
    unit: str
    """Name of the compared value, which ends with its unit: ``write_mb_s``."""
    base: SideCell
    new: SideCell
    ratio: float | None
    """Median of new divided by median of base; None if one of them is missing or 0."""
    finding: Finding
    why: str = ""
    """The reason for the finding, as a clause; empty for HIGHER and LOWER."""


class SideCut(Strict):
    """The verdict on a power cut on one side, and its loss."""

    outcome: Outcome
    reason: str
    lost_words: str
    """The loss as text, such as ``0 of 1,417`` operations."""
    acknowledged: int | None = None
    """Number of acknowledged operations; None if the storage could not be read."""
    lost: int | None = None
    """Number of acknowledged operations that were lost; None if the storage could not be read."""
    loss_window_s: float | None = None
    """Time in seconds from the earliest lost acknowledgement to the cut."""
    recovery_s: float | None = None
    """Time in seconds from power on to the first acknowledgement; None if a stage was not measured."""


class CutPair(Strict):
    """The power cut of one configuration on both sides."""

    title: str
    base: SideCut | None
    """The power cut on the base side; None if none was made."""
    new: SideCut | None
    """The power cut on the new side; None if none was made."""


class Version(Strict):
    """The effective version of one component of a machine on each side."""

    machine: str
    what: str
    """The component: ``kernel``, ``kernel's build``, or the name of a package."""
    base: str | None
    """The version on the base side; None if it is not installed, or not known."""
    new: str | None
    """The version on the new side; None if it is not installed, or not known."""

    @property
    def differs(self) -> bool:
        """Whether the versions of the sides differ."""
        return self.base != self.new


class Built(Strict):
    """A field of the configuration whose effective values differ between the two sides."""

    field: str
    """Dotted path, the layer first: ``filesystem.features``."""
    base: str
    """Value on the base side; of a list, only the elements that the new side lacks."""
    new: str
    """Value on the new side; of a list, only the elements that the base side lacks."""
    cells: list[str]
    """Names of the cells in which the values differ."""


class Side(Strict):
    """The run of one side."""

    run: str
    """The name of the run, which has a record and a report."""
    asked: dict[str, str]
    """The requested software by machine, as on the command line."""
    outcome: Outcome
    reason: str
    visits_s: float = 0.0
    """Wall time of all repetitions, in seconds."""


class ComparisonRecord(Strict):
    """The stored comparison of two sides."""

    schema_version: int = COMPARISON_SCHEMA
    name: str
    plan: str = ""
    """The plan's path."""
    command: list[str] = Field(default_factory=list)
    provider: str = ""
    base: Side
    new: Side
    alike: bool
    """Whether both sides requested the same software (A/A run), so that differences are due to chance."""
    versions: list[Version]
    """The versions of all components of all machines."""
    built: list[Built]
    """The fields whose effective values differ, although both sides requested the same configuration."""
    pairs: list[Pair]
    cuts: list[CutPair]
    notes: list[str] = Field(default_factory=list)
    """Notes for the reader about how the machines ran."""
    cannot_prove: list[str] = Field(default_factory=list)
    """What a run on this provider cannot prove."""
    outcome: Outcome
    reason: str

    @property
    def different(self) -> list[Version]:
        """The components whose effective versions differ between the sides."""
        return [one for one in self.versions if one.differs]


def compare(base: RunRecord, new: RunRecord, *, name: str) -> ComparisonRecord:
    """Return the comparison of two runs of one plan."""
    others = {cell.name: cell for cell in new.cells}
    both = [(cell, others[cell.name]) for cell in base.cells if cell.name in others]
    pairs = [pair_of(*sides) for sides in both]
    outcome, reason = conclude_comparison(base, new, pairs)
    environments = [one for one in (base.environment, new.environment) if one is not None]
    return ComparisonRecord(
        name=name,
        plan=base.plan.path if base.plan else "",
        command=base.command,
        provider=str(base.topology.get("provider", "")),
        base=side_of(base),
        new=side_of(new),
        alike=asked_alike(base, new),
        versions=list(versions_of(base, new)),
        built=built_differently(both),
        pairs=pairs,
        cuts=cut_pairs(base, new),
        notes=list(dict.fromkeys(note for one in environments for note in one.notes)),
        cannot_prove=list(dict.fromkeys(said for one in environments for said in one.cannot_prove)),
        outcome=outcome,
        reason=reason,
    )


def side_of(run: RunRecord) -> Side:
    """Return the summary of one side's run."""
    return Side(
        run=run.run,
        asked=asked_of(run),
        outcome=run.outcome,
        reason=run.reason,
        visits_s=run.plan.visits_s if run.plan else 0.0,
    )


def asked_of(run: RunRecord) -> dict[str, str]:
    """Return the requested software of each machine of a run."""
    found = {one.name: one.asked for one in run.environment.machines} if run.environment else {}
    return {
        str(machine["name"]): found.get(str(machine["name"])) or "not booted"
        for machine in run.topology.get("machines", ())
    }


def asked_alike(base: RunRecord, new: RunRecord) -> bool:
    """Return whether both sides requested the same machines with the same software."""
    return base.topology == new.topology


def versions_of(base: RunRecord, new: RunRecord) -> Iterator[Version]:
    """Yield the effective versions on both sides for every machine: first the kernel's, then those of each package."""
    if base.environment is None or new.environment is None:
        return
    others = {machine.name: machine for machine in new.environment.machines}
    for machine in base.environment.machines:
        if other := others.get(machine.name):
            yield from versions_on(machine, other)


def versions_on(base: MachineRecord, new: MachineRecord) -> Iterator[Version]:
    """Yield the effective versions on both sides for one machine."""
    yield Version(machine=base.name, what="kernel", base=base.kernel, new=new.kernel)
    if base.kernel == new.kernel and base.build != new.build:
        yield Version(machine=base.name, what="kernel's build", base=base.build, new=new.build)
    for package in sorted({*base.packages, *new.packages}):
        versions = (base.packages.get(package), new.packages.get(package))
        yield Version(machine=base.name, what=package, base=versions[0], new=versions[1])


def why_nothing_is_compared(base: RunRecord, new: RunRecord) -> str | None:
    """Return the reason why two runs cannot be compared, by their software versions; None if they can be compared."""
    if base.environment is None or new.environment is None:
        return None
    differs = any(one.differs for one in versions_of(base, new))
    if asked_alike(base, new):
        return "both sides requested the same software, but their effective versions differ" if differs else None
    if differs:
        return None
    return (
        "the sides requested different software, but every machine runs the same versions on both sides: nothing was "
        "compared (give a custom kernel or package a distinct version)"
    )


def built_differently(pairs: list[tuple[CellRecord, CellRecord]]) -> list[Built]:
    """Return the fields whose effective values differ between the two sides of a cell.

    Cells with the same difference share an entry. Members or clients with the same difference share an entry, too: a
    star stands for their names.
    """
    found: dict[tuple[str, str, str], list[str]] = {}
    for base, new in pairs:
        # A side on which no layer was built has no effective values.
        if not (base.effective and new.effective):
            continue
        ours, theirs = leaves(base), leaves(new)
        for field in dict.fromkeys([*ours, *theirs]):
            values = difference(ours.get(field), theirs.get(field))
            if values[0] != values[1]:
                found.setdefault((field, *values), []).append(base.name)
    alike: dict[tuple[str, str, str, str, tuple[str, ...]], list[str]] = {}
    for (field, old, changed), cells in found.items():
        layer, leaf = field.partition(".")[0], field.rpartition(".")[2]
        alike.setdefault((layer, leaf, old, changed, tuple(cells)), []).append(field)
    return [
        Built(field=starred(fields), base=old, new=changed, cells=list(cells))
        for (_, _, old, changed, cells), fields in alike.items()
    ]


def starred(fields: list[str]) -> str:
    """Return one dotted path for several fields of one layer, with a star for each part in which they differ."""
    parts = [field.split(".") for field in fields]
    if len({len(one) for one in parts}) > 1:
        return f"{parts[0][0]}.*.{parts[0][-1]}"
    return ".".join(part[0] if len(set(part)) == 1 else "*" for part in zip(*parts, strict=True))


def leaves(cell: CellRecord) -> dict[str, Any]:
    """Return the effective value of each field of a cell by dotted path, without the transient fields."""
    return {path: found for path, found in flat(cell.effective) if path.rpartition(".")[2] not in TRANSIENT}


def difference(base: Any, new: Any) -> tuple[str, str]:
    """Return the values of a field on both sides as text; of two lists, the elements that the other list lacks."""
    if isinstance(base, list) and isinstance(new, list):
        ours, theirs = ([str(one) for one in words if not str(one).startswith(NAMES)] for words in (base, new))
        return (
            " ".join(one for one in ours if one not in theirs) or "-",
            " ".join(one for one in theirs if one not in ours) or "-",
        )
    return "-" if base is None else str(base), "-" if new is None else str(new)


def pair_of(base: CellRecord, new: CellRecord) -> Pair:
    """Return the comparison of the two sides of a cell."""
    finding, why = finding_of(base, new)
    both = base.median is not None and new.median is not None and base.median > 0
    return Pair(
        name=base.name,
        workload=base.compared_with,
        unit=base.unit or new.unit,
        base=side_cell(base),
        new=side_cell(new),
        ratio=(new.median or 0.0) / (base.median or 1.0) if both else None,
        finding=finding,
        why=why,
    )


def side_cell(cell: CellRecord) -> SideCell:
    """Return the values and the verdict of a cell on one side."""
    return SideCell(
        values=cell.measured,
        median=cell.median,
        spread=cell.spread,
        failed=sum(repeat.rig_error is not None for repeat in cell.repeats),
        limit=cell.limit,
        cause=cell.cause,
        flag=cell.flag,
        lost=cell.lost,
        outcome=cell.outcome,
        reason=cell.reason,
    )


def finding_of(base: CellRecord, new: CellRecord) -> tuple[Finding, str]:
    """Return the result of the comparison of a cell's two sides, and the reason for it as a clause."""
    sides = ((BASE, base), (NEW, new))
    missing = [f"{name}: {why_not_measured(cell)}" for name, cell in sides if not cell.measured]
    if missing:
        return Finding.ONE_SIDED, "; ".join(missing)
    rig = {name: why for name, cell in sides if (why := why_not_of_the_hardware(cell))}
    if rig:
        reasons = set(rig.values())
        if len(rig) == 2 and len(reasons) == 1:
            return Finding.NOT_COMPARABLE, f"both: {reasons.pop()}"
        return Finding.NOT_COMPARABLE, "; ".join(f"{name}: {why}" for name, why in rig.items())
    if min(len(base.measured), len(new.measured)) < 2:
        return Finding.SINGLE, "a single repetition has no range"
    if min(new.measured) > max(base.measured):
        return Finding.HIGHER, ""
    if max(new.measured) < min(base.measured):
        return Finding.LOWER, ""
    return Finding.NONE, "the ranges of the repetitions overlap"


def why_not_measured(cell: CellRecord) -> str:
    """Return the reason why a cell has no value."""
    return f"{cell.outcome.value}, {cell.reason}" if cell.outcome is not Outcome.PASS else "not measured"


def cut_pairs(base: RunRecord, new: RunRecord) -> list[CutPair]:
    """Return the power cuts of each configuration on both sides.

    Cells that differ only in the workload have the same power cut, and share a pair.
    """
    cuts = [{cycle.name: cycle for cycle in run.cycles} for run in (base, new)]
    others = {cell.name: cell for cell in new.cells}
    pairs: dict[tuple[str | None, str | None], CutPair] = {}
    for cell in base.cells:
        other = others.get(cell.name)
        key = (cell.cycle, other.cycle if other else None)
        found = [side.get(name or "") for side, name in zip(cuts, key, strict=True)]
        if any(found) and key not in pairs:
            pairs[key] = CutPair(title=cell.name, base=side_cut(found[0]), new=side_cut(found[1]))
    return list(pairs.values())


def side_cut(cycle: CrashTestRecord | None) -> SideCut | None:
    """Return the verdict and the loss of a power cut on one side; None if none was made."""
    if cycle is None:
        return None
    seen = cycle.on_server
    return SideCut(
        outcome=cycle.outcome,
        reason=cycle.reason,
        lost_words=what_was_lost(cycle),
        acknowledged=seen.acknowledged_total if seen else None,
        lost=seen.lost_total if seen else None,
        loss_window_s=cycle.loss_window_s,
        recovery_s=cycle.recovery.total_s,
    )


def conclude_comparison(base: RunRecord, new: RunRecord, pairs: list[Pair]) -> tuple[Outcome, str]:
    """Return the outcome and the reason of a comparison.

    The outcome is that of the worst cell of both sides. It is INVALID if the software of the sides allows no
    comparison, and INCONCLUSIVE if no cell was comparable.
    """
    sides = ((BASE, base), (NEW, new))
    early = {name: run.ended_early for name, run in sides if run.ended_early is not None}
    ends = [(name, cell) for name, run in sides for cell in run.cells]
    if early:
        # An error on one side ends both runs with the same reason.
        said = f"ended early: {next(iter(early.values()))}"
        broken = next(((name, cell) for name, cell in ends if cell.outcome is Outcome.FAIL), None)
        if broken is not None:
            return Outcome.FAIL, f"{broken[0]}: {broken[1].name}: {broken[1].reason}; {said}"
        return Outcome.ERROR, said
    if (nothing := why_nothing_is_compared(base, new)) is not None:
        return Outcome.INVALID, nothing
    if not pairs:
        return Outcome.INCONCLUSIVE, "no cell was measured"
    outcome = worst(cell.outcome for _, cell in ends)
    if outcome is not Outcome.PASS:
        name, cell = next((name, cell) for name, cell in ends if cell.outcome is outcome)
        errors = (f"{other}: {one.name}: {one.reason}" for other, one in ends if one.outcome is Outcome.ERROR)
        return outcome, f"{name}: {cell.name}: {cell.reason}{and_errors(outcome, errors)}"
    counted = {finding: sum(pair.finding is finding for pair in pairs) for finding in Finding}
    found = [f"{number} {_WORDS[finding]}" for finding, number in counted.items() if number]
    words = f"{len(pairs)} {'cell' if len(pairs) == 1 else 'cells'}: {', '.join(found)}"
    if asked_alike(base, new):
        words = f"A/A run, both sides have the same software; {words}"
    comparable = any(pair.finding in {Finding.HIGHER, Finding.LOWER, Finding.NONE} for pair in pairs)
    return (Outcome.PASS if comparable else Outcome.INCONCLUSIVE), words


_WORDS = {
    Finding.HIGHER: "faster on new",
    Finding.LOWER: "slower on new",
    Finding.NONE: "without a difference shown",
    Finding.SINGLE: "with a single repetition",
    Finding.NOT_COMPARABLE: "not comparable",
    Finding.ONE_SIDED: "not measured on both sides",
}
"""The text for each finding, which follows the number of the cells with this finding."""
