"""Two sides in words: cells by workload, versions, and what they show; the same in every form of the comparison."""

from collections.abc import Sequence
from dataclasses import dataclass

from raidproof.record.built import Built
from raidproof.report.cells import measure
from raidproof.report.words import UNKNOWN, count, number, plural
from raidproof.verdict.comparison import BASE, NEW, ComparisonRecord, Finding, Pair, SideCell, SideCut, Version

LEADING = ("kernel", "nfs-kernel-server", "nfs-common", "nfs-utils", "mdadm", "xfsprogs", "e2fsprogs", "fio")
"""What is named first where machines differ; the rest is there for the dynamic linker and the like."""
IDLE = (
    "The two labs stand side by side on one host. While one measures, the other stands idle: its machines still "
    "hold their memory and take a little CPU time."
)
NO_STATISTICS = (
    "Ratios are of medians. Where the ranges of the visits overlap, no difference is shown; where they do "
    "not, chance may still have done it: with n visits on each side that happens n! n! / (2n)! of the time in each "
    "direction."
)


@dataclass(frozen=True)
class Group:
    """The cells of one workload: what they measure can be drawn on one axis."""

    place: int
    workload: str
    measure: str
    unit: str
    pairs: Sequence[Pair]

    @property
    def title(self) -> str:
        """What is measured, and the workload."""
        what = f"{self.measure} [{self.unit}]" if self.unit else self.measure
        return f"{self.workload}: {what}" if self.workload else what


def groups(comparison: ComparisonRecord) -> list[Group]:
    """Return the cells by workload, in order of appearance."""
    found: dict[str, list[Pair]] = {}
    for pair in comparison.pairs:
        found.setdefault(pair.workload, []).append(pair)
    grouped = []
    for place, (workload, pairs) in enumerate(found.items(), start=1):
        what, unit = measure(next((pair.unit for pair in pairs if pair.unit), ""))
        grouped.append(Group(place, workload, what, unit, pairs))
    return grouped


def spread(side: SideCell) -> str:
    """Return the least and the greatest of the visits."""
    return UNKNOWN if side.spread is None else f"{number(side.spread[0])}-{number(side.spread[1])}"


def ratio(pair: Pair) -> str:
    """Return new over base."""
    return UNKNOWN if pair.ratio is None else f"{pair.ratio:.3f}"


def remarks(pair: Pair) -> list[str]:
    """Say what has to stand beside the figures of a cell: limits, flags, failures, outcomes."""
    sides = ((BASE, pair.base), (NEW, pair.new))
    said = [pair.why] if pair.why and pair.finding not in {Finding.NONE, Finding.SINGLE} else []
    if pair.finding is not Finding.ONE_SIDED and "limited by" not in pair.why:
        said.append(limits(pair))
    said += [f"{name} {side.outcome.value}: {side.reason}" for name, side in sides if side.outcome.value != "PASS"
             and side.values]  # fmt: skip
    said += [f"{name}: {plural(side.failed, 'visit')} failed" for name, side in sides if side.failed and side.values]
    flags = {name: side.flag for name, side in sides if side.flag}
    if len(flags) == 2 and len(set(flags.values())) == 1:
        return [*said, f"! both: {flags[BASE]}"]
    return [*said, *(f"! {name}: {flag}" for name, flag in flags.items())]


def limits(pair: Pair) -> str:
    """Say what limited each side."""
    if pair.base.limit == pair.new.limit:
        return f"limit: {pair.base.limit}"
    return f"limit: base {pair.base.limit}, new {pair.new.limit}"


def lost(cut: SideCut | None) -> str:
    """Say what a power cut cost."""
    return UNKNOWN if cut is None else cut.lost_words


def by_versions(versions: Sequence[Version]) -> list[tuple[str, str, str, str]]:
    """Return what differs, base, new, and on which machines; machines with the same versions share a line."""
    machines: dict[tuple[str, str, str], list[str]] = {}
    for one in versions:
        machines.setdefault((one.what, one.base or "not there", one.new or "not there"), []).append(one.machine)
    rows = [(*what, ", ".join(on)) for what, on in machines.items()]
    return sorted(rows, key=lambda row: LEADING.index(row[0]) if row[0] in LEADING else len(LEADING))


def kernels(comparison: ComparisonRecord) -> list[Version]:
    """Return every machine's kernel, whether it differs or not."""
    return [one for one in comparison.versions if one.what == "kernel"]


def asked(comparison: ComparisonRecord) -> list[tuple[str, str, str]]:
    """Return machine, and what it was asked to run on each side."""
    new = comparison.new.asked
    return [(machine, words, new.get(machine, UNKNOWN)) for machine, words in comparison.base.asked.items()]


def cells_of(built: Built, comparison: ComparisonRecord) -> str:
    """Name the cells in which something was built otherwise."""
    return "all cells" if len(built.cells) == len(comparison.pairs) else "; ".join(built.cells)


def took(comparison: ComparisonRecord) -> str:
    """Say how long the visits of both sides took."""
    visits = sum(len(side.values) + side.failed for pair in comparison.pairs for side in (pair.base, pair.new))
    seconds = comparison.base.visits_s + comparison.new.visits_s
    return f"{plural(len(comparison.pairs), 'cell')}, {count(visits)} visits on both sides in {number(seconds)} s"
