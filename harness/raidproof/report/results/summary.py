"""The summary of a run or a comparison as Markdown, for a pull request or the page of a CI job."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from raidproof.core.terminal import printable
from raidproof.record.cell import CellRecord
from raidproof.record.comparison import BASE, NEW, ComparisonRecord, Pair, SideCell, SideCut
from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord, RunRecord
from raidproof.report import comparison, write_hole
from raidproof.report.cells import Ranking, expected_value, of_expected, rankings
from raidproof.report.sensitivity import worth
from raidproof.report.terminal import happening, note
from raidproof.report.words import UNKNOWN, count, number, some, span, titled
from raidproof.report.write_hole import Row, hole_rows
from raidproof.verdict.cell import by_safety, safety_in
from raidproof.verdict.controls import blind
from raidproof.verdict.crash_states import outcome_of

MARKS = {
    Outcome.PASS: "\N{WHITE HEAVY CHECK MARK}",
    Outcome.FAIL: "\N{CROSS MARK}",
    Outcome.SKIP: "\N{BLACK RIGHT-POINTING DOUBLE TRIANGLE}",
}
"""Sign before the title, by outcome."""
OTHER = "\N{WARNING SIGN}"
"""Sign of the other outcomes: the run shows neither that promises were kept nor that one was broken."""
MOST_NAMES = 6
"""Greatest number of configurations that one line names; the tables name all."""
MOST_VERSIONS = 12
"""Greatest number of components whose versions a comparison's summary lists."""
_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~$])")


class Section(NamedTuple):
    """One table of a summary."""

    title: str
    head: list[str]
    """The titles of the columns."""
    rows: list[list[str]]


def escaped(text: object) -> str:
    """Return text in which Markdown and HTML have no special characters, in one line."""
    words = " ".join(printable(str(text)).split())
    # An underscore within a word is plain text in GitHub's Markdown; names of settings have many.
    return _SPECIAL.sub(
        lambda found: found[1] if found[1] == "_" and _within_a_word(words, found.start()) else f"\\{found[1]}", words
    )


def _within_a_word(text: str, place: int) -> bool:
    return 0 < place < len(text) - 1 and text[place - 1].isalnum() and text[place + 1].isalnum()


def summary_of_run(record: RunRecord) -> str:
    """Return the summary of a run: outcome, safety, a table of the cells of each workload, a table of crash tests."""
    tables = [ranking_table(record, ranking) for ranking in rankings(record)]
    if rows := hole_rows(record):
        tables.append(hole_table(rows))
    if record.cycles:
        tables.append(crash_test_table(record))
    lines = list(lines_of_run(record))
    cannot_prove = record.environment.cannot_prove if record.environment else []
    remarks = [f"{cell.name}: {why}" for cell in record.cells if (why := cell.why_not or cell.flag)]
    judged = [(one.title, *outcome_of(one)) for one in record.cycles]
    remarks += [f"{title}: {outcome}: {reason}" for title, outcome, reason in judged if outcome is not Outcome.PASS]
    remarks += [f"{cycle.title}: {noticed}" for cycle in record.cycles if (noticed := worth(cycle))]
    remarks += [
        f"{cycle.title}, crash states: {one.outcome}: {one.reason}"
        for cycle in record.cycles
        for one in cycle.explored
    ]
    return _rendered(record.run, record.outcome, record.reason, lines, tables, remarks, cannot_prove)


def lines_of_run(record: RunRecord) -> Iterator[str]:
    """Yield lines on the machines of a run, and on the safety of its configurations."""
    if record.environment is not None:
        yield f"kernel {record.environment.kernels}; provider {record.environment.provider}"
    if record.plan is not None:
        yield f"plan {record.plan.path}, {record.plan.repeats} rounds, seed {record.plan.seed}"
    if blind(record) is not None:
        yield "a control did not show what it had to show: no PASS of this run counts"
    for word, names in by_safety(record).items():
        yield f"{word}: {some(names, MOST_NAMES)}"


def ranking_table(record: RunRecord, ranking: Ranking) -> Section:
    """Return the table of the cells of one workload, those with a rank first."""
    head = ["rank", "cell", ranking.unit or "value", "range", "n", "expected", "% of expected", "lost", "safety"]
    return without_empty(
        Section(ranking.title, [*head, "verdict"], [cell_row(record, cell) for cell in ranking.cells])
    )


def without_empty(section: Section) -> Section:
    """Return a table without the columns in which no value is known."""
    kept = [place for place in range(len(section.head)) if any(row[place] != UNKNOWN for row in section.rows)]
    pick = [[row[place] for place in kept] for row in section.rows]
    return section._replace(head=[section.head[place] for place in kept], rows=pick)


def cell_row(record: RunRecord, cell: CellRecord) -> list[str]:
    """Return the row of a cell."""
    return [
        UNKNOWN if cell.rank is None else str(cell.rank),
        cell.name,
        number(cell.median),
        span(cell.spread),
        str(len(cell.measured)),
        number(expected_value(cell)),
        of_expected(cell),
        cell.lost or UNKNOWN,
        safety_in(record, cell).claim,
        cell.outcome.value,
    ]


def hole_table(rows: Sequence[Row]) -> Section:
    """Return the table of the write hole, with the columns of the report."""
    table = write_hole.hole_table(rows)
    head = [titled(one.title, one.unit) for one in table.fields]
    cells = [[one.cell(row).text or UNKNOWN for one in table.fields] for row in rows]
    return without_empty(Section(write_hole.TITLE, head, cells))


def crash_test_table(record: RunRecord) -> Section:
    """Return the table of the crash tests."""
    head = ["crash test", "fault", "acknowledged", "lost", "work lost [s]", "safety", "verdict"]
    title = "Power cuts" if record.plan is not None else "Crash tests"
    return Section(title, head, [crash_test_row(record, one) for one in record.cycles])


def crash_test_row(record: RunRecord, cycle: CrashTestRecord) -> list[str]:
    """Return the row of a crash test."""
    found, remark = cycle.on_server, note(record, cycle)
    outcome, _ = outcome_of(cycle)
    return [
        cycle.title,
        happening(cycle),
        count(found.acknowledged_total if found else None),
        count(found.lost_total if found else None),
        number(cycle.loss_window_s),
        safety_in(record, cycle).claim,
        f"{outcome} ({remark})" if remark else outcome.value,
    ]


def summary_of_comparison(compared: ComparisonRecord) -> str:
    """Return the summary of a comparison: outcome, differing versions, a table of the cells of each workload."""
    lines = [
        f"{name}: {'; '.join(f'{machine} {asked}' for machine, asked in side.asked.items())}"
        for name, side in ((BASE, compared.base), (NEW, compared.new))
    ]
    if compared.alike:
        lines.append("both sides requested the same software: differences are due to chance")
    tables = [
        Section(group.title, ["cell", BASE, NEW, f"{NEW} / {BASE}", "result"], [pair_row(one) for one in group.pairs])
        for group in comparison.groups(compared)
    ]
    versions = comparison.by_versions(compared.different)[:MOST_VERSIONS]
    if versions:
        tables.append(
            Section("Versions that differ", ["component", BASE, NEW, "machines"], [[*one] for one in versions])
        )
    if compared.cuts:
        rows = [[one.title, *cut_cells(one.base), *cut_cells(one.new)] for one in compared.cuts]
        head = ["configuration", f"{BASE}: lost", "verdict", f"{NEW}: lost", "verdict"]
        tables.append(Section("Power cuts", head, rows))
    remarks = [f"{pair.name}: {pair.finding}: {pair.why}" for pair in compared.pairs if pair.why]
    return _rendered(compared.name, compared.outcome, compared.reason, lines, tables, remarks, compared.cannot_prove)


def pair_row(pair: Pair) -> list[str]:
    """Return the row of a cell that both sides measured."""
    return [pair.name, values(pair.base), values(pair.new), comparison.ratio(pair).words, pair.finding.value]


def values(side: SideCell) -> str:
    """Return the median, the range and the number of the values of one side."""
    return f"{number(side.median)} ({span(side.spread)}, n={len(side.values)})" if side.values else UNKNOWN


def cut_cells(side: SideCut | None) -> list[str]:
    """Return the loss and the verdict of a power cut on one side."""
    return [side.lost_words, side.outcome.value] if side else [UNKNOWN, UNKNOWN]


def _rendered(
    title: str,
    outcome: Outcome,
    reason: str,
    lines: list[str],
    tables: list[Section],
    remarks: list[str],
    cannot_prove: list[str],
) -> str:
    environment = Environment(
        loader=PackageLoader("raidproof.report", "page"),
        autoescape=False,  # noqa: S701  the filter md escapes; the result is Markdown
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["md"] = escaped
    page = environment.get_template("summary.md.j2").render(
        mark=MARKS.get(outcome, OTHER),
        title=title,
        outcome=outcome.value,
        reason=reason,
        lines=lines,
        tables=tables,
        remarks=remarks,
        cannot_prove=cannot_prove,
    )
    return re.sub(r"\n{3,}", "\n\n", page).strip() + "\n"
