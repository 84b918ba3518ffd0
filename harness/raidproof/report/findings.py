"""The document about findings, and tables of findings on the terminal."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from raidproof.record.finding import Answer, Cause, Finding, FindingsRecord, in_order

HEAD = """\
# Findings

Defects and surprising behaviour that raidproof met in the software under test. Each finding states what is wrong, in
which software and version, how to reproduce it, the evidence, and the state: whether the cause is known, and what
raidproof does. "Read in the source" means that the cause was found by reading and not by a test with a changed kernel.

`./raidproof findings docs` makes this page from the files in `findings/`, one for each finding. A finding may have a
reproducer: a test that answers whether a kernel is affected. The command

    ./raidproof findings run --kernel debian/bookworm --kernel debian/trixie --kernel debian/sid

runs the reproducers, prints the answers as a matrix of findings by kernel, and stores them. An answer is "affected",
"not affected", or "undecided" with the reason. With `--patched`, the server's kernel has the patch of each finding,
built from Debian's source; the patches are for Linux 6.12 (`debian/trixie`).
"""
COLOURS = {Answer.AFFECTED: "red", Answer.NOT_AFFECTED: "green", Answer.UNDECIDED: "yellow"}


def anchor(title: str) -> str:
    """Return the name by which a link in Markdown reaches the heading with this title."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def document(findings: Iterable[Finding]) -> str:
    """Return the document about all findings, in Markdown."""
    ordered = in_order(findings)
    rows = [
        f"| {layer} | {', '.join(f'[{one.short}](#{anchor(one.title)})' for one in group)} |"
        for layer, group in groupby(ordered, key=lambda one: one.layer)
    ]
    table = ["| software | findings |", "|---|---|", *rows]
    return "\n".join([HEAD, *table, *(f"\n{_section(one)}" for one in ordered)]) + "\n"


def _section(one: Finding) -> str:
    parts = [
        ("Wrong", one.wrong),
        ("Software", one.software),
        ("Measured", _measured(one)),
        ("Since", one.since),
        ("Reproduce", one.reproduce),
        ("Reproducer", _reproducer(one)),
        ("Evidence", one.evidence),
        ("Cause", _cause(one.cause) if one.cause else None),
        ("Patch", f"`findings/patches/{one.patch.file}`, for `{one.patch.module}`." if one.patch else None),
        ("State", one.state),
    ]
    lines = [f"* **{name}:** {_indented(text)}" for name, text in parts if text]
    more = ["", one.more.strip()] if one.more else []
    return "\n".join([f"## {one.title}", "", *lines, *more])


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else line for line in text.strip().splitlines()).removeprefix("  ")


def _measured(one: Finding) -> str | None:
    parts = [
        f"{word}: {', '.join(versions)}"
        for word, versions in (("affected", one.affected), ("not affected", one.not_affected))
        if versions
    ]
    return f"{'; '.join(parts)}." if parts else None


def _reproducer(one: Finding) -> str:
    if one.reproducer is None:
        return f"none: {one.no_reproducer}."
    return f"`{one.reproducer.node}`; `./raidproof findings run {one.id}`."


def _cause(cause: Cause) -> str:
    functions = ", ".join(f"`{name}`" for name in cause.functions)
    how = {"reading": "read in the source", "patched kernel": "shown by a test with a changed kernel"}[cause.traced]
    return f"{functions} in {cause.file}; {how}."


def show_list(findings: Sequence[Finding], console: Console) -> None:
    """Print a table of findings."""
    table = Table(box=None)
    table.add_column("finding", no_wrap=True)
    for title in ("measured in", "not seen in", "reproducer", "what"):
        table.add_column(title)
    for one in in_order(findings):
        reproducer = "yes" if one.reproducer else "none"
        cells = (one.id, ", ".join(one.affected), ", ".join(one.not_affected), reproducer, one.short)
        table.add_row(*map(Text, cells))
    console.print(table)


def show_matrix(record: FindingsRecord, path: Path, console: Console) -> None:
    """Print the matrix of findings by kernel, the reason of each answer, and ``path``, that of the stored record."""
    patched = " + patch" if record.patched else ""
    table = Table(box=None)
    table.add_column("finding", no_wrap=True)
    for kernel in record.kernels:
        table.add_column(f"{kernel}{patched}")
    for finding in record.findings:
        answers = [record.answer(finding, kernel) for kernel in record.kernels]
        table.add_row(
            Text(finding), *(Text(one.answer, style=COLOURS[one.answer]) if one else Text("") for one in answers)
        )
    console.print(table)
    console.print()
    for one in record.answers:
        release = f" ({one.release})" if one.release else ""
        line = f"{one.finding}, {one.kernel}{patched}{release}: {one.answer}: {one.reason}"
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"stored: {path}", markup=False, soft_wrap=True)
