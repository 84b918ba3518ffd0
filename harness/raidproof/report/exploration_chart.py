"""The figure of an exploration: what clients were told over time, and below it each crash state at its instant."""

from collections import Counter
from dataclasses import dataclass

from raidproof.record.exploration import ExplorationRecord, StateMark
from raidproof.report.axis import Axis
from raidproof.report.words import number, plural

WIDTH = 960.0
LEFT, RIGHT, TOP, GROUND = 132.0, 924.0, 34.0, 134.0
LANE = 20.0
FIRST_LANE = GROUND + 34.0
BINS = 160
COLUMN = 4.0
"""Pixels of one mark: states of one lane that fall into the same are one mark."""
LEAST_SPAN_S = 0.001


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
