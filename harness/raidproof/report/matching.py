"""How the cells of two stored runs were matched, and what is in their difference: sentences and tables."""

from collections.abc import Iterator, Sequence

from rich.console import Console

from raidproof.record.comparison import Alone, AxisValues, ComparisonRecord, Matching
from raidproof.report.table import Field, Table, say
from raidproof.report.words import number, plural, some

DRIFT = (
    "The two runs were made one after the other, not in turn. A cell is faster, slower or the same only if its values "
    "and its values relative to the speed of the host, by the reference measurement before each repetition, both show "
    "it. The command ab measures both sides in turn, which is more precise."
)
MOST_NAMES = 4
"""Greatest number of names that a sentence on the terminal lists; the HTML report lists all."""
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def apart(matching: Matching) -> str:
    """Return a sentence on the time between the begins of the two runs."""
    seconds = abs(matching.apart_s)
    later = "after" if matching.apart_s >= 0 else "before"
    for unit, name in ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes")):
        if seconds >= 2 * unit:
            return f"New began {number(seconds / unit)} {name} {later} base."
    return f"New began {number(seconds)} s {later} base."


def axes(values: Sequence[AxisValues], side: str) -> str:
    """Return a sentence on the axes that only one plan has; empty without any."""
    listed = "; ".join(f"{one.axis} ({', '.join(one.values)})" for one in values)
    return f"axes that only the plan of {side} has: {listed}" if listed else ""


def without_partner(cells: Sequence[Alone], side: str, most: int = MOST_NAMES) -> Iterator[str]:
    """Yield a sentence for each reason why cells of a side were compared with no cell."""
    by_reason: dict[str, list[str]] = {}
    for one in cells:
        by_reason.setdefault(one.why, []).append(one.cell)
    for why, names in by_reason.items():
        yield f"{plural(len(names), 'cell')} of {side} not compared, because {why}: {some(names, most)}"


def sentences(matching: Matching, most: int = MOST_NAMES) -> list[str]:
    """Return sentences on how the cells were matched; ``most``: greatest number of names in a sentence."""
    renamed = [f"{base} = {new}" for base, new in matching.renamed.items()]
    said = [
        axes(matching.axes_of_base, "base"),
        axes(matching.axes_of_new, "new"),
        f"cells with other names on new: {some(renamed, most)}" if renamed else "",
        *without_partner(matching.only_base, "base", most),
        *without_partner(matching.only_new, "new", most),
    ]
    return [one for one in said if one]


def tell_matching(comparison: ComparisonRecord, console: Console) -> None:
    """Print the warning about drift, and how the cells of two stored runs were matched."""
    matching = comparison.matching
    if matching is None:
        return
    say(console, f"warning: {DRIFT} {apart(matching)}")
    for sentence in sentences(matching):
        say(console, sentence)
    for one in matching.requested:
        cells = "all cells" if len(one.cells) == len(comparison.pairs) else some(one.cells, MOST_NAMES)
        say(console, f"requested value of {one.field} differs: base {one.base}, new {one.new} ({cells})")


def alone_table(matching: Matching) -> Table[tuple[str, Alone]]:
    """Return the table of the cells without a partner."""
    return Table(
        [
            Field("cell", lambda row: row[1].cell, names_row=True),
            Field("run", lambda row: row[0], "word"),
            Field("not compared, because", lambda row: row[1].why),
        ],
        [*(("base", one) for one in matching.only_base), *(("new", one) for one in matching.only_new)],
    )
