"""Known differences applied to a run or a comparison: which failures are expected, and which entries are in vain."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase

from raidproof.core.waiting import wall_clock
from raidproof.record.cell import CellRecord
from raidproof.record.known import THROUGHPUT, KnownDifference, KnownKind, KnownRecord, KnownState, KnownUse
from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord, RunRecord
from raidproof.verdict.crash_states import RECOVERY, explorations_of

CONFIGURATION, EXPLORATION = "configuration", "crash states"
"""Checkers of a cell beside those of its power cut: its effective configuration, and its explored crash states."""


@dataclass(frozen=True)
class Judged:
    """The result of one check in one cell: it failed, or it found no failure."""

    cell: str
    checkers: tuple[str, ...]
    """The names by which an entry can mean the check: the check itself, and the kind of promise that it judged."""
    kind: KnownKind
    failed: bool
    share: float | None = None
    """The share of the tested operations or crash states that failed; None if the check counts neither."""

    def meant_by(self, entry: KnownDifference) -> bool:
        """Return whether an entry is about this check in this cell. No pattern means the loss of everything."""
        return (
            self.kind is entry.kind
            and fnmatchcase(self.cell, entry.cell)
            and any(fnmatchcase(one, entry.checker) for one in self.checkers)
            and (RECOVERY not in self.checkers or entry.checker == RECOVERY)
        )

    def exceeds(self, entry: KnownDifference) -> bool:
        """Return whether a greater share failed than the entry excuses."""
        return self.failed and self.share is not None and self.share > entry.most


def known_in(
    judged: Iterable[Judged], cells: Iterable[str], entries: Sequence[KnownDifference], today: date
) -> KnownRecord:
    """Return what came of known differences.

    ``judged``: the results of all checks. ``cells``: the names of all cells.
    """
    found, names = list(judged), list(cells)
    return KnownRecord(
        date=today,
        entries=list(entries),
        uses=[use_of(entry, found, names, today) for entry in entries],
        excused=[name for name in dict.fromkeys(names) if all_expected(name, found, entries, today)],
    )


def use_of(entry: KnownDifference, judged: Sequence[Judged], cells: Sequence[str], today: date) -> KnownUse:
    """Return what came of one known difference. A cell has passed if no check that the entry means has failed."""
    meant = [one for one in judged if one.meant_by(entry)]
    failed = list(dict.fromkeys(one.cell for one in meant if one.failed))
    passed = list(dict.fromkeys(one.cell for one in meant if one.cell not in failed))
    if entry.until < today:
        state = KnownState.OUT_OF_DATE
    elif any(one.exceeds(entry) for one in meant):
        state = KnownState.EXCEEDED
    elif failed:
        state = KnownState.EXPECTED
    elif passed:
        state = KnownState.PASSED
    elif any(fnmatchcase(name, entry.cell) for name in cells):
        state = KnownState.NOT_JUDGED
    else:
        state = KnownState.NO_CELL
    return KnownUse(entry=entry, state=state, failed=failed, passed=passed)


def all_expected(cell: str, judged: Sequence[Judged], entries: Sequence[KnownDifference], today: date) -> bool:
    """Return whether a cell has failures, and entries that are not out of date expect all of them."""
    failures = [one for one in judged if one.cell == cell and one.failed]
    valid = [entry for entry in entries if today <= entry.until]
    return bool(failures) and all(
        any(one.meant_by(entry) and not one.exceeds(entry) for entry in valid) for one in failures
    )


def judged_in(record: RunRecord) -> Iterator[Judged]:
    """Yield the result of each check of a run's cells, from the verdicts on its crash tests."""
    cycles = {cycle.name: cycle for cycle in record.cycles}
    for cell in record.cells:
        yield from judged_of(cell, cycles.get(cell.cycle or ""))


def judged_of(cell: CellRecord, cycle: CrashTestRecord | None) -> Iterator[Judged]:
    """Yield the result of each check of a cell; ``cycle``: its power cut."""
    if cell.measured or cell.not_effective is not None:
        yield broken(cell, CONFIGURATION, failed=cell.not_effective is not None)
    for verdict in cycle.verdicts if cycle else ():
        if verdict.outcome in {Outcome.PASS, Outcome.FAIL}:
            names = [verdict.checker, *([verdict.kind] if verdict.kind else [])]
            share = share_of(verdict.kind, cycle) if cycle and verdict.kind else None
            yield broken(cell, *names, failed=verdict.outcome is Outcome.FAIL, share=share)
    if cycle is not None and cycle.not_effective is not None:
        yield broken(cell, CONFIGURATION, failed=True)
    explored = explorations_of(cycle, cell) if cycle else []
    outcomes = {one.outcome for one in explored}
    if outcomes & {Outcome.PASS, Outcome.FAIL}:
        share = max(one.broken / one.judged if one.judged else 1.0 for one in explored)
        yield broken(cell, EXPLORATION, failed=Outcome.FAIL in outcomes, share=share)


def share_of(kind: str, cycle: CrashTestRecord) -> float:
    """Return the greatest share of the acknowledged operations of a kind that a scan lacks; 1 if it is not known."""
    scans = [one for one in (cycle.on_server, cycle.on_client) if one is not None]
    shares = [one.lost.get(kind, 0) / one.acknowledged[kind] for one in scans if one.acknowledged.get(kind)]
    return max(shares, default=0.0) or 1.0


def broken(cell: CellRecord, *checkers: str, failed: bool, share: float | None = None) -> Judged:
    """Return the result of a check of a cell that finds broken promises."""
    return Judged(cell.name, checkers, KnownKind.BROKEN, failed, share)


def slower(cell: str, *, failed: bool) -> Judged:
    """Return the result of the comparison of a cell's values on two sides."""
    return Judged(cell, (THROUGHPUT,), KnownKind.SLOWER, failed)


def apply_known(record: RunRecord) -> None:
    """Compute again what came of the known differences that a run was judged with, from its current verdicts."""
    if record.known is not None:
        names = [cell.name for cell in record.cells]
        record.known = known_in(judged_in(record), names, record.known.entries, record.known.date)


def known_today(entries: Sequence[KnownDifference]) -> KnownRecord | None:
    """Return the record of known differences for a run that begins today; None without any."""
    return KnownRecord(date=wall_clock().date(), entries=list(entries)) if entries else None
