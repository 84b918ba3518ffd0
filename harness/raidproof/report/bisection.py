"""The result of a bisection on the terminal: tested candidates, the first bad one, and the command to repeat it."""

import shlex
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from raidproof.record.bisection import BisectionRecord, StepRecord

SHOWN = 12


def show_bisection(record: BisectionRecord, console: Console, path: str) -> None:
    """Print the tested candidates in the order of the candidates, and the result; ``path``: of the record's file."""
    table = Table(title=record.predicate, title_justify="left")
    for title in ("candidate", "title", "result", "reason", "wrong with", "evidence"):
        table.add_column(title, overflow="fold")
    for step in sorted(record.steps, key=lambda one: one.index):
        candidate = record.candidates[step.index]
        wrong = f"{step.error:.2%}" if step.error else "-"
        row = (candidate.name[:SHOWN], candidate.title, str(step.decision or "incomplete"), step.reason, wrong)
        table.add_row(*row, evidence_of(step))
    console.print(table)
    for line in lines_of(record, path):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def evidence_of(step: StepRecord) -> str:
    """Return the evidence of the repetition that decided about a candidate: the last one with the same answer."""
    same = [one.evidence for one in step.results if one.evidence and str(one.answer) == str(step.decision)]
    return (same or [one.evidence for one in step.results if one.evidence] or [""])[-1] or ""


def lines_of(record: BisectionRecord, path: str) -> Iterator[str]:
    """Yield the lines after the table: the result, its error probability, the costs, and the command to repeat it."""
    named = [f"{one.name} {one.title}".strip() for one in (record.candidates[index] for index in record.first_bad)]
    if len(named) == 1:
        yield f"the first bad candidate is {named[0]}"
    elif named:
        yield f"the first bad candidate is one of {len(named)}; those before the last cannot be tested:"
        yield from (f"  {name}" for name in named)
    yield f"wrong with a probability of at most {record.error:.2%}; model: {record.model}"
    yield (
        f"{len(record.steps)} of {len(record.candidates)} candidates tested in {record.repetitions} repetitions "
        f"({record.test_s:.0f} s); {record.builds} builds ({record.build_s:.0f} s)"
    )
    if record.again:
        yield f"to show it again: {shlex.join(record.again)}"
    yield f"record: {path}"
