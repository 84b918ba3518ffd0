"""The first lines of a run's page: whether the run is valid, and the recommended configuration."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from raidproof.record.outcome import Outcome
from raidproof.record.run import RunRecord
from raidproof.report.cells import numbered, rankings
from raidproof.report.words import number, plural
from raidproof.verdict.controls import against, blind
from raidproof.verdict.recommendation import recommend


class Valid(StrEnum):
    """Whether the results of a run count."""

    YES = "yes"
    """Every control showed what it had to show."""
    NO = "no"
    """A control did not show what it had to show."""
    NOT_SHOWN = "not shown"
    """The run had no control, or a control proved nothing."""


@dataclass(frozen=True)
class Validity:
    """Whether the results of a run count, with the reason."""

    word: Valid
    sentence: str


@dataclass(frozen=True)
class Advised:
    """One recommended cell."""

    number: int
    """Number of the cell in the report."""
    name: str
    value: str
    """The measured median with its unit, as text."""


@dataclass(frozen=True)
class Advice:
    """The recommendation for one workload."""

    workload: str
    """Title of the workload; empty if the run has only one."""
    cells: Sequence[Advised]
    sentence: str


def validity(record: RunRecord) -> Validity:
    """Return whether the results of a run count."""
    controls = [cycle for cycle in record.cycles if cycle.control is not None]
    if (unseen := blind(record)) is not None:
        return Validity(
            Valid.NO, f"no PASS counts, because a control did not show what it had to show: {unseen.title}"
        )
    if (defect := against(record)) is not None:
        return Validity(Valid.YES, f"{defect.title} shows a defect of the system under test")
    behaved = [cycle for cycle in controls if cycle.outcome is Outcome.PASS]
    if controls and len(behaved) == len(controls):
        said = "the control" if len(controls) == 1 else f"all {len(controls)} controls"
        return Validity(Valid.YES, f"{said} gave the expected result")
    if controls:
        return Validity(Valid.NOT_SHOWN, f"{len(behaved)} of {plural(len(controls), 'control')} gave a result")
    return Validity(Valid.NOT_SHOWN, "the run had no control, so nothing shows that it could find a loss")


def advice(record: RunRecord) -> list[Advice]:
    """Return the recommendation for each workload of a plan's run; a run without a plan has one reason why not."""
    if record.plan is None:
        if not record.cycles:
            return []
        return [Advice("", (), "none, because crash tests are not ranked; a plan ranks configurations")]
    numbers = numbered(record)
    ranked = rankings(record)
    by_key = {one.cells[0].compared_with: one for one in ranked}
    found = []
    for one in recommend(record):
        ranking = by_key[one.workload]
        cells = [
            Advised(numbers[cell.name], cell.name, f"{number(cell.median)} {ranking.unit}".strip())
            for cell in one.cells
        ]
        if one.why_none is not None:
            said = f"none: {one.why_none.value}"
        else:
            said = "the fastest of those shown SAFE"
            said += "; their differences are not settled" if len(cells) > 1 else ""
        found.append(Advice(ranking.title if len(ranked) > 1 else "", cells, said))
    return found
