"""An exploration: sentences, chart, and tables on a terminal."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raidproof.record.exploration import (
    ExplorationRecord,
    FailureRecord,
    MissingRecord,
    Possible,
    StateMark,
    WriteRecord,
)
from raidproof.report.axis import Axis
from raidproof.report.terminal import verdict_text
from raidproof.report.words import count, number, plural, printable

WIDTH = 960.0
LEFT, RIGHT, TOP, GROUND = 132.0, 924.0, 34.0, 134.0
LANE = 20.0
FIRST_LANE = GROUND + 34.0
BINS = 160
COLUMN = 4.0
"""Pixels of one mark: states of one lane that fall into the same are one mark."""
LEAST_SPAN_S = 0.001
MOST_WRITES = 5


def possible(value: Possible) -> str:
    """Write how many states there could have been."""
    return count(value.exact) if value.exact is not None else f"10^{value.log10:.0f}"


def summary(record: ExplorationRecord) -> str:
    """Return what was looked at, in one sentence."""
    of = f" of {record.asked:,} asked" if record.asked and record.judged < record.asked else ""
    speed = f", {record.states_per_minute:,.0f} a minute" if record.states_per_minute else ""
    looks = f"{record.checked:,} on machines"
    if record.checked_per_minute:
        looks += f", {record.checked_per_minute:,.0f} a minute"
    return (
        f"{record.cuts:,} cuts in {record.requests:,} requests allow {possible(record.possible)} crash states; "
        f"{plural(record.judged, 'state')}{of} judged{speed}: {record.distinct:,} different, {looks}; "
        f"{record.broken:,} broken"
    )


def tested(record: ExplorationRecord) -> str:
    """Return the operations whose loss a state could have shown, by kind, and in how many states it stays open."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in record.tested.items())
    said = f"acknowledged operations that a state could have lost: {kinds or 'none'}"
    if record.undecided is not None:
        said += f"; undecided in {plural(record.undecided.states, 'state')}: {record.undecided.reason}"
    return said


def cold(record: ExplorationRecord) -> str:
    """Say whether reusing a machine has hidden anything."""
    if not record.cold.checked:
        return "no state was looked at on a machine that had just booted"
    agreed = record.cold.checked - len(record.cold.differing)
    said = f"{plural(record.cold.checked, 'state')} looked at again on a machine that had just booted: {agreed} agree"
    return said + (f"; {record.through_nfsd:,} others were read through nfsd too" if record.through_nfsd else "")


def filesystems(record: ExplorationRecord) -> str:
    """Say at how many states the file system's own checker has looked."""
    return f"the file system's own checker looked for damage in {plural(record.filesystems, 'state')}"


def redundancy(record: ExplorationRecord) -> str:
    """Say in how many states the array's redundancy did not agree with its data, and whether md would put it right."""
    one, said = record.redundancy, []
    if one.checked:
        said.append(f"rows of the array differ in {one.differing:,} of {plural(one.checked, 'state')}")
        left = f"in {one.unmarked:,} md would not resync all of them" if one.unmarked else "md would resync them"
        if one.uneven:
            left += f", in {one.uneven:,} that depends on the member whose bitmap it reads"
        said += [left] if one.differing else []
        if one.changed:
            said.append(f"in {one.changed:,} copies differ where a page changed under write-back, which md allows")
        if one.all_marked:
            said.append(f"in {one.all_marked:,} the bitmap marked every region, and could have left no row out")
    said += [f"{plural(count, 'state')} not compared: {why}" for why, count in one.unchecked.items()]
    return "; ".join(said) or "no state's redundancy was compared"


def effort(record: ExplorationRecord) -> str:
    """Return the median of each stage of a check."""
    stages = ", ".join(f"{one.stage} {number(one.median)}" for one in record.stages)
    return f"milliseconds a state (median): {stages}" if stages else "no state was looked at on a machine"


def missing(one: MissingRecord) -> str:
    """Name an acknowledged operation that is not there."""
    return (
        f"{one.client} had been told {number(one.acknowledged_before_s)} s before the cut that {one.kind} of "
        f"{one.path} {one.place}, generation {one.generation}, is done: {one.instead}"
    )


def write(one: WriteRecord) -> str:
    """Name a surviving write."""
    where = f", stripe {one.stripe:,}" if one.stripe is not None else ""
    owner = f": {one.owner}" if one.owner else ""
    return f"{one.kind} {one.member} sector {one.lba:,} + {one.sectors:,}{where}{owner}"


def shortest(failure: FailureRecord) -> str | None:
    """Say how much of the history shows a failure; None where nobody has looked for it."""
    one = failure.shortest
    if one is None:
        return None
    said = "shown at no earlier cut that was tried" if one.not_at is not None else "no earlier cut could show it"
    if one.earlier:
        word = f", {number(one.after_word_s)} s after the word" if one.after_word_s is not None else ""
        said = f"shown already {plural(one.earlier, 'request')}, {number(one.earlier_s)} s earlier: at cut {one.cut:,}"
        said += word
    return (
        f"{said}; so much of the history is needed: {one.cut:,} of {plural(one.of, 'request')}, "
        f"{one.acknowledged:,} of {plural(one.of_acknowledged, 'acknowledged operation')}"
    )


def same_as(failures: Sequence[FailureRecord], place: int) -> int | None:
    """Return which earlier failure is shown in the same state as the one at this place; places count from 1."""
    states = [(one.shrunk.state, one.shrunk.lost_state) if one.shrunk else (one.state, None) for one in failures]
    first = states.index(states[place - 1]) + 1
    return first if first < place else None


def together(failure: FailureRecord, other: int) -> str:
    """Tell of a failure that is shown in the same state as another, of that number."""
    state = failure.shrunk.state if failure.shrunk else failure.state
    said = [f"in the same state as {other}, {state}"]
    if failure.shortest is not None and failure.shortest.earlier:
        said = [f"{said[0]}, with a shorter history in {failure.shortest.state}"]
    if failure.missing is not None:
        said.append(missing(failure.missing))
    return "; ".join(said)


def smallest(failure: FailureRecord) -> str:
    """Say what the smallest state that shows a failure is."""
    shrunk = failure.shrunk
    if shrunk is None:
        if failure.repeated:
            return f"not shrunk: shown again {failure.confirmed} of {failure.repeated} times"
        return "not shrunk"
    survived = plural(len(shrunk.survivors), "surviving write")
    short = "" if shrunk.whole else ", and shrinking ran out of time"
    return f"{survived}, {shrunk.not_there:,} lost, after {plural(shrunk.tried, 'state')}{short}"


@dataclass(frozen=True)
class Bar:
    """Words that clients were given in a piece of time."""

    x: float
    y: float
    width: float
    height: float
    words: str


@dataclass(frozen=True)
class Mark:
    """States of one policy at nearly one instant."""

    x: float
    y: float
    kind: str
    """``broken``, ``held`` (a machine looked at one of them) or ``alike`` (only at others of equal content)."""
    words: str


@dataclass(frozen=True)
class Lane:
    """One policy."""

    label: str
    y: float


@dataclass(frozen=True)
class Figure:
    """Everything that the template draws."""

    x: Axis
    y: Axis
    bars: list[Bar]
    lanes: list[Lane]
    marks: list[Mark]
    bottom: float
    height: float
    description: str


def figure(record: ExplorationRecord) -> Figure:
    """Lay the figure out."""
    low, high = record.span_s
    x = Axis.between(low, max(high, low + LEAST_SPAN_S), LEFT, RIGHT)
    told = Counter(
        int((second - low) / (x.high - low) * BINS) for second in record.acknowledged_s if low <= second < x.high
    )
    y = Axis.from_zero(told.values(), GROUND, TOP)
    lanes = [Lane(policy, FIRST_LANE + LANE * place) for place, policy in enumerate(record.policies)]
    bottom = FIRST_LANE + LANE * len(lanes) - LANE / 2
    return Figure(
        x=x,
        y=y,
        bars=[bar(place, count, x, y) for place, count in sorted(told.items())],
        lanes=lanes,
        marks=marks(record.marks, {lane.label: lane.y for lane in lanes}, x),
        bottom=bottom,
        height=bottom + 48,
        description=describe(record),
    )


def bar(place: int, count: int, x: Axis, y: Axis) -> Bar:
    """Return the bar of one piece of time."""
    width_s = (x.high - x.low) / BINS
    begin = x.low + place * width_s
    left, right, top = x.at(begin), x.at(begin + width_s), y.at(count)
    words = f"{number(begin)} s to {number(begin + width_s)} s: {plural(count, 'operation')} acknowledged"
    return Bar(left, top, round(max(right - left - 0.6, 0.8), 1), round(GROUND - top, 1), words)


def marks(states: list[StateMark], lanes: dict[str, float], x: Axis) -> list[Mark]:
    """Put states that would lie on each other into one mark; broken ones are drawn last."""
    together: dict[tuple[str, int], list[StateMark]] = {}
    for one in states:
        together.setdefault((one.policy, int(x.at(one.at_s) / COLUMN)), []).append(one)
    drawn = [
        Mark(round((column + 0.5) * COLUMN, 1), lanes[policy], kind_of(group), words_of(policy, group))
        for (policy, column), group in together.items()
    ]
    return sorted(drawn, key=lambda mark: mark.kind == "broken")


def kind_of(group: list[StateMark]) -> str:
    """Return what is worst of some states."""
    if any(one.broken for one in group):
        return "broken"
    return "held" if any(one.checked for one in group) else "alike"


def words_of(policy: str, group: list[StateMark]) -> str:
    """Return some states in words."""
    broken = [one for one in group if one.broken]
    first = (broken or group)[0]
    count = f"{plural(len(group), 'state')}, {len(broken)} broken; " if len(group) > 1 else ""
    end = "broken" if first.broken else "held" if first.checked else "held, equal to one that was looked at"
    return f"{policy}, {number(first.at_s)} s: {count}{first.name} {end}"


def describe(record: ExplorationRecord) -> str:
    """Return the figure in words, for those who do not see it."""
    told = plural(len(record.acknowledged_s), "operation")
    return (
        f"{told} acknowledged; {plural(record.judged, 'crash state')} between {number(record.span_s[0])} s and "
        f"{number(record.span_s[1])} s judged, {record.broken:,} broken"
    )


def show_exploration(record: ExplorationRecord, console: Console, page: Path | None = None) -> None:
    """Print what was looked at, each failure, how it ended, and where the page is."""
    _say(console, summary(record))
    _say(console, tested(record))
    _say(console, cold(record))
    _say(console, filesystems(record))
    _say(console, redundancy(record))
    _say(console, effort(record))
    for note in record.notes:
        _say(console, note)
    if record.failures:
        console.print()
        console.print(failure_table(record))
    blamed = len({failure.blame for failure in record.failures}) > 1
    block = 0
    for place, failure in enumerate(record.failures, start=1):
        other = same_as(record.failures, place)
        if other is None or other != block:
            console.print()
            block = place
        # The end says it, if all are blamed alike.
        for line in lines_of(place, failure, blamed=blamed, other=other):
            _say(console, line)
    console.print()
    end = Text(f"{printable(record.title)}: ").append_text(verdict_text(record.outcome, loses=record.loses))
    console.print(end.append(f": {printable(record.reason)}"), soft_wrap=not console.is_terminal)
    if page is not None:
        console.print(Text(f"report: {printable(str(page))}"), soft_wrap=True)


def failure_table(record: ExplorationRecord) -> Table:
    """Return a row for each distinct failure."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("#", justify="right")
    table.add_column("promise", overflow="fold")
    table.add_column("damage", overflow="fold")
    for title in ("states", "at [s]", "shown again"):
        table.add_column(title, justify="right")
    for place, one in enumerate(record.failures, start=1):
        again = f"{one.confirmed} of {one.repeated}" if one.repeated else "-"
        table.add_row(
            *map(Text, (str(place), one.promise, printable(one.damage), count(one.states), number(one.at_s), again))
        )
    return table


def lines_of(place: int, failure: FailureRecord, *, blamed: bool = True, other: int | None = None) -> list[str]:
    """Return what is known of a failure, with whom it is ``blamed`` on; one line where it is shown as ``other`` is."""
    blame = f"; blame: {failure.blame}" if blamed and failure.blame else ""
    if other is not None:
        return [f"{place} {failure.promise}: {failure.damage}: {together(failure, other)}{blame}"]
    lines = [f"{place} {failure.promise}: {failure.damage} ({smallest(failure)}){blame}"]
    if failure.shrunk is not None:
        survivors = failure.shrunk.survivors
        lines += [f"  {write(one)}" for one in survivors[:MOST_WRITES]]
        if len(survivors) > MOST_WRITES:
            lines.append(f"  and {len(survivors) - MOST_WRITES:,} more")
        lines += [f"  enough that it is lost: {write(one)}" for one in failure.shrunk.lost[:MOST_WRITES]]
    if failure.missing is not None:
        lines.append(f"  {missing(failure.missing)}")
    if (part := shortest(failure)) is not None:
        lines.append(f"  {part}")
    return [*lines, f"  {shlex.join(failure.replay)}"]


def _say(console: Console, sentence: str) -> None:
    console.print(Text(printable(sentence)), soft_wrap=not console.is_terminal)
