"""The crash page of a stored exploration: its data from the write log, and the HTML file beside the exploration."""

from pathlib import Path

from raidproof.core.errors import RequestError
from raidproof.core.log import say, step
from raidproof.crash.journal import lines_of
from raidproof.crash.page.data import Explored, page_data
from raidproof.record.crash_page import CrashPage
from raidproof.record.exploration import SCHEMA, ExplorationRecord
from raidproof.record.results.names import EXPLORATIONS, JOURNAL
from raidproof.record.results.store import RunStore
from raidproof.record.stored import read_record
from raidproof.report.crash_page import write_crash_page
from raidproof.report.html import write_exploration, write_html
from raidproof.run.source import Source, source_of

MOST_STATES = 5_000
"""Limit of the judged states on a page; broken ones come first. The judgements of a thousand states take seconds."""


def record_of(source: Source, stem: str) -> ExplorationRecord:
    """Return the record of an exploration; ``stem``: that of the exploration's files.

    Raises:
        RequestError: the crash test has no exploration of this stem.
    """
    path = source.store.path / f"{stem}.json"
    if not path.is_file() or not (source.store.path / stem / JOURNAL).is_file():
        raise RequestError(
            f"crash test {source.cycle.name} has no exploration {stem}",
            remedy=f"explore the crash test first: ./raidproof explore {source.run.run} --cycle {source.cycle.name}",
        )
    return read_record(path, ExplorationRecord, SCHEMA, "an exploration")


def data_of(source: Source, stem: str) -> CrashPage:
    """Return the data of the crash page of an exploration; ``stem``: that of the exploration's files.

    Raises:
        RequestError: the crash test has no exploration of this stem, or no page can show its writes.
    """
    record = record_of(source, stem)
    shown = sorted(record.marks, key=lambda mark: not mark.broken)[:MOST_STATES]
    return page_data(
        Explored(
            recording=source.recording,
            oracle=source.oracle,
            record=record,
            lines=lines_of(source.store.path / stem / JOURNAL, {mark.name for mark in shown}),
            first=source.first,
            stem=stem,
            filesystem=source.stack.filesystem.type,
            export="sync" if source.stack.export.sync else "async",
        )
    )


def write_page(source: Source, stem: str) -> Path:
    """Write the crash page of an exploration, and the exploration's page with a link to it; return its path.

    Raises:
        RequestError: the crash test has no exploration of this stem, or no page can show its writes.
    """
    step(f"{source.cycle.title}: writing the crash page")
    page = write_crash_page(data_of(source, stem), source.store)
    write_exploration(record_of(source, stem), source.store, stem)
    write_html(source.store.load(), source.store.path / "report.html")
    return page


def try_write_page(source: Source, stem: str) -> None:
    """Write the crash page of an exploration; say why if no page can show its writes."""
    try:
        say(f"the crash page, to move the power cut and choose the surviving writes: {write_page(source, stem)}")
    except RequestError as error:
        say(f"no crash page is written: {error}")


def write_pages(store: RunStore) -> list[Path]:
    """Write the crash page of each exploration of a run; return the paths.

    Raises:
        RequestError: the run has no exploration with write log and journal, or no page can show its writes.
    """
    # The exploration of a crash test writes the page, too.
    pages = []
    for path in sorted(store.path.glob(EXPLORATIONS)):
        record = read_record(path, ExplorationRecord, SCHEMA, "an exploration")
        if record.lost_member is None:
            pages.append(write_page(source_of(store, record.cycle), path.stem))
    if not pages:
        raise RequestError(
            f"run {store.path.name} has no exploration",
            remedy=f"explore it first: ./raidproof explore {store.path.name}",
        )
    return pages
