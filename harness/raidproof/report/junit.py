"""The report as JUnit XML for continuous integration servers."""

from collections.abc import Mapping
from pathlib import Path

from junitparser import Error, Failure, JUnitXml, Properties, Property, Skipped, TestCase, TestSuite

from raidproof.core.terminal import printable
from raidproof.record.cell import CellRecord
from raidproof.record.outcome import Outcome
from raidproof.record.results.store import RunStore
from raidproof.record.run import CrashTestRecord, RunRecord
from raidproof.report.sensitivity import figures, worth
from raidproof.report.terminal import blames, losses
from raidproof.verdict.cell import by_safety, safety_in
from raidproof.verdict.controls import blind
from raidproof.verdict.crash_states import outcome_of


def write_junit(record: RunRecord, path: Path) -> None:
    """Write the JUnit file of a run atomically; it has a test case for each cell and each crash test.

    If a control did not show what it had to show, crash tests and cells that passed appear as skipped, not as passed.
    """
    RunStore(path.parent).write_text(path.name, render(record))


def render(record: RunRecord) -> str:
    """Return the JUnit XML of a run."""
    suite = TestSuite(printable(record.run))
    suite.timestamp = record.started.isoformat()
    suite.add_property("outcome", record.outcome.value)
    suite.add_property("reason", printable(record.reason))
    for word, names in by_safety(record).items():
        suite.add_property(word.value, printable("; ".join(names)))
    for name, value in about(record).items():
        suite.add_property(name, printable(value))
    suite.add_testcases([with_context(case_of_cell(record, cell), record, cell.outcome) for cell in record.cells])
    suite.add_testcases(
        [with_context(case_of(record, cycle), record, outcome_of(cycle)[0]) for cycle in record.cycles]
    )
    if record.outcome not in {one.outcome for one in record.cells} | {outcome_of(one)[0] for one in record.cycles}:
        # If no other test case has the run's outcome, an additional one shows it.
        suite.add_testcase(case("the run", record.run, record.outcome, record.reason))
    if record.ended is not None:
        suite.time = (record.ended - record.started).total_seconds()
    xml = JUnitXml()
    xml.add_testsuite(suite)
    return str(xml.tostring().decode())  # type: ignore[no-untyped-call]


def about(record: RunRecord) -> dict[str, str]:
    """Return the provider, the kernel and the plan of a run, as far as they are known, by name of the property."""
    found = {"provider": str(record.topology.get("provider", ""))}
    if record.environment is not None:
        found |= {"provider": record.environment.provider, "kernel": record.environment.kernels}
    if record.plan is not None:
        found["plan"] = record.plan.path
    return {name: value for name, value in found.items() if value}


def with_context(made: TestCase, record: RunRecord, outcome: Outcome) -> TestCase:
    """Return a test case with additional properties: the outcome of its part of the run, and those of the run.

    Servers that read JUnit show the properties of test cases, but not all of them those of the suite.
    """
    properties = made.child(Properties)  # type: ignore[no-untyped-call]
    if properties is None:
        properties = Properties()  # type: ignore[no-untyped-call]
        made.append(properties)  # type: ignore[no-untyped-call]
    for name, value in {"outcome": outcome.value, **about(record)}.items():
        properties.add_property(Property(name, printable(value)))
    return made


def case_of(record: RunRecord, cycle: CrashTestRecord) -> TestCase:
    """Return the test case of a crash test."""
    outcome, reason = outcome_of(cycle)
    if cycle.control:
        # The titles of the demo's and of a plan's controls begin with the word already.
        title = f"control: {cycle.title.removeprefix('control: ')}"
    else:
        # The test case of the plan's cell has the same title.
        title = f"power cut: {cycle.title}" if record.plan else cycle.title
    if outcome is Outcome.PASS and (why := does_not_count(record)):
        said = f"{why}; this crash test: PASS: {reason}"
        return case(title, record.run, Outcome.SKIP, said)
    made = case(title, record.run, *end_of(outcome, reason, expected=expected(record, cycle.name)))
    safety = safety_in(record, cycle)
    told = {"safety": safety.word, "safety_size": safety.size or None, **figures(cycle)}
    made.append(properties_of(told))  # type: ignore[no-untyped-call]
    lines = [
        f"{outcome}: {reason}",
        str(safety),
        losses(cycle),
        f"sensitivity: {noticed}" if (noticed := worth(cycle)) else "",
        *(f"blame: {blame}" for blame in blames(cycle)),
    ]
    explored = [f"crash states: {one.outcome}: {one.reason}" for one in cycle.explored]
    verdicts = [f"{verdict.checker}: {verdict.outcome}: {verdict.reason}" for verdict in cycle.verdicts]
    made.system_out = printable("\n".join(one for one in [*lines, *explored, *verdicts] if one))
    return made


def does_not_count(record: RunRecord) -> str:
    """Return why a PASS of a run does not count; empty if it counts."""
    unseen = blind(record)
    return "" if unseen is None else f"does not count: {unseen.title}: {outcome_of(unseen)[1]}"


def case_of_cell(record: RunRecord, cell: CellRecord) -> TestCase:
    """Return the test case of a plan's cell, with the cell's values as properties."""
    outcome, reason = cell.outcome, cell.reason
    if outcome is Outcome.PASS and (why := does_not_count(record)):
        outcome, reason = Outcome.SKIP, f"{why}; this cell: PASS: {reason}"
    excused = record.known is not None and cell.name in record.known.excused
    made = case(cell.name, record.run, *end_of(outcome, reason, expected=excused))
    made.time = sum(repeat.visit_s for repeat in cell.repeats)
    figures = {
        "median": cell.median,
        "unit": cell.unit or None,
        "rank": cell.rank,
        "n": len(cell.measured),
        "least": cell.spread and cell.spread[0],
        "greatest": cell.spread and cell.spread[1],
        "measured_over_expected": cell.ratio,
        "limit": cell.limit,
        "lost": cell.lost,
        "safety": safety_in(record, cell).word,
        "safety_size": safety_in(record, cell).size or None,
        "flag": cell.flag,
        "why_not_ranked": cell.why_not,
    }
    made.append(properties_of(figures))  # type: ignore[no-untyped-call]
    said = [f"{cell.outcome}: {cell.reason}", cell.why_not and f"no rank: {cell.why_not}", cell.cause, cell.flag]
    made.system_out = printable("\n".join(one for one in said if one))
    return made


def expected(record: RunRecord, cycle: str) -> bool:
    """Return whether the known differences of a run expect the failures of a crash test, in all of its cells."""
    cells = [cell.name for cell in record.cells if cell.cycle == cycle]
    return bool(cells) and record.known is not None and set(cells) <= set(record.known.excused)


def end_of(outcome: Outcome, reason: str, *, expected: bool) -> tuple[Outcome, str]:
    """Return outcome and reason of a test case; an expected failure appears as skipped."""
    if outcome is Outcome.FAIL and expected:
        return Outcome.SKIP, f"expected failure: {reason}"
    return outcome, reason


def properties_of(figures: Mapping[str, object]) -> Properties:
    """Return the JUnit properties with these names and values, without those whose value is None."""
    properties = Properties()  # type: ignore[no-untyped-call]
    for name, value in figures.items():
        if value is not None:
            properties.add_property(Property(name, printable(str(value))))
    return properties


def case(title: str, run: str, outcome: Outcome, reason: str) -> TestCase:
    """Return a JUnit test case: passed, failed or skipped by the outcome; an error for any other outcome."""
    made = TestCase(printable(title), classname=f"raidproof.{printable(run)}")
    match outcome:
        case Outcome.PASS:
            pass
        case Outcome.FAIL:
            made.result = [Failure(printable(reason), outcome.value)]
        case Outcome.SKIP:
            made.result = [Skipped(printable(reason), outcome.value)]
        case _:
            made.result = [Error(printable(reason), outcome.value)]
    return made
