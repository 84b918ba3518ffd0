"""The HTML reports of a run, a comparison and an exploration: each is one file, which needs no network."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pydantic import ValidationError

from raidproof.core.terminal import printable
from raidproof.record.comparison import ComparisonRecord
from raidproof.record.environment import flat
from raidproof.record.exploration import ExplorationRecord
from raidproof.record.results.names import COMPARISON, EXPLORATIONS, crash_page_of
from raidproof.record.results.store import RunStore
from raidproof.record.run import CrashTestRecord, RunRecord
from raidproof.report import cells, comparison, exploration, known, matching, overview, terminal, words, write_hole
from raidproof.report.charts import drawing, medians
from raidproof.report.charts.of_run import charts_of
from raidproof.report.columns import columns
from raidproof.report.configuration import caveats, configuration, value
from raidproof.report.looks import LOOKS
from raidproof.report.outages import outage_table
from raidproof.report.sensitivity import in_checked
from raidproof.report.workers import worker_table
from raidproof.verdict.cell import by_safety, losing, safety_in
from raidproof.verdict.crash_states import outcome_of

MOST_NAMES = 6
"""Greatest number of configurations that the head of the HTML report names; the tables name all."""
MOST_INLINE = 60
"""Greatest number of cells and crash tests whose details a page contains as text; a larger page adds opened ones."""


def write_html(record: RunRecord, path: Path) -> None:
    """Write the HTML report of a run atomically; it lists the explorations in the run's directory."""
    explorations = stored_explorations(path.parent)
    crash_pages = {stem: name for stem in explorations if (path.parent / (name := crash_page_of(stem))).is_file()}
    RunStore(path.parent).write_text(path.name, render(record, explorations, crash_pages))


@cache
def templates() -> Environment:
    """Return the Jinja environment of all HTML reports, with the filters that the templates share."""
    environment = Environment(
        loader=PackageLoader("raidproof.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=readable,
    )
    environment.filters |= {
        "number": words.number,
        "count": words.count,
        "data": words.data,
        "shell": shlex.join,
        "quote_url": quote,
        "moment": moment,
        "other_faults": terminal.other_faults,
    }
    environment.globals["looks"] = LOOKS
    return environment


def stored_explorations(run: Path) -> dict[str, ExplorationRecord]:
    """Return the explorations in the directory of a run by the stem of their files, except those of another schema."""
    found = {}
    for path in sorted(run.glob(EXPLORATIONS)):
        with suppress(ValidationError):
            found[path.stem] = ExplorationRecord.model_validate_json(path.read_text())
    return found


def render(
    record: RunRecord,
    explorations: Mapping[str, ExplorationRecord] | None = None,
    crash_pages: Mapping[str, str] | None = None,
) -> str:
    """Return the HTML report of a run.

    ``explorations``: the explorations of the run by the stem of their files. ``crash_pages``: names of their crash
    pages by the same stem.
    """
    sections = list(sections_of(record, explored=bool(explorations)))
    # The page of a plan shows the configurations of cells instead of those of crash tests.
    stacks = record.cells if record.plan else record.cycles
    page = templates().get_template("report.html.j2")
    return page.render(
        run=record,
        took=duration(record),
        columns=columns(),
        words=terminal,
        known=known,
        safety_in=safety_in,
        outcome_of=outcome_of,
        outage_table=outage_table,
        in_checked=in_checked,
        by_safety=by_safety(record),
        most_names=MOST_NAMES,
        loses=losing(record),
        some=words.some,
        validity=overview.validity(record),
        advice=overview.advice(record),
        charts=charts_of(record),
        script=drawing.script(),
        packed=len(record.cells) + len(record.cycles) > MOST_INLINE,
        most_rows=medians.MOST_ROWS,
        beyond=medians.beyond,
        layers=configuration(stacks),
        layers_of=lambda cell: configuration([cell]),
        caveats=caveats(stacks),
        rows_of=lambda rows: rows_of(rows, len(stacks), "cells" if record.plan else "rows"),
        sections=sections,
        explorations=explorations or {},
        crash_pages=crash_pages or {},
        exploration_words=exploration,
        shown={anchor for anchor, _ in sections},
        cells=cells,
        rankings=cells.rankings(record),
        published=cells.published_figures(record),
        write_hole=write_hole,
        holes=write_hole.hole_rows(record),
        worker_table=worker_table,
        cuts={cycle.name: place for place, cycle in enumerate(record.cycles, start=1)},
        topology=topology(record.topology),
        counters=counters,
        observed=lambda cycle: [(path, value(path, found)) for path, found in flat(observed(cycle))],
    )


def write_comparison(compared: ComparisonRecord, store: RunStore) -> Path:
    """Write the record and the HTML report of a comparison, each atomically; return the path of the HTML report."""
    store.write_text(COMPARISON, compared.model_dump_json(indent=1) + "\n")
    return store.write_text("comparison.html", render_comparison(compared))


def render_comparison(compared: ComparisonRecord) -> str:
    """Return the HTML report of a comparison."""
    page = templates().get_template("comparison.html.j2")
    groups = comparison.groups(compared)
    return page.render(
        run=compared,
        sides=comparison,
        matching=matching,
        known=known,
        groups=groups,
        charts=comparison.charts_of_comparison(compared, groups),
        script=drawing.script(),
    )


def write_exploration(record: ExplorationRecord, store: RunStore, stem: str) -> Path:
    """Write record and HTML report of an exploration, each atomically; return the path of the HTML report.

    ``stem``: the stem of the exploration's files.
    """
    store.write_text(f"{stem}.json", record.model_dump_json(indent=1) + "\n")
    crash_page = crash_page_of(stem)
    shown = crash_page if (store.path / crash_page).is_file() else None
    return store.write_text(f"{stem}.html", render_exploration(record, shown))


def render_exploration(record: ExplorationRecord, crash_page: str | None = None) -> str:
    """Return the HTML report of an exploration; ``crash_page``: name of its crash page, None if there is none."""
    page = templates().get_template("exploration.html.j2")
    charts, figures = exploration.charts_of_exploration(record)
    script = drawing.script()
    return page.render(
        run=record, words=exploration, charts=charts, figures=figures, script=script, crash_page=crash_page
    )


def observed(cycle: CrashTestRecord) -> dict[str, Any]:
    """Return the observations of a crash test by their titles in the HTML report.

    The entry ``alarms`` has the patterns of the kernel messages that the faults of the crash test cause.
    """
    found = _known(cycle.observed.model_dump(mode="json"))
    # Observations can lack parts: an array that stayed up was not assembled again, and a capture can be impossible.
    found |= {what: _known(found[what]) for what in ("members", "replies") if what in found}
    seen = {field.replace("_", " "): content for field, content in found.items()}
    if not seen:
        return {}
    first = {word: seen.pop(word) for word in ("old data",) if word in seen}
    return {**first, "alarms": [one for fault in cycle.injected for one in fault.effects.kernel_messages], **seen}


def _known(found: dict[str, Any]) -> dict[str, Any]:
    return {field: content for field, content in found.items() if content is not None}


def sections_of(record: RunRecord, *, explored: bool = False) -> Iterator[tuple[str, str]]:
    """Yield anchor and title of each section of a run's HTML report; the report of a plan omits empty sections."""
    planned = record.plan is not None
    if planned:
        yield "ranking", "Ranking"
        if any(cell.holes for cell in record.cells):
            yield "write-hole", write_hole.TITLE
        yield "cells", "Cells"
    if record.cycles or not planned:
        yield "table", "Power cuts" if planned else "Results"
    if any(cycle.control for cycle in record.cycles) or not planned:
        yield "controls", "Controls"
    if record.cycles or not planned:
        yield "verdicts", "Verdicts"
    if explored:
        yield "crash-states", "Crash states"
    if record.suites:
        yield "suites", "Suites"
    if record.known is not None:
        yield "known", "Known differences"
    yield "configuration", "Configuration"
    yield "environment", "Environment"
    yield "limits", "What this cannot prove"
    yield "repeat", "Repeat"


def rows_of(rows: Sequence[int], of: int, noun: str) -> str:
    """Return the numbers of rows as text, or ``all NOUN`` if ``rows`` has all of the ``of`` rows."""
    return f"all {noun}" if len(rows) == of else f"{noun} {', '.join(map(str, rows))}"


def readable(content: Any) -> Any:
    """Return the value of a template's expression with control characters escaped; `-` for None."""
    if content is None:
        return words.UNKNOWN
    # Markup is already escaped by the template engine.
    return printable(content) if isinstance(content, str) and not isinstance(content, Markup) else content


def moment(when: datetime | None) -> str:
    """Return a date and time with its time zone as text."""
    return words.UNKNOWN if when is None else f"{when:%Y-%m-%d %H:%M:%S %Z}".strip()


def duration(record: RunRecord) -> str:
    """Return the duration of a run in seconds as text."""
    return words.number(None if record.ended is None else (record.ended - record.started).total_seconds())


def counters(cycle: CrashTestRecord) -> list[str]:
    """Return the names of all counters of any member disk of a crash test, in order of appearance."""
    return list(dict.fromkeys(name for disk in cycle.disks.values() for name in disk if name != "serial"))


def topology(lab: dict[str, Any]) -> dict[str, list[str]]:
    """Return descriptions of the parts of a lab by kind: machines, disks, network and so on."""
    parts: dict[str, list[str]] = {}
    for kind, content in lab.items():
        listed = content if isinstance(content, list | tuple) else [content]
        parts[kind] = [
            ", ".join(f"{key} {value(key, one)}" for key, one in flat(part)) if isinstance(part, dict) else str(part)
            for part in listed
            if part is not None
        ]
    return {kind: lines for kind, lines in parts.items() if lines}
