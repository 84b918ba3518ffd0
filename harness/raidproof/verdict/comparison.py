"""Comparison of two runs of one plan on two sides, from their records alone, by ranges; without statistics."""

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
PASSING = frozenset({"array_state", "sync_action", "last_sync_action", "resynced", "mismatch_cnt", "kernel_name"})
"""Transient fields of a layer's state, which do not depend on how the layer was built."""
NAMES = ("uuid=", "fsid=", "clientaddr=")
"""Prefixes of options that differ in every build."""


class Finding(StrEnum):
    """The result of the comparison of a cell's two sides."""

    HIGHER = "higher"
    """Every repetition of new measured more than any of base."""
    LOWER = "lower"
    NONE = "no difference shown"
    """The ranges of the repetitions overlap."""
    SINGLE = "one repetition"
    """A side has a single repetition, so that its range is not known."""
    NOT_COMPARABLE = "not comparable"
    """The value of a side reflects the rig, not the requested hardware."""
    ONE_SIDED = "not measured"
    """At least one side has no value."""


class SideCell(Strict):
    """A cell on one side."""

    values: list[float]
    """The value of each repetition that worked."""
    median: float | None
    spread: tuple[float, float] | None
    """The least and the greatest value."""
    failed: int
    """Number of repetitions that ended with a rig error."""
    limit: str
    cause: str
    flag: str | None
    lost: str | None
    """The loss by a power cut, as text; None without a power cut."""
    outcome: Outcome
    reason: str


class Pair(Strict):
    """A cell on both sides."""

    name: str
    workload: str
    """Cells with the same text measure the same thing."""
    unit: str
    base: SideCell
    new: SideCell
    ratio: float | None
    """Median of new over median of base."""
    finding: Finding
    why: str = ""
    """Why the two values cannot be compared."""


class SideCut(Strict):
    """The loss by a power cut on one side."""

    outcome: Outcome
    reason: str
    lost_words: str
    acknowledged: int | None = None
    lost: int | None = None
    """Number of acknowledged operations that were lost; None if the storage could not be read."""
    loss_window_s: float | None = None
    recovery_s: float | None = None


class CutPair(Strict):
    """The power cut of one configuration on both sides; None on a side without one."""

    title: str
    base: SideCut | None
    new: SideCut | None


class Version(Strict):
    """The effective version of one component of a machine on each side; None if not known."""

    machine: str
    what: str
    """``kernel``, or a package."""
    base: str | None
    new: str | None

    @property
    def differs(self) -> bool:
        """Whether the versions of the sides differ."""
        return self.base != self.new


class Built(Strict):
    """A field with different effective values on the two sides."""

    field: str
    """Dotted path, the layer first: ``filesystem.features``."""
    base: str
    """Value on the base side; of a list, only the elements that the other side lacks."""
    new: str
    cells: list[str]


class Side(Strict):
    """One side as a run."""

    run: str
    """The name of the side's run, which has a record and a report."""
    asked: dict[str, str]
    """The requested software by machine, as on the command line."""
    outcome: Outcome
    reason: str
    visits_s: float = 0.0


class ComparisonRecord(Strict):
    """Two sides, compared."""

    schema_version: int = COMPARISON_SCHEMA
    name: str
    plan: str = ""
    """The plan's path."""
    command: list[str] = Field(default_factory=list)
    provider: str = ""
    base: Side
    new: Side
    alike: bool
    """Whether both sides requested the same (A/A run), so that differences are due to chance."""
    versions: list[Version]
    built: list[Built]
    """Settings that are effective differently on the two sides, although the request is the same."""
    pairs: list[Pair]
    cuts: list[CutPair]
    notes: list[str] = Field(default_factory=list)
    cannot_prove: list[str] = Field(default_factory=list)
    """What a run on this provider cannot prove."""
    outcome: Outcome
    reason: str

    @property
    def different(self) -> list[Version]:
        """The components whose effective versions differ."""
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
    """Return the requested software of each machine."""
    found = {one.name: one.asked for one in run.environment.machines} if run.environment else {}
    return {
        str(machine["name"]): found.get(str(machine["name"])) or "not booted"
        for machine in run.topology.get("machines", ())
    }


def asked_alike(base: RunRecord, new: RunRecord) -> bool:
    """Return whether both sides requested the same."""
    return base.topology == new.topology


def versions_of(base: RunRecord, new: RunRecord) -> Iterator[Version]:
    """Yield the effective versions of every machine on both sides: the kernel, then each package."""
    if base.environment is None or new.environment is None:
        return
    others = {machine.name: machine for machine in new.environment.machines}
    for machine in base.environment.machines:
        if other := others.get(machine.name):
            yield from versions_on(machine, other)


def versions_on(base: MachineRecord, new: MachineRecord) -> Iterator[Version]:
    """Yield the effective versions of one machine on both sides."""
    yield Version(machine=base.name, what="kernel", base=base.kernel, new=new.kernel)
    if base.kernel == new.kernel and base.build != new.build:
        yield Version(machine=base.name, what="kernel's build", base=base.build, new=new.build)
    for package in sorted({*base.packages, *new.packages}):
        versions = (base.packages.get(package), new.packages.get(package))
        yield Version(machine=base.name, what=package, base=versions[0], new=versions[1])


def why_nothing_is_compared(base: RunRecord, new: RunRecord) -> str | None:
    """Return why requested and effective versions of the sides allow no comparison; None if they allow one."""
    if base.environment is None or new.environment is None:
        return None
    differs = any(one.differs for one in versions_of(base, new))
    if asked_alike(base, new):
        return "both sides requested the same software, but their effective versions differ" if differs else None
    if differs:
        return None
    return (
        "the sides requested different software, but every machine runs the same versions: nothing was compared "
        "(a custom kernel or package needs a distinct version)"
    )


def built_differently(pairs: list[tuple[CellRecord, CellRecord]]) -> list[Built]:
    """Return the fields whose effective values differ on the two sides of a cell.

    Cells with the same difference share an entry. So do members and clients, whose names become a star.
    """
    found: dict[tuple[str, str, str], list[str]] = {}
    for base, new in pairs:
        # A side on which nothing was built does not count as different.
        if not (base.effective and new.effective):
            continue
        ours, theirs = leaves(base), leaves(new)
        for field in dict.fromkeys([*ours, *theirs]):
            words = apart(ours.get(field), theirs.get(field))
            if words[0] != words[1]:
                found.setdefault((field, *words), []).append(base.name)
    alike: dict[tuple[str, str, str, str, tuple[str, ...]], list[str]] = {}
    for (field, old, changed), cells in found.items():
        layer, leaf = field.partition(".")[0], field.rpartition(".")[2]
        alike.setdefault((layer, leaf, old, changed, tuple(cells)), []).append(field)
    return [
        Built(field=starred(fields), base=old, new=changed, cells=list(cells))
        for (_, _, old, changed, cells), fields in alike.items()
    ]


def starred(fields: list[str]) -> str:
    """Return the common form of several fields of one layer, with a star for each part that differs."""
    parts = [field.split(".") for field in fields]
    if len({len(one) for one in parts}) > 1:
        return f"{parts[0][0]}.*.{parts[0][-1]}"
    return ".".join(part[0] if len(set(part)) == 1 else "*" for part in zip(*parts, strict=True))


def leaves(cell: CellRecord) -> dict[str, Any]:
    """Return the effective fields of each layer, without the transient ones."""
    return {path: found for path, found in flat(cell.effective) if path.rpartition(".")[2] not in PASSING}


def apart(base: Any, new: Any) -> tuple[str, str]:
    """Return two values as text; of two lists only the elements that the other lacks."""
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
    """Return the values of a cell that a comparison needs."""
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
    """Return the result of the comparison of a cell's two sides, and the reason if they cannot be compared."""
    sides = ((BASE, base), (NEW, new))
    missing = [f"{name}: {why_not_measured(cell)}" for name, cell in sides if not cell.measured]
    if missing:
        return Finding.ONE_SIDED, "; ".join(missing)
    rig = {name: why for name, cell in sides if (why := why_not_of_the_hardware(cell))}
    if rig:
        reasons = set(rig.values())
        said = (
            [f"both: {reasons.pop()}"]
            if len(rig) == 2 and len(reasons) == 1
            else [f"{k}: {v}" for k, v in rig.items()]
        )
        return Finding.NOT_COMPARABLE, "; ".join(said)
    if min(len(base.measured), len(new.measured)) < 2:
        return Finding.SINGLE, "a single repetition has no range"
    if min(new.measured) > max(base.measured):
        return Finding.HIGHER, ""
    if max(new.measured) < min(base.measured):
        return Finding.LOWER, ""
    return Finding.NONE, "the ranges overlap"


def why_not_measured(cell: CellRecord) -> str:
    """Return why a cell has no value."""
    return f"{cell.outcome.value}, {cell.reason}" if cell.outcome is not Outcome.PASS else "not measured"


def cut_pairs(base: RunRecord, new: RunRecord) -> list[CutPair]:
    """Return the pairs of power cuts of each configuration; cells that differ in the workload only share a pair."""
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
    """Return the values of a power cut that a comparison needs."""
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
    """Return the outcome and the reason of a comparison: those of the worse side, if anything was comparable."""
    sides = ((BASE, base), (NEW, new))
    early = {name: run.ended_early for name, run in sides if run.ended_early is not None}
    ends = [(name, cell) for name, run in sides for cell in run.cells]
    if early:
        # An error of one side ends both sides with the same reason.
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
        words = f"A/A, both sides run the same; {words}"
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
