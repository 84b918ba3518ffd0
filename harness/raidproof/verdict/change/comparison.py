"""Comparison of two runs of one plan with different software (the sides base and new), from their records."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from raidproof.record.cell import CellRecord
from raidproof.record.comparison import (
    BASE,
    MARGIN,
    NEW,
    Built,
    ComparisonRecord,
    CutPair,
    Pair,
    PairFinding,
    Side,
    Version,
)
from raidproof.record.environment import MachineRecord, flat
from raidproof.record.known import KnownRecord
from raidproof.record.outcome import Outcome, and_errors
from raidproof.record.run import RunRecord
from raidproof.verdict.change.difference import Rules, judge_cuts, judge_pairs
from raidproof.verdict.change.host import account_for_host
from raidproof.verdict.conclusion import Part, concluded
from raidproof.verdict.known import Judged, judged_in, known_in, slower

TRANSIENT = frozenset({"array_state", "sync_action", "last_sync_action", "resynced", "mismatch_cnt", "kernel_name"})
"""Fields of a layer's state that do not depend on how the layer was built; they are not compared."""
NAMES = ("uuid=", "fsid=", "clientaddr=")
"""Beginnings of options whose values differ each time a layer is built; they are not compared."""


def compare(
    base: RunRecord,
    new: RunRecord,
    *,
    name: str,
    margin: float = MARGIN,
    looks: int = 1,
    paired: bool = True,
    known: KnownRecord | None = None,
) -> ComparisonRecord:
    """Return the comparison of two runs of one plan.

    ``margin``: the greatest change of a cell that is the same, as a share. ``looks``: how often the sides may be
    compared, while repetitions are added until they are decided. ``paired``: whether both sides were measured in turn.
    ``known``: the differences that are expected.
    """
    rules = Rules(margin=margin, looks=looks, paired=paired)
    others = {cell.name: cell for cell in new.cells}
    both = [(cell, others[cell.name]) for cell in base.cells if cell.name in others]
    pairs = judge_pairs(both, rules)
    if not paired:
        pairs = account_for_host(pairs, both, rules)
    cycles = [{cycle.name: cycle for cycle in run.cycles} for run in (base, new)]
    cuts = judge_cuts([(cell, others.get(cell.name)) for cell in base.cells], cycles)
    if known is not None:
        judged = [*judged_values(pairs, margin), *judged_in(new)]
        known = known_in(judged, [cell.name for cell in new.cells], known.entries, known.date)
    alike = are_alike(base, new, paired=paired)
    nothing = why_nothing_is_compared(base, new) if paired else None
    excused = frozenset(known.excused if known else ())
    outcome, reason = conclude_comparison(
        base, new, pairs, cuts, margin, alike=alike, nothing=nothing, excused=excused
    )
    environments = [one for one in (base.environment, new.environment) if one is not None]
    return ComparisonRecord(
        name=name,
        plan=base.plan.path if base.plan else "",
        command=base.command,
        provider=str(base.topology.get("provider", "")),
        base=side_of(base),
        new=side_of(new),
        alike=alike,
        versions=list(versions_of(base, new)),
        built=built_differently(both),
        pairs=pairs,
        cuts=cuts,
        margin=margin,
        confidence=rules.confidence,
        looks=looks,
        known=known,
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


def are_alike(base: RunRecord, new: RunRecord, *, paired: bool) -> bool:
    """Return whether both sides have the same machines and software, so that differences are due to chance.

    Sides that were not measured in turn may have different versions of the same requested software.
    """
    return asked_alike(base, new) and (paired or not any(one.differs for one in versions_of(base, new)))


def judged_values(pairs: Sequence[Pair], margin: float) -> Iterator[Judged]:
    """Yield the result of the comparison of values for each cell of which it is known whether new is slower."""
    for pair in pairs:
        if pair.finding is PairFinding.SLOWER:
            yield slower(pair.name, failed=True)
        elif pair.not_slower(margin):
            yield slower(pair.name, failed=False)


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
    # A side on which no layer was built has no effective values.
    return different_fields([pair for pair in pairs if pair[0].effective and pair[1].effective], leaves)


def different_fields(
    pairs: Sequence[tuple[CellRecord, CellRecord]], fields_of: Callable[[CellRecord], dict[str, Any]]
) -> list[Built]:
    """Return the fields that differ between the two sides of a cell; ``fields_of``: the fields of a side by path."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for base, new in pairs:
        ours, theirs = fields_of(base), fields_of(new)
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


def conclude_comparison(
    base: RunRecord,
    new: RunRecord,
    pairs: list[Pair],
    cuts: list[CutPair],
    margin: float,
    *,
    alike: bool,
    nothing: str | None = None,
    excused: frozenset[str] = frozenset(),
) -> tuple[Outcome, str]:
    """Return the outcome and the reason of a comparison.

    FAIL if a cell is slower on new, or if new breaks a promise. A promise that only base breaks is no failure. ERROR
    and INVALID are those of the worst cell of both sides. INVALID if the software of the sides allows no comparison.
    INCONCLUSIVE if no cell was comparable, if a cell may be slower by more than the margin, if sides with the same
    software differ, or if verdicts differ that the sensitivity of the sides may explain.

    ``alike``: whether the sides have the same software. ``nothing``: why the software allows no comparison.
    ``excused``: the names of the cells whose failures are expected.
    """
    sides = ((BASE, base), (NEW, new))
    early = {name: run.ended_early for name, run in sides if run.ended_early is not None}
    ends = [(name, cell) for name, run in sides for cell in run.cells]
    judged = [
        (name, cell)
        for name, cell in ends
        if cell.outcome is not Outcome.FAIL or (name == NEW and cell.name not in excused)
    ]
    if early:
        # An error on one side ends both runs with the same reason.
        said = f"ended early: {next(iter(early.values()))}"
        broken = [(name, cell) for name, cell in judged if cell.outcome is Outcome.FAIL]
        of_broken = [Part(Outcome.FAIL, f"{name}: {cell.name}: {cell.reason}; {said}") for name, cell in broken]
        return concluded([Part(Outcome.ERROR, said), *of_broken], held="")
    if nothing is not None:
        return concluded([Part(Outcome.INVALID, nothing)], held="")
    if not pairs:
        return concluded([], held="", nothing="no cell was measured")
    found = differences_in_words(pairs, cuts, alike=alike)
    if excused:
        found += f"; all failures are expected in {len(excused)} {'cell' if len(excused) == 1 else 'cells'}"
    outcome = outcome_of_differences(pairs, cuts, margin, alike=alike, excused=excused)
    errors = [f"{name}: {cell.name}: {cell.reason}" for name, cell in ends if cell.outcome is Outcome.ERROR]
    of_cells = [
        Part(cell.outcome, f"{name}: {cell.name}: {cell.reason}{and_errors(cell.outcome, errors)}; {found}")
        for name, cell in judged
    ]
    return concluded([Part(outcome, found), *of_cells], found)


def outcome_of_differences(
    pairs: list[Pair], cuts: list[CutPair], margin: float, *, alike: bool, excused: frozenset[str] = frozenset()
) -> Outcome:
    """Return the outcome that follows from the differences between the sides alone.

    ``excused``: the names of the cells whose failures are expected.
    """
    if any(one.newly_broken for cut in cuts if cut.title not in excused for one in cut.promises):
        return Outcome.FAIL
    counted = [pair for pair in pairs if pair.name not in excused]
    if any(pair.finding is PairFinding.SLOWER for pair in counted) and not alike:
        return Outcome.FAIL
    if any(one.doubt for cut in cuts if cut.title not in excused for one in cut.promises):
        return Outcome.INCONCLUSIVE
    if alike and any(pair.finding in {PairFinding.FASTER, PairFinding.SLOWER} for pair in counted):
        return Outcome.INCONCLUSIVE
    compared = [pair for pair in pairs if pair.finding not in {PairFinding.NOT_COMPARABLE, PairFinding.ONE_SIDED}]
    settled = (pair.name in excused or pair.not_slower(margin) for pair in compared)
    return Outcome.PASS if compared and all(settled) else Outcome.INCONCLUSIVE


def differences_in_words(pairs: list[Pair], cuts: list[CutPair], *, alike: bool) -> str:
    """Return the numbers of findings and of promises newly broken or kept, as text."""
    counted = {finding: sum(pair.finding is finding for pair in pairs) for finding in PairFinding}
    found = ", ".join(f"{number} {_WORDS[finding]}" for finding, number in counted.items() if number)
    words = f"{len(pairs)} {'cell' if len(pairs) == 1 else 'cells'}: {found}"
    changes = [one for cut in cuts for one in cut.promises]
    for number, said in (
        (sum(one.newly_broken for one in changes), "newly broken"),
        (sum(one.newly_kept for one in changes), "newly kept"),
        (sum(bool(one.doubt) for one in changes), "in doubt, as the sides would not have noticed as much"),
    ):
        if number:
            words += f"; {number} {'promise' if number == 1 else 'promises'} {said}"
    return f"A/A run, both sides have the same software; {words}" if alike else words


_WORDS = {
    PairFinding.FASTER: "faster on new",
    PairFinding.SLOWER: "slower on new",
    PairFinding.SAME: "the same",
    PairFinding.UNDECIDED: "undecided",
    PairFinding.BIMODAL: "bimodal",
    PairFinding.NOT_COMPARABLE: "not comparable",
    PairFinding.ONE_SIDED: "not measured on both sides",
}
"""The text for each finding, which follows the number of the cells with this finding."""
