"""Peers' suites in a report: one row a suite, and the tests that did not pass."""

from collections.abc import Iterator
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from raidproof.record.run import RunRecord
from raidproof.record.suite import SuiteRecord
from raidproof.report.words import count, number, printable


class Case(NamedTuple):
    """A test that did not pass."""

    end: str
    name: str
    reason: str


def cases(suite: SuiteRecord) -> Iterator[Case]:
    """Yield the tests that did not pass: what failed, what nobody saw the end of, and what does not apply."""
    for end in ("failed", "unknown", "skipped"):
        for one in getattr(suite.outcomes, end):
            known = end == "failed" and one.name in suite.known
            yield Case("failed, as known" if known else end, one.name, one.reason)


def counts(suite: SuiteRecord) -> str:
    """Say how many tests ended how."""
    ends = ("passed", "failed", "skipped", "unknown")
    said = [f"{count(number_of)} {end}" for end in ends if (number_of := len(getattr(suite.outcomes, end)))]
    return ", ".join(said) or "nothing ran"


def show_suites(record: RunRecord, console: Console) -> None:
    """Print a line on each suite of a run; without any, nothing."""
    for suite in record.suites:
        words = f"{suite.title}: {suite.outcome}: {suite.reason} ({counts(suite)}, {number(suite.seconds)} s)"
        console.print(Text(printable(words)), soft_wrap=not console.is_terminal)
    if record.suites:
        console.print()
