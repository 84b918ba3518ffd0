"""The list of stored runs on a terminal: a line for each run.

It imports no table and no verdict, so that `raidproof ls` starts fast.
"""

import re
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from raidproof.record.results.entry import RunEntry
from raidproof.report.looks import colour_of

GAP = "  "
"""Gap between two columns."""


def show_list(runs: Sequence[RunEntry], console: Console) -> None:
    """Print a line for each run; a terminal shows as much of the reason as its width permits."""
    rows = [("run", "outcome", "provider", "kernel", "cells", "crash tests", "explored", "reason"), *map(row_of, runs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        GAP.join(
            text.rjust(width) if place in (4, 5) else text.ljust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    if not console.is_terminal:
        print("\n".join(lines))  # noqa: T201
        return
    begin = widths[0] + len(GAP)
    for row, line in zip(rows, lines, strict=True):
        text = Text(line, no_wrap=True, overflow="ellipsis")
        text.stylize("bold" if row is rows[0] else colour_of(row[1]), begin, begin + len(row[1]))
        console.print(text, no_wrap=True, overflow="ellipsis")


def row_of(run: RunEntry) -> tuple[str, ...]:
    """Return the texts of a run in the list; the outcome of a run without one is its state."""
    of_run = run.kind.value == "run"
    word = run.outcome.value if run.outcome else run.state.value
    return (
        run.folder,
        word,
        run.provider or "-",
        run.kernel_effective or run.kernel_requested or "-",
        str(run.cells) if of_run else "-",
        str(run.crash_tests) if of_run else "-",
        run.explored.value if run.explored else "-",
        re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", run.reason),
    )
