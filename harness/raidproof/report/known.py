"""The known differences of a run or a comparison: sentences for the terminal, and a table for pages."""

from rich.console import Console

from raidproof.record.known import KnownRecord, KnownState, KnownUse
from raidproof.report.table import Field, Table, say
from raidproof.report.words import some

MOST_CELLS = 3
"""Greatest number of cells that a sentence names; the HTML report names all."""
MEANING = {
    KnownState.EXPECTED: "the failure occurred, and the entry excuses it",
    KnownState.EXCEEDED: "a greater share failed than `most` allows: this is a new failure",
    KnownState.PASSED: "the check found no failure: remove the entry",
    KnownState.OUT_OF_DATE: "the entry excuses nothing any more: check whether the difference still exists",
    KnownState.NO_CELL: "the name of no cell matches",
    KnownState.NOT_JUDGED: "no check that matches gave a result",
}
"""The meaning of each state for readers."""


def named(use: KnownUse) -> str:
    """Return the entry of a known difference as text, in the order of its fields in the file."""
    return f"{use.entry.cell!r}, {use.entry.checker}, {use.entry.kind.value}, until {use.entry.until}"


def cells(use: KnownUse, most: int = MOST_CELLS) -> str:
    """Return a clause on the cells of a known difference, by the result of the check; ``-`` without any."""
    said = [("failed", use.failed), ("passed", use.passed)]
    return "; ".join(f"{word}: {some(names, most, ', ')}" for word, names in said if names) or "-"


def line(use: KnownUse) -> str:
    """Return a sentence on what came of a known difference."""
    found = cells(use)
    where = "" if found == "-" else f" ({found})"
    return f"known difference {named(use)}: {use.state.value}: {MEANING[use.state]}{where}; reason: {use.entry.reason}"


def tell_known(known: KnownRecord | None, console: Console) -> None:
    """Print what came of each known difference that matters; checks that did not run are on the HTML report only."""
    for use in known.uses if known else ():
        if use.state is not KnownState.NOT_JUDGED:
            say(console, line(use))


def known_table(known: KnownRecord) -> Table[KnownUse]:
    """Return the table of known differences."""
    return Table(
        [
            Field("cell", lambda use: use.entry.cell, names_row=True),
            Field("checker", lambda use: use.entry.checker),
            Field("kind", lambda use: use.entry.kind.value, "word"),
            Field("until", lambda use: str(use.entry.until), "word"),
            Field("result", lambda use: f"{use.state.value}: {MEANING[use.state]}"),
            Field("cells", lambda use: cells(use, len(use.failed) + len(use.passed))),
            Field("reason", lambda use: use.entry.reason),
        ],
        known.uses,
        note=f"The entries were applied on {known.date} (UTC). A failure counts as expected only if an entry that is "
        "not out of date matches it.",
    )
