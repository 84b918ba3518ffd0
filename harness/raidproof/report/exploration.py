"""The report of an exploration: sentences, chart and tables."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from raidproof.record.exploration import (
    ExplorationRecord,
    FailureRecord,
    MissingRecord,
    Possible,
    StageTime,
    StateMark,
    WriteRecord,
)
from raidproof.report.chart import Axis, TimeBar, time_bar
from raidproof.report.table import Cell, Field, Table, say, say_end
from raidproof.report.words import UNKNOWN, count, number, plural

WIDTH = 960.0
LEFT, RIGHT, TOP, GROUND = 132.0, 924.0, 34.0, 134.0
LANE = 20.0
FIRST_LANE = GROUND + 34.0
BINS = 160
COLUMN = 4.0
"""Width of a mark in pixels; states of one lane within this width share a mark."""
LEAST_SPAN_S = 0.001
MOST_WRITES = 5


def possible(value: Possible) -> str:
    """Return the number of possible states as text."""
    return count(value.exact) if value.exact is not None else f"10^{value.log10:.0f}"


def summary(record: ExplorationRecord) -> str:
    """Return a one-sentence summary of the checked states."""
    of = f" of {record.asked:,} requested" if record.asked and record.judged < record.asked else ""
    speed = f" ({record.states_per_minute:,.0f} per minute)" if record.states_per_minute else ""
    checked = f"{record.checked:,} were checked on machines"
    if record.checked_per_minute:
        checked += f" ({record.checked_per_minute:,.0f} per minute)"
    return (
        f"{record.requests:,} write requests and {record.cuts:,} instants of a power cut allow "
        f"{possible(record.possible)} crash states; {plural(record.judged, 'state')}{of} judged{speed}: "
        f"{record.distinct:,} differ, {checked}; promises are broken in {record.broken:,}"
    )


def tested(record: ExplorationRecord) -> str:
    """Return the numbers of operations whose loss a state could show, by kind, and of undecided states."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in record.tested.items())
    said = f"acknowledged operations that a state could have lost: {kinds or 'none'}"
    if record.undecided is not None:
        said += f"; undecided in {plural(record.undecided.states, 'state')}: {record.undecided.reason}"
    return said


def cold(record: ExplorationRecord) -> str:
    """Return the result of the cold checks, which show whether reused checkers gave wrong results."""
    if not record.cold.checked:
        return "no state was checked on a freshly booted machine"
    agreed = record.cold.checked - len(record.cold.differing)
    said = f"{plural(record.cold.checked, 'state')} checked again on a freshly booted machine: {agreed} agree"
    return said + (f"; {record.through_nfsd:,} others were also read through nfsd" if record.through_nfsd else "")


def filesystems(record: ExplorationRecord) -> str:
    """Return the number of states that the file system's checker (fsck) has checked."""
    return f"the file system's checker (fsck) ran on {plural(record.filesystems, 'state')}"


def redundancy(record: ExplorationRecord) -> str:
    """Return the numbers of states with inconsistent redundancy, and whether md would correct it by a resync."""
    one, said = record.redundancy, []
    if one.checked:
        said.append(f"array rows are inconsistent in {one.differing:,} of {plural(one.checked, 'state')}")
        left = f"in {one.unmarked:,} md would not resync all of them" if one.unmarked else "md would resync them"
        if one.uneven:
            left += f", in {one.uneven:,} the resync depends on which member's bitmap md reads"
        said += [left] if one.differing else []
        if one.changed:
            said.append(f"in {one.changed:,} copies differ as a page changed during write-back, which md allows")
        if one.all_marked:
            said.append(f"in {one.all_marked:,} the bitmap marked every region, so that no row could be missed")
    said += [f"{plural(count, 'state')} not compared: {why}" for why, count in one.unchecked.items()]
    return "; ".join(said) or "no state's redundancy was compared"


def effort(record: ExplorationRecord) -> str:
    """Return the median duration of each stage of a check."""
    stages = ", ".join(f"{one.stage} {number(one.median)}" for one in record.stages)
    return f"median time of each stage of a check [ms]: {stages}" if stages else "no state was checked on a machine"


def missing(one: MissingRecord) -> str:
    """Return a sentence about a missing acknowledged operation."""
    return (
        f"{one.kind} of {one.path} {one.place}, generation {one.generation}, was acknowledged to {one.client} "
        f"{number(one.acknowledged_before_s)} s before the cut: {one.instead}"
    )


def write(one: WriteRecord) -> str:
    """Return a description of a write request."""
    where = f", stripe {one.stripe:,}" if one.stripe is not None else ""
    owner = f": {one.owner}" if one.owner else ""
    return f"{one.kind} {one.member} sector {one.lba:,} + {one.sectors:,}{where}{owner}"


def shortest(failure: FailureRecord) -> str | None:
    """Return how much of the history is needed to show a failure; None if this was not searched for."""
    one = failure.shortest
    if one is None:
        return None
    said = "not shown at an earlier cut that was tried" if one.not_at is not None else "no earlier cut could show it"
    if one.earlier:
        after = "" if one.after_word_s is None else f", {number(one.after_word_s)} s after the acknowledgement"
        said = f"also shown {plural(one.earlier, 'request')} ({number(one.earlier_s)} s) earlier, at cut {one.cut:,}"
        said += after
    return (
        f"{said}; the shortest history that shows it has {one.cut:,} of {plural(one.of, 'request')}, "
        f"{one.acknowledged:,} of {plural(one.of_acknowledged, 'acknowledged operation')}"
    )


def same_as(failures: Sequence[FailureRecord], place: int) -> int | None:
    """Return the number of the first earlier failure with the same state; None if there is none; numbers from 1."""
    states = [(one.shrunk.state, one.shrunk.lost_state) if one.shrunk else (one.state, None) for one in failures]
    first = states.index(states[place - 1]) + 1
    return first if first < place else None


def together(failure: FailureRecord, other: int) -> str:
    """Return a sentence about a failure with the same state as failure number ``other``."""
    state = failure.shrunk.state if failure.shrunk else failure.state
    said = [f"same state as failure {other}, {state}"]
    if failure.shortest is not None and failure.shortest.earlier:
        said = [f"{said[0]}; a shorter history shows it in {failure.shortest.state}"]
    if failure.missing is not None:
        said.append(missing(failure.missing))
    return "; ".join(said)


def smallest(failure: FailureRecord) -> str:
    """Return a description of the smallest state that shows a failure."""
    shrunk = failure.shrunk
    if shrunk is None:
        if failure.repeated:
            return f"not shrunk: reproduced {failure.confirmed} of {failure.repeated} times"
        return "not shrunk"
    survived = plural(len(shrunk.survivors), "surviving write")
    short = "" if shrunk.whole else ", and shrinking ran out of time"
    return f"{survived}, {plural(shrunk.not_there, 'lost write')}, after {plural(shrunk.tried, 'tried state')}{short}"


@dataclass(frozen=True)
class Mark:
    """States of one policy at nearly the same instant."""

    x: float
    y: float
    kind: str
    """``broken``, ``held`` (at least one was checked on a machine) or ``alike`` (only equal states were)."""
    words: str


@dataclass(frozen=True)
class Lane:
    """The lane of one policy."""

    label: str
    y: float


@dataclass(frozen=True)
class Figure:
    """A laid-out figure for the template."""

    x: Axis
    y: Axis
    bars: list[TimeBar]
    lanes: list[Lane]
    marks: list[Mark]
    bottom: float
    height: float
    description: str


def figure(record: ExplorationRecord) -> Figure:
    """Lay out the figure."""
    low, high = record.span_s
    x = Axis.between(low, max(high, low + LEAST_SPAN_S), LEFT, RIGHT)
    told = Counter(
        int((second - low) / (x.high - low) * BINS) for second in record.acknowledged_s if low <= second < x.high
    )
    y = Axis.from_zero(told.values(), GROUND, TOP)
    width_s = (x.high - x.low) / BINS
    lanes = [Lane(policy, FIRST_LANE + LANE * place) for place, policy in enumerate(record.policies)]
    bottom = FIRST_LANE + LANE * len(lanes) - LANE / 2
    return Figure(
        x=x,
        y=y,
        bars=[time_bar(x.low + place * width_s, width_s, many, x, y) for place, many in sorted(told.items())],
        lanes=lanes,
        marks=marks(record.marks, {lane.label: lane.y for lane in lanes}, x),
        bottom=bottom,
        height=bottom + 48,
        description=describe(record),
    )


def marks(states: list[StateMark], lanes: dict[str, float], x: Axis) -> list[Mark]:
    """Return the marks of the states; overlapping states share a mark, and broken ones are drawn last."""
    together: dict[tuple[str, int], list[StateMark]] = {}
    for one in states:
        together.setdefault((one.policy, int(x.at(one.at_s) / COLUMN)), []).append(one)
    drawn = [
        Mark(round((column + 0.5) * COLUMN, 1), lanes[policy], kind_of(group), words_of(policy, group))
        for (policy, column), group in together.items()
    ]
    return sorted(drawn, key=lambda mark: mark.kind == "broken")


def kind_of(group: list[StateMark]) -> str:
    """Return the worst kind of a group of states."""
    if any(one.broken for one in group):
        return "broken"
    return "held" if any(one.checked for one in group) else "alike"


def words_of(policy: str, group: list[StateMark]) -> str:
    """Return a description of a group of states."""
    broken = [one for one in group if one.broken]
    first = (broken or group)[0]
    count = f"{plural(len(group), 'state')}, {len(broken)} broken; " if len(group) > 1 else ""
    end = "broken" if first.broken else "held" if first.checked else "held, equal to a checked one"
    return f"{policy}, {number(first.at_s)} s: {count}{first.name} {end}"


def describe(record: ExplorationRecord) -> str:
    """Return a text alternative for the figure."""
    told = plural(len(record.acknowledged_s), "operation")
    return (
        f"{told} acknowledged; {plural(record.judged, 'crash state')} between {number(record.span_s[0])} s and "
        f"{number(record.span_s[1])} s judged, {record.broken:,} broken"
    )


def show_exploration(record: ExplorationRecord, console: Console, page: Path | None = None) -> None:
    """Print a summary, each failure, the outcome, and the path of the page."""
    say(console, summary(record))
    say(console, tested(record))
    say(console, cold(record))
    say(console, filesystems(record))
    say(console, redundancy(record))
    say(console, effort(record))
    for note in record.notes:
        say(console, note)
    if record.failures:
        console.print()
        console.print(failure_table(record).drawn(console.width))
    blamed = len({failure.blame for failure in record.failures}) > 1
    block = 0
    for place, failure in enumerate(record.failures, start=1):
        other = same_as(record.failures, place)
        if other is None or other != block:
            console.print()
            block = place
        # If all failures have the same blame, the last line shows it.
        for line in lines_of(place, failure, blamed=blamed, other=other):
            say(console, line)
    console.print()
    say_end(console, record.title, record.outcome, record.reason, page, plain=record.loses)


def failure_table(record: ExplorationRecord) -> Table[tuple[int, FailureRecord]]:
    """Return a row for each distinct failure."""

    def again(one: FailureRecord) -> str:
        return f"{one.confirmed} of {one.repeated}" if one.repeated else UNKNOWN

    return Table(
        [
            Field("#", lambda row: str(row[0]), "number"),
            Field("promise", lambda row: Cell(row[1].promise, link=f"#failure-{row[0]}"), names_row=True),
            Field("damage", lambda row: row[1].damage),
            Field("states", lambda row: Cell(count(row[1].states), loss=True), "number"),
            Field("cut at", lambda row: number(row[1].at_s), "number", "s"),
            Field("reproduced", lambda row: again(row[1]), "number"),
            Field("smallest state", lambda row: smallest(row[1]), page_only=True),
            Field("blame", lambda row: str(row[1].blame or UNKNOWN), page_only=True),
        ],
        list(enumerate(record.failures, start=1)),
    )


def write_table(writes: Sequence[WriteRecord], note: str) -> Table[WriteRecord]:
    """Return a row for each write request."""
    return Table(
        [
            Field("request", lambda one: count(one.request), "number"),
            Field("kind", lambda one: one.kind, "word"),
            Field("member", lambda one: one.member, "word", names_row=True),
            Field("LBA", lambda one: count(one.lba), "number", "512 B"),
            Field("sectors", lambda one: count(one.sectors), "number"),
            Field("stripe", lambda one: count(one.stripe), "number"),
            Field("belongs to", lambda one: one.owner or UNKNOWN),
        ],
        writes,
        note=note,
    )


def stage_table(record: ExplorationRecord) -> Table[StageTime]:
    """Return the durations of each stage of a check."""
    return Table(
        [
            Field("stage", lambda one: one.stage, names_row=True),
            Field("times", lambda one: count(one.count), "number"),
            Field("median", lambda one: number(one.median), "number", "ms"),
            Field("90 %", lambda one: number(one.p90), "number", "ms"),
            Field("99 %", lambda one: number(one.p99), "number", "ms"),
            Field("greatest", lambda one: number(one.greatest), "number", "ms"),
        ],
        record.stages,
        note=f"{plural(record.checkers, 'checker')} in parallel; {number(record.seconds)} s in total, without booting "
        "and shrinking.",
    )


def lines_of(place: int, failure: FailureRecord, *, blamed: bool = True, other: int | None = None) -> list[str]:
    """Return lines about a failure, with its blame if ``blamed``; a single line if failure ``other`` has its state."""
    blame = f"; blame: {failure.blame}" if blamed and failure.blame else ""
    if other is not None:
        return [f"{place} {failure.promise}: {failure.damage}: {together(failure, other)}{blame}"]
    lines = [f"{place} {failure.promise}: {failure.damage} ({smallest(failure)}){blame}"]
    if failure.shrunk is not None:
        survivors = failure.shrunk.survivors
        lines += [f"  {write(one)}" for one in survivors[:MOST_WRITES]]
        if len(survivors) > MOST_WRITES:
            lines.append(f"  and {len(survivors) - MOST_WRITES:,} more")
        lines += [f"  its loss suffices: {write(one)}" for one in failure.shrunk.lost[:MOST_WRITES]]
    if failure.missing is not None:
        lines.append(f"  {missing(failure.missing)}")
    if (part := shortest(failure)) is not None:
        lines.append(f"  {part}")
    return [*lines, f"  {shlex.join(failure.replay)}"]
