"""Findings for a reader: a table on a terminal, plain lines elsewhere, or JSON."""

import json as json_format
from collections.abc import Iterable
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from raidproof.run.doctor.finding import Finding, Outcome

COLOURS = {Outcome.OK: "green", Outcome.WARNING: "yellow", Outcome.MISSING: "red"}


def line(finding: Finding) -> str:
    """Write a finding on one line."""
    remedy = f" (remedy: {finding.remedy})" if finding.remedy else ""
    return f"{finding.outcome:<8} {finding.name}: {finding.reason}{remedy}"


def conclusion(findings: Iterable[Finding]) -> str:
    """Say in one line whether a demo can run."""
    absent = [finding.name for finding in findings if finding.outcome is Outcome.MISSING]
    return f"a demo cannot run here: {', '.join(absent)}" if absent else "a demo can run here"


def show(findings: list[Finding], *, json: bool = False, console: Console | None = None) -> None:
    """Print the findings on standard output."""
    console = console or Console(highlight=False)
    if json:
        console.print(
            json_format.dumps([asdict(finding) for finding in findings], indent=1), markup=False, soft_wrap=True
        )
        return
    if not console.is_terminal:
        for finding in findings:
            console.print(line(finding), markup=False, soft_wrap=True)
    else:
        table = Table("", "what", "found", "remedy", box=None)
        for finding in findings:
            outcome = Text(finding.outcome, style=COLOURS[finding.outcome])
            table.add_row(outcome, *map(Text, (finding.name, finding.reason, finding.remedy)))
        console.print(table)
    console.print(conclusion(findings), markup=False, soft_wrap=True)
