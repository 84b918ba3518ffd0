"""What a change of the host's speed may have to do with the difference of two stored runs.

A cell depends on the speed of the host more or less: wholly if the simulation limits it, and not at all if the
simulated disks do. Which share holds is not known. So each cell is tested twice, by its values and by its values
relative to the reference measurement that precedes each of them: any share lies between both results. A finding counts
if both tests make it, and the interval of the ratio covers both intervals. The noise of the reference is in the second
test as noise of the values.
"""

import math
from collections.abc import Sequence

from raidproof.record.cell import CellRecord
from raidproof.record.comparison import Change, HostChange, Pair, PairFinding
from raidproof.verdict.change import statistics
from raidproof.verdict.change.difference import Rules, judge_pairs

NO_REFERENCE = "drift of the host is not excluded, because not every value has a reference measurement"
OTHER_VERSION = "drift of the host is not excluded, because the sides have reference measurements of other versions"
HOST_DIFFERS = "the host's speed may explain the difference: {}"
TESTED = frozenset({PairFinding.FASTER, PairFinding.SLOWER, PairFinding.SAME, PairFinding.UNDECIDED})
"""Findings that a test made."""


def version_of(cell: CellRecord) -> int | None:
    """Return the version of the reference measurements of a cell; None if a value has none, or versions differ."""
    versions = {
        repeat.reference.version if repeat.reference is not None else None
        for repeat in cell.repeats
        if repeat.value is not None
    }
    return versions.pop() if len(versions) == 1 else None


def reference_seconds(cell: CellRecord) -> list[float]:
    """Return the duration of the reference measurement before each value of a cell."""
    return [one.reference.seconds for one in cell.repeats if one.value is not None and one.reference is not None]


def relative(cell: CellRecord) -> CellRecord:
    """Return a copy of a cell whose values are relative to the speed of the host before each of them.

    A rate becomes work per duration of the reference, a duration becomes a number of durations of the reference.
    Repetitions without a reference measurement are left out.
    """
    power = -1 if cell.lower_is_better else 1
    repeats = [
        one.model_copy(update={"value": None if one.value is None else one.value * one.reference.seconds**power})
        for one in cell.repeats
        if one.reference is not None
    ]
    return cell.model_copy(update={"repeats": repeats})


def account_for_host(pairs: Sequence[Pair], both: Sequence[tuple[CellRecord, CellRecord]], rules: Rules) -> list[Pair]:
    """Return the pairs of two stored runs, with the findings that no change of the host's speed explains.

    ``both``: the records of the cells of each pair. A pair without reference measurements is undecided.
    """
    found = judge_pairs([(relative(base), relative(new)) for base, new in both], rules)
    return [
        judged(pair, other, cells, rules) if pair.finding in TESTED else pair
        for pair, other, cells in zip(pairs, found, both, strict=True)
    ]


def judged(pair: Pair, other: Pair, cells: tuple[CellRecord, CellRecord], rules: Rules) -> Pair:
    """Return a pair with the finding of both tests; ``other``: the pair by the values relative to the host's speed."""
    versions = [version_of(cell) for cell in cells]
    if versions[0] is None or versions[1] is None or versions[0] != versions[1]:
        why = NO_REFERENCE if None in versions else OTHER_VERSION
        return pair.model_copy(
            update={"finding": PairFinding.UNDECIDED, "why": why, "more": None, "drift_unknown": True}
        )
    host = host_change(cells, rules)
    if pair.change is None or other.change is None:
        why = pair.why or f"relative to the host's speed: {other.why or other.finding.value}"
        return pair.model_copy(update={"finding": PairFinding.UNDECIDED, "why": why, "host": host})
    finding, why, more = pair.finding, pair.why, pair.more
    if finding is not other.finding:
        finding, more = PairFinding.UNDECIDED, other.more if pair.more is None else pair.more
        why = HOST_DIFFERS.format(host_in_words(host))
    elif finding is PairFinding.UNDECIDED:
        more = None if pair.more is None or other.more is None else max(pair.more, other.more)
    change = around(pair.change, other.change)
    return pair.model_copy(update={"finding": finding, "why": why, "more": more, "change": change, "host": host})


def around(one: Change, other: Change) -> Change:
    """Return a change whose interval covers both, with the greater probabilities."""
    lows, highs, least = ([getattr(each, name) for each in (one, other)] for name in ("low", "high", "least"))
    return one.model_copy(
        update={
            "low": None if None in lows else min(lows),
            "high": None if None in highs else max(highs),
            "least": None if None in least else max(least),
            "p": max(one.p, other.p),
            "corrected": max(one.corrected, other.corrected),
        }
    )


def host_change(cells: tuple[CellRecord, CellRecord], rules: Rules) -> HostChange:
    """Return the ratio of the host's speeds on new and base, from the reference measurements of a cell."""
    base, new = ([1 / seconds for seconds in reference_seconds(cell)] for cell in cells)
    if min(len(base), len(new)) < 2:
        return HostChange(ratio=math.exp(sum(map(math.log, new)) / len(new) - sum(map(math.log, base)) / len(base)))
    found = statistics.shift(base, new, [min(len(base), len(new))], confidence=rules.confidence)
    low, high = (None if limit is None else math.exp(limit) for limit in (found.low, found.high))
    return HostChange(ratio=math.exp(found.estimate), low=low, high=high)


def host_in_words(host: HostChange) -> str:
    """Return the ratio of the host's speeds as text, with its interval if it is known."""
    limits = f" ({host.low:.3f}-{host.high:.3f})" if host.low is not None and host.high is not None else ""
    return f"by the reference measurement, the host was {host.ratio:.3f}{limits} times as fast on new"
