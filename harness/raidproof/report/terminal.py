"""The report of a run on a terminal; the HTML report of the run uses the same tables and sentences."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from raidproof.core.terminal import printable
from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord, FaultRecord, RunRecord, ScanResult
from raidproof.record.suite import SuiteRecord
from raidproof.report.cells import show_cells
from raidproof.report.columns import Column
from raidproof.report.columns import columns as all_columns
from raidproof.report.configuration import caveats
from raidproof.report.known import tell_known
from raidproof.report.sensitivity import least_sensitive, worth
from raidproof.report.table import Cell, Field, Table, say, say_end, verdict_text
from raidproof.report.words import UNKNOWN, count, data, number, plural, some
from raidproof.report.workers import tell_workers
from raidproof.report.write_hole import show_holes
from raidproof.verdict.cell import by_safety, losing, loss_in, safety_in
from raidproof.verdict.contract import PROMISES
from raidproof.verdict.controls import blind
from raidproof.verdict.crash_states import outcome_of
from raidproof.verdict.wire import calls_of, total

SETTING = "setting"
"""The group of columns with settings; all other groups have measured values."""
RECOVERY = "recovery"
"""The group of columns whose titles on a terminal begin with the name of the group."""
MOST_NAMES = 3
"""Greatest number of configurations that the last lines of the report name; the tables name all."""
_OF_CONTROLS = {
    Outcome.PASS: "control behaved",
    Outcome.FAIL: "control shows a defect",
    Outcome.INVALID: "control misbehaved",
}


def note(record: RunRecord, cycle: CrashTestRecord) -> str:
    """Return a remark on the verdict of a control, or on a PASS that does not count; empty for other verdicts."""
    outcome, _ = outcome_of(cycle)
    if cycle.control is not None:
        return _OF_CONTROLS.get(outcome, "control")
    if outcome is Outcome.PASS and blind(record) is not None:
        return "does not count"
    return ""


def blames(cycle: CrashTestRecord) -> list[str]:
    """Return the distinct blames in the verdicts of a crash test, without those that the test's reason contains."""
    named = (str(verdict.blame) for verdict in cycle.verdicts if verdict.blame is not None)
    return [blame for blame in dict.fromkeys(named) if blame not in outcome_of(cycle)[1]]


def losses(cycle: CrashTestRecord) -> str:
    """Return a clause on the lost files and bytes of a crash test; empty if the ledger was not read on the server."""
    balance = cycle.on_server
    if balance is None:
        return ""
    if not balance.lost_total and not balance.lost_files:
        return "no file and no data lost"
    return f"{plural(balance.lost_files, 'whole file')} and {data(balance.lost_bytes)} lost"


def happening(cycle: CrashTestRecord) -> str:
    """Return the main fault of a crash test as text, with the policy of the disks' caches and the other faults."""
    named = f"{cycle.fault}, caches: {cycle.policy}" if cycle.policy else cycle.fault
    return named + "".join(f"; {relation(one, cycle)} {one.fault} ({one.target})" for one in cycle.during)


def relation(fault: FaultRecord, cycle: CrashTestRecord) -> str:
    """Return how a fault relates to the main fault in time, as a preposition or an adverb."""
    main_ns = cycle.fault_begun_ns
    if main_ns is not None and (fault.begun_ns or 0) > main_ns:
        return "then" if fault.after_stage is None else f"interrupted after the stage {fault.after_stage} by"
    over_ns = fault.resumed_ns if fault.healed_ns is None else fault.healed_ns
    return "during" if over_ns is None or main_ns is None or over_ns > main_ns else "after"


def other_faults(cycle: CrashTestRecord) -> str:
    """Return the faults beside the main fault as text, with their times and proofs; empty without any."""
    return "; ".join(
        f"{one.fault} ({one.target}){since_main(one, cycle)}: {one.proof}" + (f", {one.lasted}" if one.lasted else "")
        for one in cycle.during
    )


def since_main(fault: FaultRecord, cycle: CrashTestRecord) -> str:
    """Return the time from the main fault to another fault as text; empty if it is not known."""
    begun_ns, main_ns = fault.begun_ns, cycle.fault_begun_ns
    return f", {(begun_ns - main_ns) / 1e9:+.2f} s" if begun_ns and main_ns is not None else ""


class Row(NamedTuple):
    """A row of the table of promises: the numbers of operations of one kind."""

    promise: str
    acknowledged: int
    """Number of acknowledged operations."""
    judged: int
    """Number of acknowledged operations whose loss could have been seen."""
    lost: int
    """Number of acknowledged operations that are missing."""
    calls: str
    """Numbers of the NFS calls that the promise needs, of all kinds of operation together; empty if not counted."""


def rows(cycle: CrashTestRecord, balance: ScanResult) -> list[Row]:
    """Return a row for each promise of a crash test, in the order of `PROMISES`; ``balance``: evidence of one scan."""
    sent = total(cycle.observed.calls or {})
    by = {"WRITE": stability(cycle)}
    found = []
    for kind, promise in PROMISES.items():
        if (acknowledged := balance.acknowledged.get(kind)) is None:
            continue
        needed = sorted(calls_of(kind, cycle.asked.get("mount", {})))
        calls = ", ".join(f"{sent[name]:,} {name}{by.get(name, '')}" for name in needed) if sent else ""
        judged = balance.judged.get(kind, acknowledged)
        found.append(Row(promise, acknowledged, judged, balance.lost.get(kind, 0), calls))
    return found


def stability(cycle: CrashTestRecord) -> str:
    """Return the numbers of WRITE calls by requested stability, in parentheses; empty without captured packets."""
    writes = cycle.observed.replies.writes if cycle.observed.replies is not None else {}
    return f" ({', '.join(f'{count:,} {how}' for how, count in sorted(writes.items()))})" if writes else ""


def dated(cycle: CrashTestRecord) -> str:
    """Return a sentence on the operations whose time is that of the server's reply; empty without captured packets."""
    replies = cycle.observed.replies
    if replies is not None and replies.none_dated:
        return (
            f" The capture of the server's replies dated none of {replies.of:,} operations: the time of"
            " acknowledgement is that of the client's report, which arrives later."
        )
    if replies is None or not (replies.dated and replies.of and replies.reported_later_ms):
        return ""
    later_ms = replies.reported_later_ms
    return (
        f" The time of acknowledgement is that of the server's last reply on the wire for {replies.dated:,} of"
        f" {replies.of:,} operations; the clients' reports arrived {later_ms.median} ms later (median; least"
        f" {later_ms.least} ms, greatest {later_ms.most} ms)."
    )


def left_out(cycle: CrashTestRecord) -> dict[str, str]:
    """Return the kinds of operation that the ledger did not execute in a crash test, each with the reason."""
    kinds: dict[str, str] = cycle.workload.get("left_out", {})
    return kinds


class Case(NamedTuple):
    """A test of a suite that did not pass, as a row of the HTML report."""

    end: str
    """Result of the test: ``failed``, ``failed, as expected``, ``unknown`` or ``skipped``."""
    name: str
    reason: str


def cases(suite: SuiteRecord) -> Iterator[Case]:
    """Yield the tests of a suite that did not pass: first the failed ones, then unknown results, then skipped ones."""
    for end in ("failed", "unknown", "skipped"):
        for one in getattr(suite.outcomes, end):
            known = end == "failed" and one.name in suite.known
            yield Case("failed, as expected" if known else end, one.name, one.reason)


def counts(suite: SuiteRecord) -> str:
    """Return the numbers of a suite's tests by result, as text."""
    ends = ("passed", "failed", "skipped", "unknown")
    said = [f"{count(number_of)} {end}" for end in ends if (number_of := len(getattr(suite.outcomes, end)))]
    return ", ".join(said) or "no test ran"


def suite_table(record: RunRecord) -> Table[SuiteRecord]:
    """Return the table of a run's suites."""
    return Table(
        [
            Field("suite", lambda suite: suite.title, names_row=True),
            Field("verdict", lambda suite: Cell(verdict=suite.outcome), "word"),
            Field("tests", counts),
            Field("time", lambda suite: number(suite.seconds), "number", "s"),
            Field("reason", lambda suite: suite.reason),
        ],
        record.suites,
    )


Numbered = tuple[int, CrashTestRecord]
"""A crash test with its number in the report."""


def crash_test_table(record: RunRecord) -> Table[Numbered]:
    """Return the table of crash tests: verdict, safety, and all registered columns."""

    def verdict(one: Numbered) -> Cell:
        loses = safety_in(record, one[1]).loses
        return Cell(verdict=outcome_of(one[1])[0], plain=loses, below=note(record, one[1]))

    def safety(one: Numbered) -> Cell:
        found = safety_in(record, one[1])
        return Cell(found.size, found.word)

    def name(one: Numbered) -> Cell:
        return Cell(one[1].title, tag="control" if one[1].control else "", link=f"#cycle-{one[0]}")

    return Table(
        [
            Field("#", lambda one: str(one[0]), "number"),
            Field("row", name, names_row=True),
            Field("verdict", verdict, "word"),
            Field("safety", safety),
            *map(registered, all_columns()),
        ],
        list(enumerate(record.cycles, start=1)),
        note="Speed: measured before the fault. Acknowledged work: found on the server after the fault. "
        "The sign - means: not known.",
    )


def registered(column: Column) -> Field[Numbered]:
    """Return the `Field` of the table of crash tests for a registered `Column`."""

    def cell(one: Numbered) -> Cell:
        value = column.value(one[1])
        text, bracket, rest = value.partition(" (") if column.unit else (value, "", "")
        return Cell(text, aside=bracket.strip() + rest, loss="lost" in column.title and value not in ("0", UNKNOWN))

    alone = f"{column.group} {column.title}" if column.group == RECOVERY else ""
    return Field(column.title, cell, "number" if column.unit else "word", column.unit, column.group, alone)


def show(record: RunRecord, console: Console, report: Path | None = None) -> None:
    """Print the report of a run: tables, a line for each crash test, the outcome, and the path of the HTML report."""
    if record.plan is not None:
        show_cells(record, console)
        show_holes(record, console)
        show_cuts(record, console)
        tell_workers(record.plan.workers, console)
    elif record.cycles or not record.suites:
        show_cycles(record, console)
    show_explorations(record, console)
    if record.suites:
        console.print(suite_table(record).drawn(console.width))
        console.print()
    if by_safety(record):
        say(console, safety_line(record))
    tell_known(record.known, console)
    say_end(console, "run", record.outcome, record.reason, report, plain=losing(record))


def show_cuts(record: RunRecord, console: Console) -> None:
    """Print the table of a plan's power cuts, and a line for each power cut that did not pass."""
    if not record.cycles:
        return
    console.print(Text("Power cuts", style="bold"))
    console.print(verdict_table(record).drawn(console.width))
    console.print()
    numbered = enumerate(record.cycles, start=1)
    bad = [(place, one) for place, one in numbered if outcome_of(one)[0] is not Outcome.PASS]
    for place, cycle in bad:
        say(console, line(record, place, cycle))
    least = least_sensitive(record.cycles)
    if least is not None:
        place = record.cycles.index(least) + 1
        say(
            console, f"{place} {printable(least.title)}: least sensitive of the power cuts that passed: {worth(least)}"
        )
    if bad or least is not None:
        console.print()


def show_explorations(record: RunRecord, console: Console) -> None:
    """Print a line for each exploration of the crash states of a crash test: its outcome and the reason."""
    found = [(place, cycle, one) for place, cycle in enumerate(record.cycles, start=1) for one in cycle.explored]
    for place, cycle, one in found:
        said = Text(f"{place} {printable(cycle.title)}, crash states: ")
        said.append_text(verdict_text(one.outcome, plain=bool(loss_in(one)))).append(f": {printable(one.reason)}")
        say(console, said)
    for place, cycle in enumerate(record.cycles, start=1):
        if cycle.no_states:
            say(console, f"{place} {cycle.title}, crash states: not checked: {cycle.no_states}")
    if found:
        console.print()


def show_cycles(record: RunRecord, console: Console) -> None:
    """Print the tables of a run's crash tests, a line for each crash test, and what only some stacks cannot prove."""
    console.print(verdict_table(record).drawn(console.width))
    for table in measured_tables(record, console.width):
        console.print()
        console.print(table.drawn(console.width))
    console.print()
    for place, cycle in enumerate(record.cycles, start=1):
        say(console, line(record, place, cycle))
        if noticed := worth(cycle):
            say(console, f"{place} sensitivity: {noticed}")
    for caveat, rows in caveats(record.cycles).items():
        if len(rows) < len(record.cycles):  # the HTML report has the caveats of all rows
            say(console, f"only in row {', '.join(map(str, rows))}: {caveat}")
    console.print()


def verdict_table(record: RunRecord) -> Table[Numbered]:
    """Return the table of the settings, verdict and safety of each crash test, which fits any width of a terminal."""
    table = crash_test_table(record)
    number, row, *verdicts = (field for field in table.fields if not field.group)
    settings = [field for field in table.fields if field.group == SETTING]
    return replace(table, fields=[number, row, *settings, *verdicts])


def measured_tables(record: RunRecord, width: int) -> Iterator[Table[Numbered]]:
    """Yield tables of the measured values that fit a terminal of ``width`` characters, as few as possible."""
    table = crash_test_table(record)
    measured = [field for field in table.fields if field.group not in ("", SETTING)]
    packed: list[Field[Numbered]] = []
    used = first = len(str(len(record.cycles)))
    for _, grouped in groupby(measured, key=lambda field: field.group):
        group = list(grouped)
        more = sum(table.narrowest(field) + 1 for field in group)
        if packed and used + more > width:
            yield replace(table, fields=[table.fields[0], *packed])
            packed, used = [], first
        packed, used = [*packed, *group], used + more
    yield replace(table, fields=[table.fields[0], *packed])


def line(record: RunRecord, place: int, cycle: CrashTestRecord) -> Text:
    """Return a line with the outcome of a crash test, its reason, blame and losses; ``place``: its number."""
    remark = note(record, cycle)
    outcome, reason = outcome_of(cycle)
    said = Text(f"{place} {printable(cycle.title)} ({printable(happening(cycle))}): ")
    said.append_text(verdict_text(outcome, plain=safety_in(record, cycle).loses)).append(
        f" ({remark})" if remark and remark not in reason else ""
    )
    said.append(f": {printable(reason)}")
    if unsaid := blames(cycle):
        said.append(f"; blame: {printable('; '.join(unsaid))}")
    if lost := losses(cycle):
        said.append(f"; {lost}")
    return said


def safety_line(record: RunRecord) -> Text:
    """Return a line with the names of a run's configurations by safety verdict."""
    said = Text("safety: ")
    for place, (word, names) in enumerate(by_safety(record).items()):
        said.append("; " if place else "").append_text(verdict_text(word))
        said.append(f": {printable(some(names, MOST_NAMES, ', '))}")
    return said
